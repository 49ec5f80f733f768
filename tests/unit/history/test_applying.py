"""What is said and refused when building from records: fit, checks, verdicts, reports, sources."""

from __future__ import annotations

import json
import logging
import os
import platform
import tempfile

import pytest

from loopwright.errors import RecordError, UsageError
from loopwright.records import Checked, Outcome, Store, Verdict, environment, load, task_key
from loopwright.task import ApplyGraphBest, Match, apply_history_best, create_task, template


def inner(result):
    return result[0].steps[0][3]


def verdict(outcome, gain=0.0):
    return Verdict(outcome, gain, 0.006, 20, "someone").to_json()


NEVER = {"checked": Checked.NO, "check_reason": "checking is switched off"}


def test_a_model_of_another_name_is_other_hardware(tile, make, fakes):
    board = make(2, 1.0, target=fakes.Target(model="boardA"))
    with fakes.Target(model="boardB"), apply_history_best([board]) as history:
        assert inner(tile(64)) == 16
    (choice,) = history.report()
    assert choice.reasons == ("1 of other hardware (model boardA)",)
    assert choice.near_misses == (
        f"record {board.id} was refused: model: boardA in the record, boardB here",
    )
    for target in (fakes.Target(model="boardA"), fakes.Target()):
        with target, apply_history_best([board]) as history:
            assert inner(tile(64)) == 2
    assert history.report()[0].match is Match.COMPATIBLE
    assert history.report()[0].note == "model: boardA in the record, not given here"
    with fakes.Target(model="boardB"), apply_history_best([board], any_hardware=True) as history:
        assert inner(tile(64)) == 2
    assert history.report()[0].hardware == "other"


#: Options of a log of AutoTVM, those of a target, and the sizes inside of the records that fit it,
#: best first: of the same board, then of boards that one of both does not name.
BOARDS = [
    (("", "a", "b"), {}, [2, 8, 4]),
    (("", "a", "b"), {"model": "a"}, [4, 2]),
    (("", "a", "b"), {"model": "c"}, [2]),
    (("a", "b"), {"model": "c"}, []),
    (("a", "b"), {}, [4, 2]),
]


@pytest.mark.parametrize(("boards", "options", "wanted"), BOARDS)
def test_records_of_the_board_go_first(tile, make, fakes, boards, options, wanted):
    records = [
        make(2 << n, 9.0 - n, env={}, target=fakes.Target(**({"model": name} if name else {})))
        for n, name in enumerate(boards)
    ]
    task = create_task("tile", (64,), fakes.Target(**options))
    finalists = apply_history_best(records).finalists(task, 9)
    assert [choice.record.config["i"][1] for choice, _ in finalists] == wanted
    everyone = apply_history_best(records, any_hardware=True).finalists(task, 9)
    assert [choice.record.config["i"][1] for choice, _ in everyone][: len(wanted)] == wanted
    assert len(everyone) == len(records)


@pytest.mark.parametrize(
    ("then", "now", "match", "note"),
    [
        ({"num_threads": 2}, {}, Match.COMPATIBLE, ""),
        ({"num_threads": 4}, {}, Match.COMPATIBLE, "threads: 4 in the record, 2 here"),
        (
            {"keys": ["mali", "gpu"]},
            {},
            Match.COMPATIBLE,
            "keys: mali gpu in the record, cpu here",
        ),
        ({"keys": ["mali", "gpu"]}, {"keys": ["mali", "gpu"]}, Match.COMPATIBLE, ""),
        (
            {},
            {"keys": ["mali", "gpu"]},
            Match.COMPATIBLE,
            "keys: cpu in the record, mali gpu here",
        ),
        ({"keys": ["mali", "cpu"]}, {"device": "mali"}, Match.COMPATIBLE, ""),
        ({"mtriple": f"{platform.machine()}-linux-gnu"}, {}, Match.COMPATIBLE, ""),
        ({"mtriple": "s390x-linux-gnu"}, {}, Match.DEFAULT, "target triple: s390x-linux-gnu in"),
        ({"mattr": "+neon"}, {"mattr": "+sve"}, Match.DEFAULT, "target features: +neon in the"),
        ({"mcpu": "cpu2"}, {}, Match.DEFAULT, "target CPU: cpu2 in the record, cpu1 here"),
    ],
)
def test_a_log_without_a_machine_is_compared_by_its_target(
    tile, make, fakes, then, now, match, note
):
    record = make(2, 1.0, env={}, target=fakes.Target(**then))
    choice = apply_history_best([record]).explain(create_task("tile", (64,), fakes.Target(**now)))
    assert choice.match is match
    assert note in f"{choice.note}{choice.near_misses}"
    assert note or not choice.note


