"""The pure parts of `benchmarks.spaces_quality`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

import loopwright as lw
from benchmarks import spaces_quality as quality
from loopwright import te


def test_shares_are_of_the_best() -> None:
    found = quality.shares([1.0, 1.05, 2.0, 4.0, 5.0], best=1.0)
    assert found == {"median": 0.5, "near": 0.4}


def test_verdicts_name_what_is_slow() -> None:
    quick = {"what": "a", "derive_s": 0.01, "rank_s": 0.5, "median": 0.5}
    slow = {"what": "b", "derive_s": 0.06, "rank_s": 0.5, "median": 0.5}
    lines = quality.verdicts([quick, slow])
    assert lines[0] == "derive: median 35 ms, 1 of 2 above 50 ms b 60"
    assert lines[1] == "rank: median 500 ms, 0 of 2 above 2000 ms"
    assert lines[2] == "median random point: geomean 0.50 of the best"


def test_all_workloads_and_expressions_have_a_name_of_their_own() -> None:
    names = Counter(s.name for s in quality.subjects())
    assert len(names) >= 65
    assert set(names.values()) == {1}


def test_points_are_shared_out_and_none_comes_twice() -> None:
    names = ["softmax_1024x1024", "gray_1080x1920"]
    found = list(quality.drawn(names, 25, seed=1))
    points = [(name, index) for name, indices in found for index in indices]
    assert len(points) == len(set(points))
    assert Counter(name for name, _ in points) == {names[0]: 13, names[1]: 12}


def _work(name: str, indices: Sequence[int]) -> list[quality.Fault]:
    if 5 in indices:
        os._exit(11)
    return [quality.Fault(name, index, "wrong") for index in indices if index == 2]


@pytest.mark.slow
def test_a_crash_costs_the_point_that_crashed() -> None:
    chunks = iter([("a", [1, 2]), ("b", [4, 5, 6]), ("c", [2])])
    found = list(quality.Pool(2, _work).run(chunks))
    assert [count for count, _ in found] == [2, 3, 1]
    faults = [(f.what, f.index, f.text) for _, part in found for f in part]
    assert faults == [("a", 2, "wrong"), ("b", 5, "crashed"), ("c", 2, "wrong")]


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

    quality._prepared.cache_clear()
    monkeypatch.setattr(quality, "subjects", lambda: [quality.Subject("it", _doubled, data)])
    assert [f.text for f in quality.check("it", [0])] == texts
    quality._prepared.cache_clear()


def test_a_sample_has_the_seconds_of_every_point() -> None:
    task = lw.create_task(_doubled(), target="llvm -num-threads=1")
    found = quality.sampled(task, 2, seed=0)
    assert len(found) == min(2, task.config_space.range_length)
    assert all(s > 0 for s in found)
