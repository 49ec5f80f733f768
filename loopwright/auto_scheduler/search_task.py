"""``auto_scheduler.search_task``: the expression, target and hardware of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from loopwright.auto_scheduler.compute_dag import (
    ComputeDAG,
    check_layout_rewrite,
)
from loopwright.auto_scheduler.cost_model import XGBModel
from loopwright.auto_scheduler.hardware_params import HardwareParams
from loopwright.auto_scheduler.measure import key_of
from loopwright.auto_scheduler.search_policy import SearchPolicy, SketchPolicy
from loopwright.auto_scheduler.tuning_options import TuningOptions
from loopwright.auto_scheduler.workload_registry import (
    make_workload_key,
    named_workload,
    registered_tensors,
)
from loopwright.driver import build
from loopwright.errors import RecordError, UsageError, did_you_mean
from loopwright.records import Json
from loopwright.space import AutomaticTask, Workload
from loopwright.space import create_task as create_automatic
from loopwright.space.tasks import EXPRESSION
from loopwright.target import Target
from loopwright.task import ApplyHistoryBest, lookup
from loopwright.task.task import TargetLike, resolve_target

if TYPE_CHECKING:
    from loopwright.task.template import Scheduled, Template
    from loopwright.tuner import Summary

__all__ = ["HardwareParams", "SearchTask", "TuningOptions", "auto_schedule", "create_task"]


class SearchTask:
    """An expression, and the target of its schedules.

    Args:
        func: a function that `register_workload` registered, or its name.
        args: its arguments.
        compute_dag: the expression, in place of a function.
        workload_key: the key of a workload, in place of both.
        target: such as ``"llvm"`` or a ``Target``; None: the current or the default one.
        target_host: None, or the target of the code that calls the kernel, a CPU.
        hardware_params: facts of the hardware that override those of the target.
        layout_rewrite_option: see `LayoutRewriteOption`.
        task_inputs: arrays by names of inputs, on which candidates are checked and timed; other
            inputs get random numbers from 0 to 1, or zeros if they are integers.
        task_inputs_overwrite: accepted: arrays belong to one task, and are not registered.
        task_inputs_save_to_file: accepted only as False.
        desc: a name for people.

    Attributes:
        compute_dag: the expression.
        workload_key: name and arguments of the workload as JSON.
        target: the target.
        automatic_task: the underlying task of loopwright.

    Raises:
        UsageError: the expression is missing, or an array fits no input.
        TaskError: the function is not registered, or does not accept the arguments.
        TargetError: a target is not understood.

    Example:
        >>> from loopwright import auto_scheduler
        >>> @auto_scheduler.register_workload("example/matmul_add")
        ... def matmul_add(n):
        ...     A, B, C = (te.placeholder((n, n), name=name) for name in "ABC")
        ...     k = te.reduce_axis((0, n), name="k")
        ...     D = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="D")
        ...     return [A, B, C, te.compute((n, n), lambda i, j: D[i, j] + C[i, j], name="E")]
        ...
        >>> task = auto_scheduler.SearchTask(func=matmul_add, args=(64,), target="llvm")
        >>> print(task.workload_key, task.compute_dag.flop_ct)
        ["example/matmul_add", 64] 528384.0
        >>> options = auto_scheduler.TuningOptions(
        ...     num_measure_trials=2,
        ...     runner=auto_scheduler.LocalRunner(number=1, repeat=1),
        ...     measure_callbacks=[auto_scheduler.RecordToFile("matmul_add.jsonl")],
        ...     verbose=0,
        ... )
        >>> print(task.tune(options).measured)
        2
        >>> s, args = task.apply_best("matmul_add.jsonl")
        >>> print([t.name for t in args])
        ['A', 'B', 'C', 'E']
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
        resolved = resolve_target(target)
        if target_host is not None:
            resolved = Target(resolved, target_host)
        self.hardware_params = hardware_params
        self.target = resolved if hardware_params is None else hardware_params.applied_to(resolved)
        self.layout_rewrite_option = layout_rewrite_option
        self.desc = desc
        made = _automatic(func, args, compute_dag, workload_key, self.target)
        self.automatic_task = _with_inputs(made, task_inputs) if task_inputs else made
        self.compute_dag = compute_dag or ComputeDAG(list(made.program.args))
        own = key_of(made.name, list(made.args), made.dag_hash, EXPRESSION)
        self.workload_key = workload_key or own

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
        """Search schedules.

        Args:
            tuning_options: limits, settings of measuring, and the log.
            search_policy: the policy; None: a `SketchPolicy` with an `XGBModel`.
            adaptive_training: accepted.

        Returns:
            The summary; None where ``num_measure_trials`` is 0.

        Raises:
            UsageError: the policy is of another task.
            TargetError, TuneError: as of `loopwright.tuner.Tuner.tune`.
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
        """The schedule of the best record of a log.

        Args:
            log_file: the log; records of templates of the same expression count, too.
            include_compatible: also records of other hardware. (Ansor: of other sizes.)
            layout_rewrite_option: see `LayoutRewriteOption`.

        Returns:
            ``(schedule, [tensors])`` as `loopwright.lower` and `loopwright.build` take it.

        Raises:
            RecordError: the log cannot be read, or no record fits; the message has the reason.
        """
        check_layout_rewrite(layout_rewrite_option)
        history = ApplyHistoryBest(log_file, any_hardware=include_compatible)
        choice, scheduled = history.choose(self.automatic_task)
        if scheduled is None:
            why = "; ".join(choice.reasons) or "it has none"
            raise RecordError(f"{log_file} has no record to apply to {self!r}: {why}")
        return scheduled

    def print_best(
        self, log_file: str, print_mode: str = "schedule", include_compatible: bool = False
    ) -> str:
        """The schedule of the best record of a log, as text.

        Args:
            log_file: the log.
            print_mode: ``"schedule"`` for a Python function of its steps; ``"cuda"`` for the code
                that is compiled for the target: CUDA, OpenCL, C or LLVM IR.
            include_compatible: as of `apply_best`.

        Raises:
            RecordError: as of `apply_best`.
            UsageError: there is no such mode.
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
    """The task of loopwright behind a search task."""
    if func is not None:
        workload_key = make_workload_key(func, args or ())
    if workload_key is not None and registered_tensors(workload_key) is None and not compute_dag:
        name, given = named_workload(workload_key)
        return _made(lookup(name), given, target)
    tensors = registered_tensors(workload_key or "") if compute_dag is None else compute_dag.tensors
    if tensors is None:
        raise UsageError(
            "SearchTask: nothing says what is computed; give func and args, compute_dag or "
            "workload_key"
        )
    found = create_automatic(list(tensors), target=target)
    assert isinstance(found, AutomaticTask)
    return found


