"""Input and output of a measurement: tasks, inputs, results and typed failures.

A failure is a kind with a text and has no times: no sentinel cost stands for it. ``costs``,
``error_no``, ``all_cost`` and ``timestamp`` are AutoTVM's views of the same facts.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from loopwright.records import Checked, ErrorKind, Expression, Json
from loopwright.target import Target

if TYPE_CHECKING:
    from loopwright.schedule import Schedule
    from loopwright.task import ConfigEntity, Task
    from loopwright.te import Tensor

__all__ = [
    "ErrorKind",
    "MeasureError",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "TaskLike",
    "faster",
    "is_reusable",
]


class TaskLike(Protocol):
    """A task as far as measuring needs it; `loopwright.task.Task` is one."""

    name: str
    args: tuple[Json, ...]
    key: str
    target: Target

    @property
    def reference(self) -> Callable[..., Any] | None:
        """NumPy function of the inputs that returns the outputs, or None."""

    @property
    def make_inputs(self) -> Callable[[], Sequence[npt.ArrayLike]] | None:
        """Function that makes one array per input, or None for random ones."""

    def instantiate(self, config: ConfigEntity) -> tuple[Schedule, list[Tensor]]:
        """Run the template under a configuration; returns the schedule and the arguments."""


class MeasureErrorNo(IntEnum):
    """AutoTVM's numbers of kinds of errors (several of our kinds share one).

    Example:
        >>> from loopwright.measure import MeasureErrorNo
        >>> print(MeasureErrorNo.NO_ERROR.value)
        0
    """

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


_NUMBERS: dict[str, MeasureErrorNo] = {
    ErrorKind.INSTANTIATION: MeasureErrorNo.INSTANTIATION_ERROR,
    ErrorKind.COMPILE: MeasureErrorNo.COMPILE_HOST,
    ErrorKind.BUILD_CRASH: MeasureErrorNo.COMPILE_HOST,
    ErrorKind.BUILD_TIMEOUT: MeasureErrorNo.BUILD_TIMEOUT,
    ErrorKind.RUN_TIMEOUT: MeasureErrorNo.RUN_TIMEOUT,
    ErrorKind.RUN_CRASH: MeasureErrorNo.RUNTIME_DEVICE,
    ErrorKind.RUN_ERROR: MeasureErrorNo.RUNTIME_DEVICE,
    ErrorKind.MEMORY: MeasureErrorNo.RUNTIME_DEVICE,
    ErrorKind.WRONG_ANSWER: MeasureErrorNo.WRONG_ANSWER,
}


#: Failures that another attempt at the same program may not have.
_BY_CHANCE = (
    ErrorKind.BUILD_TIMEOUT,
    ErrorKind.BUILD_CRASH,
    ErrorKind.MEMORY,
    ErrorKind.INSTANTIATION,
)


@dataclass(frozen=True)
class MeasureError:
    """Failure of a trial.

    Example:
        >>> from loopwright.measure import MeasureError
        >>> failed = lw.MeasureResult(error=MeasureError("run_timeout", "took longer than 10 s"))
        >>> print(failed.error.kind)
        run_timeout
    """

    kind: str  #: one of `ErrorKind`; the log of a newer version may hold another name
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class MeasureInput:
    """One trial to be measured: a task, a point of its space, and its number in the run, from 0.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> print(lw.MeasureInput(task, task.config(0)).config.index)
        0
    """

    task: Task
    config: ConfigEntity
    trial: int = 0

    @property
    def target(self) -> Target:
        """Target of the task, as in AutoTVM."""
        return self.task.target


@dataclass(frozen=True)
class MeasureResult:
    """Result of measuring one trial.

    Example:
        >>> result = lw.MeasureResult(times=(2e-3, 1e-3, 3e-3))
        >>> print(result.median, result.error)
        0.002 None
    """

    times: tuple[float, ...] = ()  #: seconds of one call, one number per sample; empty on failure
    #: Racing stopped after one run, because the candidate was far behind the incumbent. A censored
    #: value, "no faster than about this", that is never best and never applied.
    dropped: bool = False
    error: MeasureError | None = None
    build_s: float = 0.0  #: seconds spent building
    run_s: float = 0.0  #: seconds spent running and checking
    ts: float = 0.0  #: Unix time at which the result was complete
    #: Largest absolute difference from the reference when the numeric check ran (also for a wrong
    #: answer, where it may be infinite), else None.
    max_error: float | None = None
    dag: str = ""  #: hash of the tensor expression; empty where not known
    #: The schedule's steps as JSON text, so that the record is written without running the template
    #: again; empty where not known.
    trace: str = ""
    checked: Checked = Checked.NO  #: whether the answer was compared with the reference
    check_reason: str = ""  #: the reason why it was not; empty when it was
    program: str = ""  #: hash of the lowered program and its compile settings; empty: not known
    code: str = ""  #: hash of the object code; empty where not known
    #: ``program`` of the result whose samples this one shares, since both are one program; empty
    #: where it was measured itself.
    same_as: str = ""
    #: Id of the record whose times these are, since its object code is the same; empty where it was
    #: measured itself.
    times_of: str = ""
    #: Resources of the kernel as the device's compiler reports them, in the form of
    #: `loopwright.records.Record`; None where it reports nothing.
    resources: Mapping[str, Json] | None = None
    prepare_s: float = 0.0  #: seconds of the part that constants determine, not in ``times``
    expression: Expression | None = None  #: in the form of a log; None where not known

    @property
    def valid(self) -> bool:
        return self.error is None

    @property
    def usable(self) -> bool:
        """Whether the result may become the best: valid and not dropped."""
        return self.error is None and not self.dropped

    @functools.cached_property
    def median(self) -> float | None:
        """Median seconds of one call; None on failure."""
        return statistics.median(self.times) if self.times else None

    @property
    def costs(self) -> tuple[float, ...]:
        """AutoTVM's name of ``times``; empty on failure, never an exception or a huge number."""
        return self.times

    @property
    def error_no(self) -> MeasureErrorNo:
        """AutoTVM's number of the failure; 0 when there is none."""
        if self.error is None:
            return MeasureErrorNo.NO_ERROR
        return _NUMBERS.get(self.error.kind, MeasureErrorNo.UNKNOWN_ERROR)

    @property
    def all_cost(self) -> float:
        """Seconds spent on the trial (AutoTVM)."""
        return self.build_s + self.run_s

    @property
    def timestamp(self) -> float:
        return self.ts

    def __iter__(self) -> Iterator[Any]:
        """AutoTVM's four fields in its order, which its scripts unpack by position."""
        return iter((self.costs, self.error_no, self.all_cost, self.timestamp))

    def __getitem__(self, position: int) -> Any:
        return tuple(self)[position]


def is_reusable(result: MeasureResult) -> bool:
    """Whether a result is that of its program, rather than of one attempt to measure it.

    A time is, also of a candidate which racing dropped, and so are a compiler's refusal, a crash, a
    kernel that is too slow, a wrong answer; a builder that was killed, or short of memory, is not.
    """
    if not result.program or result.same_as:
        return False
    return result.error is None or result.error.kind not in _BY_CHANCE


def would_lead(incumbent: float | None, result: MeasureResult) -> bool:
    """Whether a result would become the best, were its answer right; times are seconds."""
    if not result.usable or result.median is None:
        return False
    return incumbent is None or result.median < incumbent


def faster(incumbent: float | None, result: MeasureResult) -> float | None:
    """The time to beat after a result, which counts if right, or not to be checked."""
    if result.checked is Checked.NO or not would_lead(incumbent, result):
        return incumbent
    return result.median
