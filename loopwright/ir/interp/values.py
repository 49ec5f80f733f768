"""Memory, scalar operations and references of intrinsics, which interpreted programs call."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import RunError
from loopwright.ir.buffer import Buffer
from loopwright.ir.interp.threads import Races


def _shift(shift: np.ufunc) -> Callable[[Any, Any], Any]:
    return lambda a, b: shift(a, b & type(b)(8 * b.nbytes - 1))  # the amount modulo the width


def integer_power(x: Any, y: Any) -> Any:
    """``x ** y`` of integers, which wraps; of negative y ``1 / x ** -y`` cut to an integer."""
    if y < 0:
        return type(x)(int(x) ** (int(y) & 1) if abs(int(x)) == 1 else 0)
    return np.asarray(pow(int(x), int(y), 1 << (8 * x.nbytes)), np.uint64).astype(x.dtype)[()]


def fma(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once."""
    # A product of two float32 is exact in float64. Their sum is rounded there to odd, which makes
    # the second rounding harmless (Boldo & Melquiond, Emulation of FMA and correctly rounded sums,
    # 2008). For float64 rational arithmetic is exact. float16 and bfloat16 are computed in float32.
    if a.nbytes == 2:
        return np.asarray(fma(*map(np.float32, (a, b, c)))).astype(a.dtype)[()]
    wide = float(a) * float(b) + float(c)
    if not all(map(math.isfinite, (a, b, c))):
        return type(a)(wide)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:  # its sign is that of the sum
        return type(a)(wide)
    if isinstance(a, np.float64):
        try:
            return np.float64(float(exact))
        except OverflowError:
            return np.float64(math.inf if exact > 0 else -math.inf)
    rest = exact - Fraction(wide)
    odd = int(np.float64(wide).view(np.int64)) & 1
    if rest and not odd:
        wide = math.nextafter(wide, math.inf if rest > 0 else -math.inf)
    return type(a)(wide)


def _fresh(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    fill: Any = math.nan if dtypes.is_float(dtype) else (dtype == "bool" or 85)
    return np.full(shape, fill, dtype)


def _view(
    of: np.ndarray[Any, Any], offset: int, shape: tuple[int, ...], dtype: str
) -> np.ndarray[Any, Any]:
    fresh = _fresh(shape, dtype)
    there: np.ndarray[Any, Any] = of[offset : offset + fresh.nbytes].view(fresh.dtype)
    there = there.reshape(shape)
    there[...] = fresh
    return there


def _failed(text: str, *values: int) -> None:
    raise RunError(text.format(*values))


def _at_least_one(extent: int, name: str) -> int:
    if extent < 1:
        raise RunError(f"the loop {name} has {extent} iterations; there must be one at least")
    return extent


def _outside(name: str, index: tuple[int, ...], shape: tuple[int, ...]) -> None:
    raise RunError(f"access outside {name}: index {list(index)}, shape {list(shape)}")


def _truncated(a: Any, b: Any, op: Callable[[int, int], int], negative: bool) -> Any:
    """A quotient or remainder of magnitudes with a sign, as a value of the operand's dtype."""
    if b == 0:
        return type(a)(0)
    out = op(abs(int(a)), abs(int(b)))
    return np.asarray(-out if negative else out).astype(np.asarray(a).dtype)[()]


def _cast(x: Any, dtype: str) -> Any:
    if dtype in dtypes.HALVES:
        x = np.asarray(x).astype(np.float32)
    if dtypes.is_int(dtype) and dtypes.is_float(np.asarray(x).dtype.name):
        return np.dtype(dtype).type(dtypes.truncate(float(x), dtype))
    with np.errstate(all="ignore"):
        return np.asarray(x).astype(dtype)[()]


#: Intrinsics for which NumPy has another name, or none.
CALLS: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.frompyfunc(math.erf, 1, 1),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "atan": np.arctan,
    "round": np.rint,
    "pow": np.power,
}


def intrinsic(fn: str) -> Callable[..., Any]:
    """NumPy's version of an intrinsic, the reference for every code generator: in float64 (as good
    as NumPy's) and rounded to the dtype of its operand."""
    if fn == "fma":
        return fma
    f = CALLS.get(fn) or getattr(np, fn)

    def rounded(*args: Any) -> Any:
        dtype = args[0].dtype
        if not dtypes.is_float(dtype.name):
            return integer_power(*args) if fn == "pow" else f(*args)
        return _cast(np.asarray(f(*(a.astype(np.float64) for a in args))), dtype.name)

    return rounded


def getter(b: Buffer, which: str, races: Races | None) -> Callable[..., Any]:
    """Function that reads an element of ``b``; ``which`` names its array for ``races``."""

    def get(array: Any, *index: int) -> Any:
        if any(not 0 <= i < n for i, n in zip(index, array.shape, strict=True)):
            _outside(b.name, index, array.shape)
        if races is not None:
            races.touch(which, b.name, b.scope, index, False)
        return array[index]

    return get


def _call_packed(name: str, *args: object) -> object:
    from loopwright.runtime import get_global_func

    return get_global_func(name)(*args)


def _input(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = a.view()
    view.flags.writeable = False
    return view


class AsyncStores:
    """Asynchronous stores of one thread, which take effect as late as may be, so that a read which
    comes too early misses the copy."""

    def __init__(self, races: Races | None) -> None:
        self.races = races
        # Memory, element, value, and what `Races.touch` is told: when a store is made, by the
        # interpreter, and once more when it takes effect.
        self.group: list[tuple[Any, tuple[int, ...], Any, tuple[str, str, str]]] = []
        self.groups: list[list[tuple[Any, tuple[int, ...], Any, tuple[str, str, str]]]] = []

    def store(self, array: Any, at: tuple[int, ...], value: Any, *which: str) -> None:
        name, shown, scope = which
        self.group.append((array, at, value, (name, shown, scope)))

    def commit(self) -> None:
        self.groups.append(self.group)
        self.group = []

    def wait(self, pending: int) -> None:
        while len(self.groups) > pending:
            for array, at, value, (which, name, scope) in self.groups.pop(0):
                array[at] = value
                if self.races is not None:
                    self.races.touch(which, name, scope, at, True)

    def end(self) -> None:
        """Refuse to end while a store may be on its way."""
        left = [name for group in self.groups for _, _, _, (_, name, _) in group]
        if left:
            raise RunError(f"a thread ends before its asynchronous stores to {left[0]} are there")


#: Names by which the source of a program calls these.
NAMES: dict[str, Any] = {
    "_AsyncStores": AsyncStores,
    "_np": np, "_fresh": _fresh, "_view": _view, "_failed": _failed, "_outside": _outside,
    "_max": lambda a, b: a if a != a or a > b else b,
    "_min": lambda a, b: a if a != a or a < b else b,
    "_floordiv": lambda a, b: type(a)(0) if b == 0 else a // b,
    "_floormod": lambda a, b: type(a)(0) if b == 0 else a % b,
    "_truncdiv": lambda a, b: _truncated(a, b, operator.floordiv, (a < 0) != (b < 0)),
    "_truncmod": lambda a, b: _truncated(a, b, operator.mod, a < 0),
    "_cast": _cast,
    # Both values were evaluated: neither side may read outside.
    "_select": lambda c, a, b: a if c else b,
    "_shift_left": _shift(np.left_shift), "_shift_right": _shift(np.right_shift),
    "_at_least_one": _at_least_one,
    "_input": _input, "_call_packed": _call_packed,
    **{f"_{t}": np.dtype(t).type for t in dtypes.SUPPORTED if t != "bfloat16"},
}  # fmt: skip