def _made(template: Template, args: Sequence[Json], target: Target) -> AutomaticTask:
    found = create_automatic(template, args, target)
    if not isinstance(found, AutomaticTask):
        raise UsageError(
            f"SearchTask: {template.name!r} is a template, with a space of its own; tune it by "
            "loopwright.create_task, or register a function that returns its tensors alone"
        )
    return found


def _with_inputs(task: AutomaticTask, given: Mapping[str, npt.ArrayLike]) -> AutomaticTask:
    """The same task, checked and timed on these inputs."""
    inputs = [t for t in task.program.args if t not in task.program.outputs]
    arrays = {name: np.asarray(array) for name, array in given.items()}
    for name, array in arrays.items():
        found = next((t for t in inputs if t.name == name), None)
        if found is None:
            near = did_you_mean(name, [t.name for t in inputs])
            raise UsageError(f"SearchTask: {task} has no input {name!r} for task_inputs{near}")
        if (array.shape, str(array.dtype)) != (tuple(found.shape), found.dtype):
            raise UsageError(
                f"SearchTask: task_inputs[{name!r}] is {array.dtype}{list(array.shape)}; the input "
                f"is {found.dtype}{list(found.shape)}"
            )

    def make_inputs(*args: Json) -> list[npt.ArrayLike]:
        rng = np.random.default_rng(0)
        return [arrays.get(t.name, _filler(t, rng)) for t in inputs]

    own = task.template
    workload = Workload(own.name, own.function, own.reference, make_inputs, own.make_reference)
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
    """Make a `SearchTask`, as scripts for TVM 0.7 do; its arguments and errors apply.

    Example:
        >>> from loopwright import auto_scheduler
        >>> @auto_scheduler.register_workload("example/halved")
        ... def halved(n):
        ...     X = te.placeholder((n,), name="X")
        ...     return [X, te.compute((n,), lambda i: X[i] * 0.5, name="Y")]
        ...
        >>> print(auto_scheduler.create_task(halved, (64,), "llvm").workload_key)
        ["example/halved", 64]
    """
    return SearchTask(
        func, args, target=target, target_host=target_host, hardware_params=hardware_params
    )


def auto_schedule(
    task: SearchTask,
    search_policy: SearchPolicy | None = None,
    tuning_options: TuningOptions | None = None,
) -> Scheduled:
    """Search for the best schedule, as scripts for TVM 0.7 do.

    Args:
        task: the task.
        search_policy: as of `SearchTask.tune`.
        tuning_options: as there; None, or no trials: the best by the analytical model.

    Returns:
        ``(schedule, [tensors])``, of the best record if there is a log.

    Example:
        >>> from loopwright import auto_scheduler
        >>> X = te.placeholder((256,), name="X")
        >>> Y = te.compute((256,), lambda i: X[i] * 2, name="Y")
        >>> dag = auto_scheduler.ComputeDAG([X, Y])
        >>> task = auto_scheduler.SearchTask(compute_dag=dag, target="llvm")
        >>> s, args = auto_scheduler.auto_schedule(task)
        >>> print([t.name for t in args])
        ['X', 'Y']
    """
    options = tuning_options or TuningOptions()
    policy = search_policy or SketchPolicy(task, XGBModel())
    summary = task.tune(options, policy)
    if options.log is not None:
        return task.apply_best(options.log)
    own = policy.automatic_task
    if summary is None or summary.best_config is None:
        return own.instantiate(own.config_space.default_index)
    return own.instantiate(summary.best_config)
