"""Sizes of a function in a manifest: names, extents and requirements as formulas such as ``["+",
"n", 1]``, which the runtime evaluates without any of the compiler."""

from __future__ import annotations

from collections.abc import Sequence

from loopwright.errors import BuildError
from loopwright.ir.affine import Affine, Extent, to_affine
from loopwright.ir.expr import Expr, Read, Var, as_expr
from loopwright.ir.node import StructuralKey, distinct
from loopwright.ir.printer import print_expr
from loopwright.ir.sizes import Sizes, SizeVar, size_json
from loopwright.ir.stmt import Func
from loopwright.runtime.artifacts.manifest import SizeFormula, SizesSpec
from loopwright.te.dag import Dag
from loopwright.te.op_node import OpNode


class SizeManifest:
    """The size variables of one function under unique names."""

    def __init__(self, variables: Sequence[SizeVar]) -> None:
        self.names: dict[Var, str] = {}
        for v in variables:
            name, n = v.name, 1
            while name in self.names.values():
                name, n = f"{v.name}_{n}", n + 1
            self.names[v] = name

    def formula(self, e: int | Expr) -> SizeFormula:
        """An extent or a number of bytes, as the manifest has it."""
        formula: SizeFormula = size_json(e, self.names)
        return formula

    def spec(self, f: Func, dag: Dag | None, order: Sequence[int | SizeVar] | None) -> SizesSpec:
        """The part of the manifest on a function with sizes.

        A call checks the extents and reads of ``dag``, if given. ``order`` has the arguments of a
        call: indices of arrays, and sizes that are passed; None for the arrays alone. A size that
        is neither determined by an array nor passed is a BuildError.
        """
        given = list(order) if order is not None else list(range(len(f.params)))
        passed = {v for v in given if isinstance(v, SizeVar)}
        determined = {v for p in f.params for n in p.shape for v in _determined_by(n)}
        for v in f.sizes:
            if v not in determined | passed:
                raise BuildError(
                    f"build: no dimension of an argument tells the size {v.name!r}; pass it as an "
                    f"argument: build(s, [{v.name}, ...])"
                )
        ops = dag.ops if dag is not None else ()
        extents = distinct(n for op in ops for n in op.extents if not isinstance(n, int))
        needs = requirements(dag) if dag is not None else []
        return SizesSpec(
            tuple((self.names[v], v.dtype, v.nonnegative) for v in f.sizes),
            tuple((self.formula(e), print_expr(e)) for e in extents),
            tuple((self.formula(e), shown) for e, shown in needs),
            tuple(self.names[v] if isinstance(v, SizeVar) else v for v in given),
        )


def requirements(dag: Dag) -> list[tuple[Expr, str]]:
    """Expressions that must not be negative, so that reads which nothing guards stay inside.

    Only affine indices are judged; whether they stay inside may depend on the sizes.
    """
    needs: dict[StructuralKey, str] = {}
    for op in dag.ops:
        sizes = Sizes(n for other in dag.ops for n in other.extents)
        for v in dag.sizes:
            sizes.declare(v)
        for a in (*op.axes, *op.reduce_axes):
            sizes.ranges.enter(a.var, sizes.of(a.extent))
        for read in op.unguarded_reads():
            needs |= _needs_of_read(dag, op, read, sizes)
    return [(key.node, text) for key, text in needs.items()]


def _needs_of_read(dag: Dag, op: OpNode, read: Read, sizes: Sizes) -> dict[StructuralKey, str]:
    """Expressions of one read that must not be negative, and messages where they are."""
    needs: dict[StructuralKey, str] = {}
    source = dag.ops[read.source]
    for d, (i, dim) in enumerate(zip(read.indices, source.shape, strict=True)):
        form = to_affine(i, {}, sizes.ranges)
        if form is None:
            continue
        lo, hi = sizes.span(form)
        low, high = (print_expr(as_expr(sizes.dim(x))) for x in (lo, hi))
        text = (
            f"index {d} of {source.name} in {op.name} runs from {low} to {high}, "
            f"the dimension has {print_expr(as_expr(dim))} elements"
        )
        rooms = (lo, sizes.of(dim) - 1 - hi)
        short = [as_expr(sizes.dim(r)) for r in rooms if _may_be_negative(r, sizes)]
        needs |= {StructuralKey(as_expr(sizes.definition(r))): text for r in short}
    return needs


def _may_be_negative(room: Extent, sizes: Sizes) -> bool:
    return isinstance(room, Affine) and room.bounds(sizes.ranges)[0] < 0


def _determined_by(n: int | Expr) -> list[SizeVar]:
    """The size variable that a dimension determines: the only one in a linear expression."""
    form = Sizes().of(n)
    if isinstance(form, int) or len(form.terms) != 1:
        return []
    return [v for v in form.terms if isinstance(v, SizeVar)]
