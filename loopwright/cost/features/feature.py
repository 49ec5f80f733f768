"""Features: a name, its meaning and its computation, all three in one place.

A slot is a place in a schedule (its main stage, the third loop of that, its first load) and holds
the features of that place; it gives zeros where a schedule has no such place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from loopwright.cost.cpu.arithmetic import by_arithmetic, work_of
from loopwright.cost.cpu.core import Core
from loopwright.cost.cpu.footprint import BufferUsage, Touched, Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.gpu.device import GpuProperties
from loopwright.cost.gpu.kernel import GpuKernel, kernels_of
from loopwright.cost.symbolic.index_steps import extent_of
from loopwright.cost.symbolic.loop_nest import NestLoop
from loopwright.cost.symbolic.symbols import Number, at_most, largest, most, product, total, where
from loopwright.schedule import State

# The main stage is the one with the most arithmetic. Its loops are counted from the inside; its
# accesses are its store and then its loads.


class ScheduleFigures:
    def __init__(self, state: State, machine: Machine, device: GpuProperties | None = None) -> None:
        self.machine = machine
        nests = by_arithmetic(state)
        kernels = kernels_of(state, device, nests) if device is not None else []
        #: that of the main stage first; none without a device
        self.kernels = sorted(kernels, key=lambda k: nests[0] not in k.nests)
        self.usage = BufferUsage(nests)
        self.stages = [StageFigures(Touches(nest, machine), self.usage) for nest in nests]
        self.main = self.stages[0]

    def stage(self, number: int) -> StageFigures | None:
        return self.stages[number] if number < len(self.stages) else None

    def kernel(self, number: int) -> GpuKernel | None:
        return self.kernels[number] if number < len(self.kernels) else None

    @cached_property
    def flop(self) -> Number:
        """Operations of all stages, recomputed ones included."""
        return total(s.touches.nest.iterations * s.flop_per_iteration for s in self.stages)

    @cached_property
    def copied(self) -> Number:
        return total(s.touches.nest.iterations for s in self.stages if not s.flop_per_iteration)

    @property
    def lanes(self) -> int:
        return self.machine.lanes(self.main.touches.accesses[0].access.buffer.itemsize)

    def loop(self, number: int, last: int) -> LoopFigures | None:
        """Loop of the main stage, 0 the innermost; ``last`` stands for all further out too."""
        main, depth = self.main, len(self.main.nest.loops) - 1 - number
        if depth < 0:
            return None
        loop = main.nest.loops[depth]
        if number == last and depth > 0:
            return LoopFigures(main, loop, main.touches.outer[depth + 1], 0)
        return LoopFigures(main, loop, loop.extent, depth)

    def access(self, number: int, loop: int, last: int) -> AccessFigures | None:
        """Access of the main stage under one loop, numbered as in `loop`; access 0 is the store."""
        touches, depth = self.main.touches, len(self.main.nest.loops) - 1 - loop
        if number >= len(touches.accesses) or depth < 0:
            return None
        access = touches.accesses[number]
        return AccessFigures(touches, access, access.strides[depth], 0 if loop == last else depth)

    def window(self, number: int, iterations: int) -> WindowView | None:
        """Data that an access of the main stage touches within ``iterations`` iterations."""
        touches = self.main.touches
        if number >= len(touches.accesses):
            return None
        access = touches.accesses[number]
        elements: Number = 1
        inner: Number = 1
        for depth in range(len(touches.inner) - 1, -1, -1):
            fits = at_most(touches.inner[depth], iterations)
            elements = where(fits, access.elements[depth], elements)
            inner = where(fits, touches.inner[depth], inner)
        return WindowView(elements, inner, access.access.buffer.itemsize)


class StageFigures:
    def __init__(self, touches: Touches, usage: BufferUsage) -> None:
        self.touches, self.nest = touches, touches.nest
        self.flop_per_iteration = work_of(touches.nest.op).flop
        self.made = usage.made  # stages of the program that are computed
        self._usage = usage

    @cached_property
    def core(self) -> Core:
        return Core(self.touches, self._usage.resident)

    @cached_property
    def excess(self) -> Number:
        """Iterations over those without recomputation."""
        return self.nest.iterations / product(map(extent_of, self.nest.op.extents))

    @cached_property
    def flop(self) -> Number:
        """Operations, at least one per iteration."""
        return self.touches.inner[0] * most(self.flop_per_iteration, 1)

    @cached_property
    def traffic(self) -> list[Number]:
        """Bytes from beyond each level of cache, the first level first."""
        return [self.touches.traffic(size) for size in self.touches.machine.caches.sizes]

    @property
    def own_reduction(self) -> Number:
        """Iterations of its own reduction loops."""
        own = self.nest.loops[len(self.nest.loops) - self.nest.own :]
        return product(x.extent for x in own if x.kind == "reduce")

    @property
    def vector_bytes(self) -> Number:
        """Bytes of the vectorized loop's results; one element where there is no such loop."""
        t = self.touches
        size = t.accesses[0].access.buffer.itemsize
        return size if t.vector_loop is None else t.nest.loops[t.vector_loop].extent * size

    def lane_stride(self, access: Touched) -> Number:
        t = self.touches
        return 0 if t.vector_loop is None else access.strides[t.vector_loop]

    @property
    def farthest_load(self) -> Number:
        """Largest distance of neighbouring lanes among its loads, in bytes."""
        return largest(map(self.lane_stride, self.touches.accesses[1:]))

    @property
    def buffer_bytes(self) -> Number:
        buffer = self.touches.accesses[0].access.buffer
        return buffer.elements * buffer.itemsize


