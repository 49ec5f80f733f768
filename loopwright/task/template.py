"""Templates: functions of a workload's shape that say what may be chosen, registered by name."""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias

from loopwright.errors import TaskError, did_you_mean
from loopwright.records import Json
from loopwright.target import Target
from loopwright.task.template_config import running_config

if TYPE_CHECKING:
    from loopwright.schedule import Schedule
    from loopwright.te import Tensor


#: All templates by name.
TASKS: dict[str, Template] = {}
#: Prefix of the names of templates that were given none.
UNNAMED = "user/"

Function: TypeAlias = Callable[..., Any]
#: A schedule and the tensors that are its arguments.
Scheduled: TypeAlias = "tuple[Schedule, list[Tensor]]"
#: Knob values of the default configuration, or a function of the arguments that returns them.
Defaults: TypeAlias = Mapping[str, Json] | Callable[..., Mapping[str, Json]]


class Template:
    """A registered function that returns ``(schedule, [tensors])``.

    Calling it runs it under the configuration that the dispatch contexts choose: that of the best
    record under ``apply_history_best``, else the default, which is said once.

    Attributes, beside those of `loopwright.template`:
        function: the function itself.
        make_task: makes the task of this template, some arguments and a target; None: a `Task`.
        seed_of: gives the `Seed` of a task and another system's record, or None; None: none ever.

    Example:
        >>> print(lw.ops.matmul.name)
        matmul
        >>> s, args = lw.ops.matmul(64, 64, 64)
        >>> print([t.name for t in args])
        ['A', 'B', 'C']
    """

    def __init__(
        self,
        name: str,
        function: Function,
        dispatch: Callable[[Template, tuple[Json, ...]], Scheduled],
        reference: Function | None = None,
        make_inputs: Function | None = None,
        default: Defaults | None = None,
        make_reference: Callable[..., Function] | None = None,
    ) -> None:
        self.name = name
        self.function = function
        self.reference = reference
        self.make_reference = make_reference
        self.make_inputs = make_inputs
        self.default = default
        self.make_task: Function | None = None
        self.seed_of: Function | None = None
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__wrapped__ = function
        self._dispatch = dispatch
        self._for_targets: dict[str, Function] = {}
        self._signature = inspect.signature(function)

    def __repr__(self) -> str:
        return f"<template {self.name!r} at {self.where}>"

    @property
    def where(self) -> str:
        """``file:line`` of the function; ``?`` where it is not written in Python."""
        code = _code(self.function)
        return "?" if code is None else f"{Path(code.co_filename).name}:{code.co_firstlineno}"

    def register(self, *keys: str) -> Callable[[Function], Function]:
        """Decorate another implementation, for targets that have one of some keys, such as
        ``"gpu"``; a target's first key that has an implementation decides.

        It takes the same arguments and returns the same program, scheduled for such targets;
        ``default`` is not asked about it: its knobs say their defaults themselves. A key that has
        an implementation from another place already is a `TaskError`.
        """

        def enter(function: Function) -> Function:
            for key in keys:
                before = self._for_targets.get(key, function)
                if before.__qualname__ != function.__qualname__:
                    raise TaskError(
                        f"template {self.name!r} has an implementation for {key!r} already, "
                        f"{before.__qualname__}"
                    )
                self._for_targets[key] = function
            return function

        return enter

    def implementation(self) -> Function:
        keys = Target.current().keys if self._for_targets else ()
        matching = (self._for_targets[key] for key in keys if key in self._for_targets)
        return next(matching, self.function)

    def __call__(self, *args: Json, **kwargs: Json) -> Any:
        """Make the schedule for these arguments, ``(schedule, [tensors])``; a `TaskError` where one
        is not accepted, or the template raised."""
        if running_config() is not None:
            # Called by another template: its knobs become part of that one's configuration.
            return self.implementation()(*args, **kwargs)
        return self._dispatch(self, self.bind(args, kwargs))

    def bind(
        self, args: Iterable[Json], kwargs: Mapping[str, Json] | None = None
    ) -> tuple[Json, ...]:
        """The arguments as they stand in a task's key: by position, defaults filled in; a
        `TaskError` where they do not fit the function, or one is no plain value."""
        try:
            bound = self._signature.bind(*args, **(kwargs or {}))
        except TypeError as exc:
            plain = [p.replace(annotation=p.empty) for p in self._signature.parameters.values()]
            raise TaskError(
                f"template {self.name!r} takes {inspect.Signature(plain)}, got "
                f"{_call(args, kwargs or {})}: {exc}"
            ) from None
        bound.apply_defaults()
        if bound.kwargs:
            raise TaskError(
                f"template {self.name!r} has keyword-only parameters "
                f"({', '.join(bound.kwargs)}); records need every argument by position"
            )
        names = list(self._signature.parameters)
        return tuple(
            _plain(value, f"template {self.name!r}: argument {names[min(at, len(names) - 1)]!r}")
            for at, value in enumerate(bound.args)
        )

    def spellings(self, args: tuple[Json, ...]) -> Iterator[tuple[Json, ...]]:
        """The arguments as records may have them: all, then without the last ones as long as these
        are the defaults."""
        yield args
        for count in reversed(range(len(args))):
            try:
                meant = self.bind(args[:count])
            except TaskError:
                return
            if repr(meant) != repr(args):  # 0 is not False
                return
            yield args[:count]

    def default_values(self, args: tuple[Json, ...]) -> Mapping[str, Json] | None:
        """Knob values of the default configuration, where the template says; it says so for its
        function only, not for implementations that were registered beside it."""
        if self.implementation() is not self.function:
            return None
        return self.default(*args) if callable(self.default) else self.default

    def describe(self, args: Iterable[Json]) -> str:
        """``demo/matmul(1024, 1024, 1024, 'float32')``."""
        return f"{self.name}{_call(args, {})}"

    def blame(self, exc: BaseException) -> str:
        """``file:line`` in the template's file that raised, and the error in one line."""
        codes = map(_code, (self.function, *self._for_targets.values()))
        files = {code.co_filename for code in codes if code is not None}
        frames = [f for f in traceback.extract_tb(exc.__traceback__) if f.filename in files]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else self.where
        text = " ".join(str(exc).split())
        return (
            f"{where}: {type(exc).__name__}: {text}" if text else f"{where}: {type(exc).__name__}"
        )


