"""records export, records rerun, and one record in the place of the best one."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import loopwright as lw
from loopwright import inspection
from loopwright.inspection import choose
from loopwright.records import Checked, Record, Store, load
from tests.cli.conftest import TRIALS, WORKLOAD, Cli
from tests.unit.inspection.logs import record_of


def copy(tuned: Path, **fields: object) -> Path:
    """A copy of a log in the current folder, with another record behind it."""
    path = Path("copy.jsonl").absolute()
    path.write_bytes(tuned.read_bytes())
    task = lw.create_task("matmul", (32, 32, 32), "llvm -num-threads=1")
    with Store(path) as store:
        store.append(Record(**{**vars(record_of(task, 0, 77)), **fields}))
    return path


def test_export_writes_a_file_that_runs(
    cli: Cli, tuned: Path, capsys: pytest.CaptureFixture
) -> None:
    ran = cli("records", "export", str(tuned), "best", "-o", "kernel.py")
    size = len(Path("kernel.py").read_bytes())
    assert ran.out == f"wrote kernel.py ({size} bytes)\nrun it: python kernel.py\n"
    assert runpy.run_path("kernel.py")["main"]([]) == 0
    assert capsys.readouterr().out.startswith("right: ")
    printed = cli("records", "export", str(tuned))
    assert printed.out == Path("kernel.py").read_text()
    assert "TRACE = json" in cli("records", "export", str(tuned), "--as-data").out


def test_rerun_says_answer_and_time(cli: Cli, tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    done: list[inspection.Rerun] = []
    rerun = inspection.rerun

    def once(*args: Any, **options: Any) -> inspection.Rerun:
        """The first measurement is shown in both forms."""
        done.append(done[0] if done else rerun(*args, **options))
        return done[-1]

    monkeypatch.setattr("loopwright.inspection.rerun", once)
    ran = cli("records", "rerun", str(tuned), "best")
    assert ran.code == 0
    assert not ran.err
    assert [line.split(":")[0] for line in ran.out.splitlines()] == [
        *("record", "trial", "answer", "time", "recorded")
    ]
    data = json.loads(cli("records", "rerun", str(tuned), "--trial", "0", "--json").out)
    assert data["checked"] == "yes"
    assert data["interval_s"][0] <= data["median_s"] <= data["interval_s"][1]


def test_rerun_prints_texts(cli: Cli, tuned: Path) -> None:
    nest = cli("records", "rerun", str(tuned), "--trial", "2", "--emit", "nest").out
    assert nest.startswith("def main(A: float32[32, 32]")
    assert cli("records", "rerun", str(tuned), "--trial", "2", "--ir").out == nest
    assert "#include" in cli("records", "rerun", str(tuned), "best", "--emit", "c").out


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        ((), 2, "say which record is meant"),
        (("--trial", "99"), 2, f"has no trial 99; its trials go from 0 to {TRIALS - 1}"),
        (("zz",), 2, "has no record 'zz'"),
        (("best", "--record", "best"), 2, "named twice"),
        (("best", "--emit", "sass"), 2, "'sass' is not one of"),
        (("best", "--timeout", "0"), 2, "0"),
    ],
)
def test_rerun_refuses_in_one_line(
    cli: Cli, tuned: Path, args: tuple[str, ...], code: int, text: str
) -> None:
    ran = cli("records", "rerun", str(tuned), *args)
    assert ran.code == code
    assert text in ran.error


def test_the_default_configuration_is_a_record_too(cli: Cli, tuned: Path) -> None:
    first = cli("records", "rerun", str(tuned), "--trial", "0", "--emit", "nest").out
    assert cli("records", "rerun", str(tuned), "default", "--emit", "nest").out == first
    text = cli("records", "export", str(tuned), "default").out
    assert f"record   {choose(tuned, 'default').id} of " in text
    ran = cli("lower", *WORKLOAD, "--history", str(tuned), "--record", "default")
    assert ran.out.split(" per call in the log)\n")[1] == first


def test_best_means_one_for_the_threads_of_the_workload(cli: Cli, tuned: Path) -> None:
    target = {"kind": "llvm", "num_threads": 2}
    faster = {"target": {**load(tuned).records[0].target, **target}, "times": (1e-9,)}
    path = copy(tuned, **faster)
    words = ("--history", str(path), "--record", "best")
    assert choose(tuned, "best").id in cli("lower", *WORKLOAD, *words).out
    ran = cli("records", "rerun", str(path), "best")
    assert "name one with --threads N: " in ran.error
    nest = cli("records", "rerun", str(path), "best", "--threads", "2", "--ir").out
    assert nest == cli("records", "rerun", str(path), "--trial", "77", "--ir").out


def test_a_log_of_autotvm_has_no_kernels(cli: Cli) -> None:
    data = {
        "input": ["llvm", "dense", [["TENSOR", [1, 2], "float32"]], {}],
        "config": {"index": 0, "code_hash": None, "entity": [["k", "ot", 1]]},
        "result": [[0.001], 0, 1.0, 1e9],
        "version": 0.2,
        "tvm_version": "0.8",
    }
    Path("tvm.json").write_text(json.dumps(data) + "\n")
    ran = cli("records", "export", "tvm.json", "best")
    assert ran.code == 1
    assert "AutoTVM keeps none" in ran.error


def test_a_kernel_that_fails_again_is_exit_code_1(cli: Cli, tuned: Path) -> None:
    trace = [["bind", 2, "a0", "threadIdx.x"]]
    path = copy(tuned, trace=trace, times=(), error={"kind": "COMPILE", "text": "\x1b[2J no"})
    ran = cli("records", "rerun", str(path), "--trial", "77")
    assert ran.code == 1
    assert "answer:   none, it failed: COMPILE" in ran.out
    assert "recorded: it failed: COMPILE: \\x1b[2J no" in ran.out


# ---------------------------------------------------------------- lower, build, bench


def test_lower_prints_the_texts_of_a_workload(cli: Cli) -> None:
    first = {
        kind: cli("lower", *WORKLOAD, "--emit", kind).out.splitlines()[0]
        for kind in ("nest", "llvm", "c", "asm")
    }
    assert {k: v.split()[0] for k, v in first.items()} == {
        **{"nest": "#", "llvm": ";", "c": "//", "asm": "#"}
    }
    ran = cli("lower", *WORKLOAD, "--emit", "asm", "--python")
    assert ran.code == 2
    assert "give one of both" in ran.error


def test_lower_takes_the_record_that_is_named(cli: Cli, tuned: Path) -> None:
    record = load(tuned).records[2]
    ran = cli("lower", *WORKLOAD, "--history", str(tuned), "--record", record.id)
    default, named = ran.out.split(f"# record {record.id} (")
    assert default.startswith("# default configuration\n")
    nest = cli("records", "rerun", str(tuned), "--record", record.id, "--ir").out
    assert named.endswith(nest)
    by_trial = cli("lower", *WORKLOAD, "--history", str(tuned), "--trial", str(record.trial))
    assert by_trial.out == ran.out


def test_build_takes_the_record_that_is_named(cli: Cli, tuned: Path) -> None:
    record = next(r for r in load(tuned).records if r.checked is Checked.YES)
    ran = cli("build", *WORKLOAD, "--history", str(tuned), "--record", record.id, "-o", "m.o")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(f"record {record.id} (")
    assert "outputs: equal to the reference" in cli("run", "m.o").out


def test_an_unchecked_record_is_checked_before_it_is_built(cli: Cli, tuned: Path) -> None:
    path = copy(tuned, checked=Checked.NO)
    ran = cli("build", *WORKLOAD, "--history", str(path), "--trial", "77", "-o", "m.o")
    assert ran.code == 0, ran.err
    assert "was never checked: checking it" in ran.err
    assert load(path).records[-1].phase == "check"


def test_bench_takes_the_record_that_is_named(cli: Cli, tuned: Path) -> None:
    ran = cli("bench", *WORKLOAD, "--history", str(tuned), "--record", "best", "--rounds", "3")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[1].startswith("record ")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("matmul", "M=32", "N=32", "K=32", "--threads", "3"), 2, "add --threads 1"),
        (("matmul", "M=64", "N=32", "K=32", "--threads", "1"), 2, "not of matmul(64, 32, 32"),
        ((*WORKLOAD, "--trial", "1"), 2, "say which record is meant"),
        ((*WORKLOAD, "--run", "zz"), 1, "has no run 'zz'"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(
    cli: Cli, tuned: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    ran = cli("lower", *words, "--history", str(tuned), "--record", "best")
    assert ran.code == code
    assert text in ran.error


def test_a_record_needs_its_log(cli: Cli) -> None:
    assert "name it with --history" in cli("lower", *WORKLOAD, "--trial", "0").error
    assert "--run goes with --trial" in cli("lower", *WORKLOAD, "--run", "x").error


@pytest.mark.parametrize("verb", ["show", "compare", "export", "rerun"])
def test_to_name_a_record_that_is_not_there_is_a_wrong_call(
    cli: Cli, tuned: Path, verb: str
) -> None:
    ran = cli("records", verb, str(tuned), "0000000000")
    assert ran.code == 2
    assert "has no record '0000000000'" in ran.error


def test_to_build_a_record_that_is_not_there_is_a_wrong_call(cli: Cli, tuned: Path) -> None:
    words = (*WORKLOAD, "--history", str(tuned), "--record", "0000000000")
    ran = cli("build", *words, "-o", "m.o")
    assert ran.code == 2
    assert "has no record '0000000000'" in ran.error


def test_a_failed_record_is_not_built(cli: Cli, tuned: Path) -> None:
    path = copy(tuned, times=(), error={"kind": "WRONG_ANSWER", "text": "C[0]"})
    words = (*WORKLOAD, "--history", str(path), "--trial", "77")
    ran = cli("build", *words, "-o", "m.o")
    assert ran.code == 1
    assert "is not used: WRONG_ANSWER: C[0]" in ran.error
    assert cli("lower", *words).code == 0
    verified = cli("build", *words, "--verify", "-o", "m.o")
    assert "`loopwright records rerun` times one that is named" in verified.error
