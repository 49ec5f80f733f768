"""The tuning loop: ``tune`` checks its arguments, ``_whole_run`` is the pipeline in ten lines.

Trials are planned in rounds, recorded as soon as they are measured, and told to the tuner when the
round is complete, in the order of their numbers. Every round draws from its own generator and
tuners are rebuilt by telling, so a run that was cut off goes on from its log as if it had not been:
of the interrupted round, planned again, only what is missing is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Generic, TypeVar

from loopwright import records
from loopwright.errors import RecordError, TuneError, UsageError, plain_interrupts
from loopwright.measure import (
    MeasureOption,
    Measurer,
    MeasurerLike,
    check_can_measure,
    lock_log,
    measure_option,
    measured_on,
)
from loopwright.records import without_collector
from loopwright.tuner.run.budget import Budget, gain_per_minute, seconds
from loopwright.tuner.run.callbacks import LogToFile
from loopwright.tuner.run.interfaces import Callback, Monitor, TunerLike
from loopwright.tuner.run.journal import open_journal
from loopwright.tuner.run.phases import Phases
from loopwright.tuner.run.run import Run
from loopwright.tuner.run.state import flop_of
from loopwright.tuner.run.summary import Summary

#: Number of trials of one round, which the tuner is asked for, and told of, at once.
PLAN_SIZE = 16
#: Makes the option where none is given.
default_option = measure_option


S = TypeVar("S")


class TuningInterrupted(KeyboardInterrupt, Generic[S]):
    """Ctrl-C during a run; every finished trial is in the log, ``summary`` says how far it came.

    The command line makes SIGTERM and SIGHUP do the same, by handlers that raise KeyboardInterrupt.
    """

    def __init__(self, summary: S) -> None:
        super().__init__("tuning was interrupted")
        self.summary = summary


def tune(
    tuner: TunerLike,
    *,
    n_trial: int | None = None,
    measure_option: MeasureOption | MeasurerLike | None = None,
    early_stopping: int | None = None,
    callbacks: Sequence[Callback] = (),
    timeout: float | str | None = None,
    target: float | None = None,
    min_gain: float | str | None = None,
    plan_size: int = PLAN_SIZE,
) -> Summary:
    """Measure configurations of the tuner's task until a budget is spent.

    Arguments, result and errors are those of ``Tuner.tune``; ``plan_size`` is the length of a
    round, which must not change between runs that shall continue each other exactly.

    Example:
        >>> tuner = lw.tuner.GridSearchTuner(lw.create_task("matmul", (64, 64, 64), "llvm"))
        >>> option = lw.measure_option(runner=lw.LocalRunner(number=1, repeat=1))
        >>> print(lw.tuner.tune(tuner, n_trial=3, measure_option=option).measured)
        3
    """
    budget = Budget(n_trial, seconds(timeout), early_stopping, target, gain_per_minute(min_gain))
    if target is not None and not flop_of(tuner.task):
        raise UsageError(
            f"{tuner.task} has no operations to count, so no speed in GFLOP/s to reach; "
            "leave target out, or call cfg.add_flop(n) in the template"
        )
    with open_run(tuner, budget, measure_option, callbacks, plan_size) as run:
        return _whole_run(run)


def check_arguments(
    option: MeasureOption | MeasurerLike | None, callbacks: Sequence[Callback]
) -> None:
    for one in callbacks:
        if not callable(one):
            raise TuneError(
                f"a callback is called with (tuner, inputs, results); {one!r} cannot be"
            )
    if option is None or isinstance(option, MeasureOption) or hasattr(option, "measure"):
        return
    raise TuneError(
        f"measure_option is a {type(option).__name__}; "
        "give what loopwright.measure_option(builder=..., runner=...) returns"
    )


def _whole_run(run: Run) -> Summary:
    try:
        with plain_interrupts():
            with without_collector():  # it would look for cycles among all trials, again and again
                run.resume()
            while plan := run.current_round():
                run.measure(plan)
                run.tell(plan)
            run.playoff()
    except KeyboardInterrupt:
        run.stop = ("interrupted", "interrupted")
        raise TuningInterrupted(run.finish()) from None
    except RecordError as exc:
        raise TuneError(f"{exc}; the {run.recorded} trials before it are safe") from exc
    return run.finish()


@contextmanager
def open_run(
    tuner: TunerLike,
    budget: Budget,
    option: MeasureOption | MeasurerLike | None,
    callbacks: Sequence[Callback],
    plan_size: int,
    beside: Measurer | None = None,
) -> Iterator[Run]:
    """Lock and read the log, start the measurer; close both in the end. ``beside`` is an open
    measurer of another task, whose processes are shared."""
    check_arguments(option, callbacks)
    # Names of the devices of this machine that are measured on; None for another machine.
    devices: str | None = "" if option is None else None
    if isinstance(option, MeasureOption):
        devices = option.runner.devices
    if devices is not None:
        tuner.task.target.check_machine()
        check_can_measure()
        measured_on(tuner.task.target, devices)
    path = next((c.path for c in callbacks if isinstance(c, LogToFile)), None)
    run_id = records.new_run()
    monitors = [c for c in callbacks if isinstance(c, Monitor)]
    phases = Phases(monitors)
    with ExitStack() as stack:
        for monitor in monitors:
            stack.callback(monitor.close)
        if path is not None:
            # Whether it can be written at all is said by the store, better than by the lock.
            records.Store(path).close()
            stack.enter_context(lock_log(path, tuner.task.key))
        with phases.entered("reading the log"):
            opened = open_journal(tuner.task, path, run_id, tuner.journal, devices)
        journal = stack.enter_context(opened)
        tuner.journal = journal if path is None else None
        chosen = default_option() if option is None else option
        if isinstance(chosen, MeasureOption):
            chosen = Measurer(tuner.task, chosen, phases.note if monitors else None, beside)
        measurer = stack.enter_context(chosen)
        run = Run(tuner, budget, journal, measurer, callbacks, plan_size, phases)
        stack.callback(run.close)
        yield run