def _code(function: Any) -> CodeType | None:
    inner = getattr(function, "func", function)
    code: CodeType | None = getattr(inner, "__code__", None)
    return code or getattr(type(inner).__call__, "__code__", None)


def _call(args: Iterable[Json], kwargs: Mapping[str, Json]) -> str:
    parts = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items()]
    return f"({', '.join(parts)})"


def _plain(value: Any, what: str) -> Json:
    """The value as a record can hold it: a number, string, boolean, None, or a tuple of these."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(part, what) for part in value)
    item = getattr(value, "item", None)
    if type(value).__module__ == "numpy" and callable(item) and getattr(value, "ndim", 1) == 0:
        value = item()
    if isinstance(value, float) and not math.isfinite(value):
        raise TaskError(f"{what} is {value}; records hold finite numbers only")
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise TaskError(
        f"{what} is a {type(value).__name__}; arguments are integers, floats, strings, booleans, "
        "or tuples of these"
    )


def lookup(name: str | Template | Function) -> Template:
    """Find a template by name, or by the decorated function or the function inside.

    A template that was given no name is found by that of its function, too; an unknown one is a
    `TaskError`.
    """
    if isinstance(name, Template):
        return name
    if callable(name):
        registered = next((t for t in TASKS.values() if t.function is name), None)
        if registered is None:
            raise TaskError(
                f"function {getattr(name, '__name__', name)!r} is no template; decorate it with "
                "@loopwright.template(name)"
            )
        return registered
    if name in TASKS:
        return TASKS[name]
    if f"{UNNAMED}{name}" in TASKS:
        return TASKS[f"{UNNAMED}{name}"]
    names = ", ".join(sorted(TASKS)) or "none yet"
    raise TaskError(
        f"unknown template {name!r}{did_you_mean(str(name), TASKS)}; there are: {names}"
    )
