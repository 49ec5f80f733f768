"""The verbs that tell what the trials of a log say together, on logs whose answers are known."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
from rich.cells import cell_len

from loopwright.cli import tables as columns
from loopwright.cli.tables import bars
from loopwright.records import Record
from tests.cli.record_tables import on_terminal, table, write
from tests.unit.records.reports.made_logs import record


@pytest.fixture
def log(tmp_path):
    """A full grid: tile decides a lot, order a little; one value of tile fails."""
    trials = []
    for tile, order, repeat in itertools.product((1, 2, 4, 8), ("ij", "ji"), range(4)):
        seconds = 1e-3 * (8 / tile) * (1.1 if order == "ji" else 1.0)
        bad = tile == 8
        trials.append(
            record(
                len(trials),
                None if bad else seconds,
                config={"tile": [-1, tile], "order": order, "same": repeat * 0},
                times=() if bad else tuple(seconds * (1 + 0.001 * k) for k in range(-2, 3)),
                ts=1e9 + len(trials) * 1.0,
                extra={"repeat": repeat},
            )
        )
    return write(tmp_path / "log.jsonl", trials)


@pytest.mark.parametrize("width", [80, 140])
def test_a_list_fits_its_terminal_and_is_cut_at_the_knobs_only(cli, log, monkeypatch, width):
    on_terminal(monkeypatch, width)
    ran = cli("records", "list", log, "--limit", "20")
    heading, titles, *rows, footer = ran.out.splitlines()
    assert heading == "matmul(8) on llvm, 2 threads, Zen 5"
    assert max(map(len, [titles, *rows])) <= width
    assert len(rows) == 20
    assert all(len(row.split()[0]) == 10 for row in rows)
    assert "same" not in ran.out  # a knob that does not vary
    assert "tile=[-1,8] order=ji" in rows[-1]
    assert ("when" in titles) == (width == 140)
    assert footer == "20 of 32 records shown: 8 failed, 1 task, 1 run, 0 skipped lines"


def test_long_knobs_are_cut_with_an_ellipsis(cli, tmp_path, monkeypatch):
    on_terminal(monkeypatch, 80)
    long = [record(i, config={"n": i, "words": "x" * 200 + str(i)}) for i in range(3)]
    path = write(tmp_path / "long.jsonl", long)
    rows = cli("records", "list", path).out.splitlines()[2:-1]
    assert {len(row) for row in rows} == {80}
    assert all(row.endswith("…") for row in rows)


def test_two_tasks_are_numbered_on_a_terminal_and_named_in_a_pipe(cli, tmp_path, monkeypatch):
    two = [record(0), record(1, op="dense", task="other")]
    path = write(tmp_path / "two.jsonl", two)
    assert "dense(8)" in cli("records", "list", path).out.splitlines()[2]
    on_terminal(monkeypatch, 80)
    lines = cli("records", "list", path).out.splitlines()
    assert lines[1:3] == ["task 2: dense(8)", "all on llvm, 2 threads, Zen 5"]
    assert [line.split()[1] for line in lines[4:6]] == ["1", "2"]


def test_list_as_csv_has_a_column_for_each_knob(cli, log):
    rows = table(cli("records", "list", log, "--csv").out)
    assert len(rows) == 32
    assert rows[0]["config.tile"] == "[-1,1]"
    assert float(rows[0]["seconds"]) == 8e-3
    assert float(rows[0]["spread"]) == pytest.approx(0.002)
    assert (rows[-1]["status"], rows[-1]["seconds"]) == ("COMPILE", "")


def test_top_says_the_distance_to_the_best_and_to_the_default(cli, log):
    rows = [json.loads(line) for line in cli("records", "top", log, "3", "--json").out.splitlines()]
    assert [row["place"] for row in rows] == [1, 2, 3]
    assert [row["config.tile"] for row in rows] == ["[-1,4]", "[-1,4]", "[-1,2]"]
    assert [round(row["to_best"], 3) for row in rows] == [1.0, 1.1, 2.0]
    assert [round(row["to_default"], 3) for row in rows] == [0.25, 0.275, 0.5]
    text = cli("records", "top", log, "2").out
    assert "1.10 (1.10-1.10)" in text
    assert "2 of 6 candidates; the default (record " in text


def test_curve(cli, log):
    rows = table(cli("records", "curve", log, "--csv").out)
    assert [float(row["best"]) for row in rows][::4] == [8e-3, 8e-3, 4e-3, 4e-3, *[2e-3] * 4]
    assert float(rows[0]["clock"]) == 1.0
    assert rows[-1]["seconds"] == ""
    text = cli("records", "curve", log).out
    assert "best so far in calls per second, over 32 trials" in text
    assert "100.0%" in text  # from 8 ms to 4 ms


def test_curve_as_a_picture(cli, log, tmp_path):
    assert cli("records", "curve", log, "-o", "x.svg").out == "wrote x.svg\n"
    assert "<svg" in (tmp_path / "x.svg").read_text()
    assert "ends in .png, .svg, .pdf" in cli("records", "curve", log, "-o", "x.txt").error
    assert "cannot write" in cli("records", "curve", log, "-o", "no/x.png").error


def test_errors_names_the_value_that_fails(cli, log):
    text = cli("records", "errors", log).out
    assert text.startswith("8 of 32 trials failed; 0 were dropped by racing")
    assert "COMPILE: 8 records, 25.0%" in text
    assert "no such register" in text
    assert "tile[1] = 8: 100% fail so (8 of 8), 25% of all" in text
    (row,) = map(json.loads, cli("records", "errors", log, "--json").out.splitlines())
    assert [value["knob"] for value in row["values"]] == ["tile[1]"]


def test_importance(cli, log):
    tile, order = table(cli("records", "importance", log, "--csv").out)
    # var(log tile) is that of three values of step log 2; the other is that of two.
    shares = (2 / 3 * math.log(2) ** 2, math.log(1.1) ** 2 / 4)
    assert float(tile["share"]) == pytest.approx(shares[0] / sum(shares), abs=0.02)
    assert (tile["best"], tile["worst"], order["best"]) == ("[-1,4]", "[-1,1]", "ij")
    assert float(tile["slower"]) == pytest.approx(4.0, rel=0.1)
    assert "functional ANOVA" in cli("records", "importance", log).out


def test_importance_of_too_few_records(cli, tmp_path):
    path = write(tmp_path / "few.jsonl", [record(i) for i in range(5)])
    ran = cli("records", "importance", path)
    assert ran.code == 1
    assert "from 5 records with a time; tune until there are 20" in ran.error


def test_compare_two_records(cli, log):
    text = cli("records", "compare", log, "best", "default").out
    assert "B takes 4 x as long as A (95 % interval" in text
    assert [line.split() for line in text.splitlines()[-1:]] == [
        ["knob", "tile", "[-1,4]", "[-1,1]"]
    ]
    ids = [json.loads(line) for line in cli("records", "top", log, "2", "--json").out.splitlines()]
    one, two = (row["id"] for row in ids)
    line = json.loads(cli("records", "compare", one, two, "--log", log, "--json").out)
    assert (line["one"], line["other"]) == (one, two)
    assert [d["what"] for d in line["differs"]] == ["knob order"]
    # One record is compared with the best.
    assert "A: record " + two in cli("records", "compare", log, two).out


def test_compare_two_logs_and_two_machines(cli, log, tmp_path):
    arm = [record(i, 4e-3, env={"cpu": "Arm"}, config={"tile": [-1, i]}) for i in range(2)]
    arm.append(record(9, op="dense", task="only"))
    other = write(tmp_path / "arm.jsonl", arm)
    text = cli("records", "compare", log, other).out
    assert "2.00" in text
    assert "CPU: Zen 5 -> Arm" in text
    assert "only in B: dense(8)" in text
    assert (
        text.splitlines()[-1] == "1 task in both: A is faster in 1, B in 0; 0 cannot be told apart"
    )
    assert "1 window, no interval" in text
    assert cli("records", "merge", log, other, "-o", "both.jsonl").code == 0
    rows = table(cli("records", "compare", "both.jsonl", "--csv").out)
    assert [float(row["ratio"]) for row in rows if row["ratio"]] == [2.0]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["a", "b", "c", "d"], "compare takes two logs, or a log and up to two records; got 4"),
        (["aaaa", "bbbb"], "neither 'aaaa' nor 'bbbb' is a file; for two records name their log"),
        (["log.jsonl", "lgo.jsonl"], "'lgo.jsonl' is no file, and no id of a record: name another"),
    ],
)
def test_compare_of_what_is_not_there(cli, log, words, text):
    ran = cli("records", "compare", *words)
    assert ran.code == 2
    assert text in ran.error


def test_compare_of_one_machine(cli, log):
    assert "has records of one machine" in cli("records", "compare", log).error
    assert "--csv is for logs" in cli("records", "compare", log, "best", "--csv").error


def test_show(cli, log):
    text = cli("records", "show", log, "best").out
    assert "rank:     1 of 6 candidates of this task and machine" in text
    assert "middle half of 5 windows within 0.2%" in text
    assert "GFLOP/s not known: the log has no expression to count from" in text
    assert "ties:     none" in text
    assert "not applied: of other hardware (CPU Zen 5)" in text
    assert "CPU: Zen 5 in the record" in text
    assert "[-1,2] takes 2.00 x as long (the best of 2 others)" in text
    assert "Its schedule is not known: it was never built" in text
    failed = cli("records", "list", log, "--status", "failed", "--csv").out
    text = cli("records", "show", log, table(failed)[0]["id"]).out
    assert "none: it failed (COMPILE: no such register)" in text
    assert "here:     not applied: failed (COMPILE)" in text


def test_show_of_an_autotvm_record_says_what_is_not_known(cli, tmp_path):
    line = {
        "input": ["llvm -mcpu=skylake", "dense", [["TENSOR", [8, 8], "float32"]], {}],
        "config": {"index": 3, "entity": [["tile_x", "sp", [-1, 4]]]},
        "result": [[1e-3], 0, 0.5, 1e9],
        "version": 0.2,
    }
    (tmp_path / "tvm.log").write_text(json.dumps(line) + "\n")
    text = cli("records", "show", "tvm.log", "best").out
    assert "AutoTVM keeps no expression to count from" in text
    assert "Its schedule is not known: AutoTVM keeps the knobs" in text
    assert "ties:     not known" in text
    assert "1 x AutoTVM record" in cli("records", "validate", "tvm.log").out


def test_bare_records_shows_its_help(cli):
    ran = cli("records")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == cli("records", "--help").out
    assert "importance  Which knobs matter." in ran.out


VERBS = ("list", "best", "top", "curve", "errors", "importance", "compare", "validate")


def test_validate_names_each_kind_of_line(cli, log, tmp_path):
    with open(log, "ab") as file:
        file.write(b"# a comment\n\nhello\n")
        file.write(record(50).to_line().replace("r1", "r2").encode() + b"\n")
        file.write(
            b'{"v": 99, "task": "x"}\n{"v":1,"task":3}\n' + record(7).to_line()[:40].encode()
        )
    ran = cli("records", "validate", log)
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[:5] == [
        "line 36: malformed: not JSON",
        "line 37: damaged: does not fit its checksum",
        "line 38: unknown version: version 99 is newer than 1, the last one known here",
        "line 39: malformed: field 'task' is malformed: 3",
        "line 40: torn: cut off in the middle",
    ]
    assert "32 x record" in lines[5]
    assert "2 x comment" in lines[5]
    assert lines[5].endswith("4 damaged lines, which readers skip")
    every = cli("records", "validate", log, "--all", "--json").out.splitlines()
    assert [json.loads(line)["line"] for line in every] == list(range(1, 41))
    (tmp_path / "newer.jsonl").write_text(record(0).to_line() + '\n{"v": 99, "task": "x"}\n')
    assert cli("records", "validate", "newer.jsonl").code == 0


def test_several_tasks_need_a_name_where_one_is_asked_for(cli, tmp_path):
    two = [record(0), record(1, op="dense", task="other")]
    path = write(tmp_path / "two.jsonl", two)
    ran = cli("records", "curve", path)
    assert ran.code == 2
    assert "has 2 tasks; name one with --task" in ran.error
    assert "matmul(8) on llvm, 2 threads, Zen 5; dense(8)" in ran.error
    assert "name one with --task" in cli("records", "show", path, "best").error
    assert "has no record 'zz'" in cli("records", "show", path, "zz").error
    ran = cli("records", "compare", path, two[1].id)  # with the best of its own task
    assert "cannot be told apart" in ran.out or "no decision differs" in ran.out
    assert cli("records", "curve", path, "--task", "other").code == 0
    assert (
        "has no task with 'conv' in its key"
        in cli("records", "curve", path, "--task", "conv").error
    )


def test_best_and_default_are_words_for_a_record(cli, log):
    best = json.loads(cli("records", "show", log, "best", "--json").out)
    default = json.loads(cli("records", "show", log, "default", "--json").out)
    assert (best["trial"], default["trial"]) == (19, 3)  # the latest of each candidate


def test_two_forms_at_once_are_refused(cli, log):
    for words in (["--json", "--csv"], ["--csv", "--json"]):
        ran = cli("records", "list", log, *words)
        assert ran.code == 2
        assert "two forms of one output" in ran.error
    ran = cli("records", "curve", log, "--csv", "-o", "x.svg")
    assert (ran.code, Path("x.svg").exists()) == (2, False)
    assert "give one of them" in ran.error


def test_a_run_is_named_by_its_beginning(cli, tmp_path):
    path = write(tmp_path / "log.jsonl", [record(0), record(1, run="b2")])
    (line,) = cli("records", "list", path, "--run", "b", "--json").out.splitlines()
    assert Record.from_line(line).trial == 1
    ran = cli("records", "list", path, "--run", "zz")
    assert ran.code == 1
    assert "has no run 'zz'; it has 'r1, b2'" in ran.error


def test_terminal_escapes_of_a_log_stay_text(cli, tmp_path):
    bad = "\x1b[31m\x07"
    error = {"kind": f"K{bad}", "text": f"no {bad}"}
    trials = [
        record(i, None if i % 2 else 1e-3 * (1 + i), op=bad, error=error if i % 2 else None,
               config={bad: bad * (i % 4), "n": i % 3}, run=bad, env={"cpu": bad})
        for i in range(60)
    ]  # fmt: skip
    path = write(tmp_path / "bad.jsonl", trials)
    for verb in VERBS:
        more = ["best"] if verb == "compare" else []
        for form in ([], ["--csv"], ["--json"]):
            ran = cli("records", verb, path, *more, *form)  # the fixture looks for control codes
            assert "\x1b" not in ran.out + ran.err
    assert cli("records", "show", path, "best").code == 0


def test_bars_of_a_known_curve():
    lines = list(bars([1.0, 2.0, math.nan, 4.0], 11, 2))
    assert lines == ["4 │      ██", "2 │▄▄██  ██", "0 └────────"]
    assert list(bars([], 20, 3)) == []
    assert list(bars([math.nan], 20, 3)) == []


def test_json_of_a_list_is_the_lines_of_the_log(cli, log):
    lines = cli("records", "list", log, "--json").out.splitlines()
    assert [Record.from_line(line).trial for line in lines] == list(range(32))
    assert lines == [line for line in Path(log).read_text().splitlines() if '"task"' in line]


@pytest.fixture
def wide(tmp_path):
    """A log whose names and values are long, some of characters that take two columns."""
    trials = []
    for n in range(40):
        config = {
            "tile_of_the_outermost_loop": [-1, *[2**k for k in range(n % 5 + 1)] * 4],
            "塊": "長" * (n % 3 * 12 + 1),
            "order": "reduction outermost, then rows" if n % 2 else "ij",
        }
        seconds = 1e-3 * (1 + n % 5 + n % 2)
        failed = n % 4 == 3 and {"kind": "RUN_TIMEOUT", "text": "took longer than the limit " * 9}
        trials.append(
            record(n, None if failed else seconds, config=config, error=failed or None,
                   op="a_template_with_a_long_name", args=[1, 256, 56, 56, "float32", "NCHW16c"],
                   times=() if failed else tuple(seconds * x for x in (1, 1.01, 0.99, 1, 1.02)))
        )  # fmt: skip
    write(tmp_path / "wide.jsonl", trials)
    return "wide.jsonl"


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("verb", [*VERBS, "show"])
def test_every_line_fits_its_terminal(cli, wide, monkeypatch, verb, width):
    on_terminal(monkeypatch, width)
    more = {"compare": ["best", "default"], "show": ["best"]}.get(verb, [])
    ran = cli("records", verb, wide, *more)
    assert ran.code == 0
    assert max(map(cell_len, ran.out.splitlines())) <= width
    with open(wide, "ab") as file:
        file.write(b'{"v": 99}\n' + b"no JSON\n" * 3)
    ran = cli("records", verb, wide, *more)
    assert max(map(cell_len, ran.out.splitlines())) <= width


def test_columns_of_wide_characters_are_aligned():
    cells = ["長長", "a", "長長長長長"]
    made = columns.table_lines(
        [columns.TextColumn("name", cells), columns.TextColumn("n", ["1", "22", "3"], right=True),
         columns.TextColumn("W", ["X", "Y", "Z"])],
        None,
    )  # fmt: skip
    starts = {cell_len(line[: line.index(end)]) for line, end in zip(made, "WXYZ", strict=True)}
    assert starts == {14}


def test_what_is_cut_ends_with_an_ellipsis():
    long = columns.TextColumn("a", ["x" * 50]), columns.TextColumn("b", ["y" * 50], cut=True)
    (_, line) = columns.table_lines(long, 40)
    assert line == "x" * 9 + "… " + "y" * 28 + "…"
    (_, line) = columns.table_lines(long, 120)
    assert line == "x" * 50 + " " + "y" * 50


def test_one_is_one(cli, tmp_path):
    path = write(tmp_path / "one.jsonl", [record(0)])
    assert "1 of 1 record shown: 0 failed, 1 task, 1 run, 0 skipped lines" in cli(
        "records", "list", path
    ).out  # fmt: skip
    assert "1 of 1 candidate; the default" in cli("records", "top", path).out
    assert cli("records", "split", path, "-o", "out").out.endswith(".jsonl: 1 record\n")
