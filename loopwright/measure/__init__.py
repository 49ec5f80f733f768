"""Measure candidates: build, run, time and check them in processes that can be killed.

`Measurer` measures, `measure_option` configures it, `MeasureResult` is the result. A candidate that
crashes, hangs, exhausts the memory, exits or gives a wrong answer costs one trial with a typed
error. `Replay` stands for a device that has measured a whole space already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopwright.lazy import lazy_names
from loopwright.measure.devices import DeviceLock, lock_log
from loopwright.measure.interfaces import FinalistResult, MeasurerLike, PlayoffPlan, PlayoffResult
from loopwright.measure.measurer import (
    BuildResult,
    MeasureBatch,
    Measurer,
    create_measure_batch,
    recheck,
)
from loopwright.measure.options import LocalBuilder, LocalRunner, MeasureOption, measure_option
from loopwright.measure.paired_ratios import PairedGain, paired_gain
from loopwright.measure.result import (
    ErrorKind,
    MeasureError,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    TaskLike,
)
from loopwright.measure.space_file import MeasuredSpace, Replay, load_space

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.measure.building import code_of
    from loopwright.measure.candidate import Candidate, plan_of, task_inputs
    from loopwright.measure.comparison import (
        Array,
        Closeness,
        Comparison,
        compare,
        computed_in,
        poison,
        reduction_length,
    )
    from loopwright.measure.device_limit import bandwidth_limit, in_this_process
    from loopwright.measure.devices import check_can_measure, lock_names, measured_on
    from loopwright.measure.inputs import DataPlan, arguments, input_set
    from loopwright.measure.interfaces import KnowsCode, SharesPrograms, TellsPhases, ignore, played
    from loopwright.measure.machine_limit import (
        BANDWIDTH,
        MachineLimit,
        arithmetic_of,
        arithmetic_roof,
        bytes_of,
        limit_of,
        moving,
        stays_in_cache,
    )
    from loopwright.measure.measurer import ScheduledTask
    from loopwright.measure.options import WINDOW_S, WINDOWS, machine_memory
    from loopwright.measure.paired_ratios import CONFIDENCE, SMALLEST_GAIN
    from loopwright.measure.result import is_reusable
    from loopwright.measure.workers.process import (
        FailureCause,
        Worker,
        WorkerProgram,
        take,
        wait_any,
    )
    from loopwright.measure.workers.protocol import Done, Failed, Message, Reply
    from loopwright.measure.workers.worker import main

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

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__)
