"""Memory, scalar operations and the reference of each intrinsic, which interpreted programs call.

All values are NumPy scalars. `loopwright.ir.interp.interpreter` writes the calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import RunError
from loopwright.ir.buffer import Buffer
from loopwright.ir.interp.scalar import fma, integer_power, shift_left, shift_right
from loopwright.ir.interp.threads import Races


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


def _max(a: Any, b: Any) -> Any:
    return a if a != a or a > b else b


def _min(a: Any, b: Any) -> Any:
    return a if a != a or a < b else b


def _floordiv(a: Any, b: Any) -> Any:
    return type(a)(0) if b == 0 else a // b


def _floormod(a: Any, b: Any) -> Any:
    return type(a)(0) if b == 0 else a % b


def _truncdiv(a: Any, b: Any) -> Any:
    if b == 0:
        return type(a)(0)
    q = abs(int(a)) // abs(int(b))
    return np.asarray(q if (a < 0) == (b < 0) else -q).astype(np.asarray(a).dtype)[()]


def _truncmod(a: Any, b: Any) -> Any:
    if b == 0:
        return type(a)(0)
    r = abs(int(a)) % abs(int(b))
    return np.asarray(-r if a < 0 else r).astype(np.asarray(a).dtype)[()]


def _select(c: Any, a: Any, b: Any) -> Any:
    """A select of two values that were evaluated: it must not read outside on either side."""
    return a if c else b


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
    """NumPy's version of an intrinsic, in float64 and rounded to the dtype of its operand.

    It is the reference for every code generator. For float64 it is as good as NumPy's.
    """
    if fn == "fma":
        return fma
    f = CALLS.get(fn) or getattr(np, fn)

    def rounded(*args: Any) -> Any:
        dtype = args[0].dtype
        if not dtypes.is_float(dtype.name):
            return integer_power(*args) if fn == "pow" else f(*args)
        wide = np.asarray(f(*(a.astype(np.float64) for a in args)))
        return _cast(wide, dtype.name)

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
    from loopwright.runtime.packed import get_global_func

    return get_global_func(name)(*args)


def _input(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = a.view()
    view.flags.writeable = False
    return view


class AsyncStores:
    """Asynchronous stores of one thread, which take effect as late as may be.

    A read that comes too early then misses the copy. ``races`` hears of a store when it is made, by
    the interpreter, and once more when it takes effect.
    """

    def __init__(self, races: Races | None) -> None:
        self.races = races
        # Memory, element, value, and what `Races.touch` is told.
        self.group: list[tuple[Any, tuple[int, ...], Any, tuple[str, str, str]]] = []
        self.groups: list[list[tuple[Any, tuple[int, ...], Any, tuple[str, str, str]]]] = []

    def store(self, array: Any, at: tuple[int, ...], value: Any, *which: str) -> None:
        name, shown, scope = which
        self.group.append((array, at, value, (name, shown, scope)))

    def commit(self) -> None:
        """End the group that is being made."""
        self.groups.append(self.group)
        self.group = []

    def wait(self, pending: int) -> None:
        """Let all groups but the last ones take effect."""
        while len(self.groups) > pending:
            for array, at, value, (which, name, scope) in self.groups.pop(0):
                array[at] = value
                if self.races is not None:
                    self.races.touch(which, name, scope, at, True)

    def end(self) -> None:
        """The thread ends: nothing may be on its way any more."""
        left = [name for group in self.groups for _, _, _, (_, name, _) in group]
        if left:
            raise RunError(f"a thread ends before its asynchronous stores to {left[0]} are there")


#: Names by which the source of a program calls these.
NAMES: dict[str, Any] = {
    "_AsyncStores": AsyncStores,
    "_np": np, "_fresh": _fresh, "_view": _view, "_failed": _failed, "_outside": _outside,
    "_max": _max, "_min": _min, "_floordiv": _floordiv, "_floormod": _floormod,
    "_truncdiv": _truncdiv, "_truncmod": _truncmod, "_cast": _cast, "_select": _select,
    "_shift_left": shift_left, "_shift_right": shift_right, "_at_least_one": _at_least_one,
    "_input": _input, "_call_packed": _call_packed,
    **{f"_{t}": np.dtype(t).type for t in dtypes.SUPPORTED if t != "bfloat16"},
}  # fmt: skip
