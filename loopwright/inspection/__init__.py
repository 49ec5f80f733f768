"""Inspection of tuning logs: the work behind a time, and kernels rebuilt from records.

Statistics that need the log alone are in `loopwright.records.reports`. This room also needs the
tensor expression that the log holds, the compiler, or a measurement.
"""

from loopwright.inspection.choosing import choose
from loopwright.inspection.emission import EMITTED, emit, outline, text_of
from loopwright.inspection.export import export
from loopwright.inspection.rerun import Rerun, rerun
from loopwright.inspection.speed import Work, work_of, works_of
from loopwright.inspection.ties import Change, change, median_interval
from loopwright.measure.checking.check import Closeness, Comparison, compare, poison
from loopwright.measure.data.plan import DataPlan, input_set

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
