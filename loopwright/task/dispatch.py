"""Templates that are called directly: registration, and the choice of their configuration.

The innermost context is asked first, then the ones around it, at the root there is the default. The
stack is a context variable: asynchronous tasks inherit it, threads do not disturb each other.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import wraps
from typing import ParamSpec, Self, TypeVar, overload
from weakref import WeakKeyDictionary

from loopwright.errors import InstantiationError, TaskError, UsageError
from loopwright.records import Json
from loopwright.target import Target
from loopwright.task.space import ConfigEntity
from loopwright.task.task import TargetLike, Task, create_task, resolve_target
from loopwright.task.template import TASKS, UNNAMED, Defaults, Function, Scheduled, Template, lookup

log = logging.getLogger("loopwright")

#: Tasks of the direct calls of each template, by arguments and target: collecting the knobs runs
#: the template once more. At most `_TASK_CACHE` of each template.
_tasks: WeakKeyDictionary[Template, dict[tuple[object, ...], Task]] = WeakKeyDictionary()
_TASK_CACHE = 256
_said: set[str] = set()


_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Innermost:
    def __get__(self, instance: object, owner: type) -> DispatchContext:
        stack = _stack.get()
        return stack[-1] if stack else FallbackContext()


class DispatchContext(ABC):
    """Answers for the templates that are called inside its ``with`` block.

    Attributes:
        current: the innermost context; without any, the one of default configurations.

    Example:
        >>> from loopwright.task import DispatchContext
        >>> with lw.apply_history_best("matmul.jsonl") as history:
        ...     print(DispatchContext.current is history)
        ...
        True
    """

    current = _Innermost()

    def __enter__(self) -> Self:
        _stack.set((*_stack.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        stack = _stack.get()
        if not stack or stack[-1] is not self:
            raise TaskError("dispatch contexts were left in another order than they were entered")
        _stack.set(stack[:-1])

    @abstractmethod
    def apply(self, task: Task) -> Scheduled | None:
        """The schedule for a task, or None to leave the question to the context outside."""

    def why_not(self, task: Task) -> str:
        """Reason, in one line, why ``apply`` returned None."""
        return ""

    def config_for(self, task: Task) -> ConfigEntity | None:
        """The configuration for a task, or None to leave the question to the context outside."""
        return None

    def query(self, target: TargetLike, workload: Task | tuple[Json, ...]) -> ConfigEntity:
        """The configuration that a template gets inside this context: its own, one of the contexts
        around it, at the root the default (AutoTVM).

        Args:
            target: the target; None for the current one.
            workload: the task, or its name and arguments, as ``task.workload`` has them.
        """
        task = task_of(target, workload)
        stack = _stack.get()
        inside = stack[: stack.index(self) + 1] if self in stack else (self,)
        for context in reversed(inside):
            config = context.config_for(task)
            if config is not None:
                return config
        return task.fallback()

    def update(
        self, target: TargetLike, workload: Task | tuple[Json, ...], cfg: ConfigEntity
    ) -> None:
        """Use a configuration for a workload from now on (AutoTVM); here a `UsageError`, as nothing
        can be changed."""
        raise UsageError(f"{type(self).__name__} has no configurations to update")


class FallbackContext(DispatchContext):
    """The root of all contexts: default configurations.

    Example:
        >>> from loopwright.task import FallbackContext
        >>> with FallbackContext(), lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(64, 64, 64)
        ...
        >>> print(s.origin)
        None
    """

    def apply(self, task: Task) -> Scheduled:
        return fallback(task)


def in_context(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wrap a function so that it runs under the current contexts and target, in any thread.

    New threads begin with no contexts; asynchronous tasks inherit them anyway. All context
    variables are taken along, as `contextvars.copy_context` copies them, and several threads may
    run the function at the same time.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> def kernel():
        ...     s, args = lw.ops.matmul(64, 64, 64)
        ...     return s.origin is not None
        ...
        >>> with lw.apply_history_best("matmul.jsonl"), ThreadPoolExecutor() as pool:
        ...     print(pool.submit(lw.in_context(kernel)).result())
        ...
        True
    """
    context = copy_context()

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        # A context can be entered by one thread at a time: each call has a copy of its own.
        return context.copy().run(function, *args, **kwargs)

    return run


_stack: ContextVar[tuple[DispatchContext, ...]] = ContextVar("loopwright_dispatch", default=())


def schedule_for(template: Template, args: tuple[Json, ...]) -> Scheduled:
    return schedule_of(_task(template, args, Target.current()))


