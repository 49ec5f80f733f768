"""Which configuration a template that is called directly runs under.

Contexts nest: the innermost is asked first, then the ones around it, and at the root there is the
default configuration. The stack is a context variable, so that threads do not disturb each other.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from loopwright.errors import InstantiationError, TaskError
from loopwright.task.config import ConfigEntity
from loopwright.task.task import Task, resolve_target
from loopwright.task.template import Template

log = logging.getLogger("loopwright")

#: A schedule and the tensors that are its arguments.
Scheduled = tuple[Any, list[Any]]

_TASK_CACHE = 256
_said: set[str] = set()


class DispatchContext(ABC):
    """Answers for the templates that are called inside its ``with`` block."""

    def __enter__(self) -> Any:
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

    def __init__(self, config: ConfigEntity | int | Mapping[str, Any]) -> None:
        self.config = config

    def apply(self, task: Task) -> Scheduled:
        """The schedule under the configuration.

        Raises:
            InstantiationError: the template refuses it.
        """
        return task.instantiate(self.config)


def schedule_for(template: Template, args: tuple[Any, ...]) -> Scheduled:
    """What calling a template returns.

    Args:
        template: The template.
        args: Its arguments, as ``Template.bind`` returns them.

    Raises:
        TaskError: the template raised, whichever configuration it was given.
    """
    task = _task(template, args)
    contexts = _stack.get()
    for context in reversed(contexts):
        found = context.apply(task)
        if found is not None:
            return found
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


def _task(template: Template, args: tuple[Any, ...]) -> Task:
    """The task of a call; kept on the template, since collecting the knobs runs it once more."""
    target = resolve_target(None)
    name = (args, tuple(map(type, args)), str(target.canonical))
    cache: dict[Any, Task] = template.tasks
    if name not in cache:
        if len(cache) >= _TASK_CACHE:
            cache.clear()
        cache[name] = Task(template, args, target)
    return cache[name]
