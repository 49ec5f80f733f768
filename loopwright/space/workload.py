"""Workloads: functions that return tensors and no schedule, and their tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, overload

from loopwright import te
from loopwright.errors import TaskError
from loopwright.records import Json
from loopwright.space.automatic_task import EXPRESSION, AutomaticTask
from loopwright.space.expression import tensor_program
from loopwright.task import TASKS, Task, Template
from loopwright.task import create_task as create_registered
from loopwright.task.dispatch import enter, schedule_for
from loopwright.task.task import TargetLike, resolve_target
from loopwright.task.template import UNNAMED, Function, lookup
from loopwright.task.template_config import running_config

#: Tensors of an expression: its results, or inputs and results in calling order.
Tensors: TypeAlias = "te.Tensor | Sequence[te.Tensor]"


class Workload(Template):
    """A function that returns tensors: results, or inputs and results in calling order.

    Calling it makes a schedule: that of the best record under ``apply_history_best``, else the best
    one by the analytical model. Called by another workload, or by a template, it returns its
    tensors. An implementation that `register` adds for other targets is a template.

    Args:
        name: Its name in records and on the command line.
        function: The function.
        reference: NumPy function of the inputs that returns the outputs, or None: the expression
            itself, unscheduled.
        make_inputs: Function of the workload's arguments that makes test inputs, or None.
        make_reference: Function of the workload's arguments that returns ``reference``, or None.

    Attributes:
        former: function of the arguments that returns the tensors of former versions, whose records
            apply; None where there are none.

    Example:
        >>> def add_one(n):
        ...     A = te.placeholder((n,), name="A")
        ...     return te.compute((n,), lambda i: A[i] + 1, name="B")
        ...
        >>> workload = lw.space.Workload("example/add_one_to_all", add_one)
        >>> print(lw.create_task(workload, (64,), "llvm"))
        example/add_one_to_all(64)
    """

    def __init__(
        self,
        name: str,
        function: Function,
        reference: Function | None = None,
        make_inputs: Function | None = None,
        make_reference: Function | None = None,
    ) -> None:
        super().__init__(
            *(name, function, schedule_for, reference, make_inputs), make_reference=make_reference
        )
        self.make_task = _make_task
        self.former: Function | None = None

    def __call__(self, *args: Json, **kwargs: Json) -> Any:
        """Make the schedule for these arguments; inside another workload or template, the tensors.

        Raises:
            TaskError: an argument is not accepted, or the function raised.
        """
        if running_config() is not None:
            return self.function(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<workload {self.name!r} at {self.where}>"


def _make_task(template: Template, args: Iterable[Json], target: TargetLike) -> Task:
    """Task of an expression, unless the target has a template of its own."""
    resolved = resolve_target(target)
    with resolved:
        derived = template.implementation() is template.function
    return (AutomaticTask if derived else Task)(template, args, resolved)


@overload
def workload(name: Function) -> Workload: ...


@overload
def workload(
    name: str | None = None,
    *,
    reference: Function | None = None,
    make_inputs: Function | None = None,
    make_reference: Function | None = None,
) -> Callable[[Function], Workload]: ...


def workload(
    name: str | Function | None = None,
    *,
    reference: Function | None = None,
    make_inputs: Function | None = None,
    make_reference: Function | None = None,
) -> Workload | Callable[[Function], Workload]:
    """Register a function of plain arguments that returns tensors; its space is derived from them.

    Args:
        name: Unique name; ``user/`` and the function's own when left out.
        reference: NumPy function of the inputs that returns the outputs; without one candidates are
            compared with the expression itself.
        make_inputs: Function of the workload's arguments that makes inputs for tests and timing,
            one array per input.
        make_reference: Function of the workload's arguments that returns ``reference``.

    Raises:
        TaskError: another function has the name already.

    Example:
        >>> @lw.workload("example/min_plus")
        ... def min_plus(n):
        ...     A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        ...     k = te.reduce_axis((0, n), name="k")
        ...     return te.compute((n, n), lambda i, j: te.min(A[i, k] + B[k, j], axis=k), name="C")
        ...
        >>> task = lw.create_task("example/min_plus", (64,), "llvm")
        >>> print(len(task.structures) > 0)
        True
    """

    def register(function: Function) -> Workload:
        label = name if isinstance(name, str) else f"{UNNAMED}{function.__name__}"
        made = Workload(label, function, reference, make_inputs, make_reference)
        enter(made)
        return made

    return register(name) if callable(name) else register


def create_task(
    name: str | Template | Function | Tensors,
    args: Iterable[Json] = (),
    target: TargetLike = None,
    *,
    templates: Iterable[Task | Sequence[Json]] = (),
) -> Task:
    """Make a tuning task for a target.

    Args:
        name: Name of a template or workload, or the decorated function; a plain function that
            returns tensors; or tensors: results, or inputs and results in calling order. For the
            last two the space is derived from the expression.
        args: The function's arguments; none for tensors.
        target: Such as ``"llvm"`` or a ``Target``; None for the current or the default one.
        templates: Where the space is derived: hand-written templates that compute the same and are
            searched beside the structures of rules, as tasks or as ``(name, *arguments)``.

    Raises:
        TaskError: the name is unknown, the arguments do not fit, or the function raised, took
            longer than ten seconds, or returned something else.
        TensorError: a size is a variable, or an input is missing among the tensors.
        SpaceError: a template computes something else than the expression.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm -mcpu=x86-64-v4")
        >>> print(task)
        matmul(64, 64, 64, False, False, 'float32')
        >>> print(len(task.config_space))
        12288
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> print(lw.create_task([A, B], target="llvm").automatic)
        True
        >>> P, Q = te.placeholder((64, 32), name="P"), te.placeholder((32, 48), name="Q")
        >>> C = lw.ops.matmul_compute(P, Q)
        >>> task = lw.create_task([P, Q, C], target="llvm", templates=[("matmul", 64, 48, 32)])
        >>> print(task.structures[-1].name)
        template matmul(64, 48, 32, False, False, 'float32')
    """
    if isinstance(args, str) or not isinstance(args, Iterable):
        raise TaskError(f"create_task: arguments are given as a tuple, got {args!r:.60}")
    if isinstance(name, (te.Tensor, list, tuple)):
        if tuple(args):
            raise TaskError("create_task: tensors take no arguments; give a function for these")
        return _of_tensors(name, target, templates)
    if isinstance(name, (str, Template)):
        return _registered(name, args, target, templates)
    if not callable(name):
        raise TaskError(
            f"create_task: expected a name, a function or tensors, got a {type(name).__name__}"
        )
    if any(template.function is name for template in TASKS.values()):
        return _registered(name, args, target, templates)
    label = getattr(name, "__name__", None) or getattr(name, "func", type(name)).__name__
    return AutomaticTask(Workload(f"{UNNAMED}{label}", name), args, target, templates)


def _registered(
    name: str | Template | Function,
    args: Iterable[Json],
    target: TargetLike,
    templates: Iterable[Task | Sequence[Json]],
) -> Task:
    template = lookup(name)
    beside = tuple(templates)
    if beside and isinstance(template, Workload):
        return AutomaticTask(template, args, target, beside)
    if beside:
        raise TaskError(
            f"create_task: {template.name!r} is a template; others join the space of an expression:"
            " give its tensors"
        )
    return create_registered(template, args, target)


def _of_tensors(
    tensors: Tensors, target: TargetLike, templates: Iterable[Task | Sequence[Json]]
) -> Task:
    tensor_program(tensors)  # raises where they are something else

    def expression() -> Any:
        return tensors

    return AutomaticTask(Workload(EXPRESSION, expression), (), target, templates)
