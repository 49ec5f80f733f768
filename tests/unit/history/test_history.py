"""Applying the best record, refusing the wrong ones, and saying which and why."""

from __future__ import annotations

import dataclasses

import pytest

from loopwright.errors import RecordError, ScheduleError, UsageError
from loopwright.records import Store, environment, load
from loopwright.task import (
    ApplyConfig,
    apply_history_best,
    create_task,
)


def inner(result):
    return result[0].steps[0][3]


def test_the_best_record_is_applied(tile, make, caplog):
    records = [make(2, 3.0), make(4, 1.0), make(8, 2.0)]
    with apply_history_best(records) as history:
        s, tensors = tile(64)
    assert s.steps == [["split", "C", "i", 4]]
    assert tensors == ["A", "C"]
    assert caplog.records == []
    (choice,) = history.report()
    assert choice.record == records[1]
    assert choice.expected == 1.0
    assert 7200 <= choice.age < 7300
    assert choice.hardware == "same"
    assert not choice.replayed
    text = str(choice)
    assert text.startswith(
        f"tile(64): record {records[1].id} (1 s per call, same hardware, 2 hours"
    )


def test_failed_and_dropped_records_never(tile, make, caplog):
    records = [
        make(2, error={"kind": "COMPILE", "text": ""}),
        make(4, 0.1, dropped=True),
        make(8, 5.0),
        make(16, 0.2, ts=1.0),
        make(16, error={"kind": "WRONG_ANSWER", "text": ""}),
    ]
    with apply_history_best(records) as history:
        assert inner(tile(64)) == 8
    (choice,) = history.report()
    assert set(choice.reasons) == {
        "1 failed (COMPILE)",
        "1 failed (WRONG_ANSWER)",
        "1 dropped by racing",
    }
    with apply_history_best(records[:2]) as history:
        assert inner(tile(64)) == 16  # the default
    assert "using the default configuration" in caplog.text
    assert "1 dropped by racing" in caplog.text


def test_the_fallback_is_said_once_with_the_reason(tile, make, fakes, caplog):
    records = [make(2, 1.0, n=32), make(2, 1.0, target=fakes.Target("opencl"))]
    with apply_history_best(records) as history:
        tile(64)
        tile(64)
    assert len(caplog.records) == 1
    text = caplog.text
    assert "1 for arguments (32,), not (64,)" in text
    assert "1 for target 'opencl', not llvm" in text
    assert history.report()[0].record is None
    assert "default configuration" in str(history.report()[0])
    with apply_history_best([]):
        tile(128)
    assert "the log is empty" in caplog.text


def test_other_hardware_is_refused_unless_asked_for(tile, make, fakes, caplog):
    other = make(2, 1.0, env={**environment(), "cpu": "Pentium"})
    code = make(4, 2.0, target=fakes.Target(mcpu="znver9"))
    with apply_history_best([other, code]) as history:
        assert inner(tile(64)) == 16
    assert set(history.report()[0].reasons) == {
        "1 of other hardware (CPU Pentium)",
        "1 of other hardware (target CPU znver9)",
    }
    with apply_history_best([other], any_hardware=True) as history:
        assert inner(tile(64)) == 2
    assert history.report()[0].hardware == "other"
    unknown = make(8, 1.0, env={}, target=fakes.Target(mcpu=""))
    with apply_history_best([unknown]) as history:
        assert inner(tile(64)) == 8
    assert history.report()[0].hardware == "unknown"


def test_the_same_threads_go_first(tile, make, fakes):
    one = make(2, 0.1, target=fakes.Target(num_threads=1))
    two = make(4, 5.0)
    with apply_history_best([one, two]):
        assert inner(tile(64)) == 4
    with apply_history_best([one]) as history:
        assert inner(tile(64)) == 2
    assert history.report()[0].note == "threads: 1 in the record, 2 here"


def test_an_edited_template_replays_the_trace(tile, make, fakes, monkeypatch, state):
    import loopwright.schedule

    def replay(dag, trace):
        fresh = fakes.Schedule()
        fresh.dag, fresh.steps = dag, trace
        fresh.tensors = ["fresh A", "fresh B", "fresh C"]
        return fresh

    monkeypatch.setattr(loopwright.schedule, "replay", replay)
    state["extra"] = True
    with apply_history_best([make(4, 1.0)]) as history:
        s, tensors = tile(64)
    assert s.steps == [["split", "C", "i", 4]]
    assert tensors == ["fresh A", "fresh C"]
    assert history.report()[0].replayed
    assert "trace replayed" in str(history.report()[0])

    def refuse(dag, trace):
        raise ScheduleError("no such loop")

    monkeypatch.setattr(loopwright.schedule, "replay", refuse)
    with apply_history_best([make(4, 1.0)]) as history:
        s, _ = tile(64)
    assert s.steps == [["split", "C", "i", 16], ["unroll", "C", "i"]]
    assert "does not replay: no such loop" in history.report()[0].reasons[0]


