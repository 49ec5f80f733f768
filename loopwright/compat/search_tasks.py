"""Ansor's tasks: what is searched on which hardware, under which options, one or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loopwright import records as logs
from loopwright.compat.autotvm import with_host
from loopwright.compat.measuring import TuningOptions, key_of
from loopwright.compat.searching import SearchPolicy, SketchPolicy, XGBModel
from loopwright.compat.states import (
    ComputeDAG,
    State,
    check_layout_rewrite,
    make_workload_key,
    named_workload,
    registered_tensors,
)
from loopwright.driver import build
from loopwright.errors import RecordError, UsageError, did_you_mean
from loopwright.history import ApplyHistoryBest as HistoryBest
from loopwright.records import Json, Record
from loopwright.space import EXPRESSION, AutomaticTask, Workload
from loopwright.space import create_task as create_automatic
from loopwright.target import Target
from loopwright.task import TargetLike, lookup, resolve_target
from loopwright.tuner import ApplyHistoryBestOrSample as HistoryBestOrSample

if TYPE_CHECKING:
    from loopwright.task import Scheduled
    from loopwright.tuner import Summary


class SearchTask:
    """An expression, and the target of its schedules; UsageError where the expression is missing,
    or an array fits no input; others as of ``autotvm.task.create``.

    Args:
        func, args: a function that `register_workload` registered, or its name, and its arguments.
        compute_dag, workload_key: the expression, or the key of a workload, in place of both.
        target, target_host: as of ``autotvm.task.create``.
        task_inputs: arrays by names of inputs, on which candidates are checked and timed; other
            inputs get random numbers from 0 to 1, or zeros if they are integers.
        task_inputs_overwrite: accepted: arrays belong to one task, and are not registered.
        task_inputs_save_to_file: accepted only as False.
        desc: a name for people.

    Attributes:
        workload_key: name and arguments of the workload as JSON.
        automatic_task: the underlying task of loopwright.
        task_input_names: names of the inputs whose arrays were given.

    Example:
        >>> X = te.placeholder((256,), name="X")
        >>> dag = lw.auto_scheduler.ComputeDAG(te.compute((256,), lambda i: X[i] * 2, name="Y"))
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> log = lw.auto_scheduler.RecordToFile("doubled.jsonl")
        >>> runner = lw.auto_scheduler.LocalRunner(number=1, repeat=1)
        >>> options = lw.auto_scheduler.TuningOptions(2, runner=runner, measure_callbacks=[log])
        >>> options.verbose = 0
        >>> print(task.tune(options).measured, len(task.apply_best("doubled.jsonl")[1]))
        2 2
    """

    def __init__(
        self,
        func: str | Callable[..., Any] | None = None,
        args: Sequence[Json] | None = None,
        compute_dag: ComputeDAG | None = None,
        workload_key: str | None = None,
        target: TargetLike = None,
        target_host: TargetLike = None,
        hardware_params: HardwareParams | None = None,
        layout_rewrite_option: int | None = None,
        task_inputs: Mapping[str, npt.ArrayLike] | None = None,
        task_inputs_overwrite: bool = False,
        task_inputs_save_to_file: bool = False,
        desc: str = "",
    ) -> None:
        check_layout_rewrite(layout_rewrite_option)
        if task_inputs_save_to_file:
            raise UsageError(
                "SearchTask: arrays are not written to files; keep them by numpy.save, and give "
                "them to the task again"
            )
        resolved = resolve_target(with_host(target, target_host))
        self.hardware_params = hardware_params
        self.target = resolved if hardware_params is None else hardware_params.applied_to(resolved)
        self.layout_rewrite_option = layout_rewrite_option
        self.desc, self.task_input_names = desc, list(task_inputs or ())
        automatic = _automatic(func, args, compute_dag, workload_key, self.target)
        self.automatic_task = _with_inputs(automatic, task_inputs) if task_inputs else automatic
        self.compute_dag = compute_dag or ComputeDAG(list(automatic.program.args))
        key = key_of(automatic.name, list(automatic.args), automatic.dag_hash, EXPRESSION)
        self.workload_key = workload_key or key

    def __repr__(self) -> str:
        return f"SearchTask({self.desc or self.automatic_task}, {self.target})"

    @property
    def target_host(self) -> Target | None:
        """The target of the code that calls the kernel; None where none was given."""
        return self.target.host

    def tune(
        self,
        tuning_options: TuningOptions,
        search_policy: SearchPolicy | None = None,
        adaptive_training: bool = False,
    ) -> Summary | None:
        """Search schedules; returns the summary, or None where ``num_measure_trials`` is 0.

        None for the policy is a `SketchPolicy` with an `XGBModel`; ``adaptive_training`` is
        accepted. UsageError where the policy is of another task; others as of `Tuner.tune`.
        """
        policy = search_policy or SketchPolicy(self, XGBModel())
        if policy.task.automatic_task.key != self.automatic_task.key:
            raise UsageError(f"the policy is one of {policy.task!r}; make one of {self!r}")
        return policy.search(tuning_options)

    def apply_best(
        self,
        log_file: str,
        include_compatible: bool = False,
        layout_rewrite_option: int | None = None,
    ) -> Scheduled:
        """The schedule of the best record of a log, and its arguments.

        Records of templates of the same expression count, too; with ``include_compatible`` also
        those of other hardware (Ansor: of other sizes). RecordError where no record fits; the
        message has the reason.
        """
        check_layout_rewrite(layout_rewrite_option)
        history = HistoryBest(log_file, any_hardware=include_compatible)
        choice, scheduled = history.choose(self.automatic_task)
        if scheduled is None:
            why = "; ".join(choice.reasons) or "it has none"
            raise RecordError(f"{log_file} has no record to apply to {self!r}: {why}")
        return scheduled

    def print_best(
        self, log_file: str, print_mode: str = "schedule", include_compatible: bool = False
    ) -> str:
        """The schedule of `apply_best` as text: a Python function of its steps, or for ``"cuda"``
        the code compiled for the target: CUDA, OpenCL, C or LLVM IR. UsageError for other modes.
        """
        if print_mode not in ("schedule", "cuda"):
            raise UsageError(f'print_mode is "schedule" or "cuda", got {print_mode!r}')
        schedule, args = self.apply_best(log_file, include_compatible)
        if print_mode == "schedule":
            return schedule.as_python()
        return build(schedule, args, self.target).get_source()


def _automatic(
    func: str | Callable[..., Any] | None,
    args: Sequence[Json] | None,
    compute_dag: ComputeDAG | None,
    workload_key: str | None,
    target: Target,
) -> AutomaticTask:
    if func is not None:
        workload_key = make_workload_key(func, args or ())
    if workload_key is not None and registered_tensors(workload_key) is None and not compute_dag:
        name, values = named_workload(workload_key)
        task = create_automatic(lookup(name), values, target)
        if not isinstance(task, AutomaticTask):
            raise UsageError(
                f"SearchTask: {name!r} is a template, with a space of its own; tune it by "
                "loopwright.create_task, or register a function that returns its tensors alone"
            )
        return task
    tensors = registered_tensors(workload_key or "") if compute_dag is None else compute_dag.tensors
    if tensors is None:
        raise UsageError(
            "SearchTask: there is no expression; give func and args, compute_dag or workload_key"
        )
    task = create_automatic(list(tensors), target=target)
    assert isinstance(task, AutomaticTask)
    return task


def _with_inputs(task: AutomaticTask, by_name: Mapping[str, npt.ArrayLike]) -> AutomaticTask:
    inputs = [t for t in task.program.args if t not in task.program.outputs]
    arrays = {name: np.asarray(array) for name, array in by_name.items()}
    for name, array in arrays.items():
        tensor = next((t for t in inputs if t.name == name), None)
        if tensor is None:
            near = did_you_mean(name, [t.name for t in inputs])
            raise UsageError(f"SearchTask: {task} has no input {name!r} for task_inputs{near}")
        if (array.shape, str(array.dtype)) != (tuple(tensor.shape), tensor.dtype):
            raise UsageError(
                f"SearchTask: task_inputs[{name!r}] is {array.dtype}{list(array.shape)}; the input "
                f"is {tensor.dtype}{list(tensor.shape)}"
            )

    def make_inputs(*args: Json) -> list[npt.ArrayLike]:
        rng = np.random.default_rng(0)
        return [arrays.get(t.name, _filler(t, rng)) for t in inputs]

    template = task.template
    workload = Workload(
        template.name, template.function, template.reference, make_inputs, template.make_reference
    )
    return AutomaticTask(workload, task.args, task.target)


def _filler(t: Any, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Data for an input that was not given: zeros for integers, which may be used as indices."""
    if t.dtype.startswith("float"):
        return rng.random(tuple(t.shape)).astype(t.dtype)
    return np.zeros(tuple(t.shape), t.dtype)


