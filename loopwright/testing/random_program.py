"""Random small programs for property tests: elementwise stages, paddings, reductions, gathers.

`programs` is a Hypothesis strategy. A `Program` carries its DAG, its arrays, and for every output
how far a right answer may be from the reference. Floats are multiples of a quarter, and every
operation is followed by `Info`: as long as a value is a multiple of some power of two that fits its
dtype, any order of summation and any fused multiply-add gives the same bits, and the comparison is
exact. What may round differently carries an error bound instead, and never decides a comparison or
an integer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from loopwright import dtypes, te
from loopwright.ir.expr import Const, Expr, IterVar
from loopwright.ir.printer import print_expr
from loopwright.te.dag import Dag
from loopwright.te.tensor import Tensor
from loopwright.testing.random_values import Info, constant, info_of_dtype

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31)
FLOATS = ("float32", "float64")
INTS = ("int32", "int64", "int8", "int16", "uint8")
DTYPES = ("float32", "float32", "float32", *FLOATS, *INTS, "bool")
MAX_POINTS = 2500
MAX_ELEMENTS = 600


class Known(NamedTuple):
    """A tensor and what is known of its values."""

    tensor: Tensor
    info: Info


class Axis(NamedTuple):
    """An axis in scope."""

    var: Any
    extent: int


@dataclass(frozen=True)
class Program:
    """A program with arrays to run it on.

    Attributes:
        tensors: arguments in calling order, inputs first.
        outputs: those that are computed.
        infos: what is known of each argument's values.
        seed, nan: how `arrays` are made.
    """

    tensors: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    infos: tuple[Info, ...]
    seed: int
    nan: bool

    @property
    def dag(self) -> Dag:
        """The DAG of the outputs."""
        return te.create_schedule([t.op for t in self.outputs]).dag

    def __repr__(self) -> str:
        lines = [f"Program(seed={self.seed}, nan={self.nan})"]
        dag = self.dag
        for i, op in enumerate(dag.ops):
            axes = ", ".join(f"{a.name}<{a.extent}" for a in (*op.axes, *op.reduce_axes))
            body = "input" if op.body is None else print_expr(op.body)
            lines.append(f"  {i}: {op.name}: {op.dtype}{list(op.shape)} [{axes}] = {body}")
        return "\n".join([*lines, f"  outputs {dag.outputs}"])


class Draw:
    """The choices of one example, each an integer; they shrink towards the first or smallest.

    Args:
        integer: gives an integer between two bounds, both included.
    """

    def __init__(self, integer: Callable[[int, int], int]) -> None:
        self._integer = integer

    @staticmethod
    def hypothesis(draw: Any) -> Draw:
        """Choices drawn and shrunk by Hypothesis."""
        return Draw(lambda lo, hi: int(draw(st.integers(lo, hi))))

    @staticmethod
    def random(rng: random.Random) -> Draw:
        """Choices of a random generator: for long runs, told apart by their seed."""
        return Draw(rng.randint)

    def integer(self, lo: int, hi: int) -> int:
        """An integer in [lo, hi]."""
        return self._integer(lo, hi) if hi > lo else lo

    def pick(self, items: Sequence[Any]) -> Any:
        """One of some items."""
        return items[self.integer(0, len(items) - 1)]

    def chance(self, percent: int) -> bool:
        """True so many times in a hundred."""
        return self.integer(0, 99) >= 100 - percent


def random_program(d: Draw, max_stages: int = 5) -> Program:
    """A random program of one to ``max_stages`` computed stages."""
    return _Builder(d).program(max_stages)


@st.composite
def programs(draw: Any, max_stages: int = 5) -> Program:
    """`random_program` as a Hypothesis strategy."""
    return random_program(Draw.hypothesis(draw), max_stages)


class _Builder:
    def __init__(self, draw: Draw) -> None:
        self.d = draw
        self.known: list[Known] = []
        self.axes: list[Axis] = []
        self.count = 0
        self.focus: Known | None = None

    # ------------------------------------------------------------ whole programs

    def program(self, max_stages: int) -> Program:
        kinds = (
            self.elementwise, self.reduction, self.padding, self.matmul, self.convolution,
            self.transpose, self.elementwise, self.reduction,
        )  # fmt: skip
        made: list[Known] = []
        for _ in range(self.d.integer(1, max_stages)):
            made.append(self.d.pick(kinds)())
            self.known.append(made[-1])
        outputs = [made[-1]]
        read = {t for k in made for t in k.tensor.op.input_tensors}
        for k in made[:-1]:
            if self.d.chance(60 if k.tensor not in read else 10):
                outputs.append(k)
        return self._finish(outputs)

    def _finish(self, outputs: list[Known]) -> Program:
        wanted, todo = set(), [k.tensor for k in outputs]
        while todo:
            t = todo.pop()
            if t not in wanted:
                wanted.add(t)
                todo += t.op.input_tensors
        outputs = list({k.tensor: k for k in outputs}.values())
        known = list({k.tensor: k for k in self.known}.values())
        chosen = {k.tensor for k in outputs}
        inputs = [k for k in known if k.tensor in wanted and _is_input(k.tensor)]
        computed = [k for k in known if k.tensor in chosen]
        both = [*inputs, *computed]
        return Program(
            tuple(k.tensor for k in both),
            tuple(k.tensor for k in outputs),
            tuple(k.info for k in both),
            self.d.integer(0, 1 << 16),
            self.d.chance(15),
        )

    def _name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}" if self.d.chance(85) else letter

    def input(self, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Known:
        """A new placeholder."""
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
        stages = [k for k in fit if not _is_input(k.tensor)]
        if stages and not self.d.chance(30):
            return stages[-1 - self.d.integer(0, min(2, len(stages) - 1))]
        if not fit or self.d.chance(30):
            return self.input(dtype=dtype)
        return self.d.pick(fit)

    def compute(self, shape: tuple[int, ...], make: Any, name: str) -> Known:
        """A stage whose element ``make()`` builds over ``self.axes``; returns its value's info."""
        info: list[Info] = []

        def body(*vars_: Any) -> Any:
            old, self.axes = self.axes, [Axis(v, e) for v, e in zip(vars_, shape, strict=True)]
            value, known = make()
            self.axes = old
            info.append(known)
            return value

        t = te.compute(shape, body, name=self._name(name))
        return Known(t, info[0])

    # ------------------------------------------------------------ stages

    def elementwise(self) -> Known:
        """Any expression over axes and tensors."""
        self.focus = self.source() if self.d.chance(75) else None
        shape = self.focus.tensor.shape if self.focus else self.shape()
        want = self.d.pick(DTYPES)
        return self.compute(shape, lambda: self.value(want, self.d.integer(1, 3)), "E")

    def transpose(self) -> Known:
        """A permutation of the dimensions."""
        src = self.source()
        order = list(range(src.tensor.ndim))
        for i in range(len(order) - 1):
            j = self.d.integer(i, len(order) - 1)
            order[i], order[j] = order[j], order[i]
        shape = tuple(src.tensor.shape[o] for o in order)

        def make() -> tuple[Expr, Info]:
            at = {o: a.var for o, a in zip(order, self.axes, strict=True)}
            return src.tensor[tuple(at[d] for d in range(len(order)))], src.info

        return self.compute(shape, make, "T")

    def padding(self) -> Known:
        """A border of a constant around a tensor."""
        return self.pad(self.source(), [self.d.integer(0, 2) for _ in range(3)])

    def pad(self, src: Known, border: Sequence[int]) -> Known:
        """A border of given widths; dimensions beyond those given get none."""
        dims = src.tensor.shape
        border = [*border, *[0] * len(dims)]
        shape = tuple(n + 2 * p for n, p in zip(dims, border, strict=False))
        fill = constant(self.d, src.tensor.dtype)

        def make() -> tuple[Expr, Info]:
            inside, conds = [], []
            for a, n, p in zip(self.axes, dims, border, strict=False):
                inside.append(a.var - p)
                conds += [a.var >= p, a.var < n + p] if p else []
            value = src.tensor[tuple(inside)]
            info = src.info.join(fill[1])
            return (
                (te.if_then_else(te.all(*conds), value, fill[0]), info)
                if conds
                else (value, src.info)
            )

        return self.compute(shape, make, "P")

    def matmul(self) -> Known:
        """A product of two matrices, in any of the four transpose forms."""
        m, n, k = (self.d.pick((1, 2, 3, 5, 7, 8, 11, 13, 16)) for _ in range(3))
        dtype = self.d.pick(("float32", "float32", "float64", "int32", "int8", "uint8"))
        acc = "int32" if dtype in ("int8", "uint8") and self.d.chance(70) else dtype
        ta, tb = self.d.chance(30), self.d.chance(30)
        a = self.input((k, m) if ta else (m, k), dtype)
        b = self.input((n, k) if tb else (k, n), dtype)
        if self.d.chance(40):
            a = self.compute(a.tensor.shape, lambda: self._scaled(a), "S")
            self.known.append(a)
        r = te.reduce_axis((0, k), name="k")

        def make() -> tuple[Expr, Info]:
            i, j = (x.var for x in self.axes)
            x = a.tensor[(r, i) if ta else (i, r)].astype(acc)
            y = b.tensor[(j, r) if tb else (r, j)].astype(acc)
            return te.sum(x * y, axis=r), a.info.mul(b.info, acc).sum(k, acc)

        return self.compute((m, n), make, "M")

    def _scaled(self, a: Known) -> tuple[Expr, Info]:
        value = a.tensor[tuple(x.var for x in self.axes)]
        c, info = constant(self.d, a.tensor.dtype)
        return value + c, a.info.add(info, a.tensor.dtype)

    def convolution(self) -> Known:
        """A direct convolution in one or two dimensions, with its padding stage."""
        dims = self.d.integer(1, 2)
        ci, co = self.d.pick((1, 2, 3)), self.d.pick((1, 2, 4, 5))
        dtype = self.d.pick(("float32", "float32", "float64", "int32", "int8"))
        size = [self.d.pick((3, 4, 5, 7, 8) if dims == 2 else (4, 7, 11, 16)) for _ in range(dims)]
        kernel = [self.d.integer(1, 3) for _ in range(dims)]
        stride = [self.d.integer(1, 2) for _ in range(dims)]
        dilation = [self.d.integer(1, 2) for _ in range(dims)]
        border = [self.d.integer(0, 2) for _ in range(dims)]
        data = self.input((ci, *size), dtype)
        weight = self.input((co, ci, *kernel), dtype)
        padded = self.pad(data, [0, *border]) if any(border) else data
        if padded is not data:
            self.known.append(padded)
        out = [
            (n - d * (k - 1) - 1) // s + 1
            for n, k, s, d in zip(padded.tensor.shape[1:], kernel, stride, dilation, strict=True)
        ]
        if min(out) < 1:
            return padded if padded is not data else self.transpose()
        rc = te.reduce_axis((0, ci), name="rc")
        rk = [te.reduce_axis((0, k), name=f"rk{i}") for i, k in enumerate(kernel)]

        def make() -> tuple[Expr, Info]:
            o, *xs = (a.var for a in self.axes)
            at = [x * s + k * d for x, k, s, d in zip(xs, rk, stride, dilation, strict=True)]
            value = padded.tensor[(rc, *at)] * weight.tensor[(o, rc, *rk)]
            points = ci * prod(kernel)
            return te.sum(value, axis=[rc, *rk]), (
                padded.info.mul(weight.info, dtype).sum(points, dtype)
            )

        return self.compute((co, *out), make, "V")

    def reduction(self) -> Known:
        """A reduction of any expression by any reducer over one or two axes."""
        self.focus = self.source() if self.d.chance(60) else None
        shape = self.shape(limit=120)
        extents = [self.d.pick((1, 2, 3, 4, 5, 7, 8, 13)) for _ in range(self.d.pick((1, 1, 2)))]
        if self.focus:
            whole = self.focus.tensor.shape
            cut = self.d.integer(0, max(0, len(whole) - 1))
            shape, extents = whole[:cut], list(whole[cut:]) or extents
        while prod(extents) * prod(shape) > MAX_POINTS:
            extents.pop()
        extents = extents or [1]
        axes = [te.reduce_axis((0, e), name=f"r{i}") for i, e in enumerate(extents)]
        want = self.d.pick([t for t in DTYPES if t != "bool"])

        def make() -> tuple[Expr, Info]:
            start: dict[str, Any] = {}
            info: Info | None = None
            if self.d.chance(30):
                start["init"], info = self.value(want, 1)
            self.axes = self.axes + [Axis(a.var, a.extent) for a in axes]
            if self.d.chance(30):
                start["where"] = self.condition(1)
            return self._reduce(want, axes, prod(extents), start, info)

        return self.compute(shape, make, "R")

    def _reduce(
        self, want: str, axes: list[IterVar], n: int, start: dict[str, Any], init: Info | None
    ) -> tuple[Expr, Info]:
        source, info = self.value(want, self.d.integer(0, 2))
        kind = self.d.pick(("sum", "max", "min", "prod", "user"))
        if dtypes.is_float(want) and kind == "prod":
            source, info = _clamp(source, info, 1.5)
        if kind in ("min", "max") and "where" in start and init is None:
            start["init"], init = constant(self.d, want)
        out = info if kind in ("min", "max") else info.power(n, want)
        if kind in ("sum", "user"):
            out = info.sum(n, want)
        first = init if init is not None else Info(True, 1.0, 1.0, 0.0)
        if kind == "prod":
            out = out.mul(first, want)
        elif kind in ("min", "max"):
            out = out if init is None else out.join(init)
        else:
            out = out.add(first, want).add(Info(True, float(n), 1.0, 0.0), want)
        reducers = {"sum": te.sum, "prod": te.prod, "min": te.min, "max": te.max}
        reducer = reducers.get(kind) or te.comm_reducer(
            lambda x, y: x + y + 1, lambda t: te.const(-1, t), name="shifted_sum"
        )
        return reducer(source, axis=axes, **start), out

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
        if dtypes.is_float(want):
            return self._float(want, depth)
        return self._integer(want, depth), info_of_dtype(want)

    def operand(self, want: str, depth: int) -> tuple[Expr, Info]:
        """As `value`, or of a narrower dtype that promotes to ``want``."""
        narrow = {"float32": ("int8", "uint8", "int16"), "float64": ("int8", "float32", "int32")}
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
            x, p = _clamp(x, p, 8.0)
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
            y, q = _clamp(te.cast(y, want), q.to(want), 8.0)
        match kind:
            case 0 | 1:
                return x + y, p.add(q, want)
            case 2:
                return x - y, p.add(q, want)
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
            x, p = _clamp(x, p, 3.0)
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
        kind = self.d.integer(0, 9)
        if kind == 8:
            return -x
        if kind == 9:
            return te.abs(x)
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
            y: Any = self.d.integer(0, a.extent + 1)
            if self.d.chance(30):
                x, y = x % self.d.integer(2, 4), self.d.integer(0, 1)
        else:
            x, info = self.leaf(self.d.pick(("int32", "float32", "uint8", "int8")))
            y = self.d.integer(0, 3)
            if not info.exact:
                x = te.cast(1, "int32")
        return self._compare(x, y)

    def _compare(self, x: Expr, y: Any) -> Expr:
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
        """Bring a value to ``want`` so that nothing is left to chance."""
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
        return src.tensor[tuple(self.index(n) for n in src.tensor.shape)]

    def guarded(self, src: Known) -> tuple[Expr, Info]:
        """A read that runs over an edge, behind if_then_else."""
        fill, info = constant(self.d, src.tensor.dtype)
        conds, at = [], []
        for n in src.tensor.shape:
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

    def index(self, n: int, nested: bool = False) -> Any:
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

    def _digit(self, a: Axis, b: Axis, n: int) -> Any:
        """Reshape: a digit of the fused index of two axes."""
        f = a.var * b.extent + b.var
        if self.d.chance(50):
            return f % n
        return f // -(-a.extent * b.extent // n)

    def _folded(self, a: Axis, n: int) -> Any:
        match self.d.integer(0, 2):
            case 0:
                return a.var % n
            case 1:
                return a.var // -(-a.extent // n)
        return te.min(a.var, n - 1)

    def _gathered(self, n: int) -> Any:
        src = self.source(self.d.pick(("int32", "int64", "uint8", "int8")))
        x = src.tensor[tuple(self.index(m, nested=True) for m in src.tensor.shape)]
        if self.d.chance(50):
            return x % n
        return te.max(te.min(x, n - 1), 0)


def _is_input(t: Tensor) -> bool:
    return not t.op.input_tensors and isinstance(t.op, te.PlaceholderOp)


def _clamp(x: Expr, info: Info, limit: float) -> tuple[Expr, Info]:
    """Cut a float to [-limit, limit]; NaN stays."""
    return te.max(te.min(x, limit), -limit), info.clamp(limit)


def arrays(program: Program) -> list[np.ndarray[Any, Any]]:
    """Input values for a program, in the order of its arguments, outputs poisoned."""
    rng = np.random.default_rng(program.seed)
    out = []
    for t in program.tensors:
        if _is_input(t):
            out.append(random_array(rng, t.shape, t.dtype, program.nan))
        else:
            out.append(poison(t.shape, t.dtype))
    return out


def random_array(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str, nan: bool = False
) -> np.ndarray[Any, Any]:
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


def poison(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """What outputs hold before a run: NaN, or a pattern."""
    if dtypes.is_float(dtype):
        return np.full(shape, np.nan, dtype)
    return np.full(shape, True if dtype == "bool" else 85, dtype)
