"""``auto_scheduler.measure``: inputs, results and settings of a measurement."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, NoReturn

from loopwright.auto_scheduler.compute_dag import ComputeDAG
from loopwright.auto_scheduler.loop_state import State
from loopwright.errors import UsageError, no_such_name
from loopwright.history.rebuild import rebuild
from loopwright.measure import LocalBuilder, LocalRunner, MeasureError, MeasureErrorNo
from loopwright.measure import MeasureInput as _Input
from loopwright.measure import MeasureResult as _Result
from loopwright.records import Log, Record
from loopwright.records.autotvm import ERRORS
from loopwright.target import Target
from loopwright.tuner.run.recorded import result_of

__all__ = [
    "INSTEAD",
    "LocalBuilder",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "MeasureErrorNo",
    "MeasureInput",
    "MeasureResult",
    "MeasuredTask",
]

_REMOTE = "tune on the machine itself with LocalRunner, and merge the logs"
_PROCESSES = (
    "builders and runners are processes of loopwright's own (docs/adr/019); give LocalBuilder and "
    "LocalRunner"
)
#: Names of Ansor's measuring that cannot be had, and what takes their place.
INSTEAD = {
    "ProgramBuilder": _PROCESSES,
    "ProgramMeasurer": "give builder and runner to TuningOptions",
    "ProgramRunner": _PROCESSES,
    "RPCRunner": _REMOTE,
    "register_task_input_check_func": "give SearchTask its task_inputs, arrays by names of inputs",
}


class MeasuredTask:
    """The facts of a record about its task.

    ``workload_key`` is the name and arguments of its workload as JSON, see `make_workload_key`; of
    tensors without a function the hash of their expression.
    """

    def __init__(self, workload_key: str, target: Target, make_dag: Callable[[], ComputeDAG]):
        self.workload_key, self.target = workload_key, target
        self._make_dag = make_dag

    @cached_property
    def compute_dag(self) -> ComputeDAG:
        return self._make_dag()


class MeasureInput:
    """A schedule of a task, measured or to be measured.

    Args:
        task: the `SearchTask`, or the facts of a record about it.
        state: the schedule.
        record: the record of the measurement, or None.

    Example:
        >>> from loopwright import auto_scheduler
        >>> A = te.placeholder((16,), name="A")
        >>> B = te.compute((16,), lambda i: A[i] + 1, name="B")
        >>> dag = auto_scheduler.ComputeDAG([A, B])
        >>> task = auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> item = auto_scheduler.MeasureInput(task, dag.get_init_state())
        >>> print(item.task.target.kind, len(item.state.transform_steps))
        llvm 0
    """

    def __init__(self, task: Any, state: State, record: Record | None = None) -> None:
        self.task, self.state, self.record = task, state, record


def key_of(name: str, args: Sequence[Any], dag_hash: str, unnamed: str) -> str:
    """The key of the workload of a task, or of a record."""
    return json.dumps([dag_hash] if name == unnamed else [name, *args])


def input_of(log: Log, record: Record, unnamed: str) -> MeasureInput:
    """The input of a record; the expression is read on demand."""

    def scheduled() -> Any:
        rebuilt = rebuild(log, record)
        return rebuilt.schedule, rebuilt.args

    def dag() -> ComputeDAG:
        return ComputeDAG.of_schedule(*scheduled())

    key = key_of(record.op, record.args, record.dag, unnamed)
    target = Target({name: value for name, value in record.target.items() if name != "cc"})
    return MeasureInput(MeasuredTask(key, target, dag), State(scheduled), record)


def input_of_tuner(item: _Input, task: Any) -> MeasureInput:
    """The input of a tuner, for a `SearchTask`."""
    own = item.task
    state = State(lambda: own.instantiate(item.config), task.compute_dag.places, item.config)
    return MeasureInput(task, state)


class MeasureResult(_Result):
    """The result of a trial: ``loopwright.MeasureResult`` with Ansor's order of arguments.

    Args:
        costs: seconds of each sample.
        error_no: `MeasureErrorNo`, or its number; 0: no failure.
        error_msg: the text of the failure.
        all_cost: seconds that the trial took.
        timestamp: Unix time of its end.
        fields: those of ``loopwright.MeasureResult`` by name, which take precedence.

    Raises:
        UsageError: there is no such error.

    Example:
        >>> from loopwright import auto_scheduler
        >>> result = auto_scheduler.MeasureResult((0.5, 0.7), 0, "", 3.0, 1.6e9)
        >>> print(result.costs, result.error_no.name, result.all_cost)
        (0.5, 0.7) NO_ERROR 3.0
        >>> print(auto_scheduler.MeasureResult((), 4, "no such device", 3.0, 1.6e9).error_msg)
        no such device
    """

    def __init__(
        self,
        costs: Sequence[float] = (),
        error_no: int = 0,
        error_msg: str | None = None,
        all_cost: float = 0.0,
        timestamp: float = 0.0,
        **fields: Any,
    ) -> None:
        error = None
        if error_no:
            if error_no not in ERRORS:
                raise UsageError(
                    f"MeasureResult: error_no is a MeasureErrorNo, 0 to 8, got {error_no!r}"
                )
            kind, text = ERRORS[error_no]
            error = MeasureError(kind, error_msg or text)
        times = () if error_no else tuple(costs)
        given: dict[str, Any] = {"times": times, "error": error, "run_s": all_cost, "ts": timestamp}
        super().__init__(**{**given, **fields})

    @property
    def error_msg(self) -> str:
        """The text of the failure; empty where there is none."""
        return "" if self.error is None else self.error.text


def recorded_result(record: Record) -> MeasureResult:
    """The result that a record keeps."""
    return as_measured(result_of(record))


def as_measured(found: _Result) -> MeasureResult:
    """A result of loopwright with Ansor's fields."""
    return MeasureResult(**{f.name: getattr(found, f.name) for f in fields(found)})


