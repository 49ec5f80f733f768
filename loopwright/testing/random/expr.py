"""Random expressions over the axes in scope and the tensors known so far; see `random_program`."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from loopwright import dtypes, te
from loopwright.ir.expr import Const, Expr, Var
from loopwright.te.tensor import Tensor
from loopwright.testing.random.values import Draw, Info, constant, info_of_dtype

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
    """The facts about a program being made, and expressions made of it."""

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
        """A random shape of bounded size."""
        dims: list[int] = []
        for _ in range(self.d.pick((1, 2, 2, 3, 0)) if max_dims > 2 else max_dims):
            fits = [e for e in EXTENTS if e * prod(dims) <= limit]
            dims.append(self.d.pick(fits))
        return tuple(dims)

    def source(self, dtype: str | None = None) -> Known:
        """A tensor to read: most often a late stage, sometimes a new input."""
        fit = [k for k in self.known if dtype is None or k.tensor.dtype == dtype]
        stages = [k for k in fit if not is_input(k.tensor)]
        if stages and not self.d.chance(30):
            return stages[-1 - self.d.integer(0, min(2, len(stages) - 1))]
        if not fit or self.d.chance(30):
            return self.input(dtype=dtype)
        return self.d.pick(fit)

    # ------------------------------------------------------------ expressions

    def value(self, want: str, depth: int) -> tuple[Expr, Info]:
        """A random expression of dtype ``want``."""
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
            case 0 | 1:
                return x + y
            case 2:
                return x - y
            case 3:
                return x * y
            case 4:
                return te.min(x, y) if self.d.chance(50) else te.max(x, y)
            case 5:
                return x // y
            case 6:
                return x % y
        return te.truncdiv(x, y) if self.d.chance(50) else te.truncmod(x, y)

    def _bits(self, x: Expr, y: Expr) -> Expr:
        """An operation on the bits of two integers."""
        match self.d.integer(0, 5):
            case 0:
                return x & y
            case 1:
                return x | y
            case 2:
                return x ^ y
            case 3:
                return x << (y if self.d.chance(50) else self.d.integer(0, 40))
            case 4:
                return x >> (y if self.d.chance(50) else self.d.integer(0, 40))
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
        return self._compare(x, y)

    def _compare(self, x: Expr, y: Index) -> Expr:
        match self.d.integer(0, 5):
            case 0:
                return x < y
            case 1:
                return x >= y
            case 2:
                return x <= y
            case 3:
                return x > y
            case 4:
                return te.equal(x, y)
        return te.not_equal(x, y)

    # ------------------------------------------------------------ leaves

    def leaf(self, want: str) -> tuple[Expr, Info]:
        """A read converted to ``want``, an axis, or a literal."""
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
        """Convert a value to ``want`` so that the result is well-defined."""
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
        """An element of a tensor at a random index that lies inside."""
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
            return self._digit(a, b, n)
        if kind == 5 and a.extent <= n:
            return (n - 1) - a.var
        if kind in (3, 4):
            s, t = self.d.integer(1, 2), self.d.integer(1, 2)
            top = (a.extent - 1) * s + (b.extent - 1) * t
            if a.var is not b.var and top < n:
                return a.var * s + b.var * t + self.d.integer(0, n - 1 - top)
        if a.extent <= n:
            return a.var + self.d.integer(0, n - a.extent)
        return self._folded(a, n)

    def _digit(self, a: AxisInScope, b: AxisInScope, n: int) -> Expr:
        """Reshape: a digit of the fused index of two axes."""
        f = a.var * b.extent + b.var
        if self.d.chance(50):
            return f % n
        return f // -(-a.extent * b.extent // n)

    def _folded(self, a: AxisInScope, n: int) -> Expr:
        match self.d.integer(0, 2):
            case 0:
                return a.var % n
            case 1:
                return a.var // -(-a.extent // n)
        return te.min(a.var, n - 1)

    def _gathered(self, n: int) -> Expr:
        src = self.source(self.d.pick(("int32", "int64", "uint8", "int8")))
        x = src.tensor[tuple(self.index(m, nested=True) for m in src.tensor.static_shape)]
        if self.d.chance(50):
            return x % n
        return te.max(te.min(x, n - 1), 0)
