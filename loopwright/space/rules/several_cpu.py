"""Structures of expressions of several kernels: a variant of each kernel, in one schedule.

One structure has the most sensible variant of every kernel; others differ from it in one kernel,
the heaviest first. The best variants are combined once single kernels are ranked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import count

from loopwright import te
from loopwright.ir.expr import IterVar
from loopwright.space.expression import extents
from loopwright.space.kernels import Kernel
from loopwright.space.registry import with_rules_of_users
from loopwright.space.rules.common_cpu import MIN_TASKS, compute_inline
from loopwright.space.rules.contraction_cpu import contraction_variants
from loopwright.space.rules.dot_instructions_cpu import dot_instruction_variants
from loopwright.space.rules.injective_cpu import injective_variants
from loopwright.space.rules.rows_cpu import chain_variants, whole_variants
from loopwright.space.rules.scans_cpu import scan_variants
from loopwright.space.rules.windows_cpu import window_variants
from loopwright.space.structure import Sketch, Structure, Variant, Variants, fused, kernels_of

Selection = Mapping[te.Tensor, Variant]  #: the variant of every kernel, by its result
_ADDED = 4  #: structures that are added once single kernels are ranked


@dataclass(frozen=True, eq=False)
class Composition:
    outputs: Sequence[te.Tensor]
    args: Sequence[te.Tensor]  # in calling order
    kernels: Sequence[Kernel]  # in execution order
    variants: Mapping[te.Tensor, Sequence[Variant]]  # of each kernel, the most sensible first

    @cached_property
    def base(self) -> Selection:
        return {k.out: self.variants[k.out][0] for k in self.kernels}

    @cached_property
    def names(self) -> dict[te.Tensor, str]:
        """Names of kernels, with a number where several have one name."""
        counts = Counter(k.out.name for k in self.kernels)
        numbers = {name: count(1) for name in counts}
        return {
            t: f"{t.name}#{next(numbers[t.name])}" if counts[t.name] > 1 else t.name
            for t in (k.out for k in self.kernels)
        }

    def prefix(self, kernel: te.Tensor) -> str:
        return f"{self.names[kernel]}." if len(self.kernels) > 1 else ""

    def structures(self, wanted: Sequence[Selection]) -> list[Composed]:
        """Structure for each selection; kernels before the first in which it differs from the first
        one are scheduled once for all."""
        outs, base = [k.out for k in self.kernels], wanted[0]
        firsts = [
            next((n for n, t in enumerate(outs) if chosen[t] is not base[t]), len(outs))
            for chosen in wanted
        ]
        kept: dict[int, Sketch] = {}
        sketch = self._begun()
        for number in range(len(self.kernels) + 1):
            if number in firsts:
                kept[number] = sketch.copy()
            if number < len(self.kernels):
                self._schedule(sketch, number, wanted[0])
        return [
            self._finished(kept[first].copy(), first, chosen)
            for first, chosen in zip(firsts, wanted, strict=True)
        ]

    def alone(self, kernel: Kernel, variant: Variant) -> None:
        """Schedule one kernel and no other, to see whether that is possible."""
        self._schedule(self._begun(), self.kernels.index(kernel), {kernel.out: variant})

    def _begun(self) -> Sketch:
        sketch = Sketch(self.outputs, self.args)
        # No kernel keeps what several compute, since it is cheap.
        standing = Counter(t for k in self.kernels for t in k.tensors)
        for t in (t for t, times in standing.items() if times > 1):
            sketch.s[t].compute_inline()
        return sketch

    def _schedule(self, sketch: Sketch, number: int, chosen: Selection) -> None:
        out = self.kernels[number].out
        sketch.prefix = self.prefix(out)
        chosen[out].schedule(sketch)
        sketch.why.append(f"{self.names[out]}: {chosen[out].why}")

    def _finished(self, sketch: Sketch, first: int, chosen: Selection) -> Composed:
        for number in range(first, len(self.kernels)):
            self._schedule(sketch, number, chosen)
        texts = [f"{self.names[k.out]}: {chosen[k.out].name}" for k in self.kernels]
        plain = sketch.finished("; ".join(texts))
        values = {f.name: getattr(plain, f.name) for f in fields(plain)}
        return Composed(**values, composition=self, chosen=chosen)


@dataclass(frozen=True, eq=False)
class Composed(Structure):
    composition: Composition
    chosen: Selection  # variant of every kernel

    @property
    def others(self) -> list[te.Tensor]:
        """Kernels without their most sensible variant."""
        return [t for t, variant in self.chosen.items() if variant is not self.composition.base[t]]


def combined(seconds: Mapping[Composed, float]) -> list[dict[te.Tensor, Composed]]:
    """New choices, given times in any unit of structures that differ in one kernel: kernels run one
    after the other, so a saving of one holds in any company. A choice maps each kernel that differs
    from the first structure to the structure of its variant. First comes that with the best variant
    of each, then those with the second best of one kernel, the fastest first."""
    base = next((s for s in seconds if not s.others), None)
    if base is None:
        return []
    options: dict[te.Tensor, list[Composed]] = {}
    for structure in sorted(seconds, key=seconds.__getitem__):
        if len(structure.others) == 1:
            options.setdefault(structure.others[0], []).append(structure)
    # The base itself is an option of each kernel.
    ordered = {t: sorted([base, *rivals], key=seconds.__getitem__) for t, rivals in options.items()}
    best = {t: rivals[0] for t, rivals in ordered.items()}
    choices = [best, *({**best, t: rivals[1]} for t, rivals in ordered.items())]
    new = [{t: s for t, s in choice.items() if s is not base} for choice in choices]
    new = [choice for choice in new if len(choice) > 1]
    new.sort(key=lambda choice: sum(seconds[s] - seconds[base] for s in choice.values()))
    return new[:_ADDED]


#: Rules for single kernels but scans, by name, in the order in which they are asked.
BUILT_IN: dict[str, Variants] = {
    "dot instructions": dot_instruction_variants,
    "contractions": contraction_variants,
    "windows": window_variants,
    "whole": whole_variants,
    "rows": chain_variants,
    "injective": injective_variants,
}
_PLAIN = "as written"  #: the variant of a kernel that no rule knows
#: Structures of an expression, each of which schedules every kernel: fewest, and most for one
#: kernel; and the share of the work below which a kernel has only one variant.
_FEWEST, _MOST, _LITTLE = 6, 36, 0.05


def several(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structures of several kernels, or of one that no other rule knows: the first with the most
    sensible variant of every kernel, the others with another one in one kernel."""
    program = composition(outputs, args)
    kernels, variants = program.kernels, program.variants
    if len(kernels) == 1 and variants[kernels[0].out][0].name != _PLAIN:
        return []
    total = sum(k.work for k in kernels)
    heavy = sorted((k for k in kernels if k.work >= _LITTLE * total), key=lambda k: -k.work)
    selections: list[Selection] = [program.base]
    for depth in range(1, max((len(variants[k.out]) for k in heavy), default=0)):
        fitting = [k.out for k in heavy if depth < len(variants[k.out])]
        selections += [{**program.base, t: variants[t][depth]} for t in fitting]
    return list(program.structures(selections[: max(_FEWEST, _MOST // len(kernels))]))


def composition(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> Composition:
    """Expression as kernels with their variants; kernels that no rule knows run as written."""
    kernels = kernels_of(tuple(outputs))
    why = "no rule knows this kernel: its loops run as they were written, in parallel"

    def built_in(kernel: Kernel) -> list[Variant]:
        # A scan as the reduction that it is written as takes so much longer that it is no choice.
        return scan_variants(kernel) or [v for rule in BUILT_IN.values() for v in rule(kernel)]

    variants = {
        k.out: with_rules_of_users(k, partial(built_in, k))
        or [Variant(_PLAIN, why, partial(_schedule, k))]
        for k in kernels
    }
    return Composition(tuple(outputs), tuple(args), kernels, variants)


def _schedule(kernel: Kernel, sketch: Sketch) -> None:
    """Run rows of the results in parallel; the rest is left to the compiler."""
    s = sketch.s
    compute_inline(s, kernel, [])
    for t in dict.fromkeys([*(r.tensor for r in kernel.reductions), kernel.out]):
        axes: list[IterVar] = []
        for x in s[t].op.axis:
            if extents(axes) < MIN_TASKS:
                axes.append(x)
        if extents(axes) > 1:
            s[t].parallel(fused(s, t, axes))