def test_records_that_leave_default_arguments_out_apply(tile, make, fakes):
    @template("defaults")
    def defaults(n, m=3, kind="float32", shape=(1, [2])):
        return tile(n)

    shapes = [[64], [64, 3], [64, 3, "float32"], [64, 3, "float32", [1, [2]]]]
    others = [[64, 4], [64, 3.0], [64, 3, "float64"], [64, 3, "float32", [1, [3]]], []]
    target = fakes.Target()
    for args, fits in [*((args, True) for args in shapes), *((args, False) for args in others)]:
        key = task_key("defaults", args, "llvm")
        record = make(2, 1.0, op="defaults", args=args, task=key, dag="", trace=[])
        task = create_task("defaults", (64,), target)
        assert task.is_of(record) is fits
        with target, apply_history_best([record]) as history:
            assert (inner(defaults(64)) == 2) is fits
            assert (history.report()[0].record is record) is fits
        if fits:
            with target, ApplyGraphBest([record]):
                assert inner(defaults(64)) == 2
    longer = create_task("defaults", (64, 4), target)
    assert not longer.is_of(make(2, 1.0, op="defaults", args=[64], task=key, dag=""))


def test_near_misses_are_told_field_by_field(tile, make, fakes):
    there = {**environment(), "cpu": "Pentium", "isa": ["mmx"]}
    records = [make(2, 1.0, env=there, target=fakes.Target(mcpu="p5")), make(4, 2.0, env=there)]
    with apply_history_best(records) as history:
        tile(64)
    first, second = history.report()[0].near_misses
    here = " ".join(environment()["isa"])
    assert first.startswith(f"record {records[0].id} was refused: CPU: Pentium in the record, ")
    assert f"; instruction set: mmx in the record, {here[:40]}" in first
    assert first.endswith("; target CPU: p5 in the record, cpu1 here")
    assert "target CPU" not in second


ELSEWHERE = {**environment(), "cpu": "Pentium", "isa": ["mmx"]}


def test_the_same_code_timed_on_another_machine_is_compatible(tile, make, fakes):
    """What decides is that this machine has the instructions, not what it is called."""
    v1 = fakes.Target(mcpu="x86-64", mattr="")
    foreign = make(2, 1.0, target=v1, env=ELSEWHERE)
    with v1, apply_history_best([foreign]) as history:
        assert inner(tile(64)) == 2
    (choice,) = history.report()
    assert (choice.match, choice.hardware) == (Match.COMPATIBLE, "other")
    assert choice.note.startswith("CPU: Pentium in the record, ")
    assert "instruction set: mmx in the record" in choice.note
    # One of this machine goes first, however slow.
    own = make(4, 3.0, target=v1)
    with v1, apply_history_best([foreign, own]) as history:
        assert inner(tile(64)) == 4
    assert history.report()[0].match is Match.EXACT


def test_other_code_of_another_machine_is_refused(tile, make, fakes):
    foreign = make(2, 1.0, target=fakes.Target(mcpu="x86-64", mattr="-cmov"), env=ELSEWHERE)
    with fakes.Target(mcpu="x86-64", mattr=""), apply_history_best([foreign]) as history:
        assert inner(tile(64)) == 16
    (choice,) = history.report()
    assert choice.reasons == ("1 of other hardware (CPU Pentium)",)
    assert "target features: -cmov in the record, those of the CPU here" in choice.near_misses[0]


def test_an_old_name_of_a_cpu_is_that_cpu(tile, make, fakes):
    old = make(2, 1.0, target=fakes.Target(mcpu="corei7", mattr=""))
    with fakes.Target(mcpu="nehalem", mattr="-avx"), apply_history_best([old]) as history:
        assert inner(tile(64)) == 2
    assert history.report()[0].hardware == "same"


