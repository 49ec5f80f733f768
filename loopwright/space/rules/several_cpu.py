"""Expressions of several kernels on CPUs: each kernel is scheduled by what knows it.

One structure has the most sensible variant of every kernel; the others differ from it in one
kernel, the heaviest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space.access import extents
from loopwright.space.kernels import Kernel, heaviest
from loopwright.space.rules.contraction_cpu import contraction_variants
from loopwright.space.rules.dot_instructions_cpu import dot_instruction_variants
from loopwright.space.rules.injective_cpu import injective_variants
from loopwright.space.rules.pieces import MIN_TASKS, compute_inline, fused
from loopwright.space.rules.rows_cpu import chain_variants
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
#: Structures of an expression, for each of which every kernel is scheduled: fewest, and most for
#: one kernel; and how little of the work a kernel does that has but one variant.
_FEWEST, _MOST, _LITTLE = 6, 36, 0.05


def several(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """The structures of an expression of several kernels, or of one that no other rule knows.

    Args:
        outputs: the results.
        args: the arguments in calling order.

    Returns:
        The structures; none where the expression is one kernel that another rule knows.
    """
    parts = kernels_of(tuple(outputs))
    found = {k.out: [v for known in _KNOWN for v in known(k)] for k in parts}
    if len(parts) == 1 and found[parts[0].out]:
        return []
    choices = {k.out: found[k.out] or [_plain(k)] for k in parts}
    names = _names(parts)
    return [_structure(outputs, args, parts, names, c) for c in _combined(parts, choices)]


def _combined(
    parts: Sequence[Kernel], choices: Mapping[te.Tensor, list[Variant]]
) -> list[dict[te.Tensor, Variant]]:
    """The most sensible variant of every kernel, and with another one in one kernel."""
    base = {t: variants[0] for t, variants in choices.items()}
    heavy = heaviest(parts, _LITTLE)
    found, most = [base], max(_FEWEST, _MOST // len(parts))
    depth = 1
    while len(found) < most and any(depth < len(choices[k.out]) for k in heavy):
        for k in heavy:
            if depth < len(choices[k.out]) and len(found) < most:
                found.append({**base, k.out: choices[k.out][depth]})
        depth += 1
    return found


def _structure(
    outputs: Sequence[te.Tensor],
    args: Sequence[te.Tensor],
    parts: Sequence[Kernel],
    names: Mapping[te.Tensor, str],
    chosen: Mapping[te.Tensor, Variant],
) -> Structure:
    sketch = Sketch(outputs, args)
    # One stage has one place: what several kernels compute, since it is cheap, none of them keeps.
    standing = Counter(t for k in parts for t in k.tensors)
    for t in (t for t, count in standing.items() if count > 1):
        sketch.s[t].compute_inline()
    for k in parts:
        name, variant = names[k.out], chosen[k.out]
        sketch.prefix = f"{name}." if len(parts) > 1 else ""
        variant.schedule(sketch)
        sketch.why.append(f"{name}: {variant.why}")
    texts = [f"{names[k.out]}: {chosen[k.out].name}" for k in parts]
    return sketch.finished("; ".join(texts))


def _names(parts: Sequence[Kernel]) -> dict[te.Tensor, str]:
    """Names of kernels, with a number where several have one name."""
    counts = Counter(k.out.name for k in parts)
    seen: Counter[str] = Counter()
    found = {}
    for k in parts:
        seen[k.out.name] += 1
        again = counts[k.out.name] > 1
        found[k.out] = f"{k.out.name}#{seen[k.out.name]}" if again else k.out.name
    return found


def _plain(kernel: Kernel) -> Variant:
    why = "no rule knows this kernel: its loops run as they were written, in parallel"
    return Variant("as written", why, partial(_schedule, kernel))


def _schedule(kernel: Kernel, sketch: Sketch) -> None:
    """Rows of the result in parallel; the rest is left to the compiler."""
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