@dataclass(frozen=True, slots=True)
class LoopFigures:
    stage: StageFigures
    loop: NestLoop  # the loop, or the innermost of them
    extent: Number  # iterations of it, or of all of them
    depth: int  # number of loops around it, or around all of them

    @property
    def inner(self) -> Number:
        """Iterations of the loop and those inside."""
        return self.stage.touches.inner[self.depth]

    @property
    def bytes(self) -> Number:
        """Bytes that all accesses touch in one run of the loop."""
        return self.stage.touches.bytes[self.depth]

    @property
    def intensity(self) -> Number:
        return self.inner * most(self.stage.flop_per_iteration, 1) / self.bytes

    def is_marked(self, mark: str) -> int:
        return int(self.loop.mark == mark)


@dataclass(frozen=True, slots=True)
class AccessFigures:
    touches: Touches
    access: Touched
    stride: Number  # bytes from one iteration of the loop to the next
    depth: int  # number of loops around

    @property
    def bytes(self) -> Number:
        return self.access.elements[self.depth] * self.access.access.buffer.itemsize

    @property
    def reuse(self) -> Number:
        return self.touches.inner[self.depth] / self.access.elements[self.depth]


@dataclass(frozen=True, slots=True)
class WindowView:
    """A load or store within a number of iterations, whatever the loops."""

    elements: Number  # different elements that are touched
    iterations: Number  # those of the loops that fit, together
    itemsize: int  # bytes


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Feature(Generic[T]):
    name: str  # without that of the slot
    meaning: str  # in words, without those of the slot
    value: Callable[[T], Number]
    #: models see ``log2(1 + x)`` of it: for counts and bytes, not for shares and flags
    logged: bool = True
    #: It describes cores, vector registers or caches of a CPU, which say nothing of a kernel on
    #: another device.
    host: bool = False


@dataclass(frozen=True, slots=True)
class FeatureColumn:
    name: str  # name of the feature with that of its slot, such as ``load0.loop2.stride``
    meaning: str = ""  # in words; empty for a knob
    logged: bool = False  # whether the column holds ``log2(1 + x)`` of the named quantity


class AnySlot(Protocol):
    """Slot of any subject."""

    def columns(self) -> Iterator[FeatureColumn]: ...

    def values(self, schedule: ScheduleFigures) -> list[Number]: ...

    def without_host(self) -> AnySlot: ...


@dataclass(frozen=True, slots=True)
class Slot(Generic[T]):
    name: str  # prefix of the column names; empty for the schedule itself
    place: str  # the same in words
    features: tuple[Feature[T], ...]
    #: finds the subject in a schedule; None where the schedule has none
    subject: Callable[[ScheduleFigures], T | None]

    def columns(self) -> Iterator[FeatureColumn]:
        for feature in self.features:
            name = f"{self.name}.{feature.name}" if self.name else feature.name
            meaning = f"{self.place}, {feature.meaning}" if self.place else feature.meaning
            yield FeatureColumn(name, meaning, feature.logged)

    def values(self, schedule: ScheduleFigures) -> list[Number]:
        subject = self.subject(schedule)
        if subject is None:
            return [0] * len(self.features)
        return [feature.value(subject) for feature in self.features]

    def without_host(self) -> Slot[T]:
        """The slot without features of CPUs alone."""
        return replace(self, features=tuple(f for f in self.features if not f.host))


class FeatureType:
    """All features of one type for every task; saved models rely on the order of ``slots``."""

    def __init__(self, slots: Sequence[AnySlot]) -> None:
        self.slots = tuple(slots)
        self.columns = tuple(column for slot in slots for column in slot.columns())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def values(
        self, state: State, machine: Machine, device: GpuProperties | None = None
    ) -> list[Number]:
        """Number for each of ``columns``, before taking logarithms; split factors may be `Sym`."""
        schedule = ScheduleFigures(state, machine, device)
        return [number for slot in self.slots for number in slot.values(schedule)]
