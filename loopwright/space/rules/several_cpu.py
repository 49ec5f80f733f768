"""Expressions of several kernels on CPUs: each kernel is scheduled by the rule that knows it.

One structure has the most sensible variant of every kernel; the others differ from it in one
kernel, the heaviest first. The best variants of kernels are combined once single kernels are ranked
(`loopwright.space.composition`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space.access import extents
from loopwright.space.composition import Chosen, Composition
from loopwright.space.kernel_rules import with_rules_of_users
from loopwright.space.kernels import Kernel, heaviest
from loopwright.space.rules.contraction_cpu import contraction_variants
from loopwright.space.rules.dot_instructions_cpu import dot_instruction_variants
from loopwright.space.rules.injective_cpu import injective_variants
from loopwright.space.rules.pieces import MIN_TASKS, compute_inline, fused
from loopwright.space.rules.rows_cpu import chain_variants
from loopwright.space.rules.scans_cpu import scan_variants
from loopwright.space.rules.whole_cpu import whole_variants
from loopwright.space.rules.windows_cpu import window_variants
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure
from loopwright.space.variant import Variant, Variants, kernels_of

_KNOWN: tuple[Variants, ...] = (
    dot_instruction_variants,
    contraction_variants,
    window_variants,
    whole_variants,
    chain_variants,
    injective_variants,
)
#: The variant of a kernel that nothing knows.
_PLAIN = "as written"
#: Structures of an expression, each of which schedules every kernel: fewest, and most for one
#: kernel; and the share of the work below which a kernel has only one variant.
_FEWEST, _MOST, _LITTLE = 6, 36, 0.05


def several(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structures of several kernels, or of one kernel that no other rule knows; else none."""
    program = composition(outputs, args)
    only = program.kernels[0].out
    if len(program.kernels) == 1 and program.choices[only][0].name != _PLAIN:
        return []
    return list(program.structures(_chosen(program)))


def composition(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> Composition:
    """Expression as kernels with their variants; kernels that no rule knows run as written."""
    parts = kernels_of(tuple(outputs))
    found = {k.out: _variants(k) for k in parts}
    choices = {k.out: found[k.out] or [_plain(k)] for k in parts}
    return Composition(tuple(outputs), tuple(args), parts, choices)


def _variants(kernel: Kernel) -> list[Variant]:
    # A scan as the reduction that it is written as takes so much longer that it is no choice.
    return with_rules_of_users(
        kernel,
        lambda: scan_variants(kernel) or [v for known in _KNOWN for v in known(kernel)],
    )


def _chosen(program: Composition) -> list[Chosen]:
    """Most sensible variant of every kernel, and the same with another one in one kernel."""
    parts, choices = program.kernels, program.choices
    heavy = heaviest(parts, _LITTLE)
    found: list[Chosen] = [program.base]
    most = max(_FEWEST, _MOST // len(parts))
    depth = 1
    while len(found) < most and any(depth < len(choices[k.out]) for k in heavy):
        for k in heavy:
            if depth < len(choices[k.out]) and len(found) < most:
                found.append({**program.base, k.out: choices[k.out][depth]})
        depth += 1
    return found


def _plain(kernel: Kernel) -> Variant:
    why = "no rule knows this kernel: its loops run as they were written, in parallel"
    return Variant(_PLAIN, why, partial(_schedule, kernel))


def _schedule(kernel: Kernel, sketch: Sketch) -> None:
    """Run rows of the result in parallel; the rest is left to the compiler."""
    s, out = sketch.s, kernel.out
    compute_inline(s, kernel, [])
    for r in kernel.reductions:
        if r.tensor is not out:
            _parallel(sketch, r.tensor)
    _parallel(sketch, out)


def _parallel(sketch: Sketch, t: te.Tensor) -> None:
    axes: list[IterVar] = []
    for x in sketch.s[t].op.axis:
        if extents(axes) < MIN_TASKS:
            axes.append(x)
    if extents(axes) > 1:
        sketch.s[t].parallel(fused(sketch.s, t, axes))
