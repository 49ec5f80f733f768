"""The pure parts of `benchmarks.spaces_quality`."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import loopwright as lw
from benchmarks.spaces_quality import points, quality, subjects
from benchmarks.spaces_quality.points import Checked, Chunk, Fault, Journal, Pool
from loopwright import te


def test_shares_are_of_the_best() -> None:
    found = quality.shares([1.0, 1.05, 2.0, 4.0, 5.0], best=1.0)
    assert found == {"median": 0.5, "near": 0.4}


def test_verdicts_name_what_is_slow() -> None:
    quick = {"what": "a", "derive_s": 0.01, "rank_s": 0.5, "median": 0.5, "near": 0.1, "failed": 0}
    slow = quick | {"what": "b", "derive_s": 0.06, "near": 0.3}
    lines = quality.verdicts([quick, slow])
    assert lines[0] == "derive: median 35 ms, 1 of 2 above 50 ms b 60"
    assert lines[1] == "rank: median 500 ms, 0 of 2 above 2000 ms"
    assert lines[2] == (
        "median random point of 2 spaces: geomean 0.50 of the best; within 90% of it 20% of the "
        "points (median space), 0 failed"
    )


def test_all_workloads_and_expressions_have_a_name_of_their_own() -> None:
    names = Counter(s.name for s in subjects.subjects())
    assert len(names) >= 65
    assert set(names.values()) == {1}


def test_points_are_shared_out_and_none_comes_twice() -> None:
    chunks = list(points.drawn(["a", "b"], 75, seed=1))
    assert [(c.what, c.drawn, len(c.places)) for c in chunks] == [
        ("a", 38, 32),
        ("a", 38, 6),
        ("b", 37, 32),
        ("b", 37, 5),
    ]
    task = lw.create_task(_product(), target="llvm -num-threads=1")
    found = [index for c in chunks[:2] for index in points.indices_of(task, c)]
    assert len(found) == len(set(found)) == 38
    places = Counter(task.config_space.place(index)[0] for index in found)
    assert max(places.values()) - min(places.values()) <= 1
    assert points.indices_of(task, replace(chunks[0], alone=33)) == [found[33]]


def _work(chunk: Chunk) -> Checked:
    if chunk.what == "b" and 1 in chunk.places:
        os._exit(11)
    faults = [Fault(chunk.what, index, "wrong") for index in chunk.places if index == 0]
    return Checked(chunk, len(chunk.places), 0.0, tuple(faults))


@pytest.mark.slow
def test_a_crash_costs_the_point_that_crashed() -> None:
    # Each point beside the crash costs a process of its own.
    chunks = [Chunk("a", 0, 1, 0), Chunk("b", 0, 2, 0), Chunk("c", 0, 1, 0)]
    found = {c.chunk.what: c for c in Pool(2, _work).run(chunks)}
    assert {what: c.points for what, c in found.items()} == {"a": 1, "b": 2, "c": 1}
    faults = {(f.what, f.index, f.text[:7]) for c in found.values() for f in c.faults}
    crashed = {("b", 1, "crashed")}
    assert faults == crashed | {(what, 0, "wrong") for what in "abc"}


def test_nothing_is_begun_after_the_time_is_up() -> None:
    assert list(Pool(1, _work).run([Chunk("a", 0, 3, 0)], end=time.monotonic())) == []


def test_a_journal_gives_back_what_was_checked(tmp_path) -> None:
    path = tmp_path / "points.jsonl"
    journal = Journal(path)
    assert journal.read() == []
    checked = Checked(Chunk("a", 1, 40, 32), 8, 0.5, (Fault("a", 7, "wrong: error 1.0e+00"),))
    journal.add(checked)
    journal.add(replace(checked, faults=()))
    path.write_text(path.read_text() + '{"chunk": {"wh')
    assert journal.read() == [checked, replace(checked, faults=())]
    *faults, last = points.summary(journal.read())
    assert faults == ["a #7: wrong: error 1.0e+00"]
    assert last.startswith("16 points of 1 workloads (1 s of processes; slowest a point: a 0.1 s")
    assert last.endswith("0 failed (bar 0), 1 wrong (bar 0)")


def _product() -> list[te.Tensor]:
    A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    return [A, B, lw.ops.matmul_compute(A, B)]


def _doubled() -> list[te.Tensor]:
    A = te.placeholder((8,), name="A")
    return [A, te.compute((8,), lambda i: A[i] * 2, name="B")]


@pytest.mark.parametrize(("factor", "texts"), [(2.0, []), (3.0, ["wrong: error 3.3e-01"])])
def test_a_wrong_answer_is_a_fault(
    factor: float, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def data(_: Sequence[te.Tensor]) -> tuple[list[np.ndarray], np.ndarray]:
        x = np.arange(8, dtype="float32")
        return [x], x.astype("float64") * factor

    points.prepared.cache_clear()
    monkeypatch.setattr(subjects, "subjects", lambda: [subjects.Subject("it", _doubled, data)])
    checked = points.check(Chunk("it", 0, 1, 0))
    assert (checked.points, [f.text for f in checked.faults]) == (1, texts)
    points.prepared.cache_clear()


def test_what_raises_is_a_fault_of_its_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def data(_: Sequence[te.Tensor]) -> tuple[list[np.ndarray], np.ndarray]:
        return [np.zeros(9, "float32")], np.zeros(8)  # one element too many

    points.prepared.cache_clear()
    monkeypatch.setattr(subjects, "subjects", lambda: [subjects.Subject("it", _doubled, data)])
    (fault,) = points.check(Chunk("it", 0, 1, 0)).faults
    assert "Error: " in fault.text
    assert not fault.text.startswith("wrong")
    points.prepared.cache_clear()


def test_rows_that_are_known_are_not_measured_again(tmp_path, monkeypatch, capsys) -> None:
    from benchmarks.spaces_quality import __main__ as command

    def data(_: Sequence[te.Tensor]) -> tuple[list[np.ndarray], np.ndarray]:
        return [np.ones(8, "float32")], np.full(8, 2.0)

    it = subjects.Subject("it", _doubled, data)
    monkeypatch.setattr(command, "subjects", lambda: [it])
    out = tmp_path / "rows.json"
    monkeypatch.setattr(
        "sys.argv", ["spaces_quality", "--sample", "0", "--threads", "1", "--out", str(out)]
    )
    assert command.main() == 0
    first = out.read_text()
    assert '"structures": 1' in first
    assert "quality of spaces" in capsys.readouterr().out
    assert command.main() == 0
    assert out.read_text() == first


def test_a_sample_has_the_seconds_of_every_point() -> None:
    task = lw.create_task(_doubled(), target="llvm -num-threads=1")
    found = quality.sampled(task, 2, seed=0)
    assert len(found) == min(2, task.config_space.range_length)
    assert all(s > 0 for s in found)
