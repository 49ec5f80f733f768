"""The primitives that choose at random, and record their choice, as MetaSchedule's do.

Sampled numbers reach other steps as `Sampled`: another decision in a trace changes what follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, TypeAlias

from loopwright.ir.sizes import Symbol
from loopwright.schedule.primitives.placement import ComputeAt, ComputeInline, ComputeRoot
from loopwright.schedule.state import IllegalStep, Sampled, StageId, State
from loopwright.schedule.steps import (
    FieldType,
    Step,
    TraceNames,
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


def _is_place(v: object) -> bool:
    if v in (("root",), ("inline",)):
        return True
    at = isinstance(v, tuple) and len(v) == 3 and v[0] == "at"
    return at and is_id(v[1]) and is_text(v[2])  # type: ignore[index]


@register(
    "sample_categorical",
    candidates=FieldType(each(is_int)),
    probs=FieldType(optional(each(lambda v: is_int(v) or isinstance(v, float)))),
)
class SampleCategorical(Step):
    candidates: tuple[int, ...]
    decision: int
    probs: tuple[float, ...] | None = None

    def apply(self, state: State, t: int) -> State:
        state.compute_stage(self.stage)
        decision: object = self.decision
        if not isinstance(decision, Symbol) and decision not in self.candidates:
            candidates = ", ".join(map(str, self.candidates)) or "none"
            raise IllegalStep(f"{self.decision!r} is none of the candidates; they are {candidates}")
        if self.probs is not None and len(self.probs) != len(self.candidates):
            raise IllegalStep(
                f"{len(self.candidates)} candidates have {len(self.probs)} probabilities; give one "
                "for each"
            )
        return state.with_sample(t, (self.decision,))

    def as_python(self, names: TraceNames) -> str:
        probs = "" if self.probs is None else f", {list(self.probs)}"
        call = f"sample_categorical({list(self.candidates)}{probs}, decision={self.decision})"
        return f"{Sampled(0, names.step).name} = {names.stage(self.stage)}.{call}"


@register("sample_perfect_tile", decision=FieldType(each(is_int)))
class SamplePerfectTile(Step):
    loop: str
    n: int
    max_innermost_factor: int
    decision: tuple[int, ...]

    def apply(self, state: State, t: int) -> State:
        stage = state.compute_stage(self.stage)
        loop = state.leaf(stage, self.loop)
        label = state.loop_label(stage, loop.id)
        if self.n < 1 or self.max_innermost_factor < 1:
            raise IllegalStep("n and max_innermost_factor are at least 1")
        if len(self.decision) != self.n:
            raise IllegalStep(f"n is {self.n}, and the decision has {len(self.decision)} factors")
        numbers = [x for x in (*self.decision, loop.nominal) if not isinstance(x, Symbol)]
        if not all(isinstance(x, int) for x in numbers):
            raise IllegalStep(f"the extent of {label!r} is not known; sample loops of known extent")
        factors = self.decision
        if len(numbers) == self.n + 1 and not (
            all(x >= 1 for x in factors)
            and factors[-1] <= self.max_innermost_factor
            and math.prod(factors) == loop.nominal
        ):
            raise IllegalStep(
                f"{list(factors)} is no tile of {label!r}, which has {loop.nominal} "
                f"iterations: the product must be that, and the last factor at most "
                f"{self.max_innermost_factor}"
            )
        return state.with_sample(t, self.decision)

    def as_python(self, names: TraceNames) -> str:
        chosen = ", ".join(Sampled(0, names.step, k).name for k in range(self.n))
        loop = names.loop(self.stage, self.loop)
        args = f"{loop}, {self.n}, {self.max_innermost_factor}, decision={list(self.decision)}"
        unpacked = chosen if self.n > 1 else f"[{chosen}]"
        return f"{unpacked} = {names.stage(self.stage)}.sample_perfect_tile({args})"


@register("sample_compute_location", decision=FieldType(_is_place))
class SampleComputeLocation(Step):
    decision: Place

    @property
    def verb(self) -> str:
        return placing(self.stage, self.decision).primitive

    def apply(self, state: State, t: int) -> State:
        return placing(self.stage, self.decision).apply(state, t)

    def as_python(self, names: TraceNames) -> str:
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
