"""Sizes of a call: values of size variables from the shapes of the arrays, and what follows.

A manifest of format 2 writes an extent as an int, the name of a size variable, or ``[operation, a,
b]`` with ``+ - * // %`` and ``max``. `evaluate` computes it; nothing in a manifest is executed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.errors import ArgumentError, UsageError

#: Largest extent that compiled code computes with.
MAX_EXTENT = 1 << 30
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "max": max,
}
_LIMITS = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1)}


def evaluate(e: Any, values: Mapping[str, int]) -> int:
    """The number that an expression of a manifest is.

    Raises:
        UsageError: it is malformed.
    """
    match e:
        case int():
            return e
        case str() if e in values:
            return values[e]
        case [str(op), a, b] if op in _OPERATIONS:
            x, y = evaluate(a, values), evaluate(b, values)
            if op in ("//", "%") and y <= 0:
                raise UsageError(f"a manifest divides by {y}; build the program again")
            return _OPERATIONS[op](x, y)
    raise UsageError(f"{e!r} in a manifest is no size; build the program again")


def text(e: Any) -> str:
    """An expression as a person writes it."""
    match e:
        case [str(op), a, b]:
            return f"max({text(a)}, {text(b)})" if op == "max" else f"{_part(a)} {op} {_part(b)}"
    return str(e)


def _part(e: Any) -> str:
    return f"({text(e)})" if isinstance(e, list) else str(e)


def linear(e: Any) -> tuple[str, int, int] | None:
    """``(name, factor, constant)`` of an expression that is linear in one variable, else None."""
    match e:
        case str():
            return e, 1, 0
        case ["+" | "-" | "*" as op, a, int(k)]:
            found = linear(a)
        case ["+" | "*" as op, int(k), a]:
            found = linear(a)
        case _:
            return None
    if found is None:
        return None
    name, factor, const = found
    if op == "*":
        return (name, factor * k, const * k) if k else None
    return name, factor, const + (k if op == "+" else -k)


@dataclass(frozen=True, slots=True)
class _Told:
    """A value, and who said so."""

    value: int
    by: str


class ManifestSizes:
    """What a manifest says of the sizes of one function.

    Attributes:
        names: the size variables, in the order in which code takes them.
    """

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self._variables = {str(n): (str(t), bool(p)) for n, t, p in entry["sizes"]}
        self._extents = [(e, str(shown)) for e, shown in entry["extents"]]
        self._requires = [(e, str(shown)) for e, shown in entry.get("requires", ())]
        self._args = [(str(a["name"]), list(a["shape"])) for a in entry["args"]]
        self._outputs = [k for k, a in enumerate(entry["args"]) if a.get("output")]
        self.names = tuple(self._variables)

    def bind(
        self, who: str, shapes: Sequence[tuple[int, ...]], given: Mapping[str, Any]
    ) -> Mapping[str, int]:
        """Values of all sizes.

        An extent may be 0 only where no output has elements: then nothing has to run.

        Args:
            who: the function's name, for messages.
            shapes: shapes of the arrays.
            given: sizes that were passed.

        Raises:
            ArgumentError: two dimensions, or a dimension and an argument, disagree; a value is out
                of range; an extent would not be positive. Names both sides.
        """
        told = {n: _Told(self._passed(who, n, v), "the argument") for n, v in given.items()}
        for k, (shape, (name, dims)) in enumerate(zip(shapes, self._args, strict=True)):
            if len(shape) != len(dims):
                raise ArgumentError(
                    f"{who}: argument {k} ({name!r}): expected {len(dims)} dimensions "
                    f"[{', '.join(map(text, dims))}], got shape {tuple(shape)}"
                )
            for d, (e, n) in enumerate(zip(dims, shape, strict=True)):
                self._tell(who, f"dimension {d} of argument {k} ({name!r})", e, n, told)
        values = {n: told[n].value for n in self.names}
        self._check_shapes(who, shapes, values)
        idle = bool(self._outputs) and all(0 in shapes[k] for k in self._outputs)
        return self.check(who, values, idle)

    def _passed(self, who: str, name: str, value: Any) -> int:
        try:
            if isinstance(value, bool):
                raise TypeError
            return operator.index(value)
        except TypeError:
            raise ArgumentError(f"{who}: the size {name!r} is an int, got {value!r}") from None

    def _tell(self, who: str, by: str, e: Any, n: int, told: dict[str, _Told]) -> None:
        found = linear(e)
        if found is None:
            return
        name, factor, const = found
        if (n - const) % factor:
            raise ArgumentError(f"{who}: {by} is {n}, which {text(e)} never is")
        value = (n - const) // factor
        if name not in told:
            told[name] = _Told(value, by)
        elif told[name].value != value:
            old = told[name]
            raise ArgumentError(
                f"{who}: {by} is {n}, so {name} is {value}, but {old.by} says that {name} is "
                f"{old.value}"
            )

    def _check_shapes(
        self, who: str, shapes: Sequence[tuple[int, ...]], values: Mapping[str, int]
    ) -> None:
        for k, (shape, (name, dims)) in enumerate(zip(shapes, self._args, strict=True)):
            for d, (e, n) in enumerate(zip(dims, shape, strict=True)):
                want = evaluate(e, values)
                if n != want:
                    raise ArgumentError(
                        f"{who}: dimension {d} of argument {k} ({name!r}) is {n}, expected "
                        f"{text(e)}{'' if isinstance(e, int) else f' = {want}'}{_with(values)}"
                    )

    def check(self, who: str, values: Mapping[str, int], idle: bool = False) -> Mapping[str, int]:
        """The values, if they are in range and every extent is positive.

        Args:
            who: the function's name, for messages.
            values: the sizes by name.
            idle: nothing will run: extents may be 0, and no read can miss.

        Raises:
            ArgumentError: they are not.
        """
        for name, (dtype, nonnegative) in self._variables.items():
            lo, hi = _LIMITS[dtype]
            if not (0 if nonnegative else lo) <= values[name] <= hi:
                what = "a size that is not negative" if nonnegative else dtype
                raise ArgumentError(f"{who}: {name} = {values[name]} is not {what}")
        for e, shown in self._extents:
            n = evaluate(e, values)
            if not (0 if idle else 1) <= n <= MAX_EXTENT:
                zero = " (0 is served where no output has elements)" if n == 0 else ""
                raise ArgumentError(
                    f"{who}: the extent {shown} is {n}{_with(values)}; extents are 1 to "
                    f"{MAX_EXTENT}{zero}"
                )
        for e, shown in self._requires:
            if not idle and evaluate(e, values) < 0:
                raise ArgumentError(f"{who}: {shown}{_with(values)}")
        return values


def _with(values: Mapping[str, int]) -> str:
    shown = ", ".join(f"{n} = {v}" for n, v in values.items())
    return f" with {shown}" if shown else ""
