"""Recorded configurations as points of a space, by the hundred thousand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from loopwright.records import Json
from loopwright.task.space import ConfigEntity

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
        self._knobs: list[tuple[str, Knob, dict[str, int | None]]] = [
            (name, knob, {}) for name, knob in space.knobs.items()
        ]

    def find_all(self, configs: Sequence[Mapping[str, Json]]) -> list[ConfigEntity | None]:
        """The configuration of each ``{knob: value}``, or None when it is not a point of the
        space."""
        # By identity, as long as the values are kept: an index holds equal ones once.
        known: list[dict[int, _Place | None]] = [{} for _ in self._knobs]
        return [self._find(values, known) for values in configs]

    def find(self, values: Mapping[str, Json]) -> ConfigEntity | None:
        """The configuration of ``{knob: value}``, or None when it is not a point of the space."""
        return self.find_all([values])[0]

    def _find(
        self, values: Mapping[str, Json], known: Sequence[dict[int, _Place | None]]
    ) -> ConfigEntity | None:
        if len(values) != len(self._knobs):
            return None
        index, entities = 0, {}
        for number, (name, _, _) in enumerate(self._knobs):
            if name not in values:
                return None
            value, places = values[name], known[number]
            if id(value) not in places:
                places[id(value)] = self._place(number, value)
            place = places[id(value)]
            if place is None:
                return None
            entities[name] = place.entity
            index += place.part
        return ConfigEntity(self._space, entities, index)

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
