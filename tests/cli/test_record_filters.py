"""--task, --target, --hardware and --threads: which records of a log are meant."""

from __future__ import annotations

import json

import pytest

from loopwright.records import Record
from tests.cli.record_tables import on_terminal, table, write
from tests.unit.records.reports.made_logs import record


@pytest.fixture
def machines(tmp_path):
    """One task on two machines, and on the first one with two numbers of threads."""
    arm = record(1, 5e-4, env={"cpu": "Arm"})
    alone = record(2, 3e-3, target={"kind": "llvm", "num_threads": 1})
    trials = [record(0), arm, record(3, 2e-3), alone]
    return write(tmp_path / "machines.jsonl", trials), trials


def test_of_several_machines_the_one_with_most_records_is_shown(cli, machines):
    path, _ = machines
    ran = cli("records", "curve", path)
    assert ran.code == 0
    assert "over 2 trials" in ran.out
    assert "2 threads, Zen 5, which has most records, and not matmul(8) on llvm" in ran.err
    assert "; --hardware TEXT or --threads N picks another" in ran.err
    for options, title in (
        (["--hardware", "arm"], "matmul(8) on llvm, 2 threads, Arm"),
        (["--hardware", "Zen", "--threads", "1"], "matmul(8) on llvm, 1 thread, Zen 5"),
        (["--threads", "1"], "matmul(8) on llvm, 1 thread, Zen 5"),
    ):
        ran = cli("records", "curve", path, *options)
        assert (ran.err, ran.out.splitlines()[0]) == ("", title)


