"""Records as results and as points of a space, by the hundred thousand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from loopwright.measure import MeasureError, MeasureResult
from loopwright.records import Json, Record, fields_of
from loopwright.task import STRUCTURE, ConfigEntity, SpaceUnion

if TYPE_CHECKING:
    from loopwright.task import ConfigSpace, Entity, Knob


class _Place(NamedTuple):
    """A candidate of a knob, and the part of a point's index that it stands for."""

    entity: Entity
    part: int


class RecordedPoints:
    """Finds the configurations of recorded values; each value of a knob is looked up once."""

    def __init__(self, space: ConfigSpace) -> None:
        self._space = space
        self._whole = _Part(space, space, 0)
        self._parts: dict[str, _Part] = {}
        if isinstance(space, SpaceUnion):
            rows = zip(space.names, space.parts, space.offsets, strict=False)
            self._parts = {name: _Part(space, p.config_space, first) for name, p, first in rows}

    def find_all(self, configs: Sequence[Mapping[str, Json]]) -> list[ConfigEntity | None]:
        """The configuration of each ``{knob: value}``; None where it is no point of the space."""
        for part in (self._whole, *self._parts.values()):
            part.forget_values()
        if not isinstance(self._space, SpaceUnion):
            return [self._whole.find(values) for values in configs]
        parts = (self._parts.get(str(values.get(STRUCTURE))) for values in configs)
        pairs = zip(parts, configs, strict=True)
        return [None if part is None else part.find(values) for part, values in pairs]

    def find(self, values: Mapping[str, Json]) -> ConfigEntity | None:
        return self.find_all([values])[0]


class _Part:
    """The points of a space with knobs, the first of which has the index ``first`` in the whole."""

    def __init__(self, whole: ConfigSpace, space: ConfigSpace, first: int) -> None:
        self._whole, self._first = whole, first
        self._knobs: list[tuple[str, Knob, dict[str, int | None]]] = [
            (name, knob, {}) for name, knob in space.knobs.items()
        ]
        self.forget_values()

    def forget_values(self) -> None:
        """Forget values, known by the identity of objects, which an index keeps alive and holds
        once."""
        self._known: list[dict[int, _Place | None]] = [{} for _ in self._knobs]

    def find(self, values: Mapping[str, Json]) -> ConfigEntity | None:
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


def result_of(record: Record) -> MeasureResult:
    return results_of([record])[0]


def results_of(records: Sequence[Record]) -> list[MeasureResult]:
    columns = fields_of(records, *SHARED, "error", "program", "same_as")
    results = [
        MeasureResult(
            **dict(zip(SHARED, values, strict=True)),
            error=None if error is None else MeasureError(error["kind"], error.get("text", "")),
            program=program,
            same_as=program if same_as else "",
        )
        for *values, error, program, same_as in zip(*columns, strict=True)
    ]
    (medians,) = fields_of(records, "median")
    for result, median in zip(results, medians, strict=True):
        if result.error is None:
            vars(result)["median"] = median  # which it would compute on first use
    return results


#: Fields that a result and its record have alike.
SHARED = (
    *("times", "dropped", "build_s", "run_s", "ts", "max_error"),
    *("checked", "check_reason", "code", "times_of", "resources", "prepare_s"),
)
