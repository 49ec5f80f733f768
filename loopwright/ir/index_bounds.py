"""Which arithmetic on loop variables 32 bits can hold.

Arithmetic on loop variables means what it means for whole numbers. `IndexBounds` knows between
which bounds an expression lies, and whether a part of it that is typed int32 may leave int32.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from loopwright import dtypes
from loopwright.ir.affine import Interval
from loopwright.ir.expr import Binary, Cast, Const, Dim, Expr, Select, Unary, Var
from loopwright.ir.sizes import MAX_EXTENT
from loopwright.ir.traversal import free_vars

#: Bits of the narrow integers, unless somebody asks for fewer.
INDEX_BITS = 32


class Reach(NamedTuple):
    """What is known of an integer expression on loop variables.

    Attributes:
        bounds: inclusive bounds of its exact value.
        leaves: it, or a part of it, is typed int32 and may need more bits.
    """

    bounds: Interval
    leaves: bool


class IndexBounds:
    """Bounds of expressions on variables whose bounds are given.

    Args:
        bits: an int32 is taken to hold so many bits.
        sizes: size variables. Whoever calls the function checks that no extent made of them is
            above `MAX_EXTENT`.
    """

    def __init__(self, bits: int = INDEX_BITS, sizes: Iterable[Var] = ()) -> None:
        self.limit = 1 << (bits - 1)
        self._sizes: dict[Var, Interval] = dict.fromkeys(sizes, (0, MAX_EXTENT))
        self._ranges: dict[Var, Interval] = {}
        self._known: dict[Expr, Reach | None] = {}

    def bind(self, v: Var, bounds: Interval | None) -> None:
        """Note the inclusive bounds of a variable from now on; None: it holds data."""
        if self._ranges.get(v) == bounds:
            return
        self._known.clear()
        if bounds is None:
            del self._ranges[v]
        else:
            self._ranges[v] = bounds

    def bind_size(self, v: Var, value: Expr) -> bool:
        """Note a variable that is computed of sizes alone; False where its value is something else.

        Such variables stay as they are, since shapes and extents hold them.
        """
        if not free_vars(value) <= self._sizes.keys():
            return False
        self._sizes[v] = (0, self.last(value) + 1)
        return True

    def last(self, extent: Dim) -> int:
        """The largest index below an extent, as far as known."""
        if isinstance(extent, int):
            return extent - 1
        reach = self.reach(extent)
        return (MAX_EXTENT if reach is None else min(MAX_EXTENT, reach.bounds[1])) - 1

    def fits(self, bounds: Interval) -> bool:
        """Whether the narrow integers hold all values within bounds."""
        return -self.limit <= bounds[0] and bounds[1] < self.limit

    def leaves(self, e: Expr) -> bool:
        """Whether an expression on loop variables has to be computed in 64 bits."""
        reach = self.reach(e)
        return reach is not None and reach.leaves

    def reach(self, e: Expr) -> Reach | None:
        """Bounds of an expression on loop variables; None for data, and where nothing is known."""
        if isinstance(e, Var):
            return self._variable(e)
        if e not in self._known:
            self._known[e] = self._operation(e)
        return self._known[e]

    def _variable(self, v: Var) -> Reach | None:
        if v in self._sizes:
            return Reach(self._sizes[v], False)
        return self._of(self._ranges[v], v.dtype) if v in self._ranges else None

    def _operation(self, e: Expr) -> Reach | None:
        if e.dtype not in ("int32", "int64"):
            return None
        match e:
            case Const(value=v):
                return Reach((v, v), False)
            case Cast(value=v):
                x = self.reach(v)
                return x if x is not None and _inside(x.bounds, e.dtype) else None
            case Unary(op="-", a=a):
                x = self.reach(a)
                return None if x is None else self._of((-x.bounds[1], -x.bounds[0]), e.dtype, x)
            case Binary(op=op, a=a, b=b):
                x, y = self.reach(a), self.reach(b)
                if x is None or y is None:
                    return None
                bounds = _bounds_of(op, x.bounds, y.bounds)
                return None if bounds is None else self._of(bounds, e.dtype, x, y)
            case Select(a=a, b=b):
                x, y = self.reach(a), self.reach(b)
                if x is None or y is None:
                    return None
                both = (min(x.bounds[0], y.bounds[0]), max(x.bounds[1], y.bounds[1]))
                return self._of(both, e.dtype, x, y)
        return None

    def _of(self, bounds: Interval, dtype: str, *parts: Reach) -> Reach | None:
        """What is known of an operation; None where even 64 bits may not hold it."""
        if not _inside(bounds, "int64"):
            return None
        leaves = dtype == "int32" and not self.fits(bounds)
        return Reach(bounds, leaves or any(p.leaves for p in parts))


def _bounds_of(op: str, x: Interval, y: Interval) -> Interval | None:
    """Bounds of an operation on whole numbers within bounds; None for others than these."""
    corners: list[int]
    match op:
        case "+":
            return x[0] + y[0], x[1] + y[1]
        case "-":
            return x[0] - y[1], x[1] - y[0]
        case "*":
            corners = [p * q for p in x for q in y]
        case "//" if y[0] > 0:
            corners = [p // q for p in x for q in y]
        case "tdiv" if y[0] > 0:
            corners = [abs(p) // q * (1 if p >= 0 else -1) for p in x for q in y]
        case "%" if y[0] > 0:
            return 0, y[1] - 1
        case "tmod" if y[0] > 0:
            return (0 if x[0] >= 0 else 1 - y[1]), (0 if x[1] <= 0 else y[1] - 1)
        case "min":
            return min(x[0], y[0]), min(x[1], y[1])
        case "max":
            return max(x[0], y[0]), max(x[1], y[1])
        case _:
            return None
    return min(corners), max(corners)


def _inside(bounds: Interval, dtype: str) -> bool:
    lo, hi = dtypes.limits(dtype)
    return lo <= bounds[0] and bounds[1] <= hi
