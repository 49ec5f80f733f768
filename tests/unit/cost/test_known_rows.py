from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright import ops
from loopwright.cost.features import Extractor
from loopwright.cost.symbolic.evaluation import ColumnProgram
from loopwright.cost.symbolic.population import KnownRows
from loopwright.task import create_task
from loopwright.task.sampling import random_digits
from tests.unit.cost import workloads


class Squares:
    """Evaluates candidates to the squares of their digits, and notes which it was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __call__(self, digits: Any, out: Any) -> None:
        self.asked += digits.tolist()
        out[:] = digits**2


def test_a_candidate_is_evaluated_once() -> None:
    known, squares = KnownRows(2), Squares()
    digits = np.array([[1, 2], [3, 4], [1, 2]])
    for _ in range(2):
        assert known.rows(digits, squares).tolist() == [[1, 4], [9, 16], [1, 4]]
    assert sorted(squares.asked) == [[1, 2], [3, 4]]
    assert known.rows(digits[:0], squares).shape == (0, 2)


def test_random_requests_beyond_its_room_get_right_rows() -> None:
    known, squares = KnownRows(3, kept=8), Squares()
    rng = np.random.default_rng(0)
    for _ in range(200):
        digits = rng.integers(0, 3, size=(int(rng.integers(0, 14)), 3))
        assert np.array_equal(known.rows(digits, squares), (digits**2).astype(np.float32))


def test_new_candidates_come_sorted_and_go_back_in_the_order_of_the_question() -> None:
    known, squares = KnownRows(3, by=[2, 0]), Squares()
    digits = np.array([[1, 5, 2], [0, 4, 1], [0, 3, 2], [1, 2, 1]])
    assert known.rows(digits, squares).tolist() == (digits**2).tolist()
    assert squares.asked == [[0, 4, 1], [1, 2, 1], [0, 3, 2], [1, 5, 2]]


def test_rows_of_an_evaluation_that_failed_are_not_known() -> None:
    known, squares = KnownRows(2), Squares()
    digits = np.array([[1, 2], [3, 4]])

    def fail(digits: Any, out: Any) -> None:
        out[0] = 7
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        known.rows(digits, fail)
    assert known.rows(digits, squares).tolist() == [[1, 4], [9, 16]]


def test_rows_belong_to_who_asked() -> None:
    known, squares = KnownRows(1), Squares()
    digits = np.array([[2], [3]])
    known.rows(digits, squares)[:] = 0
    assert known.rows(digits, squares).tolist() == [[4], [9]]


def test_features_asked_for_again_are_the_same() -> None:
    task = create_task(ops.matmul, args=(64, 64, 64), target="llvm")
    digits = workloads.digits_of(task, 40)
    made = Extractor(task)
    first = made.rows(digits).values
    mixed = np.concatenate([digits[::-1], workloads.digits_of(task, 80)])
    fresh = Extractor(task).rows(mixed).values
    assert np.array_equal(made.rows(mixed).values, fresh)
    assert np.array_equal(first, fresh[:40][::-1])


def test_of_a_small_space_each_class_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = create_task(ops.matmul, args=(32, 32, 32), target="llvm")
    made, runs = Extractor(task), []
    run = ColumnProgram.evaluate
    monkeypatch.setattr(
        ColumnProgram, "evaluate", lambda *given: (runs.append(given), run(*given))[1]
    )
    first = 0
    for seed in range(4):
        digits = random_digits(task.config_space, 100, np.random.default_rng(seed))
        expected = Extractor(task, symbolic=False).rows(digits[:8]).values
        assert np.array_equal(made.rows(digits).values[:8], expected, equal_nan=True)
        first = first or len(runs)
    assert len(runs) == first > 0
