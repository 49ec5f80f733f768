"""The primitives that choose at random, and record their choice, as MetaSchedule's do.

Numbers that are sampled reach other steps as `loopwright.schedule.sampled.Sampled`: the trace tells
where they come from, so that another decision in it changes all that follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from loopwright.ir.sizes import Symbol
from loopwright.schedule.names import Names
from loopwright.schedule.rules.placement import ComputeAt, ComputeInline, ComputeRoot
from loopwright.schedule.sampled import Sampled
from loopwright.schedule.state import StageId, State, refuse
from loopwright.schedule.steps import (
    FieldType,
    Step,
    each,
    is_id,
    is_int,
    is_text,
    optional,
    register,
)

#: Place of a stage: ``("root",)``, ``("inline",)`` or ``("at", stage, loop)``.
Place: TypeAlias = (
    "tuple[Literal['root']] | tuple[Literal['inline']] | tuple[Literal['at'], StageId, str]"
)


def _is_open(v: object) -> bool:
    """Whether a number is a symbol, which stands for all values that a knob may choose."""
    return isinstance(v, Symbol)


def _is_number(v: object) -> bool:
    return isinstance(v, int | float) and not isinstance(v, bool)


def _is_place(v: object) -> bool:
    if v in (("root",), ("inline",)):
        return True
    at = isinstance(v, tuple) and len(v) == 3 and v[0] == "at"
    return at and is_id(v[1]) and is_text(v[2])  # type: ignore[index]


@register(
    "sample_categorical",
    candidates=FieldType(each(is_int)),
    probs=FieldType(optional(each(_is_number))),
)
class SampleCategorical(Step):
    """Choose one of some numbers."""

    candidates: tuple[int, ...]
    decision: int
    probs: tuple[float, ...] | None = None

    def apply(self, state: State, t: int) -> State:
        state.compute_stage(self.stage, "sample_categorical")
        if not _is_open(self.decision) and self.decision not in self.candidates:
            known = ", ".join(map(str, self.candidates)) or "none"
            refuse(
                "sample_categorical",
                t,
                f"{self.decision!r} is none of the candidates; they are {known}",
            )
        if self.probs is not None and len(self.probs) != len(self.candidates):
            refuse(
                "sample_categorical",
                t,
                f"{len(self.candidates)} candidates have {len(self.probs)} probabilities; give one "
                "for each",
            )
        return state.with_sample(t, (self.decision,))

    def as_python(self, names: Names) -> str:
        """Text such as ``v0_0 = s[C].sample_categorical([4, 8], decision=8)``."""
        probs = "" if self.probs is None else f", {list(self.probs)}"
        call = f"sample_categorical({list(self.candidates)}{probs}, decision={self.decision})"
        return f"{Sampled(0, names.step).name} = {names.stage(self.stage)}.{call}"


@register("sample_perfect_tile", decision=FieldType(each(is_int)))
class SamplePerfectTile(Step):
    """Choose ``n`` factors whose product is the extent of a loop."""

    loop: str
    n: int
    max_innermost_factor: int
    decision: tuple[int, ...]

    def apply(self, state: State, t: int) -> State:
        """Keep the factors, outermost first, for the steps that use them."""
        who = "sample_perfect_tile"
        stage = state.compute_stage(self.stage, who)
        loop = state.leaf(stage, self.loop, who)
        label = state.loop_label(stage, loop.id)
        if self.n < 1 or self.max_innermost_factor < 1:
            refuse(who, t, "n and max_innermost_factor are at least 1")
        if len(self.decision) != self.n:
            refuse(who, t, f"n is {self.n}, and the decision has {len(self.decision)} factors")
        known = [x for x in (*self.decision, loop.nominal) if not _is_open(x)]
        if not all(isinstance(x, int) for x in known):
            refuse(who, t, f"the extent of {label!r} is not known; sample loops of known extent")
        if len(known) == self.n + 1 and not self._fits(known):
            refuse(
                who,
                t,
                f"{list(self.decision)} is no tile of {label!r}, which has {loop.nominal} "
                f"iterations: the product must be that, and the last factor at most "
                f"{self.max_innermost_factor}",
            )
        return state.with_sample(t, self.decision)

    def _fits(self, known: Sequence[object]) -> bool:
        positive = all(x >= 1 for x in self.decision)
        small = self.decision[-1] <= self.max_innermost_factor
        return positive and small and math.prod(self.decision) == known[-1]

    def as_python(self, names: Names) -> str:
        """Text such as ``v0_0, v0_1 = s[C].sample_perfect_tile(i, 2, decision=[4, 16])``."""
        chosen = ", ".join(Sampled(0, names.step, k).name for k in range(self.n))
        loop = names.loop(self.stage, self.loop)
        given = f"{loop}, {self.n}, {self.max_innermost_factor}, decision={list(self.decision)}"
        unpacked = chosen if self.n > 1 else f"[{chosen}]"
        return f"{unpacked} = {names.stage(self.stage)}.sample_perfect_tile({given})"


@register("sample_compute_location", decision=FieldType(_is_place))
class SampleComputeLocation(Step):
    """Compute a stage at a place that was chosen."""

    decision: Place

    def apply(self, state: State, t: int) -> State:
        return placing(self.stage, self.decision).apply(state, t)

    def as_python(self, names: Names) -> str:
        """Text such as ``s[B].sample_compute_location(decision=(s[C], i))``."""
        match self.decision:
            case ("at", parent, loop):
                where = f"({names.stage(parent)}, {names.loop(parent, loop)})"
            case (kind, *_):
                where = repr(kind)
        return f"{names.stage(self.stage)}.sample_compute_location(decision={where})"


def placing(sid: StageId, place: Place) -> Step:
    match place:
        case ("at", parent, loop):
            return ComputeAt(sid, parent, loop)
        case ("inline",):
            return ComputeInline(sid)
        case _:
            return ComputeRoot(sid)


def perfect_tiles(extent: int, n: int, max_innermost_factor: int) -> Iterator[tuple[int, ...]]:
    """All ``n`` factors, outermost first, of product ``extent``, in a fixed order."""
    if n == 1:
        if extent <= max_innermost_factor:
            yield (extent,)
        return
    small = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    for last in sorted({*small, *(extent // d for d in small)}):
        if last <= max_innermost_factor:
            rest = extent // last
            yield from ((*outer, last) for outer in perfect_tiles(rest, n - 1, rest))
