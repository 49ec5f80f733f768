"""Structures of programs of several kernels: one structure for each part, and the knobs of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from loopwright import te
from loopwright.schedule import Schedule, replay
from loopwright.schedule.steps import Step
from loopwright.schedule.transplant import transplanted
from loopwright.space.parts import Part
from loopwright.space.ranking import Ranked, ranked
from loopwright.space.structure import Structure
from loopwright.target import Target
from loopwright.task.entities import Entity, OtherOptionEntity
from loopwright.task.space import ConfigEntity, ConfigSpace
from loopwright.task.template_config import Filter, TemplateConfig
from loopwright.task.union import STRUCTURE
from loopwright.te.dag import ArgId, Dag

#: Structures of a program of several parts, at most.
_MOST = 48


@dataclass(frozen=True, eq=False)
class PlacedStructure:
    """A structure of a part, and where that part is in the whole.

    Attributes:
        label: names the part in knobs: that of its result.
        structure: the structure.
        stages: for each operation of the part its index among those of the whole.
    """

    label: str
    structure: Structure
    stages: Mapping[int, int]

    def knob(self, name: str) -> str:
        """What a knob of the part is called in the whole."""
        return f"{self.label}.{name}"

    def local(self, config: ConfigEntity) -> ConfigEntity:
        """What a configuration of the whole says of the part."""
        space = self.structure.config_space
        own = {n: config[self.knob(n)] for n in space.knobs if n != STRUCTURE}
        return ConfigEntity(space, {**own, STRUCTURE: space[STRUCTURE]}, None)

    def steps(self, config: ConfigEntity, first: int) -> list[Step]:
        """The steps of the part under a configuration of the whole, behind ``first`` others."""
        return transplanted(self.structure.steps(self.local(config)), self.stages, first)


@dataclass(frozen=True, eq=False)
class CompositeStructure:
    """One structure for each part of an expression. Attributes as of `Structure`, and:

    Attributes:
        placed: those of the parts, in the order in which they run.
    """

    name: str
    why: tuple[str, ...]
    config_space: ConfigSpace
    target: Target
    dag: Dag
    arg_ids: tuple[ArgId, ...]
    placed: tuple[PlacedStructure, ...]

    def instantiate(self, config: ConfigEntity) -> tuple[Schedule, list[te.Tensor]]:
        """The schedule of a configuration of its space; see `Structure.instantiate`."""
        steps: list[Step] = []
        for part in self.placed:
            steps += part.steps(config, len(steps))
        s = replay(self.dag, steps)
        return s, [s.tensor(a) for a in self.arg_ids]

    def __str__(self) -> str:
        return f"{self.name} ({self.config_space.range_length} configurations)"


def composites(
    outputs: Sequence[te.Tensor], parts: Sequence[Part], whole: Structure
) -> list[CompositeStructure]:
    """Structures of an expression in several parts.

    Args:
        outputs: the results of the expression.
        parts: its parts, with their structures; none where no rule knows a part, which then runs as
            it was written.
        whole: the expression without a schedule.

    Returns:
        Combinations of the structures of the parts, the first of each first; at most 48, of which
        each part has as many as the others.
    """
    _, indices = Dag.from_ops([t.op for t in outputs])
    known = [part for part in parts if part.structures]
    if not known:
        return []
    each = max(1, int(_MOST ** (1 / len(known)) + 1e-9))
    choices = [
        [PlacedStructure(label, s, part.places(indices)) for s in part.structures[:each]]
        for label, part in zip(_labels(known), known, strict=True)
    ]
    return [_composite(placed, whole) for placed in product(*choices)]


def _labels(parts: Sequence[Part]) -> list[str]:
    """The name of each result, numbered where several have it."""
    names = [part.output.name for part in parts]
    return [
        name if names.count(name) == 1 else f"{name}.{names[:number].count(name)}"
        for number, name in enumerate(names)
    ]


def _value(entity: Entity) -> Any:
    """What a knob of a structure chooses; those of users may have other knobs than sketches."""
    return entity.val if isinstance(entity, OtherOptionEntity) else entity.value


def ranked_composites(structures: Sequence[CompositeStructure]) -> list[Ranked]:
    """As `ranked`, but each structure of a part is looked at once: parts run one after the other,
    so that the best of each makes the best of all."""
    parts = {id(p.structure): p.structure for whole in structures for p in whole.placed}
    best = {id(r.structure): r for r in ranked(list(parts.values()))}
    found = [
        _together(whole, [best[id(p.structure)] for p in whole.placed]) for whole in structures
    ]
    return sorted(found, key=lambda r: -r.speed)


def _together(whole: CompositeStructure, best: Sequence[Ranked]) -> Ranked:
    """The best of a structure, of the best of its parts."""
    values = {STRUCTURE: whole.name}
    for part, own in zip(whole.placed, best, strict=True):
        values |= {part.knob(n): v for n, v in own.config.values.items() if n != STRUCTURE}
    config = whole.config_space.get(whole.config_space.index_of(values))
    work = [max(part.structure.dag.flop, 1) for part in whole.placed]
    seconds = sum(flop / own.speed for flop, own in zip(work, best, strict=True))
    return Ranked(whole, config, sum(work) / seconds)


def _accepted(part: PlacedStructure, accepts: Filter, config: TemplateConfig) -> bool:
    """Whether a filter of a part accepts a configuration of the whole."""
    assert isinstance(config, ConfigEntity)
    return accepts(part.local(config))


def _composite(placed: Sequence[PlacedStructure], whole: Structure) -> CompositeStructure:
    space = ConfigSpace()
    for part in placed:
        for name, knob in part.structure.config_space.knobs.items():
            if name != STRUCTURE:
                values = [_value(entity) for entity in knob.entities]
                space.define_knob(part.knob(name), values, default=values[knob.default])
        for accepts in part.structure.config_space.filters:
            space.multi_filter(partial(_accepted, part, accepts))
    name = "; ".join(f"{part.label}: {part.structure.name}" for part in placed)
    space.define_knob(STRUCTURE, [name])
    space.freeze()
    why = tuple(f"{part.label}: {w}" for part in placed for w in part.structure.why)
    return CompositeStructure(
        name, why, space, whole.target, whole.dag, whole.arg_ids, tuple(placed)
    )