def test_what_fits_and_differs_is_compatible(tile, make, fakes):
    for changes, note in [
        ({}, ""),
        ({"target": fakes.Target(fast_math=True)}, "fast_math: True in the record, not given here"),
        ({"build": "0123"}, "compiler: 0123 in the record, "),
    ]:
        with apply_history_best([make(2, 1.0, **changes)]) as history:
            assert inner(tile(64)) == 2
        (choice,) = history.report()
        assert choice.note.startswith(note)
        assert choice.match is (Match.COMPATIBLE if note else Match.EXACT)


def test_two_targets_of_one_task_are_two_lines(tile, make, fakes):
    with apply_history_best([make(2, 1.0)]) as history:
        tile(64)
        with fakes.Target(num_threads=1):
            tile(64)
    assert [choice.match for choice in history.report()] == [Match.EXACT, Match.COMPATIBLE]


def test_what_was_checked_goes_before_what_was_not(tile, make, fakes, caplog):
    fast = make(2, 0.1, **NEVER)
    checked = make(4, 5.0, target=fakes.Target(num_threads=1))
    with apply_history_best([fast, checked]):
        assert inner(tile(64)) == 4  # although its threads are others
    assert caplog.records == []
    with apply_history_best([fast]) as history:
        assert inner(tile(64)) == 2
    assert "its answer was not checked" in caplog.text
    assert "not checked: checking is switched off" in str(history.report()[0])


def test_a_later_check_vouches_for_a_record(tile, make, monkeypatch):
    monkeypatch.setattr("loopwright.history.fit.build_hash", lambda *args: "now")
    old = make(2, 1.0, build="then", **NEVER)

    def check(build, **changes):
        return make(2, build=build, phase="check", **changes)

    for build, trusted in (("then", True), ("now", True), ("another", False)):
        with apply_history_best([old, check(build)]) as history:
            assert inner(tile(64)) == 2
        assert (history.report()[0].checked is Checked.YES) is trusted, build
    for kind in ("WRONG_ANSWER", "RUN_CRASH"):
        failed = check("now", error={"kind": kind, "text": ""}, **NEVER)
        with apply_history_best([old, failed, make(8, 3.0)]) as history:
            assert inner(tile(64)) == 8
        assert history.report()[0].reasons == (f"1 failed when checked again ({kind})",)


def test_strict_refuses_what_does_not_fit_or_was_not_checked(tile, make, fakes):
    with (
        apply_history_best([make(2, 1.0, n=32)], strict=True),
        pytest.raises(RecordError) as caught,
    ):
        tile(64)
    assert "no record of tile(64)" in str(caught.value)
    assert "1 for arguments (32,), not (64,)" in str(caught.value)
    unchecked = make(2, 1.0, **NEVER)
    with apply_history_best([unchecked], strict=True), pytest.raises(RecordError) as caught:
        tile(64)
    assert f"the best record of tile(64), {unchecked.id}, is not checked" in str(caught.value)
    with apply_history_best([make(2, 1.0)], strict=True):
        assert inner(tile(64)) == 2


@pytest.mark.parametrize("outcome", [Outcome.TIE, Outcome.SLOWER])
def test_the_default_is_built_where_the_record_is_no_faster(tile, make, fakes, outcome):
    record = make(2, 1.0, verdict=verdict(outcome, -0.25 if outcome is Outcome.SLOWER else 0.0))
    with apply_history_best([record], strict=True) as history:
        assert inner(tile(64)) == 16
    (choice,) = history.report()
    assert choice.match is Match.DEFAULT
    assert choice.record is record
    assert choice.expected == (0.75 if outcome is Outcome.SLOWER else 1.0)
    assert f"default configuration, by the verdict of record {record.id}" in str(choice)
    with apply_history_best([record], verdicts=False):
        assert inner(tile(64)) == 2
    # For other threads the verdict says nothing.
    with fakes.Target(num_threads=1), apply_history_best([record]) as history:
        assert inner(tile(64)) == 2
    assert "not compared with the default" in str(history.report()[0])


