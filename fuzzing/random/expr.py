"""Random expressions over the axes in scope and the tensors known so far; see `random_program`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from hypothesis import strategies as st

from loopwright import dtypes, te
from loopwright.ir.expr import Const, Expr, IterVar, Var, binary
from loopwright.te.tensor import Tensor
from loopwright.testing.numpy_eval import Array

# Bits of a significand; not taken from what is checked, whose mistakes would be shared.
_SIGNIFICANT_BITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
# Relative error of one rounded operation or library function, with room to spare.
_EPS = {"bfloat16": 1e-2, "float16": 1e-3, "float32": 1e-6, "float64": 1e-14}
_HUGE = 1e30

T = TypeVar("T")


class Info(NamedTuple):
    """Facts about every element of a value."""

    #: No order of operations can change a bit.
    exact: bool
    #: Largest magnitude (without NaN).
    bound: float
    #: A power of two of which every element is a multiple, where exact.
    quantum: float
    #: Largest distance of an element from the reference, where not exact.
    err: float

    def to(self, dtype: str) -> Info:
        if dtype not in _SIGNIFICANT_BITS:
            return self
        fits = self.bound / self.quantum <= 2.0 ** _SIGNIFICANT_BITS[dtype]
        if self.exact and fits:
            return self
        return Info(False, self.bound, 1.0, self.err + self.bound * _EPS[dtype])

    def _combined(self, other: Info, bound: float, quantum: float, err: float, dtype: str) -> Info:
        exact = self.exact and other.exact
        return Info(exact, min(bound, _HUGE), quantum if exact else 1.0, err).to(dtype)

    def add(self, other: Info, dtype: str) -> Info:
        quantum = min(self.quantum, other.quantum)
        return self._combined(other, self.bound + other.bound, quantum, self.err + other.err, dtype)

    def mul(self, other: Info, dtype: str) -> Info:
        err = self.err * other.bound + other.err * self.bound + self.err * other.err
        bound, quantum = self.bound * other.bound, self.quantum * other.quantum
        return self._combined(other, bound, max(quantum, 1e-30), err, dtype)

    def div(self, other: Info, dtype: str) -> Info:
        """``self / (abs(other) + 1)``."""
        err = self.err + self.bound * (other.err + 2 * _EPS[dtype] * (1 + other.bound))
        return Info(False, self.bound, 1.0, err).to(dtype)

    def smooth(self, dtype: str, bound: float, slope: float) -> Info:
        """A function whose values and slope are bounded, computed with a few units of error."""
        return Info(False, bound, 1.0, slope * (self.err + self.bound * _EPS[dtype])).to(dtype)

    def join(self, other: Info) -> Info:
        return Info(
            self.exact and other.exact,
            max(self.bound, other.bound),
            min(self.quantum, other.quantum),
            max(self.err, other.err),
        )

    def sum(self, n: int, dtype: str) -> Info:
        rounding = 0.0 if self.exact or dtype not in _EPS else n * n * self.bound * _EPS[dtype]
        bound = min(self.bound * n, _HUGE)
        total = Info(self.exact, bound, self.quantum, self.err * n + rounding)
        rounded = total.to(dtype)
        return rounded if rounded.exact else rounded._replace(err=rounded.err * n)

    def power(self, n: int, dtype: str) -> Info:
        out = self
        for _ in range(n - 1):
            out = out.mul(self, dtype)
        return out if out.exact else out._replace(err=2 * out.err)

    def clamp(self, limit: float) -> Info:
        return Info(self.exact, min(self.bound, limit), min(self.quantum, 0.5), self.err)


def info_of_dtype(dtype: str) -> Info:
    if dtypes.is_float(dtype):
        return Info(True, 2.0, 0.25, 0.0)
    if dtype == "bool":
        return Info(True, 1.0, 1.0, 0.0)
    return Info(True, float(2 ** dtypes.bits(dtype)), 1.0, 0.0)


def constant(draw: Draw, dtype: str) -> tuple[Expr, Info]:
    if dtype == "bool":
        return te.const(draw.chance(50), "bool"), info_of_dtype("bool")
    if dtypes.is_float(dtype):
        v = draw.integer(-6, 6) / 4
        return te.const(v, dtype), Info(True, abs(v), 0.25, 0.0)
    low = 0 if dtypes.is_unsigned(dtype) else -5
    return te.const(draw.integer(low, 9), dtype), info_of_dtype(dtype)


class Draw:
    """The choices of one example as integers, which shrink towards the first or smallest."""

    def __init__(self, integer: Callable[[int, int], int]) -> None:
        self._integer = integer

    @staticmethod
    def hypothesis(draw: st.DrawFn) -> Draw:
        return Draw(lambda lo, hi: draw(st.integers(lo, hi)))

    @staticmethod
    def random(rng: random.Random) -> Draw:
        return Draw(rng.randint)

    def integer(self, lo: int, hi: int) -> int:
        return self._integer(lo, hi) if hi > lo else lo

    def pick(self, items: Sequence[T]) -> T:
        return items[self.integer(0, len(items) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        order = list(items)
        for i in range(len(order) - 1):
            j = self.integer(i, len(order) - 1)
            order[i], order[j] = order[j], order[i]
        return order

    def chance(self, percent: int) -> bool:
        return self.integer(0, 99) >= 100 - percent


def random_array(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, nan: bool = False
) -> Array:
    """Quarters in [-2, 2] for floats; small integers, or any when ``rng`` says so."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtypes.is_float(dtype):
        out = rng.integers(-8, 9, shape).astype(dtype) / 4
        if nan:
            out = np.where(rng.random(shape) < 0.1, np.nan, out)
        return np.asarray(out, dtype)
    lo, hi = dtypes.limits(dtype)
    small = rng.integers(0 if lo == 0 else -9, 10, shape)
    if rng.random() < 0.7:
        return np.asarray(small, dtype)
    full = rng.integers(int(lo), int(hi), shape, dtype=np.int64, endpoint=True)
    edges = rng.choice(np.array([lo, hi, 0, 1], np.int64), shape)
    return np.asarray(np.where(rng.random(shape) < 0.3, edges, full), dtype)


