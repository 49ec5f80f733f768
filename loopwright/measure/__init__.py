"""Measure candidates: build, run, time and check them in processes that can be killed.

`Measurer` measures, `measure_option` configures it, `MeasureResult` is the result. A candidate that
crashes, hangs, exhausts the memory, exits or gives a wrong answer costs one trial with a typed
error. `Replay` stands for a device that has measured a whole space already.
"""

from loopwright.measure.batch import BuildResult, MeasureBatch, create_measure_batch
from loopwright.measure.devices import DeviceLock, lock_log
from loopwright.measure.interfaces import FinalistResult, MeasurerLike, PlayoffPlan, PlayoffResult
from loopwright.measure.measurer import Measurer
from loopwright.measure.options import LocalBuilder, LocalRunner, MeasureOption, measure_option
from loopwright.measure.paired_ratios import PairedGain, paired_gain
from loopwright.measure.record_check import recheck
from loopwright.measure.result import (
    ErrorKind,
    MeasureError,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    TaskLike,
)
from loopwright.measure.space_file import MeasuredSpace, Replay, load_space

__all__ = [
    "BuildResult",
    "DeviceLock",
    "ErrorKind",
    "FinalistResult",
    "LocalBuilder",
    "LocalRunner",
    "MeasureBatch",
    "MeasureError",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureOption",
    "MeasureResult",
    "MeasuredSpace",
    "Measurer",
    "MeasurerLike",
    "PairedGain",
    "PlayoffPlan",
    "PlayoffResult",
    "Replay",
    "TaskLike",
    "create_measure_batch",
    "load_space",
    "lock_log",
    "measure_option",
    "paired_gain",
    "recheck",
]