def test_another_expression_refuses_the_record(tile, make, caplog, state):
    state["dag"] = "new"
    with apply_history_best([make(4, 1.0), make(8, 2.0, dag="new")]) as history:
        assert inner(tile(64)) == 8
    assert history.report()[0].reasons == ("1 the template computes another tensor expression now",)
    with apply_history_best([make(4, 1.0)]):
        assert inner(tile(64)) == 16
    assert "another tensor expression" in caplog.text


def test_records_without_a_trace_need_the_same_knobs(tile, make):
    bare = make(4, 1.0, trace=[], dag="")
    with apply_history_best([bare]):
        assert inner(tile(64)) == 4
    more = make(4, 1.0, trace=[], dag="", config={"i": [-1, 4], "gone": 1})
    broken = make(4, 0.5, config={"i": "x"})
    with apply_history_best([more, broken]) as history:
        assert inner(tile(64)) == 16
    assert any("other knobs" in reason for reason in history.report()[0].reasons)
    assert any("fails now" in reason for reason in history.report()[0].reasons)


def test_sources_may_be_paths_records_logs_and_lists(tile, make, tmp_path):
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    for path, record in ((first, make(2, 2.0)), (second, make(4, 1.0))):
        with Store(path) as store:
            store.append(record)
    for source, expected in [
        (first, 2),
        (str(second), 4),
        ([first, str(second)], 4),
        (load(first), 2),
        ([load(first), make(8, 0.5)], 8),
        (iter(load(first)), 2),
        (make(8, 1.0), 8),
    ]:
        with apply_history_best(source):
            assert inner(tile(64)) == expected
    with pytest.raises(RecordError, match="no log at"):
        apply_history_best(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="path of a log"):
        apply_history_best(5)


def test_torn_and_newer_lines_are_said_once_and_counted(tile, make, tmp_path, caplog):
    path = tmp_path / "log.jsonl"
    line = make(4, 1.0).to_line()
    path.write_text(f'{line}\n{{"v": 9}}\n{line[:50]}')
    for _ in range(2):
        history = apply_history_best(path)
        assert history.skipped == 2
        with history:
            assert inner(tile(64)) == 4
    assert len(caplog.records) == 1
    assert "2 lines skipped" in caplog.text


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("own.html", b"<html>\n</html>\n"),
        ("kernel.o", b"\x7fELF\x02\n\x00\xff"),
        ("own.py", b"x = 1\n"),
        ("own.json", b"[1, 2]\n{}\n"),
        ("model.onnx", bytes(range(256))),
    ],
)
def test_a_file_that_is_no_log_is_refused(name, data, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    for source in (path, str(path), [path]):
        with pytest.raises(RecordError, match=rf"{name}' is no log .*`loopwright tune` wrote"):
            apply_history_best(source)


def test_a_log_that_is_empty_or_damaged_is_read(tile, make, tmp_path, caplog):
    empty, mixed, torn = (tmp_path / f"{name}.jsonl" for name in ("empty", "mixed", "torn"))
    empty.touch()
    torn.write_text('{"v":1,"header":{"a')  # a run that was killed at its first line
    mixed.write_text(f"<html>\n{make(4, 1.0).to_line()}\n")
    for path, factor in ((empty, 16), (torn, 16), (mixed, 4)):
        with apply_history_best(path):
            assert inner(tile(64)) == factor
    assert "1 line skipped" in caplog.text


def test_explain_before_and_after(tile, make, fakes):
    task = create_task("tile", (64,), fakes.Target())
    history = apply_history_best([make(4, 1.0), make(2, 0.5, dropped=True)])
    before = history.explain(task)
    assert before.record.config == {"i": [-1, 4]}
    assert history.report() == ()
    with history:
        tile(64)
    assert history.explain(task) == dataclasses.replace(before)
    none = apply_history_best([]).explain(task)
    assert none.record is None
    assert none.expected is none.age is None


def test_contexts_nest(tile, make):
    with apply_history_best([make(4, 1.0)]):
        with apply_history_best([make(2, 1.0, n=32)]):
            assert inner(tile(64)) == 4
            assert inner(tile(32)) == 2
        with ApplyConfig({"i": [-1, 8]}):
            assert inner(tile(64)) == 8