def poison(shape: tuple[int, ...], dtype: str) -> Array:
    """Contents of outputs before a run: NaN, or a pattern."""
    if dtypes.is_float(dtype):
        return np.full(shape, np.nan, dtype)
    return np.full(shape, True if dtype == "bool" else 85, dtype)


EXTENTS = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31)
FLOATS = ("float32", "float64")
INTS = ("int32", "int64", "int8", "int16", "uint8")
DTYPES = ("float32", "float32", "float32", *FLOATS, *dtypes.HALVES, *INTS, "bool")
MAX_ELEMENTS = 600


Index = Expr | int


class Known(NamedTuple):
    tensor: Tensor
    info: Info


class AxisInScope(NamedTuple):
    var: Var
    extent: int


def is_input(t: Tensor) -> bool:
    return not t.op.input_tensors and isinstance(t.op, te.PlaceholderOp)


def clamp(x: Expr, info: Info, limit: float) -> tuple[Expr, Info]:
    """Cut a float to [-limit, limit]; NaN stays."""
    return te.max(te.min(x, limit), -limit), info.clamp(limit)


class Expressions:
    def __init__(self, draw: Draw) -> None:
        self.d = draw
        self.known: list[Known] = []
        self.axes: list[AxisInScope] = []
        self.count = 0
        self.focus: Known | None = None

    def _name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}" if self.d.chance(85) else letter

    def input(self, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Known:
        shape = self.shape() if shape is None else shape
        dtype = dtype or self.d.pick(DTYPES)
        out = Known(te.placeholder(shape, dtype, name=self._name("A")), info_of_dtype(dtype))
        self.known.append(out)
        return out

    def shape(self, max_dims: int = 3, limit: int = MAX_ELEMENTS) -> tuple[int, ...]:
        dims: list[int] = []
        for _ in range(self.d.pick((1, 2, 2, 3, 0)) if max_dims > 2 else max_dims):
            fits = [e for e in EXTENTS if e * prod(dims) <= limit]
            dims.append(self.d.pick(fits))
        return tuple(dims)

    def source(self, dtype: str | None = None) -> Known:
        fit = [k for k in self.known if dtype is None or k.tensor.dtype == dtype]
        stages = [k for k in fit if not is_input(k.tensor)]
        if stages and not self.d.chance(30):
            return stages[-1 - self.d.integer(0, min(2, len(stages) - 1))]
        if not fit or self.d.chance(30):
            return self.input(dtype=dtype)
        return self.d.pick(fit)

    def value(self, want: str, depth: int) -> tuple[Expr, Info]:
        if want == "bool":
            return self.condition(depth), info_of_dtype("bool")
        if depth <= 0:
            return self.leaf(want)
        if self.d.chance(20):
            make = te.select if self.d.chance(50) else te.if_then_else
            cond = self.condition(depth - 1)
            (x, p), (y, q) = self.value(want, depth - 1), self.value(want, depth - 1)
            return make(cond, x, y), p.join(q)
        wider = [t for t in (*FLOATS, *INTS) if dtypes.bits(t) > dtypes.bits(want)]
        if wider and self.d.chance(15):
            return self.convert(*self.value(self.d.pick(wider), depth - 1), want)
        if dtypes.is_float(want):
            return self._float(want, depth)
        return self._integer(want, depth), info_of_dtype(want)

    def operand(self, want: str, depth: int) -> tuple[Expr, Info]:
        """As `value`, or of a narrower dtype that promotes to ``want``."""
        narrow = {
            "float16": ("int8",),
            "bfloat16": ("int8",),
            "float32": ("int8", "uint8", "int16", "float16", "bfloat16"),
            "float64": ("int8", "float32", "int32"),
        }
        if dtypes.is_int(want):
            fits = tuple(t for t in INTS if dtypes.bits(t) < dtypes.bits(want))
        else:
            fits = narrow[want]
        if fits and self.d.chance(20):
            dtype = self.d.pick(fits)
            x, info = self.value(dtype, depth)
            return x, info if dtypes.is_float(dtype) else info_of_dtype(dtype)
        return self.value(want, depth)

    def _float(self, want: str, depth: int) -> tuple[Expr, Info]:
        x, p = self.operand(want, depth - 1)
        x, p = (te.cast(x, want), p.to(want)) if x.dtype != want else (x, p)
        if p.bound > 64:
            x, p = clamp(x, p, 8.0)
        kind = self.d.integer(0, 11)
        if kind >= 9 or (kind == 8 and not p.exact):
            return self._function(x, p, want)
        if kind == 8:
            fn = self.d.pick(("floor", "ceil", "round", "trunc", "fmod"))
            if fn == "fmod":
                return te.fmod(x, 0.75), Info(True, 0.75, min(p.quantum, 0.25), 0.0)
            return te.call(fn, x), Info(True, p.bound + 1, 1.0, 0.0)
        if kind == 6:
            return -x, p
        if kind == 7:
            return te.abs(x), p
        y, q = self.operand(want, depth - 1)
        if q.bound > 64:
            y, q = clamp(te.cast(y, want), q.to(want), 8.0)
        match kind:
            case 0 | 1:
                return x + y, p.add(q, want)
            case 2:
                return x - y, p.add(q, want)
            case 3 if self.d.chance(30):
                return te.fma(x, te.cast(y, want), x), p.mul(q, want).add(p, want)
            case 3:
                return x * y, p.mul(q, want)
            case 4:
                both = te.min(x, y) if self.d.chance(50) else te.max(x, y)
                return both, p.join(q)
        return x / (te.abs(te.cast(y, want)) + 1.0), p.div(q, want)

    def _function(self, x: Expr, p: Info, want: str) -> tuple[Expr, Info]:
        fn = self.d.pick(
            ("exp", "tanh", "sigmoid", "erf", "sin", "cos", "sqrt", "rsqrt", "log", "log1p", "pow",
             "atan", "expm1", "exp2")
        )  # fmt: skip
        if fn in ("exp", "expm1", "exp2"):
            x, p = clamp(x, p, 3.0)
            return te.call(fn, x), p.smooth(want, 21.0, 21.0)
        if fn in ("sqrt", "rsqrt", "log", "pow"):
            x = te.abs(x) + 1.0
            y = te.power(x, 1.5) if fn == "pow" else te.call(fn, x)
            return y, p.smooth(want, (p.bound + 1) ** 1.5, 1.5 * (p.bound + 1) ** 0.5)
        if fn == "log1p":
            return te.log1p(te.abs(x)), p.smooth(want, p.bound, 1.0)
        return te.call(fn, x), p.smooth(want, 1.6, 1.2)

    def _integer(self, want: str, depth: int) -> Expr:
        x = self.operand(want, depth - 1)[0]
        x = te.cast(x, want)
        kind = self.d.integer(0, 11)
        if kind == 8:
            return -x if self.d.chance(60) else ~x
        if kind == 9:
            return te.abs(x)
        if kind >= 10:
            return self._bits(x, te.cast(self.operand(want, depth - 1)[0], want))
        if kind in (5, 6) and self.d.chance(60):
            low = 1 if dtypes.is_unsigned(want) else -5
            c = self.d.pick([k for k in (3, 1, 2, 7, 8, -1, -3, -4) if k >= low])
            return x // c if kind == 5 else x % c
        y = self.operand(want, depth - 1)[0]
        if kind > 4 and isinstance(y, Const) and y.value == 0:
            return x  # a literal zero is refused when written
        match kind:
            case 0 | 1 | 2 | 3:
                return (x + y, x + y, x - y, x * y)[kind]
            case 4:
                return te.min(x, y) if self.d.chance(50) else te.max(x, y)
            case 5:
                return x // y
            case 6:
                return x % y
        return te.truncdiv(x, y) if self.d.chance(50) else te.truncmod(x, y)

    def _bits(self, x: Expr, y: Expr) -> Expr:
        kind = self.d.integer(0, 5)
        if kind < 3:
            return (x & y, x | y, x ^ y)[kind]
        if kind < 5:
            by = y if self.d.chance(50) else self.d.integer(0, 40)
            return x << by if kind == 3 else x >> by
        if x.dtype not in ("int32", "int64"):
            return x ^ (y >> 1)
        return te.reinterpret(x.dtype, te.reinterpret("float" + x.dtype[3:], x & y))

    def condition(self, depth: int) -> Expr:
        """A random condition that rounding cannot flip."""
        kind = self.d.integer(0, 5)
        if depth > 0 and kind == 5:
            return te.logical_not(self.condition(depth - 1))
        if depth > 0 and kind == 4:
            both = [self.condition(depth - 1), self.condition(depth - 1)]
            return te.all(*both) if self.d.chance(50) else te.any(*both)
        if kind == 3:
            flags = [k for k in self.known if k.tensor.dtype == "bool"]
            if flags:
                return self.read(self.d.pick(flags))
        if self.axes and kind < 2:
            a = self.d.pick(self.axes)
            x: Expr = a.var * self.d.integer(1, 3) + self.d.integer(0, 2)
            y: Index = self.d.integer(0, a.extent + 1)
            if self.d.chance(30):
                x, y = x % self.d.integer(2, 4), self.d.integer(0, 1)
        else:
            x, info = self.leaf(self.d.pick(("int32", "float32", "uint8", "int8")))
            y = self.d.integer(0, 3)
            if not info.exact:
                x = te.cast(1, "int32")
        return binary(self.d.pick(("<", ">=", "<=", ">", "==", "!=")), x, y)

    def leaf(self, want: str) -> tuple[Expr, Info]:
        kind = self.d.integer(0, 9)
        if kind == 9 or (kind == 8 and not self.axes):
            return constant(self.d, want)
        if kind == 8:
            a = self.d.pick(self.axes)
            return te.cast(a.var, want), Info(True, float(max(a.extent, 1)), 1.0, 0.0)
        src = self.source(want if self.d.chance(60) else None)
        src = self.focus if self.focus and self.d.chance(50) else src
        x, info = self.guarded(src) if kind == 7 else (self.read(src), src.info)
        return self.convert(x, info, want)

    def convert(self, x: Expr, info: Info, want: str) -> tuple[Expr, Info]:
        have = x.dtype
        if have == want:
            return x, info
        if dtypes.is_float(want) and dtypes.is_int(have) and dtypes.bits(have) > 16:
            return te.cast(x % 17, want), Info(True, 17.0, 1.0, 0.0)
        if dtypes.is_float(want):
            return te.cast(x, want), info.to(want)
        if dtypes.is_float(have) and not info.exact:
            return constant(self.d, want)
        return te.cast(x, want), info_of_dtype(want)

    def read(self, src: Known) -> Expr:
        return src.tensor[tuple(self.index(n) for n in src.tensor.static_shape)]

    def guarded(self, src: Known) -> tuple[Expr, Info]:
        """A read that runs over an edge, behind if_then_else."""
        fill, info = constant(self.d, src.tensor.dtype)
        conds, at = [], []
        for n in src.tensor.static_shape:
            if not self.axes or self.d.chance(30):
                at.append(self.index(n))
                continue
            i = self.d.pick(self.axes).var * self.d.integer(1, 2) + self.d.integer(-3, 3)
            conds += [i >= 0, i < n]
            at.append(i)
        value = src.tensor[tuple(at)]
        if not conds:
            return value, src.info
        return te.if_then_else(te.all(*conds), value, fill), src.info.join(info)

    def index(self, n: int, nested: bool = False) -> Index:
        """An index in [0, n): affine, divided, clamped or gathered."""
        if n == 1 and self.d.chance(70):
            return 0
        same = [a for a in self.axes if a.extent == n]
        if same and self.d.chance(65):
            return self.d.pick(same).var
        if not self.axes:
            return self.d.integer(0, n - 1)
        a, b = self.d.pick(self.axes), self.d.pick(self.axes)
        kind = self.d.integer(0, 8)
        if kind == 8 and not nested:
            return self._gathered(n)
        if kind == 7:
            return self.d.integer(0, n - 1)
        if kind == 6 and a.var is not b.var:
            f = a.var * b.extent + b.var  # of a reshape: a digit of the fused index of two axes
            return f % n if self.d.chance(50) else f // -(-a.extent * b.extent // n)
        if kind == 5 and a.extent <= n:
            return (n - 1) - a.var
        if kind in (3, 4):
            s, t = self.d.integer(1, 2), self.d.integer(1, 2)
            top = (a.extent - 1) * s + (b.extent - 1) * t
            if a.var is not b.var and top < n:
                return a.var * s + b.var * t + self.d.integer(0, n - 1 - top)
        if a.extent <= n:
            return a.var + self.d.integer(0, n - a.extent)
        folded = (a.var % n, a.var // -(-a.extent // n), te.min(a.var, n - 1))
        return folded[self.d.integer(0, 2)]

    def _gathered(self, n: int) -> Expr:
        src = self.source(self.d.pick(("int32", "int64", "uint8", "int8")))
        x = src.tensor[tuple(self.index(m, nested=True) for m in src.tensor.static_shape)]
        if self.d.chance(50):
            return x % n
        return te.max(te.min(x, n - 1), 0)


MAX_POINTS = 2500
#: A value with what is known of it.
Made = tuple[Expr, Info]


class Tuples(Expressions):
    def compute(self, shape: tuple[int, ...], make: Callable[[], Made], name: str) -> Known:
        return self.compute_several(shape, lambda: [make()], name)[0]

    def compute_several(
        self, shape: tuple[int, ...], make: Callable[[], Sequence[Made]], name: str
    ) -> list[Known]:
        """A stage with one output for each value that ``make()`` builds over ``self.axes``."""
        infos: list[Info] = []

        def body(*vars_: Var) -> tuple[Expr, ...]:
            outer = self.axes
            self.axes = [AxisInScope(v, e) for v, e in zip(vars_, shape, strict=True)]
            values = make()
            self.axes = outer
            infos.extend(info for _, info in values)
            return tuple(value for value, _ in values)

        result = te.compute(shape, body, name=self._name(name))
        tensors = result if isinstance(result, tuple) else (result,)
        return [Known(t, info) for t, info in zip(tensors, infos, strict=True)]

    def reduction_domain(self) -> tuple[tuple[int, ...], list[IterVar]]:
        """A shape and reduction axes of bounded size, often those of a tensor to read."""
        self.focus = self.source() if self.d.chance(60) else None
        shape = self.shape(limit=120)
        extents = [self.d.pick((1, 2, 3, 4, 5, 7, 8, 13)) for _ in range(self.d.pick((1, 1, 2)))]
        if self.focus:
            whole = self.focus.tensor.static_shape
            cut = self.d.integer(0, max(0, len(whole) - 1))
            shape, extents = whole[:cut], list(whole[cut:]) or extents
        while prod(extents) * prod(shape) > MAX_POINTS:
            extents.pop()
        extents = extents or [1]
        return shape, [te.reduce_axis((0, e), name=f"r{i}") for i, e in enumerate(extents)]

    def several(self) -> list[Known]:
        self.focus = self.source() if self.d.chance(75) else None
        shape = self.focus.tensor.static_shape if self.focus else self.shape()
        types = [self.d.pick(DTYPES) for _ in range(self.d.pick((2, 2, 3)))]
        return self.compute_several(
            shape, lambda: [self.value(t, self.d.integer(0, 2)) for t in types], "Q"
        )

    def tuple_reduction(self) -> list[Known]:
        """A reduction of tuples: argmax, argmin, or sums and extremes side by side."""
        shape, axes = self.reduction_domain()
        make = self._arg_reduction if self.d.chance(50) else self._side_by_side
        return self.compute_several(shape, lambda: make(axes), "Z")

    def _condition(self, axes: list[IterVar]) -> dict[str, Any]:
        """Bring the axes into scope; sometimes only some of their points are combined."""
        self.axes = self.axes + [AxisInScope(a.var, a.count) for a in axes]
        return {"where": self.condition(1)} if self.d.chance(30) else {}

    def _arg_reduction(self, axes: list[IterVar]) -> list[Made]:
        """The place and the value of an extreme; ties, NaN and repeated indices are welcome."""
        index, kind = (
            self.d.pick(INTS),
            self.d.pick([t for t in DTYPES if t not in ("bool", *dtypes.HALVES)]),
        )
        start: list[Made] = []
        if self.d.chance(30):
            start = [self.value(index, 1), constant(self.d, kind)]
        where = self._condition(axes)
        at, (value, info) = self.value(index, self.d.integer(0, 1)), self.value(kind, 1)
        if not info.exact:
            value, info = constant(self.d, kind)
        if where and not start:  # the identity of floats is infinite
            start = [constant(self.d, index), constant(self.d, kind)]
        if start:
            where["init"] = tuple(e for e, _ in start)
            info = info.join(start[1][1])
        reducer = te.argmax if self.d.chance(50) else te.argmin
        reduced = reducer((at[0], value), axis=axes, **where)
        return [(reduced[0], info_of_dtype(index)), (reduced[1], info)]

    def _side_by_side(self, axes: list[IterVar]) -> list[Made]:
        n = prod(a.count for a in axes)
        types = [
            self.d.pick([t for t in DTYPES if t not in ("bool", *dtypes.HALVES)])
            for _ in range(self.d.pick((2, 2, 3)))
        ]
        kinds = [self.d.pick(("sum", "min", "max")) for _ in types]
        start = [constant(self.d, t) for t in types]
        where = self._condition(axes)
        source = [self.value(t, self.d.integer(0, 2)) for t in types]
        infos = [
            p.sum(n, t).add(q, t) if kind == "sum" else p.join(q)
            for kind, (_, p), (_, q), t in zip(kinds, source, start, types, strict=True)
        ]
        reducer = te.comm_reducer(
            lambda x, y: tuple(map(_combine, kinds, x, y)),
            lambda *ts: tuple(map(_identity, kinds, ts)),
            name="side_by_side",
        )
        values = tuple(e for e, _ in source)
        reduced = reducer(values, axis=axes, init=tuple(e for e, _ in start), **where)
        return list(zip(reduced, infos, strict=True))


def _combine(kind: str, x: Expr, y: Expr) -> Expr:
    return x + y if kind == "sum" else te.min(x, y) if kind == "min" else te.max(x, y)


def _identity(kind: str, dtype: str) -> Expr:
    if kind == "sum":
        return te.const(0, dtype)
    lo, hi = dtypes.limits(dtype)
    return te.const(hi if kind == "min" else lo, dtype)
