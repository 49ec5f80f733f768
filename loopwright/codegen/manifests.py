"""Sizes of a function in a manifest: names, extents and requirements as formulas."""

# A formula, such as ``["+", "n", 1]``, is evaluated by the runtime without any of the compiler.

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loopwright.codegen.code import buffer_bytes
from loopwright.codegen.gpu.split import SplitKernel, SplitProgram
from loopwright.errors import BuildError
from loopwright.ir.affine import Affine, to_affine
from loopwright.ir.expr import Expr, Read, Var, as_expr
from loopwright.ir.node import StructuralKey, distinct
from loopwright.ir.printer import UniqueNames, print_expr
from loopwright.ir.sizes import Sizes, SizeVar, size_json
from loopwright.ir.stmt import Func
from loopwright.runtime import (
    ArgumentSource,
    CallPlan,
    DeviceCode,
    ExtentFormulas,
    KernelResources,
    LaunchSpec,
    SizeFormula,
    SizesSpec,
)
from loopwright.te import Dag, OpNode


class SizeManifest:
    def __init__(self, variables: Sequence[SizeVar]) -> None:
        names = UniqueNames()
        self.names: dict[Var, str] = {v: names(v) for v in variables}

    def formula(self, e: int | Expr) -> SizeFormula:
        formula: SizeFormula = size_json(e, self.names)
        return formula

    def spec(self, f: Func, dag: Dag | None, order: Sequence[int | SizeVar] | None) -> SizesSpec:
        # A call checks the extents and reads of ``dag``, if given. ``order`` has the arguments of a
        # call: indices of arrays, and sizes that are passed; None for the arrays alone. A size that
        # is neither determined by an array nor passed is a BuildError.
        positions = list(order) if order is not None else list(range(len(f.params)))
        passed = {v for v in positions if isinstance(v, SizeVar)}
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
            tuple(self.names[v] if isinstance(v, SizeVar) else v for v in positions),
        )


def requirements(dag: Dag) -> list[tuple[Expr, str]]:
    """Expressions that must not be negative, so that reads which nothing guards stay inside."""
    # Only affine indices are judged; whether they stay inside may depend on the sizes.
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
        short = [
            as_expr(sizes.dim(r))
            for r in rooms
            if isinstance(r, Affine) and r.bounds(sizes.ranges)[0] < 0
        ]
        needs |= {StructuralKey(as_expr(sizes.definition(r))): text for r in short}
    return needs


def _determined_by(n: int | Expr) -> list[SizeVar]:
    """The size variable that a dimension determines: the only one in a linear expression."""
    form = Sizes().of(n)
    if isinstance(form, int) or len(form.terms) != 1:
        return []
    return [v for v in form.terms if isinstance(v, SizeVar)]


def device_code(
    program: SplitProgram,
    image: bytes,
    shared_bytes: Mapping[str, int] | None = None,
    resources: Mapping[str, KernelResources] | None = None,
    arch: str = "",
    parts: Sequence[SplitProgram] = (),
) -> DeviceCode:
    """The code of a function, its ``parts`` included, for a device."""
    # ``image`` is source text or machine code of ``arch``; ``shared_bytes`` is shared memory by
    # kernel, beyond what the kernel declares.
    shared = shared_bytes or {}
    whole = _call_plan(program, shared)
    plans = {part.func.name: _call_plan(part, shared) for part in parts}
    return DeviceCode(image, whole.launches, whole.buffers, resources or {}, arch, plans)


def _call_plan(program: SplitProgram, shared: Mapping[str, int]) -> CallPlan:
    f, buffers, manifest = program.func, program.buffers, SizeManifest(program.func.sizes)
    over_sizes = program.definitions.definition

    def extents(k: SplitKernel, which: str) -> ExtentFormulas:
        x, y, z = (manifest.formula(over_sizes(n)) for n in k.extents(which))
        return x, y, z

    def launch(k: SplitKernel) -> LaunchSpec:
        arguments: list[ArgumentSource] = [
            ("parameter", f.params.index(b)) if b in f.params else ("buffer", buffers.index(b))
            for b in k.parameters
        ]
        sizes: list[ArgumentSource] = [
            ("size", n) for n, v in enumerate(f.sizes) if any(v is w for w in k.sizes)
        ]
        grid, block = extents(k, "blockIdx"), extents(k, "threadIdx")
        return LaunchSpec(k.name, grid, block, (*arguments, *sizes), shared.get(k.name, 0))

    sizes = tuple(manifest.formula(over_sizes(buffer_bytes(b))) for b in buffers)
    return CallPlan(tuple(map(launch, program.kernels)), sizes)
