"""Features: a name, its meaning and its computation, all three in one place.

A feature type is a list of slots. A slot is a place in a schedule (its main stage, the third loop
of that, its first load) and holds the features of that place. A slot that a schedule does not have
gives zeros, so that rows of all schedules have the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from loopwright.cost.cpu.machine import Machine
from loopwright.cost.features.figures import ScheduleFigures
from loopwright.cost.gpu.device import Device
from loopwright.cost.symbolic.symbols import Number
from loopwright.schedule.state import State

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Feature(Generic[T]):
    """One number that describes something."""

    name: str  # without that of the slot
    meaning: str  # in words, without those of the slot
    value: Callable[[T], Number]
    #: models see ``log2(1 + x)`` of it: for counts and bytes, not for shares and flags
    logged: bool = True
    #: It describes cores, vector registers or caches of a CPU, which say nothing of a kernel on
    #: another device.
    host: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the rows that models learn from."""

    name: str  # name of the feature with that of its slot, such as ``load0.loop2.stride``
    meaning: str = ""  # in words; empty for a knob
    logged: bool = False  # whether the column holds ``log2(1 + x)`` of the named quantity


class AnySlot(Protocol):
    """Slot of any subject."""

    def columns(self) -> Iterator[Column]: ...

    def values(self, schedule: ScheduleFigures) -> list[Number]: ...

    def without_host(self) -> AnySlot:
        """The slot without features of CPUs alone."""


@dataclass(frozen=True, slots=True)
class Slot(Generic[T]):
    """Place in a schedule with the features of its subject."""

    name: str  # prefix of the column names; empty for the schedule itself
    place: str  # the same in words
    features: tuple[Feature[T], ...]
    #: finds the subject in a schedule; None where the schedule has none
    subject: Callable[[ScheduleFigures], T | None]

    def columns(self) -> Iterator[Column]:
        for feature in self.features:
            name = f"{self.name}.{feature.name}" if self.name else feature.name
            meaning = f"{self.place}, {feature.meaning}" if self.place else feature.meaning
            yield Column(name, meaning, feature.logged)

    def values(self, schedule: ScheduleFigures) -> list[Number]:
        subject = self.subject(schedule)
        if subject is None:
            return [0] * len(self.features)
        return [feature.value(subject) for feature in self.features]

    def without_host(self) -> Slot[T]:
        return replace(self, features=tuple(f for f in self.features if not f.host))


class FeatureType:
    """All features of one type for every task; saved models rely on the order of ``slots``."""

    def __init__(self, slots: Sequence[AnySlot]) -> None:
        self.slots = tuple(slots)
        self.columns = tuple(column for slot in slots for column in slot.columns())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def values(self, state: State, machine: Machine, device: Device | None = None) -> list[Number]:
        """Number for each of ``columns``, before taking logarithms; split factors may be `Sym`."""
        schedule = ScheduleFigures(state, machine, device)
        return [number for slot in self.slots for number in slot.values(schedule)]
