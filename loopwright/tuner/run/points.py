"""Recorded configurations as points of a space, by the hundred thousand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from loopwright.records import Json
from loopwright.task.space import ConfigEntity
from loopwright.task.union import STRUCTURE, SpaceUnion

if TYPE_CHECKING:
    from loopwright.task import ConfigSpace
    from loopwright.task.entities import Entity
    from loopwright.task.knobs import Knob


class _Place(NamedTuple):
    """A candidate of a knob, and the part of a point's index that it stands for."""

    entity: Entity
    part: int


class RecordedPoints:
    """Finds what ``space.find`` and ``space.get`` would, and looks each value of a knob up once.

    Args:
        space: the space.
    """

    def __init__(self, space: ConfigSpace) -> None:
        self._space = space
        self._whole = _Part(space, space, 0)
        self._parts: dict[str, _Part] = {}
        if isinstance(space, SpaceUnion):
            rows = zip(space.names, space.parts, space.offsets, strict=False)
            self._parts = {name: _Part(space, p.config_space, first) for name, p, first in rows}

    def find_all(self, configs: Sequence[Mapping[str, Json]]) -> list[ConfigEntity | None]:
        """The configuration of each ``{knob: value}``, or None when it is not a point of the
        space."""
        for part in (self._whole, *self._parts.values()):
            part.forget_values()
        return [self._find(values) for values in configs]

    def find(self, values: Mapping[str, Json]) -> ConfigEntity | None:
        """The configuration of ``{knob: value}``, or None when it is not a point of the space."""
        return self.find_all([values])[0]

    def _find(self, values: Mapping[str, Json]) -> ConfigEntity | None:
        if not isinstance(self._space, SpaceUnion):
            return self._whole.find(values)
        part = self._parts.get(str(values.get(STRUCTURE)))
        return None if part is None else part.find(values)


class _Part:
    """The points of a space that has knobs.

    Args:
        whole: the space that configurations are of.
        space: it, or a part of it.
        first: the index of the first point of that part.
    """

    def __init__(self, whole: ConfigSpace, space: ConfigSpace, first: int) -> None:
        self._whole, self._first = whole, first
        self._knobs: list[tuple[str, Knob, dict[str, int | None]]] = [
            (name, knob, {}) for name, knob in space.knobs.items()
        ]
        self.forget_values()

    def forget_values(self) -> None:
        """Forget which values are which objects: they are known by identity, as long as they are
        kept (an index holds equal ones once)."""
        self._known: list[dict[int, _Place | None]] = [{} for _ in self._knobs]

    def find(self, values: Mapping[str, Json]) -> ConfigEntity | None:
        """The configuration of ``{knob: value}``, or None when it is not a point."""
        if len(values) != len(self._knobs):
            return None
        index, entities = self._first, {}
        for number, (name, _, _) in enumerate(self._knobs):
            if name not in values:
                return None
            value, places = values[name], self._known[number]
            if id(value) not in places:
                places[id(value)] = self._place(number, value)
            place = places[id(value)]
            if place is None:
                return None
            entities[name] = place.entity
            index += place.part
        return ConfigEntity(self._whole, entities, index)

    def _place(self, number: int, value: Json) -> _Place | None:
        """Where a value stands among the candidates of a knob; None where it does not."""
        _, knob, positions = self._knobs[number]
        # Values that are different as JSON have different texts in Python, too.
        text = repr(value)
        if text not in positions:
            positions[text] = knob.position(value)
        position = positions[text]
        if position is None:
            return None
        stride = math.prod(len(before.entities) for _, before, _ in self._knobs[:number])
        return _Place(knob.entities[position], stride * position)