def schedule_of(task: Task) -> Scheduled:
    """The schedule of a task: of the innermost context that has one, else the default, which a
    warning says once.

    Outside of all contexts there is no warning for a derived space, whose default is what was asked
    for.
    """
    contexts = _stack.get()
    for context in reversed(contexts):
        scheduled = context.apply(task)
        if scheduled is not None:
            return scheduled
    reasons = "; ".join(filter(None, (context.why_not(task) for context in reversed(contexts))))
    if contexts or not task.automatic:
        why = reasons or "no apply_history_best around this call"
        say_once(f"{task}: using the default configuration, not a tuned one ({why})")
    return fallback(task)


def fallback(task: Task) -> Scheduled:
    try:
        return task.default()
    except InstantiationError as exc:
        raise TaskError(f"the default configuration fails: {exc}") from exc


def say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        log.warning("%s", text)


def clear_fallback_cache(target: object = None, workload: object = None) -> None:
    """Forget what was said, so that it is said again (AutoTVM's name); the arguments say nothing
    here.
    """
    _said.clear()


def task_of(target: TargetLike, workload: Task | tuple[Json, ...]) -> Task:
    """The task of a target and a workload of AutoTVM: a task, whose target counts, or name and
    args."""
    if isinstance(workload, Task):
        return workload
    if not isinstance(workload, (tuple, list)) or not workload:
        raise UsageError(f"a workload is a task, or (name, *arguments); got {workload!r:.60}")
    template = lookup(workload[0])
    return _task(template, template.bind(workload[1:]), resolve_target(target))


def _task(template: Template, args: tuple[Json, ...], target: Target) -> Task:
    """The task of a template, its arguments and a target; the same one for equal calls."""
    key = (args, tuple(map(type, args)), str(target.canonical))
    tasks = _tasks.setdefault(template, {})
    if key not in tasks:
        if len(tasks) >= _TASK_CACHE:
            tasks.clear()
        tasks[key] = create_task(template, args, target)
    return tasks[key]


@overload
def template(name: Function) -> Template: ...


@overload
def template(
    name: str | None = None,
    *,
    reference: Function | None = None,
    make_inputs: Function | None = None,
    default: Defaults | None = None,
    make_reference: Callable[..., Function] | None = None,
) -> Callable[[Function], Template]: ...


def template(
    name: str | Function | None = None,
    *,
    reference: Function | None = None,
    make_inputs: Function | None = None,
    default: Defaults | None = None,
    make_reference: Callable[..., Function] | None = None,
) -> Template | Callable[[Function], Template]:
    """Decorate a function of plain arguments that returns ``(schedule, [tensors])``.

    Args:
        name: unique; ``user/`` and the function's own when left out, so that no function of a
            script takes the name of an operator of loopwright.
        reference: NumPy function of the inputs that returns the outputs.
        make_inputs: makes inputs for tests and timing, one array each, of the arguments. Random
            ones will do for most; an operand that is used as an index gets values in range where
            the expression tells them.
        default: knob values of the default configuration, or a function of the arguments.
        make_reference: function of the arguments that returns ``reference``, for operators whose
            meaning depends on them (a stride, a transposed operand).

    Raises:
        TaskError: another function has the name already.

    Example:
        >>> @lw.template("example/add_one")
        ... def add_one(n):
        ...     A = te.placeholder((n,), name="A")
        ...     B = te.compute((n,), lambda i: A[i] + 1, name="B")
        ...     s = te.create_schedule(B.op)
        ...     cfg = lw.get_config()
        ...     cfg.define_split("tile", B.op.axis[0], num_outputs=2)
        ...     io, ii = cfg["tile"].apply(s, B, B.op.axis[0])
        ...     return s, [A, B]
        ...
        >>> task = lw.create_task("example/add_one", (64,), "llvm")
        >>> print(len(task.config_space))
        7
    """

    def register(function: Function) -> Template:
        label = name if isinstance(name, str) else f"{UNNAMED}{function.__name__}"
        registered = Template(
            label, function, schedule_for, reference, make_inputs, default, make_reference
        )
        enter(registered)
        return registered

    return register(name) if callable(name) else register


def enter(template: Template) -> None:
    """Register a template by its name; a definition that is run again replaces itself."""
    before = TASKS.get(template.name)
    if before is not None and not _is_same_definition(before.function, template.function):
        raise TaskError(
            f"template {template.name!r} is defined at {before.where} already; rename one"
        )
    TASKS[template.name] = template


def _is_same_definition(one: Function, other: Function) -> bool:
    """True when a definition was run again: a notebook's cell, or a file loaded twice."""
    if one.__qualname__ != other.__qualname__:
        return False
    return one.__module__ == other.__module__ or (
        one.__code__.co_filename == other.__code__.co_filename
    )