@pytest.fixture
def boards(tmp_path):
    """A log of AutoTVM of two boards, by a template that nobody registered: 24 records of each."""
    lines = []
    for n in range(48):
        knobs = [["tile_f", "sp", [-1, 1 + n % 24]], ["unroll", "ot", n % 2]]
        target = ("cuda -model=titanx", "cuda -model=1080ti")[n // 24]
        work = [target, "conv2d_nchw.cuda", [["TENSOR", [1, 3, 8, 8], "float32"], [1, 1]], {}]
        config = {"index": n, "code_hash": None, "entity": knobs}
        result = [[1e-4 * (1 + n)], 0, 1.0, 1540000000.0 + n]
        lines.append({"input": work, "config": config, "result": result, "version": 0.2})
    path = tmp_path / "boards.log"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def test_verbs_tell_the_boards_of_autotvm_apart(cli, boards, tmp_path):
    for verb in ("best", "top"):
        rows = [
            json.loads(line) for line in cli("records", verb, boards, "--json").out.splitlines()
        ]
        best = [row.get("seconds") or row["times"][0] for row in rows if row.get("place", 1) == 1]
        assert best == [pytest.approx(1e-4), pytest.approx(25e-4)]
    ran = cli("records", "curve", boards, "--hardware", "1080")
    assert ran.out.startswith(
        "conv2d_nchw.cuda(['TENSOR', [1, 3, 8, 8], 'float32'], [1, 1]) on cuda, 1080ti"
    )
    assert ran.err == ""
    assert "over 24 records" in cli("records", "importance", boards, "--hardware", "1080").out
    assert "on cuda, titanx, which has most records" in cli("records", "curve", boards).err
    ran = cli("records", "compare", boards)
    assert "A: titanx\nB: 1080ti" in ran.out
    assert "target model: titanx -> 1080ti" in " ".join(ran.out.split())
    assert "24 of 48 records shown" in cli("records", "list", boards, "--hardware", "titan").out
    for verb in ("pick", "distill"):
        out = str(tmp_path / f"{verb}.jsonl")
        assert f"wrote 2 records of 1 task to {out}" in cli("records", verb, boards, "-o", out).out
    assert "48 x AutoTVM record" in cli("records", "validate", boards).out
    ran = cli("records", "show", boards, "best")
    assert ran.code == 2
    assert "2 machines" in ran.err


@pytest.mark.parametrize("verb", ["show", "export", "rerun", "compare"])
def test_the_best_of_several_machines_must_be_named(cli, machines, verb):
    path, trials = machines
    ran = cli("records", verb, path, "best")
    assert ran.code == 2
    assert (
        "machines.jsonl has this task for 3 machines or numbers of threads; name one with "
        "--hardware TEXT or --threads N: matmul(8) on llvm, 2 threads, Zen 5; matmul(8) on llvm, 2 "
        "threads, Arm; matmul(8) on llvm, 1 thread, Zen 5"
    ) in ran.error
    ran = cli("records", verb, path, "best", "--hardware", "Zen")
    assert "name one with --threads N: " in ran.error
    assert trials[1].id in cli("records", "show", path, "best", "--hardware", "Arm").out


@pytest.mark.parametrize("verb", ["list", "best", "top", "curve", "errors", "importance"])
def test_a_filter_that_leaves_nothing_says_what_there_is(cli, machines, verb):
    path, _ = machines
    ran = cli("records", verb, path, "--hardware", "M3")
    assert ran.code == 2
    assert "has no record of hardware with 'M3' in its name; it has Zen 5, Arm" in ran.error
    ran = cli("records", verb, path, "--threads", "8")
    assert ran.code == 2
    assert "has no record of 8 threads; it has 2, 1" in ran.error


def test_hardware_and_threads_choose_the_records_of_a_list(cli, machines):
    path, trials = machines

    def listed(*options):
        lines = cli("records", "list", path, "--json", *options).out.splitlines()
        return [Record.from_line(line) for line in lines]

    assert listed() == trials
    assert listed("--hardware", "zen 5") == [trials[0], *trials[2:]]
    assert listed("--threads", "2") == trials[:3]
    assert listed("--hardware", "Zen", "--threads", "2") == [trials[0], trials[2]]


def test_one_cpu_and_two_targets_have_names_of_their_own(cli, tmp_path):
    """They are two setups; a title that named the CPU alone would be that of both."""
    trials = [
        record(n, target={"kind": "llvm", "num_threads": 2, "mcpu": mcpu})
        for n, mcpu in enumerate(["znver5", "znver5", "haswell"])
    ]
    path = write(tmp_path / "log.jsonl", trials)
    ran = cli("records", "curve", path)
    assert "this is matmul(8) on llvm, 2 threads, Zen 5 (znver5), which has most" in ran.err
    assert "not matmul(8) on llvm, 2 threads, Zen 5 (haswell); --hardware TEXT picks" in ran.err
    ran = cli("records", "list", path, "--hardware", "Zen 5 (haswell)", "--json")
    assert [Record.from_line(line) for line in ran.out.splitlines()] == trials[2:]


def test_a_table_of_two_machines_says_which_record_is_of_which(
    cli, machines, tmp_path, monkeypatch
):
    path, trials = machines
    rows = table(cli("records", "best", path, "--csv").out)
    assert [row["hardware"] for row in rows] == ["Zen 5", "Arm", "Zen 5"]
    lines = cli("records", "best", path).out.splitlines()
    assert lines[0].split()[1:3] == ["task", "hardware"]
    assert "matmul(8) Arm" in lines[2]
    on_terminal(monkeypatch, 80)
    lines = cli("records", "best", path).out.splitlines()
    assert lines[:2] == [
        "setup 1: matmul(8) on llvm, Zen 5",
        "setup 2: matmul(8) on llvm, 2 threads, Arm",
    ]
    assert lines[2].split()[:3] == ["id", "setup", "threads"]
    assert [line.split()[1:3] for line in lines[3:]] == [["1", "2"], ["2", "2"], ["1", "1"]]
    assert [line.split()[0] for line in lines[3:]] == [trials[n].id for n in (0, 1, 3)]


def test_numbers_of_threads_of_one_machine_are_compared(cli, tmp_path):
    trials = [
        record(0, 4e-3, target={"kind": "llvm", "num_threads": 1}),
        record(1, 2e-3, target={"kind": "llvm", "num_threads": 2}),
        record(2, 1e-3, target={"kind": "llvm", "num_threads": 4}),
    ]
    path = write(tmp_path / "log.jsonl", trials)
    text = cli("records", "compare", path).out
    assert text.startswith("A: 1 thread\nB: 2 threads\n")
    assert "\nA: 2 threads\nB: 4 threads\n" in text
    rows = table(cli("records", "compare", path, "--csv").out)
    assert [(row["a"], row["b"], float(row["ratio"])) for row in rows] == [
        ("1 thread", "2 threads", 0.5),
        ("2 threads", "4 threads", 0.5),
    ]
    # The best that an id is compared with is that of its own setup.
    one = json.loads(cli("records", "compare", path, "best", trials[1].id, "--json").out)
    assert (one["one"], one["other"]) == (trials[1].id, trials[1].id)


def test_what_ran_on_a_device_has_its_kind_in_the_place_of_threads(cli, tmp_path):
    gpu = {"kind": "opencl", "name": "A GPU", "processors": 8, "driver": "1.0"}
    of_device = record(0, 5e-4, env={"cpu": "Zen 5", "device": gpu}, target={"kind": "opencl"})
    path = write(tmp_path / "both.jsonl", [of_device, record(1)])
    ran = cli("records", "best", path)
    assert ran.code == 0
    assert "?" not in ran.out
    assert [line.split()[4] for line in ran.out.splitlines() if "A GPU" in line] == ["opencl"]
    assert cli("records", "best", path, "--threads", "7").error.endswith("it has opencl, 2")
    assert "A GPU (opencl)" in of_device._repr_html_()
    assert "threads" not in of_device._repr_html_()
