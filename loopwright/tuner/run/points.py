"""Recorded configurations as points of a space, by the hundred thousand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from loopwright.records import Json
from loopwright.task.space import ConfigEntity

if TYPE_CHECKING:
    from loopwright.task import ConfigSpace
    from loopwright.task.knobs import Knob


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

    def find(self, values: Mapping[str, Json]) -> ConfigEntity | None:
        """The configuration of ``{knob: value}``, or None when it is not a point of the space."""
        if len(values) != len(self._knobs):
            return None
        index, stride, entities = 0, 1, {}
        for name, knob, positions in self._knobs:
            if name not in values:
                return None
            # Values that are different as JSON have different texts in Python, too.
            text = repr(values[name])
            if text not in positions:
                positions[text] = knob.position(values[name])
            position = positions[text]
            if position is None:
                return None
            entities[name] = knob.entities[position]
            index += stride * position
            stride *= len(knob.entities)
        return ConfigEntity(self._space, entities, index)
