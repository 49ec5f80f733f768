"""Sizes of a call: values of size variables from the shapes of the arrays, and their checks."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import SupportsIndex

from loopwright.errors import ArgumentError
from loopwright.runtime.artifacts.manifest import ArgSpec, SizesSpec
from loopwright.runtime.artifacts.size_formulas import SizeFormula, evaluate, linear, text

#: Largest extent that compiled code computes with.
MAX_EXTENT = 1 << 30
_LIMITS = {"int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1)}


@dataclass(frozen=True, slots=True)
class _Determined:
    """The value of a size, and the argument or dimension that determined it."""

    value: int
    by: str


class CallSizes:
    """Finds and checks the sizes of calls of one function.

    ``names`` are the size variables, in the order in which code takes them.
    """

    def __init__(self, spec: SizesSpec, args: Sequence[ArgSpec]) -> None:
        self._spec, self._args = spec, args
        self._outputs = [k for k, a in enumerate(args) if a.output]
        self.names = tuple(name for name, _, _ in spec.variables)

    def bind(
        self, who: str, shapes: Sequence[tuple[int, ...]], given: Mapping[str, object]
    ) -> Mapping[str, int]:
        """Values of all sizes from shapes and ``given`` ones; a conflict is an ArgumentError.

        An extent may be 0 only where no output has elements: then nothing has to run.
        """
        sizes = {n: _Determined(self._passed(who, n, v), "the argument") for n, v in given.items()}
        for k, (shape, arg) in enumerate(zip(shapes, self._args, strict=True)):
            if len(shape) != len(arg.shape):
                raise ArgumentError(
                    f"{who}: argument {k} ({arg.name!r}): expected {len(arg.shape)} dimensions "
                    f"[{', '.join(map(text, arg.shape))}], got shape {tuple(shape)}"
                )
            for d, (e, n) in enumerate(zip(arg.shape, shape, strict=True)):
                self._determine(who, f"dimension {d} of argument {k} ({arg.name!r})", e, n, sizes)
        values = {n: sizes[n].value for n in self.names}
        self._check_shapes(who, shapes, values)
        idle = bool(self._outputs) and all(0 in shapes[k] for k in self._outputs)
        return self.check(who, values, idle)

    def _passed(self, who: str, name: str, value: object) -> int:
        try:
            if isinstance(value, bool) or not isinstance(value, SupportsIndex):
                raise TypeError
            return operator.index(value)
        except TypeError:
            raise ArgumentError(f"{who}: the size {name!r} is an int, got {value!r}") from None

    def _determine(
        self, who: str, by: str, e: SizeFormula, n: int, sizes: dict[str, _Determined]
    ) -> None:
        """Enter the size that an extent determines; it must agree with an earlier value."""
        form = linear(e)
        if form is None:
            return
        name, factor, const = form
        if (n - const) % factor:
            raise ArgumentError(f"{who}: {by} is {n}, which {text(e)} never is")
        value = (n - const) // factor
        if name not in sizes:
            sizes[name] = _Determined(value, by)
        elif sizes[name].value != value:
            old = sizes[name]
            raise ArgumentError(
                f"{who}: {by} is {n}, so {name} is {value}, but {old.by} says that {name} is "
                f"{old.value}"
            )

    def _check_shapes(
        self, who: str, shapes: Sequence[tuple[int, ...]], values: Mapping[str, int]
    ) -> None:
        dims = ((k, arg, d) for k, arg in enumerate(self._args) for d in range(len(arg.shape)))
        for k, arg, d in dims:
            e, n = arg.shape[d], shapes[k][d]
            want = evaluate(e, values)
            if n != want:
                raise ArgumentError(
                    f"{who}: dimension {d} of argument {k} ({arg.name!r}) is {n}, expected "
                    f"{text(e)}{'' if isinstance(e, int) else f' = {want}'}{_with(values)}"
                )

    def check(self, who: str, values: Mapping[str, int], idle: bool = False) -> Mapping[str, int]:
        """The values, if they are in range and every extent is positive, else ArgumentError.

        ``idle``: nothing will run, so extents may be 0, and no read can miss.
        """
        for name, dtype, nonnegative in self._spec.variables:
            lo, hi = _LIMITS[dtype]
            if not (0 if nonnegative else lo) <= values[name] <= hi:
                what = "a size that is not negative" if nonnegative else dtype
                raise ArgumentError(f"{who}: {name} = {values[name]} is not {what}")
        for e, shown in self._spec.extents:
            n = evaluate(e, values)
            if not (0 if idle else 1) <= n <= MAX_EXTENT:
                zero = " (0 is served where no output has elements)" if n == 0 else ""
                raise ArgumentError(
                    f"{who}: the extent {shown} is {n}{_with(values)}; extents are 1 to "
                    f"{MAX_EXTENT}{zero}"
                )
        for e, shown in self._spec.requires:
            if not idle and evaluate(e, values) < 0:
                raise ArgumentError(f"{who}: {shown}{_with(values)}")
        return values


def _with(values: Mapping[str, int]) -> str:
    shown = ", ".join(f"{n} = {v}" for n, v in values.items())
    return f" with {shown}" if shown else ""
