"""Which configuration a template that is called directly runs under.

Contexts nest: the innermost is asked first, then the ones around it, and at the root there is the
default configuration. The stack is a context variable, so that threads do not disturb each other.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Self
from weakref import WeakKeyDictionary

from loopwright.errors import InstantiationError, TaskError
from loopwright.records import Json
from loopwright.target import Target
from loopwright.task.space import ConfigEntity
from loopwright.task.task import Task
from loopwright.task.template import Scheduled, Template

log = logging.getLogger("loopwright")

#: Tasks of the direct calls of each template, by arguments and target: collecting the knobs runs
#: the template once more. At most `_TASK_CACHE` of each template.
_tasks: WeakKeyDictionary[Template, dict[tuple[object, ...], Task]] = WeakKeyDictionary()
_TASK_CACHE = 256
_said: set[str] = set()


class DispatchContext(ABC):
    """Answers for the templates that are called inside its ``with`` block."""

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
        """In one line, why ``apply`` returned None."""
        return ""


_stack: ContextVar[tuple[DispatchContext, ...]] = ContextVar("loopwright_dispatch", default=())


class ApplyConfig(DispatchContext):
    """Run every template inside the block under one configuration.

    Args:
        config: A configuration, its index, or ``{knob: value}``.
    """

    def __init__(self, config: ConfigEntity | int | Mapping[str, Json]) -> None:
        self.config = config

    def apply(self, task: Task) -> Scheduled:
        """The schedule under the configuration.

        Raises:
            InstantiationError: the template refuses it.
        """
        return task.instantiate(self.config)


def schedule_for(template: Template, args: tuple[Json, ...]) -> Scheduled:
    """What calling a template returns.

    Args:
        template: The template.
        args: Its arguments, as ``Template.bind`` returns them.

    Raises:
        TaskError: the template raised, whichever configuration it was given.
    """
    task = task_of_call(template, args)
    contexts = _stack.get()
    for context in reversed(contexts):
        scheduled = context.apply(task)
        if scheduled is not None:
            return scheduled
    reasons = "; ".join(filter(None, (context.why_not(task) for context in reversed(contexts))))
    say_once(f"{task}: using the default configuration, not a tuned one ({reasons or _UNASKED})")
    return fallback(task)


_UNASKED = "no apply_history_best around this call"


def fallback(task: Task) -> Scheduled:
    """The schedule of the default configuration.

    Raises:
        TaskError: the template raised.
    """
    config = task.fallback()
    try:
        return task.instantiate(config)
    except InstantiationError as exc:
        raise TaskError(f"the default configuration fails: {exc}") from exc


def say_once(text: str) -> None:
    """Log a warning, unless this process has said it before."""
    if text not in _said:
        _said.add(text)
        log.warning("%s", text)


def clear_fallback_cache() -> None:
    """Forget what was said, so that it is said again (AutoTVM's name)."""
    _said.clear()


def task_of_call(template: Template, args: tuple[Json, ...]) -> Task:
    """The task of a direct call under the current target; the same one for equal calls."""
    target = Target.current()
    key = (args, tuple(map(type, args)), str(target.canonical))
    tasks = _tasks.setdefault(template, {})
    if key not in tasks:
        if len(tasks) >= _TASK_CACHE:
            tasks.clear()
        tasks[key] = Task(template, args, target)
    return tasks[key]
