"""What every measurer (the runner of candidates) keeps to, as a test class to subclass.

A measurer takes configurations of one task and gives a typed result for each: times, or an error
with a kind and a text, never a huge number. A test module derives from `MeasurerContract`::

    class TestLocal(MeasurerContract):
        @staticmethod
        def make(task, timeout):
            return Measurer(task, measure_option(LocalBuilder(), LocalRunner(timeout=timeout)))

The tasks below are small programs for the target ``llvm``; set ``target`` for another one.
"""

# ruff: noqa: D102 -- the names of the tests say what they check
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol

import numpy as np
import pytest

from loopwright import te
from loopwright.measure import ErrorKind, MeasureInput, MeasureResult
from loopwright.schedule import Schedule, create_schedule
from loopwright.target import Target

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


class MeasurerLike(Protocol):
    """A measurer inside its ``with``."""

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: float | None = None
    ) -> Iterator[MeasureResult]:
        """One result for each input, in their order."""


class SumOfSines:
    """The task of the contract: B[i] is a sum of sines; a configuration is a factor of a split.

    Args:
        target: for what it is compiled.
        right: whether the reference agrees with the program.
        terms: how many sines each sum has; a large number makes a slow program.
    """

    name = "contract/sum_of_sines"
    args: ClassVar[tuple[int, ...]] = ()

    def __init__(self, target: str, right: bool = True, terms: int = 2) -> None:
        self.target = Target(target)
        self.right, self.terms = right, terms

    def instantiate(self, config: int) -> tuple[Schedule, list[te.Tensor]]:
        """A schedule whose loop is split by ``config``; 0 is refused."""
        if config == 0:
            raise ValueError("a factor of 0")
        a = te.placeholder((64,), "float32", name="A")
        k = te.reduce_axis((0, self.terms), name="k")
        b = te.compute((64,), lambda i: te.sum(te.sin(a[i] + k), axis=k), name="B")
        s = create_schedule(b)
        s[b].split(b.op.axis[0], factor=config)
        return s, [a, b]

    def reference(self, a: Array) -> Array:
        """The sum by NumPy; not that sum where the task is one that is not right."""
        total = sum(np.sin(a.astype(np.float64) + k) for k in range(min(self.terms, 100)))
        return np.asarray(total, np.float32) + (0 if self.right else 1)

    def inputs(self, *configs: int) -> list[MeasureInput]:
        """Trials of these configurations."""
        return [MeasureInput(self, config, n) for n, config in enumerate(configs)]


class MeasurerContract:
    """Subclass, and define ``make``."""

    target: ClassVar[str] = "llvm -num-threads=1"

    @staticmethod
    def make(task: SumOfSines, timeout: float) -> AbstractContextManager[MeasurerLike]:
        """A measurer of a task.

        Args:
            task: what is measured.
            timeout: seconds that running one candidate may take.
        """
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def task(cls) -> SumOfSines:
        """A task whose candidates are right and quick."""
        return SumOfSines(cls.target)

    @pytest.fixture(scope="class")
    @classmethod
    def measurer(cls, task: SumOfSines) -> Iterator[MeasurerLike]:
        """One measurer for the tests that leave it as it was."""
        with cls.make(task, 10.0) as measurer:
            yield measurer

    def test_each_input_has_a_result_in_its_place(
        self, task: SumOfSines, measurer: MeasurerLike
    ) -> None:
        results = list(measurer.measure(task.inputs(4, 0, 8)))
        assert [r.valid for r in results] == [True, False, True]

    def test_a_result_has_times_in_seconds(self, task: SumOfSines, measurer: MeasurerLike) -> None:
        (result,) = measurer.measure(task.inputs(16))
        assert result.error is None
        assert result.times
        assert all(0 < seconds < 1 for seconds in result.times)
        assert result.median is not None
        assert min(result.times) <= result.median <= max(result.times)
        assert result.build_s >= 0
        assert result.run_s >= 0
        assert result.ts > 0

    def test_what_the_template_refuses_is_a_typed_failure(
        self, task: SumOfSines, measurer: MeasurerLike
    ) -> None:
        (result,) = measurer.measure(task.inputs(0))
        assert result.times == ()
        assert result.median is None
        assert result.error is not None
        assert result.error.kind == ErrorKind.INSTANTIATION
        assert "a factor of 0" in result.error.text

    def test_results_come_one_at_a_time(self, task: SumOfSines, measurer: MeasurerLike) -> None:
        results = measurer.measure(task.inputs(4, 8))
        assert next(results).valid
        assert len(list(results)) == 1

    def test_nothing_gives_nothing(self, measurer: MeasurerLike) -> None:
        assert list(measurer.measure([])) == []

    def test_what_is_far_behind_the_incumbent_never_counts_as_best(
        self, task: SumOfSines, measurer: MeasurerLike
    ) -> None:
        (result,) = measurer.measure(task.inputs(4), incumbent=1e-12)
        assert not result.usable or (result.median or 0.0) > 1e-12

    def test_a_wrong_answer_is_a_typed_failure(self) -> None:
        task = SumOfSines(type(self).target, right=False)
        with self.make(task, 10.0) as measurer:
            (result,) = measurer.measure(task.inputs(4))
        assert result.times == ()
        assert result.error is not None
        assert result.error.kind == ErrorKind.WRONG_ANSWER
        assert result.max_error is not None
        assert result.max_error > 0.5

    def test_a_limit_is_kept_and_the_next_candidate_runs(self) -> None:
        slow = SumOfSines(type(self).target, terms=1 << 30)
        with self.make(slow, 0.5) as measurer:
            (result,) = measurer.measure(slow.inputs(4))
            assert result.times == ()
            assert result.error is not None
            assert result.error.kind == ErrorKind.RUN_TIMEOUT
            slow.terms = 2
            (result,) = measurer.measure(slow.inputs(8))
            assert result.valid
