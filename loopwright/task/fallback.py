"""The default configuration, as a template that is called directly sees and adjusts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from loopwright.errors import SpaceError
from loopwright.records import Json, Record, ranked
from loopwright.task.entities import Entity, SplitEntity
from loopwright.task.knobs import SplitKnob
from loopwright.task.space import ConfigEntity
from loopwright.task.template_config import missing_knob


class FallbackConfig(ConfigEntity):
    """The default configuration, which a template may still adjust: ``if cfg.is_fallback: ...``.

    Example:
        >>> task = lw.create_task("matmul", (64, 64, 64), "llvm")
        >>> config = task.fallback()
        >>> print(config.is_fallback, config["unroll_k"].val)
        True 1
    """

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
        best: dict[str, Json] = {}
        most = -1
        for record in ranked(ref_log):
            if set(record.config) != set(self._entities):
                continue
            values, kept = self._translated(record)
            if kept > most:
                best, most = values, kept
        for name, value in best.items():
            self[name] = self.space.knobs[name].entity(value)

    def _translated(self, record: Record) -> tuple[dict[str, Any], int]:
        """The record's values made to fit here, and the number of unchanged inner sizes."""
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
