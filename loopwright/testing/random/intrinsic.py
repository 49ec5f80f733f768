"""Random tensor intrinsics: the description is the present body of a loop, the statements are
drawn.

The layout of operands is left open, to fit later steps on their buffers; later steps may change the
nest, and the schedule is then refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopwright import te
from loopwright.ir.affine import SizeRanges, to_affine
from loopwright.ir.expr import Expr, IterVar, Read, Var
from loopwright.ir.kinds import LoopKind
from loopwright.ir.node import StructuralKey
from loopwright.ir.reduction import Reduce
from loopwright.ir.stmt import For, Stmt, Store, seq
from loopwright.ir.visitor import free_vars, substitute
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.rules.tensorize import region
from loopwright.te.tensor_intrin import TensorIntrin
from loopwright.testing.random.values import Draw


class _Unfit(Exception):
    """The nest cannot be described as an intrinsic."""


def random_intrinsic(d: Draw, sb: StageBounds, loop: str) -> TensorIntrin | None:
    """An intrinsic for the body of a loop of a stage; None where there cannot be one."""
    try:
        return _Drawing(d, sb, sb.stage.leaves.index(loop)).run()
    except _Unfit:
        return None


class _Drawing:
    def __init__(self, d: Draw, sb: StageBounds, position: int) -> None:
        self.d, self.sb, self.position = d, sb, position
        self.tensors: dict[StructuralKey, te.Tensor] = {}

    def run(self) -> TensorIntrin:
        op, red = self.sb.op, self.sb.op.reduction
        plain = red is None or (red.where is None and red.init is None)
        if (
            op.num_outputs != 1
            or not plain
            or any(not isinstance(x.extent, int) for x in self.sb.loops[self.position :])
        ):
            raise _Unfit
        spatial, reduced = self._axes(op.axes), self._axes(op.reduce_axes)
        if not spatial:
            raise _Unfit
        self.old = [*spatial, *reduced]
        over = [te.reduce_axis((0, n), a.name) for a, n in reduced.items()]
        source = red.source[0] if red is not None else op.body
        assert source is not None

        def element(*axes: Var) -> Expr:
            new = [*axes, *(a.var for a in over)]
            e = self._described(source, dict(zip((a.var for a in self.old), new, strict=True)))
            if red is None:
                return e
            return Reduce(red.combiner, (e,), tuple(over), None, None, red.dtype)

        if (red is None) != (not over):
            raise _Unfit
        names = [a.name for a in spatial]
        T = te.compute(tuple(spatial.values()), element, name="T", varargs_names=names)
        ins = T.op.input_tensors
        free = {t: te.decl_buffer(t.shape, t.dtype, t.name, [None] * t.ndim) for t in (*ins, T)}
        return te.decl_tensor_intrin(T.op, lambda i, o: self._statements(T, i, o), "drawn", free)

    def _axes(self, axes: Sequence[IterVar]) -> dict[IterVar, int]:
        """Axes of more than one iteration inside the loop, with these."""
        regions = {a: region(self.sb, self.position, a) for a in axes}
        if any(isinstance(x, str) for x in regions.values()):
            raise _Unfit
        return {a: x.extent for a, x in regions.items() if not isinstance(x, str) and x.extent != 1}

    def _described(self, e: Any, env: dict[Var, Expr]) -> Any:
        """The expression with an operand for each read, moved along the axes that it uses."""
        if isinstance(e, Var):
            raise _Unfit
        if not isinstance(e, Read):
            return e.map_children(lambda c: self._described(c, env))
        used = {v for i in e.indices for v in free_vars(i)}
        if any(to_affine(i, {}, SizeRanges()) is None for i in e.indices):
            raise _Unfit
        axes = [a for a in self.old if a.var in used]
        key = StructuralKey(e)
        if key not in self.tensors:
            extents = {v: self._extent(v) for v in (a.var for a in axes)}
            shape = tuple(extents.values()) or (1,)
            self.tensors[key] = te.placeholder(shape, e.dtype, name=f"x{len(self.tensors)}")
        at = tuple(env[a.var] for a in axes)
        return self.tensors[key][at or (0,)]

    def _extent(self, v: Var) -> int:
        axis = next(a for a in self.old if a.var is v)
        part = region(self.sb, self.position, axis)
        assert not isinstance(part, str)
        return part.extent

    # ------------------------------------------------------------ statements

    def _statements(self, T: te.Tensor, ins: Any, outs: Any) -> Any:
        op, (out,) = T.op, outs
        assert isinstance(op, te.ComputeOp)
        body = op.body
        views = dict(zip(op.input_tensors, ins, strict=True))

        def loads(e: Any) -> Any:
            loaded = e.map_children(loads)
            return views[loaded.source][loaded.indices] if isinstance(loaded, Read) else loaded

        own = tuple(a.var for a in op.axis)
        if not isinstance(body, Reduce):
            return self._nest(op.axis, Store(out.buffer, own, loads(body)))
        source, start = loads(body.source[0]), body.combiner.identity[0]
        (added,) = body.combiner.combine((out[own],), (source,))
        reset = self._nest(op.axis, Store(out.buffer, own, start))
        axes = [*op.axis, *op.reduce_axis]
        update = self._nest(axes, Store(out.buffer, own, added))
        whole = seq(reset, self._nest(axes, Store(out.buffer, own, added)))
        if self.d.chance(20):
            return whole
        return whole, (reset if self.d.chance(70) else None), update

    def _nest(self, axes: Sequence[IterVar], store: Stmt) -> Stmt:
        """Loops over all axes in some order, annotated at random, around a store."""
        order = list(axes)
        for i in range(len(order) - 1):
            j = self.d.integer(i, len(order) - 1)
            order[i], order[j] = order[j], order[i]
        fresh: dict[Var, Expr] = {a.var: Var(a.name) for a in axes}
        out: Stmt = substitute(store, fresh)
        vector = False
        for a in reversed(order):
            kinds: tuple[LoopKind, ...] = ("serial", "serial", "unrolled", "vectorized")
            kind = self.d.pick(kinds)
            if kind == "vectorized" and (vector or a.kind == "reduce"):
                kind = "serial"
            if kind == "unrolled" and a.extent > 8:
                kind = "serial"
            vector |= kind == "vectorized"
            var = fresh[a.var]
            assert isinstance(var, Var)
            out = For(var, a.extent, kind, out)
        return out
