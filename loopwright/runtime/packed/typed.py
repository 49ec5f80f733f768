"""`TypedPackedFunc`: a packed function that checks its arguments against its annotations."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable

import numpy as np

from loopwright.errors import ArgumentError, UsageError, shown
from loopwright.runtime.packed.function import PackedFunc, as_packed_func
from loopwright.runtime.packed.value import kind_of, packed

#: A class that an annotation names, or None for Any; several are the members of a union.
_Classes = tuple[type, ...] | None


class TypedPackedFunc(PackedFunc):
    """A packed function whose arguments and result have the types of its annotations.

    Annotations may be classes (int, float, str, bytes, bool, None, ``numpy.dtype``, `Device`,
    `NDArray`, `Module`, `PackedFunc`, a class of one's own), unions of them, Callable and Any; an
    argument without one takes anything. An int is accepted as a float, a bool is not accepted
    as an int.

    Args:
        function: a Python function.
        name: for messages; default the function's own.

    Raises:
        UsageError: its signature cannot be read, it takes keyword-only arguments without defaults,
            or an annotation is no class.

    Example:
        >>> def fill(a: lw.runtime.NDArray, value: float) -> int:
        ...     a[:] = value
        ...     return a.size
        ...
        >>> f = lw.runtime.TypedPackedFunc(fill)
        >>> print(f(np.empty(3, "float32"), 1))
        3
        >>> try:
        ...     f(np.empty(3, "float32"), "one")
        ... except lw.LoopwrightError as error:
        ...     print(error)
        ...
        fill: argument 1 ('value') is a float, got 'one' (a str)
    """

    def __init__(self, function: Callable[..., object], name: str = "") -> None:
        super().__init__(function, name)
        try:
            self.signature = inspect.signature(function)
            hints = typing.get_type_hints(function)
        except (TypeError, ValueError, NameError) as error:
            raise UsageError(f"TypedPackedFunc: {self.name} has no annotations: {error}") from None
        for p in self.signature.parameters.values():
            if p.kind is p.KEYWORD_ONLY and p.default is p.empty:
                raise UsageError(
                    f"TypedPackedFunc: {self.name} must be given {p.name!r} by name, and packed "
                    "functions are called by position; give it a default"
                )
        self._expected = {n: _classes(hint, self.name, n) for n, hint in hints.items()}

    def __call__(self, *args: object) -> object:
        """Check the arguments, call the function (its exceptions pass through), check the result.

        Raises:
            ArgumentError: the number of arguments or a type is wrong; names the function, the
                position and name, the expected and the actual value.
        """
        try:
            bound = self.signature.bind(*args)
        except TypeError as error:
            raise ArgumentError(f"{self.name}{self.signature}: {error}") from None
        given: list[object] = []
        for name in bound.arguments:
            values = bound.arguments[name]
            several = self.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for value in values if several else (values,):
                who = f"{self.name}: argument {len(given)} ({name!r})"
                given.append(self._checked(value, name, who))
        return self._checked(self._function(*given), "return", f"{self.name}: the result")

    def _checked(self, value: object, name: str, who: str) -> object:
        """The value to pass, which is of the annotated type."""
        if kind_of(value) == "function":
            assert callable(value)
            value = as_packed_func(value)
        passed = packed(value, who)
        expected = self._expected.get(name)
        if expected is None or _is_one_of(passed, expected):
            return passed
        if float in expected and type(passed) is int:
            return float(passed)
        wanted = " or ".join(_class_text(c) for c in expected)
        raise ArgumentError(f"{who} is {wanted}, got {shown(value)} (a {type(value).__name__})")


def _is_one_of(value: object, classes: tuple[type, ...]) -> bool:
    if type(value) is bool:  # Python's bool is an int, and a mistake where a number is meant
        return bool in classes or object in classes
    return isinstance(value, classes)


def _class_text(cls: type) -> str:
    if cls is type(None):
        return "None"
    return f"{'an' if cls.__name__[0] in 'aeiouN' else 'a'} {cls.__name__}"


def _classes(hint: object, function: str, name: str) -> _Classes:
    """The classes that an annotation allows; None: anything."""
    if hint is typing.Any or isinstance(hint, typing.TypeVar):
        return None
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = [_classes(h, function, name) for h in typing.get_args(hint)]
        known = [p for p in parts if p is not None]
        return tuple(c for p in known for c in p) if len(known) == len(parts) else None
    if hint is None:
        return (type(None),)
    cls = typing.get_origin(hint) or hint
    if not isinstance(cls, type):
        raise UsageError(
            f"TypedPackedFunc: the annotation {hint!r} of {name!r} of {function} is no class; "
            "annotate with a class, a union of classes, or Any"
        )
    if cls in (np.ndarray, np.generic):
        raise UsageError(
            f"TypedPackedFunc: {function} is given arrays as NDArray, and {name!r} is annotated "
            f"as {cls.__name__}; annotate it as loopwright.runtime.NDArray"
        )
    return (PackedFunc,) if cls.__name__ == "Callable" else (cls,)