def test_a_verdict_is_said(tile, make, caplog):
    gain = make(2, 1.0, verdict=verdict(Outcome.FASTER, 0.031))
    with apply_history_best([gain]) as history:
        assert inner(tile(64)) == 2
    assert "3.1% +- 0.6% faster than the default" in str(history.report()[0])
    with apply_history_best([make(2, 1.0, verdict=verdict(Outcome.FASTER, 2.8))]) as history:
        tile(64)
    assert "3.80 +- 0.01 times as fast as the default" in str(history.report()[0])
    # A later measurement of the candidate does not take it away.
    with apply_history_best([gain, make(2, 1.1, ts=gain.ts + 1)]) as history:
        tile(64)
    assert history.report()[0].verdict == Verdict.from_json(gain.verdict)
    for other in (None, verdict(Outcome.NOT_COMPARED), {"outcome": "nonsense"}):
        with apply_history_best([make(2, 1.0, verdict=other)]) as history:
            assert inner(tile(64)) == 2
        assert "not compared with the default" in str(history.report()[0])
    assert "field 'verdict' is malformed" in caplog.text


def test_the_best_is_one_of_the_playoff_though_the_machine_was_slow(tile, make):
    """The search found factor 8 the fastest, which took no part."""
    search = [make(16, 4.0, ts=1.0), make(2, 2.0, ts=2.0), make(4, 3.0, ts=3.0)]
    search.append(make(8, 1.0, ts=4.0))
    slow = {"phase": "playoff", "run": "r"}
    played = [
        make(16, 16.0, 16.0, ts=5.0, **slow),
        make(4, 12.0, 12.0, ts=6.0, **slow),
        make(2, 8.0, 8.0, ts=7.0, verdict=verdict(Outcome.FASTER, 1.0), **slow),
    ]
    with apply_history_best([*search, *played]) as history:
        assert inner(tile(64)) == 2
    (choice,) = history.report()
    assert (choice.unverified, choice.ratio) == (False, 0.5)
    # Where its winner is wrong the next one of the playoff is built, or the default if that leads.
    wrong = {"times": (), "error": {"kind": "WRONG_ANSWER", "text": ""}, "ts": 8.0}
    with apply_history_best([*search, *played, make(2, **wrong)]) as history:
        assert inner(tile(64)) == 4
    (choice,) = history.report()
    assert "1.33 times as fast as the default in a playoff" in str(choice)
    late = [*search, *played, make(2, **wrong), make(4, **wrong)]
    with apply_history_best(late) as history:
        assert inner(tile(64)) == 16
    assert history.report()[0].match is Match.DEFAULT
    # A playoff that was cut off before its winner was written says nothing.
    with apply_history_best([*search, *played[:-1]]) as history:
        assert inner(tile(64)) == 8
    (choice,) = history.report()
    assert choice.unverified
    assert "unverified: not compared with the default" in str(history.report())


def test_a_kernel_of_a_model_needs_a_playoff(tile, make):
    task = create_task("tile", (64,))
    task.of_model = True
    default = make(16, 4.0, run="r", ts=1.0)
    history = apply_history_best([default, make(2, 1.0, run="r", trial=1, ts=2.0)])
    choice, _ = history.choose(task)
    assert (choice.match, choice.unverified, choice.expected) == (Match.DEFAULT, True, 4.0)
    assert "default configuration, since it is not verified: record" in str(choice)
    assert [one.match for one, _ in history.finalists(task, 2)] == [Match.EXACT] * 2
    trusting = apply_history_best([make(2, 1.0)], verdicts=False)
    assert trusting.choose(task)[0].match is Match.EXACT
    faster = apply_history_best([make(2, 1.0, verdict=verdict(Outcome.FASTER, 0.5))])
    assert faster.choose(task)[0].match is Match.EXACT