class LocalRPCMeasureContext:
    """Ansor's runner in a process of its own, which every runner of loopwright is.

    Args:
        priority: accepted; nobody else is served.
        n_parallel: accepted; kernels of one device run one after the other.
        timeout: seconds that one candidate may run.
        number: calls of a sample; without this, ``repeat`` and ``min_repeat_ms``, samples are
            those of `loopwright.LocalRunner`.
        repeat: samples.
        min_repeat_ms: least time of a sample in milliseconds.
        cooldown_interval: seconds of rest before each candidate.
        enable_cpu_cache_flush: empty the caches before each call.
        device: 0, the first device of the target's kind; or a name, such as ``"opencl:1"``.

    Attributes:
        runner: the runner for `TuningOptions`.

    Raises:
        UsageError: the device is a number other than 0.

    Example:
        >>> from loopwright import auto_scheduler
        >>> context = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=300)
        >>> print(context.runner.counts)
        (3, 1, 300)
    """

    def __init__(
        self,
        priority: int = 1,
        n_parallel: int = 1,
        timeout: float = 10,
        number: int | None = None,
        repeat: int | None = None,
        min_repeat_ms: float | None = None,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        device: int | str = 0,
    ) -> None:
        if isinstance(device, int) and device != 0:
            raise UsageError(
                f"LocalRPCMeasureContext: device {device} is of which kind? Name it, such as "
                f'device="opencl:{device}"'
            )
        if (number, repeat, min_repeat_ms) != (None, None, None):  # all have Ansor's meaning then
            number, repeat = number or 3, repeat or 1
            min_repeat_ms = min_repeat_ms or 0
        self.runner = LocalRunner(
            timeout=timeout,
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            cooldown_interval=cooldown_interval,
            enable_cpu_cache_flush=enable_cpu_cache_flush,
            device=str(device or ""),
        )


def __getattr__(name: str) -> NoReturn:
    raise no_such_name("loopwright.auto_scheduler.measure", name, INSTEAD)
