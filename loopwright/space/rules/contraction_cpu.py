"""Contractions on CPUs: roles of loops and operands, and the structures that follow.

The kernel is the one of Goto and van de Geijn (ACM TOMS 2008), derived from access maps: vectors
run along a loop that moves one operand alone, rows along one that does not move this operand, so
that each vector of it is used for every row, and each element of the others for every vector. A
packed copy of that operand at a level of tiles, which TVM's rules for CPUs cannot make, is one more
structure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space.access import extents
from loopwright.space.analysis import OperandUse, StageAnalysis, StageClass
from loopwright.space.kernels import Kernel
from loopwright.space.rules.dots_cpu import dot_variants, pays_by_dots
from loopwright.space.rules.outer_products_cpu import OuterProducts
from loopwright.space.rules.pieces import ALONE, MAY_BE_ALONE
from loopwright.space.rules.roles_cpu import Plan, Roles
from loopwright.space.structure import Structure
from loopwright.space.variant import Variant, structures_of

PlanT = TypeVar("PlanT", bound=Plan)

#: Most rows of a result for which packing does not pay.
_UNPACKED_ROWS = 16
#: Multiplications per element to transpose a register tile.
_TURNED = 10
#: Longest reduction that is not split into blocks.
_SHORT_REDUCTION = 512


def contractions(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structures of an expression whose one reduction is a contraction, over which its one result
    is elementwise; none for others.
    """
    return structures_of(contraction_variants, outputs, args)


def contraction_variants(kernel: Kernel) -> list[Variant]:
    """Ways to schedule a contraction, the most sensible first; none for other kernels."""
    stage = kernel.single
    if stage is None or stage.kind is not StageClass.CONTRACTION:
        return []
    roles = sorted(roles_of(kernel, stage), key=_cost)
    plans = [p for r in roles for p in _plans(kernel, r)]
    if roles:
        plans += _blocked(kernel, roles)
        plans += by_one_thread(kernel, plans)
        alone = any(p.alone for p in plans) and kernel.work <= ALONE
        plans.sort(key=lambda p: p.alone is not alone or not _is_sensible(p, roles[0]))
    dots, outer = dot_variants(kernel), [_variant(kernel, p) for p in plans]
    return [*dots, *outer] if pays_by_dots(stage) else [*outer, *dots]


def roles_of(kernel: Kernel, stage: StageAnalysis) -> Iterator[Roles]:
    """Roles for each operand: its longest loop of its own for the vectors, and a row loop.

    The last loop of the result is one of the two: a tile is then written along memory.
    """
    last = stage.spatial[-1]
    for operand in stage.operands:
        alone = [x for x in stage.alone(operand) if x.count > 1]
        if not alone:
            yield from _grouped(kernel, stage, operand)
        still = [x for x in stage.spatial if not operand.access.moves_with(x) and x.count > 1]
        if not alone:
            continue
        vector = last if last in set(alone) else max(alone, key=lambda x: x.count)
        if vector is not last and last not in set(still):
            continue
        row = last if last in set(still) else _nearest(still, stage, operand)
        yield Roles(kernel.out, stage, operand, vector, row)


def _grouped(kernel: Kernel, stage: StageAnalysis, operand: OperandUse) -> Iterator[Roles]:
    """Vectors along a loop that moves the others in blocks: one group after another."""
    others = [o for o in stage.operands if o is not operand]
    for x in stage.spatial:
        steps = {o.access.steps.get(x, x.count) for o in others}
        still = [y for y in stage.spatial if not operand.access.moves_with(y) and y.count > 1]
        group = min(steps, default=1)
        if len(steps) != 1 or group in (1, x.count) or operand.access.steps.get(x) != 1:
            continue
        last = stage.spatial[-1]
        if x is last or last in set(still):
            row = last if last in set(still) else _nearest(still, stage, operand)
            yield Roles(kernel.out, stage, operand, x, row, group)


