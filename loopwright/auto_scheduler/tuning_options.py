"""Limits of a search and settings of measuring: Ansor's ``TuningOptions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from loopwright.auto_scheduler.measure import as_measured, input_of_tuner
from loopwright.auto_scheduler.measure_record import RecordToFile
from loopwright.errors import UsageError
from loopwright.measure import LocalBuilder, LocalRunner, measure_option
from loopwright.tuner import Monitor, progress_bar

if TYPE_CHECKING:
    from loopwright.measure import MeasureInput, MeasureOption, MeasureResult
    from loopwright.tuner import Callback, TunerLike


class _Silent(Monitor):
    """Shows nothing, not even the end of a run."""

    shows_result = True


class TuningOptions:
    """Limits of a search, and settings of measuring.

    Args:
        num_measure_trials: valid trials of a search, beyond those in its log; 0: none.
        early_stopping: number of trials without a better one that ends a search; None, or below
            1: no limit.
        num_measures_per_round: trials before the model learns again; None: 16, which learns
            faster than Ansor's 64.
        verbose: 0 prints nothing; 1 shows progress.
        builder: ``"local"`` or a `LocalBuilder`.
        runner: ``"local"``, a `LocalRunner`, or that of a `LocalRPCMeasureContext`.
        measure_callbacks: `RecordToFile` names the log; others are called
            ``callback(tuner, inputs, results)`` after every round, or have a method ``callback``
            that takes the policy in place of the tuner, as Ansor's do.

    Raises:
        UsageError: a number is malformed, two logs are named, or builder, runner or a callback is
            of another kind.

    Example:
        >>> from loopwright import auto_scheduler
        >>> options = auto_scheduler.TuningOptions(
        ...     num_measure_trials=10,
        ...     measure_callbacks=[auto_scheduler.RecordToFile("matmul.json")],
        ...     verbose=0,
        ... )
        >>> print(options.num_measure_trials, options.log)
        10 matmul.json
    """

    def __init__(
        self,
        num_measure_trials: int = 0,
        early_stopping: int | None = None,
        num_measures_per_round: int | None = None,
        verbose: int = 1,
        builder: LocalBuilder | str = "local",
        runner: LocalRunner | str = "local",
        measure_callbacks: Sequence[Any] | None = None,
    ) -> None:
        self.num_measure_trials = _whole("num_measure_trials", num_measure_trials, 0)
        self.early_stopping = (
            None if early_stopping is None or early_stopping < 1 else early_stopping
        )
        self.num_measures_per_round = num_measures_per_round
        if num_measures_per_round is not None:
            _whole("num_measures_per_round", num_measures_per_round, 1)
        self.verbose = verbose
        self.measure_option: MeasureOption = measure_option(builder, runner)
        self.builder, self.runner = self.measure_option.builder, self.measure_option.runner
        self.measure_callbacks = list(measure_callbacks or ())
        logs = [one for one in self.measure_callbacks if isinstance(one, RecordToFile)]
        if len(logs) > 1:
            raise UsageError(
                f"TuningOptions: {len(logs)} logs; give one RecordToFile, and copy the log"
            )
        self.log = logs[0].filename if logs else None
        for one in self.measure_callbacks:
            if not callable(one) and not callable(getattr(one, "callback", None)):
                raise UsageError(
                    f"TuningOptions: {one!r:.60} is no callback: give a RecordToFile, or what is "
                    "called with (tuner, inputs, results)"
                )

    def callbacks(self, policies: Sequence[Any]) -> list[Callback]:
        """The callbacks of tuners; those with Ansor's method get the policy whose round it was."""
        return [self._callback(one, policies) for one in self.measure_callbacks]

    def display(self, policy: Any) -> Monitor:
        """The progress display of a search."""
        return progress_bar() if self.verbose and policy.verbose else _Silent()

    def _callback(self, one: Any, policies: Sequence[Any]) -> Callback:
        if callable(one):
            called: Callback = one
            return called
        by_task = {policy.automatic_task.key: policy for policy in policies}

        def call(
            tuner: TunerLike, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
        ) -> None:
            policy = by_task[tuner.task.key]
            measured = [input_of_tuner(item, policy.task) for item in inputs]
            one.callback(policy, measured, [as_measured(result) for result in results])

        return call


def _whole(name: str, value: int, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UsageError(f"TuningOptions: {name} is an integer of at least {least}, got {value!r}")
    return value
