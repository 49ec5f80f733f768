"""The buffers of a schedule: places of elements, and lifetimes. A stage's buffer holds the region
of bound inference in the order of its layout, allocated around the nests that use it, or where
``store_at`` says; those of arguments are the caller's."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from loopwright import dtypes
from loopwright.ir.affine import Affine, Ranges, form_expr, interval, split_digits, to_affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var, all_of, binary, const
from loopwright.ir.kinds import SHARED
from loopwright.ir.stmt import Allocate, For, If, Seq, Stmt, Store, seq
from loopwright.schedule import (
    Bounds,
    IndexExpr,
    LoopBound,
    StageBounds,
    StageId,
    aligned_strides,
    expression,
    index_bounds,
    is_digit,
    layout_shape,
    store_position,
)
from loopwright.te import static_shape


def as_index(i: Affine | Expr, ranges: Ranges) -> Expr:
    return form_expr(i, ranges) if isinstance(i, Affine) else i


def indices_in_layout(
    layout: tuple[Any, ...], local: list[Affine | Expr], shape: tuple[Any, ...], ranges: Ranges
) -> tuple[Expr, ...]:
    """The indices of an element in the transformed layout; ``local`` ones count from the first
    element of the region that the stage covers, whose extents are ``shape``."""
    out = []
    for x in layout:
        if is_digit(x):
            out.append(_digit(local[x[0]], x[1], x[2], ranges))
            continue
        value = _value(expression(x), local, ranges)
        first = index_bounds(expression(x), shape)[0]
        value = value - first if isinstance(value, Affine) else binary("-", value, first)
        out.append(as_index(value, ranges))
    return tuple(out)


def _digit(i: Affine | Expr, div: int, mod: int | None, ranges: Ranges) -> Expr:
    e = as_index(i, ranges)
    e = binary("//", e, div) if div > 1 else e
    e = binary("%", e, mod) if mod is not None else e
    form = to_affine(e, {}, ranges)
    return e if form is None else form_expr(form, ranges)


def _value(x: IndexExpr, local: list[Affine | Expr], ranges: Ranges) -> Affine | Expr:
    if isinstance(x, int):
        return Affine(x)
    if isinstance(x, str):
        return local[int(x[1:])]
    left = _value(x[1], local, ranges)
    if x[0] == "+":
        right = _value(x[2], local, ranges)
        if isinstance(left, Affine) and isinstance(right, Affine):
            return left + right
        return binary("+", as_index(left, ranges), as_index(right, ranges))
    op, _, b = x
    if op == "*":
        return left * b if isinstance(left, Affine) else binary("*", left, b)
    exact = to_affine(binary(op, as_index(left, ranges), b), {}, ranges)
    if exact is not None:
        return exact
    if not isinstance(left, Affine):
        return binary(op, left, b)
    # Digits below the divisor stay affine, so that lanes of a vector lie beside each other.
    high, low, d = split_digits(left, b, ranges)
    top = binary(op, form_expr(high, ranges), b // d)
    return top if op == "//" else binary("+", binary("*", top, d), form_expr(low, ranges))


def _filled(b: Buffer, pad: float) -> Stmt:
    axes = [Var(f"x{d}") for d in range(len(b.shape))]
    value = float(pad) if dtypes.is_float(b.dtype) else int(pad)
    out: Stmt = Store(b, tuple(axes), const(bool(pad) if b.dtype == "bool" else value, b.dtype))
    for x, n in reversed(list(zip(axes, b.shape, strict=True))):
        out = For(x, n, "serial", out)
    return out


class Buffers:
    def __init__(self, bounds: Bounds, params: dict[tuple[StageId, int], Buffer]) -> None:
        state = bounds.state
        self.state, self.bounds = state, bounds
        #: The buffers of each stage, one for each output.
        self.of: dict[StageId, tuple[Buffer, ...]] = {
            sid: (b,) for (sid, _), b in params.items() if state.stages[sid].op.is_placeholder
        }
        self.params = set(params.values())
        self._stored: dict[tuple[StageId, int], list[StageBounds]] = {}
        for sid in state.order:
            sb = bounds.stages.get(sid)
            if sb is None:
                continue
            self.of[sid] = tuple(
                params.get((sid, k)) or self._new_buffer(sb, k) for k in range(sb.op.num_outputs)
            )
            if sb.stage.store is not None:
                self._stored.setdefault(store_position(state, sb.stage), []).append(sb)

    def _new_buffer(self, sb: StageBounds, k: int) -> Buffer:
        shape, sizes = tuple(sb.shape), self.bounds.sizes
        if sb.stage.layout is not None:
            shape = layout_shape(shape, sb.stage.layout, sizes)
        dims = tuple(sizes.dim(n) for n in shape)
        align = sb.stage.align
        strides = aligned_strides(static_shape(dims), align) if align else None
        name = self.state.output_label(sb.stage.id, k)
        return Buffer(name, dims, sb.op.dtypes[k], sb.scope, strides)

    def element(self, sid: StageId, indices: list[Affine | Expr]) -> tuple[Expr, ...]:
        """Indices into a stage's buffer for an element of its tensor."""
        sb = self.bounds.stages.get(sid)
        if sb is None:
            return tuple(as_index(i, self.bounds.ranges) for i in indices)
        local = [_minus(i, b, self.bounds.ranges) for i, b in zip(indices, sb.base, strict=True)]
        if sb.stage.layout is None:
            return tuple(as_index(i, self.bounds.ranges) for i in local)
        return indices_in_layout(sb.stage.layout, local, tuple(sb.shape), self.bounds.ranges)

    def contains(self, sid: StageId, indices: list[Affine | Expr]) -> list[bool]:
        """For each dimension, whether the index provably lies in the buffer."""
        sb, op, sizes = self.bounds.stages.get(sid), self.bounds.ops[sid], self.bounds.sizes
        shape = [sizes.of(n) for n in op.shape] if sb is None else sb.shape
        ranges = self.bounds.ranges
        out = []
        for d, i in enumerate(indices):
            local = i if sb is None else _minus(i, sb.base[d], ranges)
            if isinstance(local, Affine):
                least, largest = local.bounds(ranges)[0], local
            else:
                least, most = interval(local, {}, ranges) or (-1, -1)
                largest = Affine(most)
            out.append(least >= 0 and (largest - shape[d]).bounds(ranges)[1] < 0)
        return out

    def used(self, sb: StageBounds, nest: Stmt, rest: Stmt, loop: LoopBound | None) -> Stmt:
        """The nest of a stage, then ``rest``, inside the allocations of its buffers; each iteration
        of ``loop``, directly around, fills a half of double buffers."""
        if sb.stage.store is not None:
            return seq(nest, rest)
        nest = seq(self._padding(sb), nest)
        own = [b for b in self.of[sb.stage.id] if b not in self.params]
        if not own:
            return seq(nest, rest)
        if sb.stage.double is not None and loop is not None and loop.extent != 1:
            for b in reversed(own):  # the innermost holds what fills all of them
                rest, nest = Allocate(b, Seq((nest, rest)), loop.var, sb.stage.copies), Seq(())
            return rest
        return allocated(own, seq(nest, rest))

    def stored(self, sid: StageId, pos: int, body: Stmt) -> Stmt:
        """A statement inside the allocations that ``store_at`` put at loop ``pos`` of a stage."""
        for sb in self._stored.get((sid, pos), []):
            body = allocated(self.of[sb.stage.id], seq(self._padding(sb), body))
        return body

    def _padding(self, sb: StageBounds) -> Stmt:
        pad = sb.stage.pad_value
        if pad is None:
            return Seq(())
        buffers = self.of[sb.stage.id]
        elements = prod(n for n in sb.shape if isinstance(n, int))
        fill = seq(*(_filled(b, pad) for b in buffers if prod(b.extents) != elements))
        if sb.kernel is None or sb.scope not in SHARED or fill == Seq(()):
            return fill
        threads = [binary("<", x.var, 1) for x in sb.kernel.threads() if x.extent != 1]
        return If(all_of(threads), fill) if threads else fill


def _minus(i: Affine | Expr, base: Affine, ranges: Ranges) -> Affine | Expr:
    if isinstance(i, Affine):
        return i - base
    return i if base == Affine(0) else binary("-", i, form_expr(base, ranges))


def allocated(buffers: Iterable[Buffer], body: Stmt) -> Stmt:
    """A statement inside allocations, the first buffer's outermost."""
    for b in reversed(list(buffers)):
        body = Allocate(b, body)
    return body