def test_the_report_is_a_table_on_request(tile, make, caplog, capsys):
    record = make(2, 0.0012, verdict=verdict(Outcome.FASTER, 0.031))
    caplog.set_level(logging.INFO, "loopwright")
    with apply_history_best([record, make(4, 2.0, dropped=True)]) as history:
        assert str(history.report()) == "nothing was built under this history"
        tile(64)
        tile(32)
    assert capsys.readouterr() == ("", "")
    assert f"tile(64): record {record.id} (1.2 ms per call" in caplog.text
    lines = str(history.report()).splitlines()
    head, first, *remarks, second, why = lines
    columns = ["task", "built", "from", "match", "age", "hardware", "expected", "actual", "checked"]
    assert head.split() == columns
    assert first.split() == [
        *("tile(64)", "record", record.id, "exact", "2", "hours", "same", "1.2", "ms", "-", "yes")
    ]
    assert remarks == [
        f"  record {record.id}: 3.1% +- 0.6% faster than the default",
        "  passed over: 1 dropped by racing",
    ]
    assert second.split() == ["tile(32)", "default", "default", *"-----"]
    assert "for arguments (64,), not (32,)" in why


def test_lines_files_folders_and_stores_are_logs(tile, make, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, record in (("a", make(2, 2.0)), ("b", make(4, 1.0))):
        with Store(folder / f"{name}.jsonl") as store:
            store.append(record)
    (folder / "readme.txt").write_text("no log")
    os.mkfifo(folder / "pipe.jsonl")
    path = folder / "b.jsonl"
    text = path.read_text()
    with (
        open(path) as file,
        open(path, "rb") as binary,
        tempfile.NamedTemporaryFile("w+") as temporary,
        Store(folder / "a.jsonl") as store,
    ):
        temporary.write(f"\n# a comment\n{text}")
        temporary.seek(0)
        for source, expected in [
            (folder, 4),
            (file, 4),
            (binary, 4),
            (temporary, 4),
            (iter(text.splitlines()), 4),
            (text, 4),
            (store, 2),
            ([store, folder], 4),
            (({"record": None}.get(None), load(path)), 4),
        ]:
            with apply_history_best(source):
                assert inner(tile(64)) == expected
    with pytest.raises(RecordError, match=r"holds no \*\.jsonl"):
        apply_history_best(tmp_path)
    for wrong in (5, [5], object()):
        with pytest.raises(UsageError, match="the path of a log or of a folder"):
            apply_history_best(wrong)


def test_torn_lines_of_an_open_file_are_counted(tile, make, tmp_path):
    path = tmp_path / "log.jsonl"
    line = make(4, 1.0).to_line()
    path.write_text(f"{line}\n{line[:50]}\n" + json.dumps({"v": 9}))
    with open(path) as file:
        history = apply_history_best(file)
    assert history.skipped == 2
    with history:
        assert inner(tile(64)) == 4


def test_load_query_and_update(tile, make, fakes):
    task = create_task("tile", (64,), fakes.Target())
    history = apply_history_best(None)
    with history:
        assert history.query(task.target, task.workload).values == {"i": [-1, 16]}
        assert history.query(None, task).is_fallback
        history.load([make(4, 1.0)])
        assert history.query(task.target, task.workload).values == {"i": [-1, 4]}
        with apply_history_best([make(2, 1.0, n=32)]) as inside:
            assert inside.query(task.target, task).values == {"i": [-1, 4]}
        history.update(task.target, task.workload, task.config({"i": [-1, 8]}))
        assert history.query(task.target, task).values == {"i": [-1, 8]}
        assert inner(tile(64)) == 8
    assert history.report()[0].match is Match.GIVEN
    assert "the configuration that was given" in str(history.report()[0])
    with pytest.raises(UsageError, match="a workload is a task"):
        history.query(task.target, "tile")


def test_a_graph_takes_its_records_in_order(tile, make, fakes):
    records = [make(2, 9.0), make(4, 1.0, n=32), make(8, 5.0)]
    with ApplyGraphBest(records) as graph:
        assert [inner(tile(n)) for n in (64, 32, 64)] == [2, 4, 8]
        # The records are used up: what was known last.
        assert [inner(tile(n)) for n in (64, 32)] == [8, 4]
        assert inner(tile(128)) == 16
        task = create_task("tile", (32,), fakes.Target())
        graph.update(task.target, task, task.config({"i": [-1, 32]}))
        assert inner(tile(32)) == 32
    with ApplyGraphBest(records):
        tile(64)
        with pytest.raises(RecordError, match=r"call 2 is of tile\(64\), and record 2 of"):
            tile(64)
