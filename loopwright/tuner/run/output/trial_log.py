"""Messages of a run to Python's ``logging``; the program chooses handlers and levels.

Each trial is a line at DEBUG on the logger ``autotvm``, in the form that AutoTVM gives it, so that
``logging.getLogger("autotvm").setLevel(logging.DEBUG)`` shows here what it shows there. The course
of a run, a line for its start, each round and its end, is at INFO on ``loopwright.tuner``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from loopwright.tuner.run.interfaces import TunerLike
from loopwright.tuner.run.state import RunState, Trial

if TYPE_CHECKING:
    from loopwright.measure import MeasureResult
    from loopwright.tuner.run.round import Round

_trials = logging.getLogger("autotvm")
_course = logging.getLogger("loopwright.tuner")


def log_start(tuner: TunerLike, state: RunState) -> None:
    _course.info(
        "%s: tuner %s, seed %s, %d configurations; %d trials from the log",
        *(tuner.task, tuner.name, tuner.seed, tuner.space.range_length, state.from_log),
    )


def log_trial(state: RunState, trial: Trial) -> None:
    """Log a trial: number, speed and the best in GFLOP/s, result, configuration.

    The speed is 0.00 for a failure, as in AutoTVM, and where operations cannot be counted.
    """
    if not _trials.isEnabledFor(logging.DEBUG):
        return
    current = state.gflops(trial.result.median) if trial.valid else None
    best = state.gflops(state.best_seconds)
    _trials.debug(
        "No: %d\tGFLOPS: %.2f/%.2f\tresult: %s\t%s",
        *(trial.number + 1, current or 0.0, best or 0.0, _shown(trial.result), trial.config),
    )


def log_round(tuner: TunerLike, state: RunState, plan: Round) -> None:
    if not _course.isEnabledFor(logging.INFO):
        return
    failed = sum(not trial.valid for trial in plan.fresh)
    best = state.best_seconds
    _course.info(
        "%s: round %d: %d trials, %d failed; best %s",
        *(tuner.task, plan.number, len(plan.fresh), failed),
        "none yet" if best is None else f"{best * 1e3:.4g} ms",
    )


def log_end(tuner: TunerLike, state: RunState, reason: str) -> None:
    _course.info("%s: stopped after %d trials: %s", tuner.task, state.valid, reason)


def _shown(result: MeasureResult) -> str:
    """A result in AutoTVM's form, in which the error of a failure takes the place of its times."""
    costs = result.times if result.error is None else (str(result.error),)
    return (
        f"MeasureResult(costs={costs}, error_no=MeasureErrorNo.{result.error_no.name}, "
        f"all_cost={result.all_cost:.6g}, timestamp={result.timestamp!r})"
    )
