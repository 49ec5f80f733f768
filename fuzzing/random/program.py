"""Random small programs for property tests: elementwise stages, paddings, reductions, gathers.

Floats are multiples of a quarter, and `Info` follows every operation: as long as a value is a
multiple of some power of two that fits its dtype, any order of summation gives the same bits.
Values that may round differently carry an error bound, and never decide a comparison.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fuzzing.random.expr import (
    DTYPES,
    AxisInScope,
    Draw,
    Info,
    Known,
    Tuples,
    clamp,
    constant,
    is_input,
    poison,
    random_array,
)
from loopwright import dtypes, te
from loopwright.ir.expr import Expr, IterVar
from loopwright.ir.printer import print_expr
from loopwright.te.dag import Dag
from loopwright.te.tensor import PlaceholderOp, Tensor
from loopwright.testing.numpy_eval import Array


@dataclass(frozen=True)
class Program:
    """A program with arrays to run it on; ``seed`` and ``nan`` are those of `arrays`."""

    #: Arguments in calling order, inputs first.
    tensors: tuple[Tensor, ...]
    #: The computed ones of them.
    outputs: tuple[Tensor, ...]
    #: Facts about the values of each argument.
    infos: tuple[Info, ...]
    seed: int
    nan: bool

    @property
    def dag(self) -> Dag:
        return te.create_schedule(list(self.outputs)).dag

    def __repr__(self) -> str:
        lines = [f"Program(seed={self.seed}, nan={self.nan})"]
        dag = self.dag
        for i, op in enumerate(dag.ops):
            axes = ", ".join(f"{a.name}<{a.extent}" for a in (*op.axes, *op.reduce_axes))
            body = "input" if op.body is None else print_expr(op.body)
            lines.append(f"  {i}: {op.name}: {op.dtype}{list(op.shape)} [{axes}] = {body}")
        return "\n".join([*lines, f"  outputs {dag.outputs}"])


def mark_constants(program: Program, chosen: Iterable[bool]) -> None:
    inputs = [t.op for t in program.tensors if isinstance(t.op, PlaceholderOp)]
    for op, is_constant in zip(inputs, chosen, strict=False):
        op.constant = is_constant


def random_program(d: Draw, max_stages: int = 5) -> Program:
    return _Builder(d).program(max_stages)


def random_product(d: Draw) -> Program:
    """A product of matrices whose extents register tiles seldom divide, some with a long
    reduction."""
    return _Builder(d).product()


@st.composite
def programs(draw: st.DrawFn, max_stages: int = 5) -> Program:
    return random_program(Draw.hypothesis(draw), max_stages)


class _Builder(Tuples):
    def program(self, max_stages: int) -> Program:
        kinds: list[Callable[[], Known | list[Known]]] = [
            self.elementwise, self.reduction, self.padding, self.matmul, self.convolution,
            self.transpose, self.stencil, self.elementwise, self.reduction, self.several,
            self.tuple_reduction, self.running,
        ]  # fmt: skip
        computed: list[Known] = []
        for _ in range(self.d.integer(1, max_stages)):
            stage = self.d.pick(kinds)()
            new = stage if isinstance(stage, list) else [stage]
            computed += new
            self.known += new
        outputs = [computed[-1]]
        read = {t for k in computed for t in k.tensor.op.input_tensors}
        for k in computed[:-1]:
            if self.d.chance(60 if k.tensor not in read else 10):
                outputs.append(k)
        return self._finish(outputs)

    def product(self) -> Program:
        if self.d.chance(25):
            m, n, k = self.d.integer(1, 9), self.d.integer(1, 40), self.d.integer(513, 700)
        else:
            m, n, k = self.d.integer(1, 70), self.d.integer(1, 110), self.d.integer(1, 9)
        out = self.matmul((m, n, k))
        if self.d.chance(30):
            product = out
            self.known.append(product)
            out = self.compute((m, n), lambda: self._scaled(product), "S")
        self.known.append(out)
        return self._finish([out])

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
        inputs = [k for k in known if k.tensor in wanted and is_input(k.tensor)]
        computed = [k for k in known if k.tensor in chosen]
        both = [*inputs, *computed]
        made = Program(
            tuple(k.tensor for k in both),
            tuple(k.tensor for k in outputs),
            tuple(k.info for k in both),
            self.d.integer(0, 1 << 16),
            self.d.chance(15),
        )
        d = Draw.random(random.Random(made.seed))
        if d.chance(30):
            mark_constants(made, [d.chance(60) for _ in inputs])
        return made

    def elementwise(self) -> Known:
        self.focus = self.source() if self.d.chance(75) else None
        shape = self.focus.tensor.static_shape if self.focus else self.shape()
        want = self.d.pick(DTYPES)
        return self.compute(shape, lambda: self.value(want, self.d.integer(1, 3)), "E")

    def transpose(self) -> Known:
        src = self.source()
        order = self.d.shuffled(range(src.tensor.ndim))
        shape = tuple(src.tensor.static_shape[o] for o in order)

        def make() -> tuple[Expr, Info]:
            at = {o: a.var for o, a in zip(order, self.axes, strict=True)}
            return src.tensor[tuple(at[d] for d in range(len(order)))], src.info

        return self.compute(shape, make, "T")

    def stencil(self) -> Known:
        """A combination of neighbours, so that attached producers need a halo."""
        src = self.source()
        dims = src.tensor.static_shape
        reach = [self.d.integer(0, min(2, n - 1)) for n in dims]
        step = [self.d.integer(1, 2) for _ in dims]
        shape = tuple((n - r - 1) // s + 1 for n, r, s in zip(dims, reach, step, strict=True))
        kind = src.tensor.dtype

        def make() -> tuple[Expr, Info]:
            value, info = self._neighbour(src, reach, step), src.info
            for _ in range(self.d.integer(1, 2)):
                other = self._neighbour(src, reach, step)
                if kind == "bool":
                    value = te.any(value, te.logical_not(other))
                elif self.d.chance(30):
                    value = te.max(value, other)
                else:
                    value, info = value + other, info.add(src.info, kind)
            return value, info

        return self.compute(shape, make, "N")

    def _neighbour(self, src: Known, reach: list[int], step: list[int]) -> Expr:
        at = zip(self.axes, reach, step, strict=True)
        return src.tensor[tuple(a.var * s + self.d.integer(0, r) for a, r, s in at)]

    def padding(self) -> Known:
        return self.pad(self.source(), [self.d.integer(0, 2) for _ in range(3)])

    def pad(self, src: Known, border: Sequence[int]) -> Known:
        dims = src.tensor.static_shape
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

    def matmul(self, extents: tuple[int, int, int] | None = None) -> Known:
        drawn = (self.d.pick((1, 2, 3, 5, 7, 8, 11, 13, 16)) for _ in range(3))
        m, n, k = drawn if extents is None else extents
        dtype = self.d.pick(("float32", "float64", "int32", "int8", "uint8", *dtypes.HALVES))
        acc = "int32" if dtype in ("int8", "uint8") and self.d.chance(70) else dtype
        acc = "float32" if dtype in dtypes.HALVES else acc
        ta, tb = self.d.chance(30), self.d.chance(30)
        a = self.input((k, m) if ta else (m, k), dtype)
        b = self.input((n, k) if tb else (k, n), dtype)
        if self.d.chance(40):
            a = self.compute(a.tensor.static_shape, lambda: self._scaled(a), "S")
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
            for n, k, s, d in zip(
                padded.tensor.static_shape[1:], kernel, stride, dilation, strict=True
            )
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
        shape, axes = self.reduction_domain()
        points = prod(a.count for a in axes)
        want = self.d.pick([t for t in DTYPES if t not in ("bool", *dtypes.HALVES)])

        def make() -> tuple[Expr, Info]:
            start: dict[str, Any] = {}
            info: Info | None = None
            if self.d.chance(30):
                start["init"], info = self.value(want, 1)
            self.axes = self.axes + [AxisInScope(a.var, a.count) for a in axes]
            if self.d.chance(30):
                start["where"] = self.condition(1)
            return self._reduce(want, axes, points, start, info)

        return self.compute(shape, make, "R")

    def running(self) -> Known:
        """Sums of all elements up to each place of an axis, or from it on: a scan."""
        self.focus = None
        rows = self.shape(limit=16)
        at, count = self.d.integer(0, len(rows)), self.d.pick((5, 9, 16, 20, 37))
        shape = (*rows[:at], max(1, count + self.d.integer(-3, 3)), *rows[at:])
        k = te.reduce_axis((0, count), name="k")
        want = self.d.pick(("float32", "float64", "int32"))

        def make() -> tuple[Expr, Info]:
            place = self.axes[at].var
            others = [x for n, x in enumerate(self.axes) if n != at]
            self.axes = [*others, AxisInScope(k.var, k.count)]
            source, info = self.value(want, self.d.integer(0, 1))
            limit = place + self.d.integer(-2, 2)
            inside = limit >= k if self.d.chance(50) else k >= limit
            zero = Info(True, 0.0, 1.0, 0.0)
            if self.d.chance(30):
                return te.sum(source, axis=k, where=inside), info.join(zero).sum(count, want)
            chosen = te.select(inside, source, te.const(0, want))
            return te.sum(chosen, axis=k), info.join(zero).sum(count, want)

        return self.compute(shape, make, "L")

    def _reduce(
        self, want: str, axes: list[IterVar], n: int, start: dict[str, Any], init: Info | None
    ) -> tuple[Expr, Info]:
        source, info = self.value(want, self.d.integer(0, 2))
        kind = self.d.pick(("sum", "max", "min", "prod", "user"))
        if dtypes.is_float(want) and kind == "prod":
            # A product of parts must not overflow, for then it depends on the order whether the
            # whole is NaN, also where it begins with 0.
            source, info = clamp(source, info, 1.5 if n <= 64 else 1.0)
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


def arrays(program: Program) -> list[Array]:
    """Input values for a program, in the order of its arguments, outputs poisoned."""
    rng = np.random.default_rng(program.seed)
    out = []
    for t in program.tensors:
        if is_input(t):
            out.append(random_array(rng, t.static_shape, t.dtype, program.nan))
        else:
            out.append(poison(t.static_shape, t.dtype))
    return out