def create_task(
    func: str | Callable[..., Any],
    args: Sequence[Json],
    target: TargetLike,
    target_host: TargetLike = None,
    hardware_params: HardwareParams | None = None,
) -> SearchTask:
    """Make a `SearchTask`, as scripts for TVM 0.7 do; its arguments and errors apply."""
    return SearchTask(
        func, args, target=target, target_host=target_host, hardware_params=hardware_params
    )


def auto_schedule(
    task: SearchTask,
    search_policy: SearchPolicy | None = None,
    tuning_options: TuningOptions | None = None,
) -> Scheduled:
    """Search for the best schedule, as scripts for TVM 0.7 do: ``(schedule, [tensors])``, of the
    best record if there is a log, or by the analytical model without options, or trials.

    Example:
        >>> X = te.placeholder((256,), name="X")
        >>> dag = lw.auto_scheduler.ComputeDAG(te.compute((256,), lambda i: X[i] * 2, name="Y"))
        >>> task = lw.auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> print([t.name for t in lw.auto_scheduler.auto_schedule(task)[1]])
        ['X', 'Y']
    """
    options = tuning_options or TuningOptions()
    policy = search_policy or SketchPolicy(task, XGBModel())
    summary = task.tune(options, policy)
    if options.log is not None:
        return task.apply_best(options.log)
    automatic = policy.automatic_task
    if summary is None or summary.best_config is None:
        return automatic.default()
    return automatic.instantiate(summary.best_config)


