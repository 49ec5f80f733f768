"""Tuners, and the loop that drives them within budgets and records every measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names
from loopwright.tuner.base import Tuner
from loopwright.tuner.breeding import Rules, crossings, mutations, populations
from loopwright.tuner.candidate_checks import register_check, remove_check
from loopwright.tuner.droplet_tuner import DropletTuner
from loopwright.tuner.evolution import Annealing, Evolution
from loopwright.tuner.ga_tuner import GATuner
from loopwright.tuner.history_or_sample import ApplyHistoryBestOrSample
from loopwright.tuner.model.explain import Explanation, explain, learn
from loopwright.tuner.range_tuners import GridSearchTuner, RandomTuner
from loopwright.tuner.registry import DEFAULT_TUNER, TUNERS, find_tuner
from loopwright.tuner.run.callbacks import EarlyStop, log_to_file, progress_bar, stop_at
from loopwright.tuner.run.interfaces import Callback, Monitor, TunerLike
from loopwright.tuner.run.loop import PLAN_SIZE, TuningInterrupted, tune
from loopwright.tuner.run.state import Failure, RunState, Trial
from loopwright.tuner.run.summary import NothingRan, Summary
from loopwright.tuner.structures import StructuresTuner
from loopwright.tuner.tasks.summary import TaskRow, TasksMonitor, TasksSummary, task_table
from loopwright.tuner.tasks.tune_tasks import tune_tasks
from loopwright.tuner.xgb_tuner import XGBTuner

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.tuner.breeding import KnownPoints
    from loopwright.tuner.evolution import Pool
    from loopwright.tuner.model.candidates import CandidateBatches, Measurements
    from loopwright.tuner.model.cost_model import SampleOutcome
    from loopwright.tuner.model.xgb_model import XGBCostModel
    from loopwright.tuner.run.budget import (
        Budget,
        clock,
        count,
        gain_per_minute,
        seconds,
        target_speed,
    )
    from loopwright.tuner.run.callbacks import LogToFile
    from loopwright.tuner.run.journal import Journal, open_journal
    from loopwright.tuner.run.loop import check_arguments
    from loopwright.tuner.run.phases import Ticker
    from loopwright.tuner.run.progress import Part, line_with_bar, shows_progress
    from loopwright.tuner.run.recorded import result_of, results_of
    from loopwright.tuner.run.state import flop_of, point, speed_of
    from loopwright.tuner.run.summary import failure_lines, speed, time_line
    from loopwright.tuner.structures import StructureTask, union_of
    from loopwright.tuner.tasks.scheduler import ALPHA, BACKWARD_WINDOW, BETA, STRATEGIES
    from loopwright.tuner.tasks.summary import TaskTable

__all__ = [
    "DEFAULT_TUNER", "PLAN_SIZE", "TUNERS", "Annealing", "ApplyHistoryBestOrSample", "Callback",
    "DropletTuner", "EarlyStop", "Evolution", "Explanation", "Failure", "GATuner",
    "GridSearchTuner", "Monitor", "NothingRan", "RandomTuner", "Rules", "RunState",
    "StructuresTuner", "Summary", "TaskRow", "TasksMonitor", "TasksSummary", "Trial", "Tuner",
    "TunerLike", "TuningInterrupted", "XGBTuner", "crossings", "explain", "find_tuner", "learn",
    "log_to_file", "mutations", "populations", "progress_bar", "register_check", "remove_check",
    "stop_at", "task_table", "tune", "tune_tasks",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
