"""Features: a name, what it means and how it is computed, all three in one place.

A feature type is a list of slots. A slot is a place in a schedule (its main stage, the third loop
of that, its first load) and holds the features that describe what stands there. What a schedule
does not have at a slot gives zeros, so that rows of all schedules have the same columns.
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
    """One number that describes something.

    Attributes:
        name: its name, without that of the slot.
        meaning: what it is, in words, without those of the slot.
        value: computes it.
        logged: models see ``log2(1 + x)`` of it. Counts and bytes are logged, shares and flags are
            not.
        host: it is what cores, vector registers or caches of a CPU make of the schedule, which says
            nothing of a kernel on another device.
    """

    name: str
    meaning: str
    value: Callable[[T], Number]
    logged: bool = True
    host: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the rows that models learn from.

    Attributes:
        name: name of the feature with that of its slot, such as ``load0.loop2.stride``.
        meaning: what it is, in words; empty for a knob.
        logged: whether the column holds ``log2(1 + x)`` of what its name says.
    """

    name: str
    meaning: str = ""
    logged: bool = False


class AnySlot(Protocol):
    """A slot, whatever kind of thing stands in it."""

    def columns(self) -> Iterator[Column]:
        """The columns of the slot."""

    def values(self, schedule: ScheduleFigures) -> list[Number]:
        """A number for each column."""

    def without_host(self) -> AnySlot:
        """The same without what a CPU alone makes of a schedule."""


@dataclass(frozen=True, slots=True)
class Slot(Generic[T]):
    """A place in a schedule with the features of what stands there.

    Attributes:
        name: what the names of its columns begin with; empty for the schedule itself.
        place: the same in words.
        features: what is computed of the thing that stands there.
        subject: finds it in a schedule; None where the schedule has nothing there.
    """

    name: str
    place: str
    features: tuple[Feature[T], ...]
    subject: Callable[[ScheduleFigures], T | None]

    def columns(self) -> Iterator[Column]:
        """The columns of the slot."""
        for feature in self.features:
            name = f"{self.name}.{feature.name}" if self.name else feature.name
            meaning = f"{self.place}, {feature.meaning}" if self.place else feature.meaning
            yield Column(name, meaning, feature.logged)

    def values(self, schedule: ScheduleFigures) -> list[Number]:
        """A number for each column."""
        subject = self.subject(schedule)
        if subject is None:
            return [0] * len(self.features)
        return [feature.value(subject) for feature in self.features]

    def without_host(self) -> Slot[T]:
        """The same without what a CPU alone makes of a schedule."""
        return replace(self, features=tuple(f for f in self.features if not f.host))


class FeatureType:
    """All features of one type, the same for every task.

    Args:
        slots: in the order of their columns, which saved models rely on.

    Attributes:
        slots: as given.
        columns: the columns of all slots.
    """

    def __init__(self, slots: Sequence[AnySlot]) -> None:
        self.slots = tuple(slots)
        self.columns = tuple(column for slot in slots for column in slot.columns())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def values(self, state: State, machine: Machine, device: Device | None = None) -> list[Number]:
        """A number for each of ``columns``, before taking logarithms.

        Args:
            state: the schedule's state; split factors may be `Sym`.
            machine: what it runs on.
            device: what its kernels run on, of a target for GPUs.
        """
        schedule = ScheduleFigures(state, machine, device)
        return [number for slot in self.slots for number in slot.values(schedule)]
