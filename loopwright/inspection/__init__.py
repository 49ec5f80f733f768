"""Inspection of tuning logs: the work behind a time, and kernels rebuilt from records.

Statistics that need the log alone are in `loopwright.records.reports`. This room also needs the
tensor expression that the log holds, the compiler, or a measurement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.inspection.choosing import choose
from loopwright.inspection.emission import EMITTED, emit, outline, text_of
from loopwright.inspection.export import export
from loopwright.inspection.rerun import Rerun, rerun
from loopwright.inspection.speed import Work, work_of, works_of
from loopwright.inspection.ties import Change, change, median_interval
from loopwright.lazy import lazy_names
from loopwright.measure import Closeness, Comparison, DataPlan, compare, input_set, poison

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.inspection.bench import (
        Contestant,
        CpuLimits,
        DeviceLimits,
        RunPlace,
        device_rates,
        locked,
        model_run,
    )
    from loopwright.inspection.choosing import WORDS, of_run
    from loopwright.inspection.dashboard import HOST, LiveReport, application, bound_socket, serve
    from loopwright.inspection.doctor import Finding, State, examine
    from loopwright.inspection.log_statistics import structure_of, tried_structures
    from loopwright.inspection.report import PAGE, TunedKernels, model_page, page_of, report_html
    from loopwright.inspection.report.page_data import ModelPage
    from loopwright.inspection.schedules import (
        ChosenSchedule,
        RecordName,
        applies_here,
        best_schedule,
        default_schedule,
    )
    from loopwright.inspection.speed import duration_text, speed_text, time_text
    from loopwright.inspection.ties import LOOKED_AT, place_of, ties_of
    from loopwright.inspection.watch import (
        Status,
        TaskStatus,
        Watcher,
        Writers,
        check_may_grow,
        writers_of,
    )

__all__ = [
    "EMITTED",
    "Change",
    "Closeness",
    "Comparison",
    "DataPlan",
    "Rerun",
    "Work",
    "change",
    "choose",
    "compare",
    "emit",
    "export",
    "input_set",
    "median_interval",
    "outline",
    "poison",
    "rerun",
    "text_of",
    "work_of",
    "works_of",
]

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
