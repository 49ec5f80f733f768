"""Exact arithmetic of loops: extents and values from which a program is built.

Splits and fusions by constants keep everything affine. A part of symbolic length does not: what it
contributes (``outer * length``, ``fused // length``, ``fused % length``) becomes a variable that is
defined where its loops are known, with the bounds that it has by construction.
"""

from __future__ import annotations

from loopwright.ir import affine
from loopwright.ir.affine import Affine, Extent, div_mod, form_expr
from loopwright.ir.expr import Expr, Var, binary, cast
from loopwright.ir.sizes import Sizes
from loopwright.ir.visitor import free_vars
from loopwright.schedule.bounds.relations import LoopArithmetic
from loopwright.schedule.bounds.results import StageBounds


def loop_var(name: str, extent: Extent, sizes: Sizes, dtype: str = "int32") -> Var:
    """A variable that runs below an extent, with its bounds entered; int64 for a long extent."""
    most = extent if isinstance(extent, int) else extent.bounds(sizes.ranges)[1]
    var = Var(name, dtype if most < affine.NARROW else "int64")
    sizes.ranges.enter(var, extent)
    return var


class ExactArithmetic(LoopArithmetic[Affine, Affine]):
    """Extents are ints or forms over size variables, values are forms over loop variables.

    The loop variables of the stage must be in its ``position`` before values are computed, and its
    ``lets`` must have room for every loop: variables for what is not affine are entered in both.
    """

    def __init__(self, sb: StageBounds) -> None:
        self._sb, self._sizes = sb, sb.sizes

    def times(self, a: Extent, b: Extent) -> Extent:
        return self._sizes.times(a, b)

    def ceil_div(self, a: Extent, b: Extent) -> Extent:
        """``ceil(a / b)`` with an int ``b``: split factors are ints."""
        assert isinstance(b, int)
        return self._sizes.ceil_div(a, b)

    def clipped(self, factor: int, n: Extent) -> int:
        return min(factor, n) if isinstance(n, int) else factor

    def split_value(self, loop: str, outer: Affine, length: Extent, inner: Affine) -> Affine:
        if isinstance(length, int):
            return outer * length + inner
        return self._scaled(outer, length, f"{self._name(loop)}.start") + inner

    def fused_values(
        self, loop: str, value: Affine, outer: Extent, length: Extent
    ) -> tuple[Affine, Affine]:
        if not isinstance(length, int):
            return self._symbolic_parts(loop, value, outer, length)
        if outer == 1:
            # What the fused loop over-runs is guarded: there is nothing to divide.
            return Affine(0), value
        lets: list[tuple[Var, Expr]] = []
        q, r = div_mod(value, length, self._sizes.ranges, lets, self._name(loop))
        for var, definition in lets:
            self._define(var, definition)
        if lets and isinstance(outer, Affine) and q == Affine.of(lets[0][0]):
            # The quotient is below the outer extent, but for what the fused loop over-runs.
            over = self._over_run(value, outer * length)
            self._sizes.ranges.enter(lets[0][0], outer + -(-over // length))
        return q, r

    def _name(self, loop: str) -> str:
        return self._sb.stage.loops[loop].name

    def _define(self, var: Var, value: Expr) -> None:
        """Make a definition just inside the innermost loop that it depends on."""
        sb = self._sb
        pos = max((sb.position.get(v, -1) for v in free_vars(value)), default=-1)
        sb.position[var] = pos
        if sb.kernel is not None:
            sb.kernel.depends(var, value)
        sb.lets[pos + 1].append((var, value))

    def _over_run(self, value: Affine, length: Extent) -> int:
        """Iterations by which a fused loop may run beyond the product of its parts."""
        return max(0, (Affine(1) + value - length).bounds(self._sizes.ranges)[1])

    def _scaled(self, x: Affine, length: Affine, name: str) -> Affine:
        if not x.terms:
            product = self._sizes.times(x.const, length)
            return product if isinstance(product, Affine) else Affine(product)
        largest = self._sizes.times(self._sizes.span(x)[1], length)
        return self._variable(name, largest + 1, "*", x, length)

    def _symbolic_parts(
        self, loop: str, value: Affine, outer: Extent, length: Affine
    ) -> tuple[Affine, Affine]:
        name = self._name(loop)
        over = self._over_run(value, self._sizes.times(outer, length))
        return (
            self._variable(f"{name}.q", outer + over, "//", value, length),
            self._variable(f"{name}.r", length, "%", value, length),
        )

    def _variable(self, name: str, extent: Extent, op: str, x: Affine, length: Affine) -> Affine:
        """A variable for ``x op length``, which is computed in int64, where nothing wraps."""
        var = loop_var(name, extent, self._sizes, "int64")
        a, b = form_expr(x, self._sizes.ranges), form_expr(length, self._sizes.ranges)
        self._define(var, binary(op, cast(a, "int64"), cast(b, "int64")))
        return Affine.of(var)
