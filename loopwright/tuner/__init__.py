"""Tuners, and the loop that drives them: which configuration next, for how long, recorded how.

``loop.tune`` is where the whole pipeline can be read.
"""

from loopwright.errors import UsageError, did_you_mean
from loopwright.tuner.base import Tuner
from loopwright.tuner.ga_tuner import GATuner
from loopwright.tuner.gridsearch_tuner import GridSearchTuner
from loopwright.tuner.model.explain import Explanation, explain
from loopwright.tuner.model.train_from_log import learn
from loopwright.tuner.random_tuner import RandomTuner
from loopwright.tuner.run.callbacks import EarlyStop, Monitor, log_to_file, progress_bar, stop_at
from loopwright.tuner.run.loop import PLAN_SIZE, TuningInterrupted, tune
from loopwright.tuner.run.run import NothingRan
from loopwright.tuner.run.state import Failure, RunState, Trial
from loopwright.tuner.run.summary import Summary
from loopwright.tuner.tasks.summary import TaskRow, TasksSummary
from loopwright.tuner.tasks.table import TasksMonitor, task_table
from loopwright.tuner.tasks.tune_tasks import tune_tasks
from loopwright.tuner.xgb_tuner import XGBTuner

#: The tuners by the names that the command line and logs use.
TUNERS: dict[str, type[Tuner]] = {
    RandomTuner.name: RandomTuner,
    GridSearchTuner.name: GridSearchTuner,
    GATuner.name: GATuner,
    XGBTuner.name: XGBTuner,
}
#: The tuner that the command line and `tune_tasks` take when none is named.
DEFAULT_TUNER = XGBTuner.name


def find_tuner(name: str) -> type[Tuner]:
    """Return the tuner class of a name.

    Raises:
        UsageError: there is none; the message names all and the nearest.
    """
    if name not in TUNERS:
        raise UsageError(
            f"unknown tuner {name!r}{did_you_mean(name, TUNERS)}; there are {', '.join(TUNERS)}"
        )
    return TUNERS[name]


__all__ = [
    "DEFAULT_TUNER",
    "PLAN_SIZE",
    "TUNERS",
    "EarlyStop",
    "Explanation",
    "Failure",
    "GATuner",
    "GridSearchTuner",
    "Monitor",
    "NothingRan",
    "RandomTuner",
    "RunState",
    "Summary",
    "TaskRow",
    "TasksMonitor",
    "TasksSummary",
    "Trial",
    "Tuner",
    "TuningInterrupted",
    "XGBTuner",
    "explain",
    "find_tuner",
    "learn",
    "log_to_file",
    "progress_bar",
    "stop_at",
    "task_table",
    "tune",
    "tune_tasks",
]