def _nearest(still: Sequence[IterVar], stage: StageAnalysis, operand: OperandUse) -> IterVar | None:
    """Loop that moves the other operands least: the data of rows lies together."""
    others = [o for o in stage.operands if o is not operand]

    def distance(x: IterVar) -> int:
        return max(abs(o.strides.get(x, 1 << 40)) for o in others if o.access.moves_with(x))

    moved = [x for x in still if any(o.access.moves_with(x) for o in others)]
    return min(moved, key=distance, default=None)


def _cost(roles: Roles) -> float:
    """Cost per point of the best register tile, with a transpose if memory is across."""
    turned = _TURNED / extents(roles.stage.reduced) if roles.turned else 0.0
    return min(map(roles.cost, roles.tiles())) + turned


def _plans(kernel: Kernel, roles: Roles) -> Iterator[Plan]:
    """Packing of the loaded operand, outer loop, and place of producers."""
    computed = [o for o in roles.stage.operands if kernel.computes(o.tensor)]
    packings = ["none"] if roles.side_by_side else []
    packings += ["panel", "task", "root"] if roles.dimension is not None else []
    places = ["root", "task"] if computed else ["inline"]
    loaded = kernel.computes(roles.loaded.tensor)
    for packing, order, place in product(packings, ["vectors", "rows"], places):
        # A copy that is made before all tasks reads what is computed before them too.
        if not (loaded and packing == "root" and place == "task"):
            yield Plan(roles, packing, order, place)
    if loaded and roles.dimension is not None:
        for packing, order in product(["panel", "root"], ["vectors", "rows"]):
            yield Plan(roles, packing, order, "inline")


def _blocked(kernel: Kernel, roles: Sequence[Roles]) -> Iterator[Plan]:
    """Long reduction in blocks: data of a block of rows and of a panel then stays in cache."""
    fitting = [r for r in roles if not (r.turned or r.group or r.row is None)]
    longest = max(roles[0].stage.reduced, key=lambda x: x.count)
    if not fitting or longest.count <= _SHORT_REDUCTION or not fitting[0].block_steps(longest):
        return
    for plan in list(_plans(kernel, fitting[0])):
        if plan.order == "vectors" and plan.packing != "task":
            yield replace(plan, blocked=longest)
            if fitting[0].rows_dimension is not None:
                yield replace(plan, blocked=longest, rows_packed=True)


def by_one_thread(kernel: Kernel, plans: Sequence[PlanT], group: int = 1) -> list[PlanT]:
    """Plans for little work without threads: waking them takes longer than the work.

    ``group`` is the number of points that an instruction takes at once.
    """
    little = kernel.work <= MAY_BE_ALONE * group
    if not little or any(kernel.computes(t) for t in _operands(kernel)):
        return []
    found = [p for p in plans if p.order == "vectors" and p.blocked is None]
    return [replace(p, alone=True) for p in found if p.packing != "task"]


def _operands(kernel: Kernel) -> list[te.Tensor]:
    """Tensors that the one reduction of a kernel reads."""
    assert kernel.single is not None
    return [o.tensor for o in kernel.single.operands]


def _is_sensible(plan: Plan, best: Roles) -> bool:
    """Whether a plan is the one for a build without a trial."""
    roles = plan.roles
    rows = roles.row.count if roles.row is not None else 1
    packing = "panel"
    if roles.side_by_side and rows * extents(roles.others) <= _UNPACKED_ROWS:
        packing = "none"
    elif roles.beside is not None or (roles.turned and not roles.moves_with_others):
        packing = "root"
    wanted = (best, packing, "vectors", None)
    given = (roles, plan.packing, plan.order, plan.blocked)
    return plan.place in ("root", "inline") and given == wanted


def _variant(kernel: Kernel, plan: Plan) -> Variant:
    return Variant(
        plan.name,
        plan.why,
        lambda sketch: OuterProducts(sketch, kernel, plan).schedule(),
    )
