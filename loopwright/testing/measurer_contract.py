"""The contract of measurers (runners of candidates), as a test class to subclass.

A measurer takes configurations of one task and gives a typed result for each: times, or an error
with a kind and a text, never a huge number. A test module derives from `MeasurerContract`::

    class TestLocal(MeasurerContract):
        @staticmethod
        def make(task, timeout):
            return Measurer(task, measure_option(LocalBuilder(), LocalRunner(timeout=timeout)))

The tasks below are small programs for the target ``llvm``; set ``target`` for another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import ClassVar

import numpy as np
import pytest

from loopwright import te
from loopwright.measure import ErrorKind, MeasureInput, MeasurerLike
from loopwright.schedule import Schedule, create_schedule
from loopwright.task import Task, get_config, template

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


ENDLESS = 1 << 30  # terms of a sum that takes longer than any test waits for


def _reference(right: bool) -> Callable[[Array], Array]:
    """The sum of two sines by NumPy, or a wrong result."""

    def sum_of_sines(a: Array) -> Array:
        total = np.sin(a.astype(np.float64)) + np.sin(a.astype(np.float64) + 1)
        return np.asarray(total, np.float32) + (0 if right else 1)

    return sum_of_sines


@template("contract/sum_of_sines", make_reference=_reference)
def sum_of_sines(right: bool) -> tuple[Schedule, list[te.Tensor]]:
    """B[i] is a sum of sines; knobs are the factor of a split, where 0 is refused, and the number
    of terms. ``right`` makes the reference agree with the program.
    """
    cfg = get_config()
    cfg.define_knob("factor", [4, 8, 16, 0], default=4)
    cfg.define_knob("terms", [2, ENDLESS], default=2)
    factor, terms = cfg["factor"].val, cfg["terms"].val
    if factor == 0:
        cfg.raise_error("a factor of 0")
    a = te.placeholder((64,), "float32", name="A")
    k = te.reduce_axis((0, terms), name="k")
    b = te.compute((64,), lambda i: te.sum(te.sin(a[i] + k), axis=k), name="B")
    s = create_schedule(b)
    s[b].split(b.op.axis[0], factor=max(factor, 1))
    return s, [a, b]


def trials(task: Task, *factors: int, terms: int = 2) -> list[MeasureInput]:
    configs = [task.config({"factor": factor, "terms": terms}) for factor in factors]
    return [MeasureInput(task, config, n) for n, config in enumerate(configs)]


class MeasurerContract:
    """Subclass, and define ``make``."""

    target: ClassVar[str] = "llvm -num-threads=1"

    @staticmethod
    def make(task: Task, timeout: float) -> AbstractContextManager[MeasurerLike]:
        """A measurer of a task; ``timeout`` is the limit of running one candidate, in seconds."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def task(cls) -> Task:
        return Task(sum_of_sines, (True,), cls.target)

    @pytest.fixture(scope="class")
    @classmethod
    def measurer(cls, task: Task) -> Iterator[MeasurerLike]:
        with cls.make(task, 10.0) as measurer:
            yield measurer

    def test_each_input_has_a_result_in_its_place(self, task: Task, measurer: MeasurerLike) -> None:
        results = list(measurer.measure(trials(task, 4, 0, 8)))
        assert [r.valid for r in results] == [True, False, True]

    def test_a_result_has_times_in_seconds(self, task: Task, measurer: MeasurerLike) -> None:
        (result,) = measurer.measure(trials(task, 16))
        assert result.error is None
        assert result.times
        assert all(0 < seconds < 1 for seconds in result.times)
        assert result.median is not None
        assert min(result.times) <= result.median <= max(result.times)
        assert result.build_s >= 0
        assert result.run_s >= 0
        assert result.ts > 0

    def test_what_the_template_refuses_is_a_typed_failure(
        self, task: Task, measurer: MeasurerLike
    ) -> None:
        (result,) = measurer.measure(trials(task, 0))
        assert result.times == ()
        assert result.median is None
        assert result.error is not None
        assert result.error.kind == ErrorKind.INSTANTIATION
        assert "a factor of 0" in result.error.text

    def test_a_shared_result_says_whose_it_is(self, task: Task, measurer: MeasurerLike) -> None:
        first, second = measurer.measure(trials(task, 4, 4))
        assert first.same_as == ""
        if second.same_as:
            assert second.same_as == first.program
            assert second.times == first.times

    def test_results_come_one_at_a_time(self, task: Task, measurer: MeasurerLike) -> None:
        results = measurer.measure(trials(task, 4, 8))
        assert next(results).valid
        assert len(list(results)) == 1

    def test_nothing_gives_nothing(self, measurer: MeasurerLike) -> None:
        assert list(measurer.measure([])) == []

    def test_what_is_far_behind_the_incumbent_never_counts_as_best(
        self, task: Task, measurer: MeasurerLike
    ) -> None:
        (result,) = measurer.measure(trials(task, 4), incumbent=1e-12)
        assert not result.usable or (result.median or 0.0) > 1e-12

    def test_a_wrong_answer_is_a_typed_failure(self) -> None:
        task = Task(sum_of_sines, (False,), type(self).target)
        with self.make(task, 10.0) as measurer:
            (result,) = measurer.measure(trials(task, 4))
        assert result.times == ()
        assert result.error is not None
        assert result.error.kind == ErrorKind.WRONG_ANSWER
        assert result.max_error is not None
        assert result.max_error > 0.5

    def test_a_limit_is_kept_and_the_next_candidate_runs(self, task: Task) -> None:
        with self.make(task, 0.5) as measurer:
            (result,) = measurer.measure(trials(task, 4, terms=ENDLESS))
            assert result.times == ()
            assert result.error is not None
            assert result.error.kind == ErrorKind.RUN_TIMEOUT
            (result,) = measurer.measure(trials(task, 8))
            assert result.valid