#: Options of GPU targets by Ansor's names.
_GPU = {
    "num_cores": "multi_processor_count",
    "max_shared_memory_per_block": "max_shared_memory_per_block",
    "max_local_memory_per_block": "max_local_memory_per_thread",
    "max_threads_per_block": "max_threads_per_block",
    "max_vthread_extent": "max_vthread",
    "warp_size": "thread_warp_size",
    "vector_unit_bytes": "max_vector_bytes",
}


@dataclass(frozen=True)
class HardwareParams:
    """Facts of the hardware for a `SearchTask`; None keeps the target's.

    They become options of its target, for which kernels are built and which records hold.
    UsageError where a number is no positive integer.

    Attributes:
        num_cores: threads of a CPU; multiprocessors of a device.
        vector_unit_bytes: width of vectors; for a CPU only a width below the target's has an
            effect.
        cache_line_bytes: of a CPU; accepted for devices.
        max_shared_memory_per_block: bytes; for devices alone, as are the following ones.
        max_local_memory_per_block: bytes; of one thread here.
        max_threads_per_block, max_vthread_extent: threads, and virtual threads.
        warp_size: threads that run together.
        target: source of the values that are None.
        target_host: accepted: the host has no part in schedules.

    Example:
        >>> params = lw.auto_scheduler.HardwareParams(num_cores=1, vector_unit_bytes=32)
        >>> print(params.applied_to(lw.Target("llvm -mcpu=x86-64-v4")))
        llvm -num-threads=1 -prefer-vector-width=256 -mcpu=x86-64-v4
    """

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None
    target: TargetLike = None
    target_host: TargetLike = None

    def __post_init__(self) -> None:
        for name in (*_GPU, "cache_line_bytes"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise UsageError(f"HardwareParams: {name} is a positive integer, got {value!r}")
        if self.target is None:
            return
        target = resolve_target(self.target)
        facts: dict[str, Any]
        if "gpu" in target.keys:
            facts = {name: target.canonical.get(option) for name, option in _GPU.items()}
        else:
            hardware = target.hardware
            facts = {
                "num_cores": hardware.num_cores or None,
                "vector_unit_bytes": hardware.vector_unit_bytes,
                "cache_line_bytes": target.options.get("cache_line_bytes") or None,
            }
        for name, value in facts.items():
            if getattr(self, name) is None and value is not None:
                object.__setattr__(self, name, value)

    def applied_to(self, target: Target) -> Target:
        """A target with these facts; UsageError for a limit of devices on a CPU."""
        facts = {name: getattr(self, name) for name in _GPU if getattr(self, name) is not None}
        options: dict[str, Any] = {}
        if "gpu" in target.keys:
            options = {_GPU[name]: value for name, value in facts.items()}
            return Target({**target.canonical, **options}, target.host)
        cores, width = facts.pop("num_cores", None), facts.pop("vector_unit_bytes", None)
        if facts:
            raise UsageError(
                f"HardwareParams: {', '.join(facts)} holds for devices only, and the target is "
                f"{target.kind}; leave it out"
            )
        if cores is not None:
            options["num_threads"] = cores
        if width is not None and width < target.vector_bytes and target.kind.name == "llvm":
            options["prefer_vector_width"] = 8 * width
        if self.cache_line_bytes is not None:
            options["cache_line_bytes"] = self.cache_line_bytes
        return Target({**target.canonical, **options}, target.host)


def _first(records: Any, n_lines: int | None) -> Any:
    if isinstance(records, (str, bytes)) or hasattr(records, "__fspath__"):
        return records if n_lines is None else list(islice(logs.load(records), n_lines))
    if records is None:
        return None
    chosen = []
    for item in islice(records, n_lines):
        record = item if isinstance(item, Record) else getattr(item[0], "record", None)
        if not isinstance(record, Record):
            raise UsageError(
                "records are those of a log: give its path, or what load_records yields; got "
                f"{item!r:.60}"
            )
        chosen.append(record)
    return chosen


class ApplyHistoryBest(HistoryBest):
    """Build with the best records of a log: `loopwright.apply_history_best` with Ansor's arguments.

    Inside the context ``loopwright.build(tensors)``, and calls of functions that
    `loopwright.workload` decorates, get the schedule of the best record of their expression.
    RecordError where the log is missing or cannot be read; UsageError where ``records`` is of
    another kind.

    Args:
        records: the path of a log, or pairs as `load_records` yields them.
        n_lines: number of records from the beginning; None: all.
        include_compatible: also records of other hardware. (Ansor: of other sizes.)

    Example:
        >>> A, B = (te.placeholder((64, 64), name=name) for name in "AB")
        >>> k = te.reduce_axis((0, 64), name="k")
        >>> C = te.compute((64, 64), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
        >>> with lw.auto_scheduler.ApplyHistoryBest("matmul.jsonl") as history:
        ...     f = lw.build([A, B, C], "llvm")
        >>> print(history.report()[0].record is not None)
        True
    """

    def __init__(
        self, records: Any, n_lines: int | None = None, include_compatible: bool = False
    ) -> None:
        super().__init__(_first(records, n_lines), any_hardware=include_compatible)

    def load(self, records: Any, n_lines: int | None = None) -> None:
        """Add more records; arguments and errors as of the class."""
        super().load(_first(records, n_lines))

    def query(  # type: ignore[override]  # Ansor's arguments, and a state
        self,
        target: TargetLike,
        workload_key: str,
        has_complex_op: bool = True,
        dag: ComputeDAG | None = None,
    ) -> State | None:
        """The state of the best record of a workload, by its key or the expression ``dag``; None
        where no record fits. ``has_complex_op`` is accepted.
        """
        key = None if dag is not None else workload_key
        task = SearchTask(compute_dag=dag, workload_key=key, target=target)

        def best() -> Any:
            return self.choose(task.automatic_task)[1]

        return None if best() is None else State(best, task.compute_dag)


class ApplyHistoryBestOrSample(HistoryBestOrSample):
    """`ApplyHistoryBest` that samples a configuration for an expression without a record;
    UsageError where a file of a model is given; RecordError as of `ApplyHistoryBest`.

    Args:
        records: as of `ApplyHistoryBest`; None for no log.
        sample_simple_workloads: accepted: every workload is sampled.
        cost_model_file: accepted only as None: the analytical model needs no file.
        num_measure: trials of a short search for each such expression; no search below 1.

    Example:
        >>> X = te.placeholder((256,), name="X")
        >>> Y = te.compute((256,), lambda i: X[i] * 2, name="Y")
        >>> with lw.auto_scheduler.ApplyHistoryBestOrSample(None) as history:
        ...     f = lw.build([X, Y], "llvm")
        >>> print(len(history.report()))
        1
    """

    def __init__(
        self,
        records: str | Iterable[Any] | None,
        sample_simple_workloads: bool = False,
        cost_model_file: str | None = None,
        num_measure: int = -1,
    ) -> None:
        if cost_model_file is not None:
            raise UsageError(
                "ApplyHistoryBestOrSample: models are trained from records and kept in no file; "
                "leave cost_model_file out"
            )
        super().__init__(_first(records, None), num_measure=max(0, num_measure))


def is_auto_scheduler_enabled() -> bool:
    """True: expressions without a schedule always get an automatic one, by `loopwright.build`."""
    return True
