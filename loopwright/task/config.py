"""One point of a space, as a template and a tuner see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loopwright.errors import InstantiationError, SpaceError
from loopwright.records import Record
from loopwright.task.defining import Definitions, missing_knob
from loopwright.task.entities import Entity, SplitEntity
from loopwright.task.knobs import Knob, SplitKnob, value_text

if TYPE_CHECKING:
    from loopwright.task.space import ConfigSpace


class ConfigEntity(Definitions):
    """A choice for every knob of a space.

    Attributes:
        space: The space.
        index: Its index there; None when a recorded value is not among the candidates.
    """

    def __init__(
        self, space: ConfigSpace, entities: Mapping[str, Entity], index: int | None
    ) -> None:
        self.space = space
        self.index = index
        self._entities = dict(entities)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._entities[name]
        except KeyError:
            raise missing_knob(name, list(self._entities)) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self._entities == other._entities

    def __hash__(self) -> int:
        return hash(value_text(self.values))

    def __str__(self) -> str:
        return " ".join(f"{name}={entity}" for name, entity in self._entities.items())

    def __repr__(self) -> str:
        return f"<config {self.index}: {self}>"

    @property
    def values(self) -> dict[str, Any]:
        """JSON form of each knob's choice, as a record keeps it: ``{"tile_i": [-1, 8]}``."""
        return {name: entity.value for name, entity in self._entities.items()}

    @property
    def is_fallback(self) -> bool:
        """False: a record or a tuner chose this."""
        return False

    def raise_error(self, msg: str) -> None:
        """Refuse this configuration.

        Raises:
            InstantiationError: with ``msg``.
        """
        raise InstantiationError(msg)

    def valid(self) -> bool:
        """True: a configuration that is refused never gets as far as this question."""
        return True

    def multi_filter(self, filter: Callable[[Any], bool]) -> None:
        """Nothing to do: the space has the filter."""

    def _define(self, name: str, build: Callable[[], Knob], default: Any) -> None:
        if name not in self._entities:
            raise InstantiationError(
                f"knob {name!r} is defined for some configurations only; define every knob before "
                "the template branches on one"
            )


class FallbackConfig(ConfigEntity):
    """The default configuration, which a template may still adjust: ``if cfg.is_fallback: ...``."""

    @property
    def is_fallback(self) -> bool:
        """True."""
        return True

    def __setitem__(self, name: str, entity: Entity) -> None:
        """Choose for a knob: ``cfg["tile_i"] = SplitEntity([-1, 8])``; need not be a candidate."""
        if name not in self._entities:
            raise missing_knob(name, list(self._entities))
        self._entities[name] = entity
        self.index = self.space.find(self.values)

    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Choose a split whose sizes divide and stay within limits.

        Args:
            name: Name of a split knob.
            constraints: Upper limit of each size, from the outside in; one of them is -1 and takes
                what is left: ``[-1, 8, 4]``.

        Raises:
            SpaceError: the knob is no split, or the limits do not fit it.
        """
        self[name] = SplitEntity(self._within(name, constraints))

    def fallback_with_reference_log(self, ref_log: Iterable[Record]) -> None:
        """Take over the choices of a record of this template for another shape.

        The record is the one whose inner sizes survive best when they are rounded to divisors of
        the lengths here; among equals the fastest. Choices that are no candidates here stay as
        they are.

        Args:
            ref_log: Records, e.g. ``loopwright.records.load(path)``.
        """
        best: tuple[tuple[int, float], dict[str, Any]] | None = None
        for record in ref_log:
            if not record.usable or set(record.config) != set(self._entities):
                continue
            values, kept = self._translated(record)
            rank = (-kept, record.median or 0.0)
            if best is None or rank < best[0]:
                best = (rank, values)
        for name, value in (best[1] if best else {}).items():
            self[name] = self.space.knobs[name].entity(value)

    def _translated(self, record: Record) -> tuple[dict[str, Any], int]:
        """The record's values made to fit here, and how many inner sizes stayed as they were."""
        values: dict[str, Any] = {}
        kept = 0
        for name, value in record.config.items():
            adapted = self.space.knobs[name].adapted(value)
            if adapted is not None:
                values[name] = adapted[0]
                kept += adapted[1]
        return values, kept

    def _within(self, name: str, limits: Sequence[int]) -> list[int]:
        knob = self.space.knobs.get(name)
        if knob is None:
            raise missing_knob(name, list(self._entities))
        if not isinstance(knob, SplitKnob):
            raise SpaceError(f"knob {name!r} is no split into {len(limits)} loops")
        return knob.within(limits)
