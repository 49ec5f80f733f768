"""What features look at: a schedule, its stages, the loops and accesses of its main stage.

The main stage is the one with the most arithmetic. Its loops are counted from the inside; its
accesses are its store and then its loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from loopwright.cost.cpu.arithmetic import work_of
from loopwright.cost.cpu.buffer_usage import BufferUsage
from loopwright.cost.cpu.core import Core
from loopwright.cost.cpu.footprint import Touched, Touches
from loopwright.cost.cpu.machine import Machine
from loopwright.cost.cpu.stage_order import by_arithmetic
from loopwright.cost.gpu.device import Device
from loopwright.cost.gpu.kernel import Kernel, kernels_of
from loopwright.cost.symbolic.index_steps import extent_of
from loopwright.cost.symbolic.loop_nest import NestLoop
from loopwright.cost.symbolic.symbols import Number, at_most, most, product, total, where
from loopwright.schedule.state import State


class ScheduleFigures:
    """A whole schedule.

    Args:
        state: its state; split factors may be `Sym`.
        machine: what it runs on.
        device: what its kernels run on, of a target for GPUs.

    Attributes:
        kernels: its kernels, that of the main stage first; none without a device.
    """

    def __init__(self, state: State, machine: Machine, device: Device | None = None) -> None:
        self.machine = machine
        nests = by_arithmetic(state)
        kernels = kernels_of(state, device, nests) if device is not None else []
        self.kernels = sorted(kernels, key=lambda k: nests[0] not in k.nests)
        self.usage = BufferUsage(nests)
        self.stages = [StageFigures(Touches(nest, machine), self.usage) for nest in nests]
        self.main = self.stages[0]

    def stage(self, number: int) -> StageFigures | None:
        """A stage, the main one having the number 0."""
        return self.stages[number] if number < len(self.stages) else None

    def kernel(self, number: int) -> Kernel | None:
        """A kernel, that of the main stage having the number 0."""
        return self.kernels[number] if number < len(self.kernels) else None

    @cached_property
    def flop(self) -> Number:
        """Operations of all stages, those that are computed again included."""
        return total(s.touches.nest.iterations * s.flop_per_iteration for s in self.stages)

    @cached_property
    def copied(self) -> Number:
        """Iterations of stages without arithmetic."""
        return total(s.touches.nest.iterations for s in self.stages if not s.flop_per_iteration)

    @property
    def lanes(self) -> int:
        """Elements of the main result in a vector register."""
        return self.machine.lanes(self.main.touches.accesses[0].access.buffer.itemsize)


class StageFigures:
    """One stage.

    Attributes:
        made: stages of the program that are computed.
    """

    def __init__(self, touches: Touches, usage: BufferUsage) -> None:
        self.touches, self.nest = touches, touches.nest
        self.flop_per_iteration = work_of(touches.nest.op).flop
        self.made = usage.made
        self._usage = usage
        self._depths = range(len(touches.nest.loops) - 1, -1, -1)

    @cached_property
    def core(self) -> Core:
        """What a core does for it."""
        return Core(self.touches, self._usage.resident)

    @cached_property
    def excess(self) -> Number:
        """Iterations over those that there were, if nothing were computed twice."""
        op = self.nest.op
        once = product(map(extent_of, op.extents))
        return self.nest.iterations / once

    @cached_property
    def flop(self) -> Number:
        """Its operations, at least one an iteration."""
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
        """Bytes between neighbouring lanes of an access."""
        t = self.touches
        return 0 if t.vector_loop is None else access.strides[t.vector_loop]

    @property
    def farthest_load(self) -> Number:
        """The longest distance of neighbouring lanes among its loads, in bytes."""
        longest: Number = 0
        for stride in [self.lane_stride(a) for a in self.touches.accesses[1:]]:
            longest = most(longest, stride)
        return longest

    @property
    def buffer_bytes(self) -> Number:
        """Bytes of its buffer."""
        buffer = self.touches.accesses[0].access.buffer
        return buffer.elements * buffer.itemsize

    def loop(self, number: int, last: int) -> LoopFigures | None:
        """A loop, the innermost having the number 0; ``last`` stands for all further out too."""
        if number >= len(self._depths):
            return None
        depth = self._depths[number]
        loop = self.nest.loops[depth]
        if number == last and depth > 0:
            return LoopFigures(self, loop, self.touches.outer[depth + 1], 0)
        return LoopFigures(self, loop, loop.extent, depth)

    def access(self, number: int, loop: int, last: int) -> AccessFigures | None:
        """An access under one loop; both numbers as in `loop`, access 0 being the store."""
        accesses = self.touches.accesses
        if number >= len(accesses) or loop >= len(self._depths):
            return None
        depth = self._depths[loop]
        stride = accesses[number].strides[depth]
        return AccessFigures(self.touches, accesses[number], stride, 0 if loop == last else depth)

    def window(self, number: int, iterations: int) -> WindowView | None:
        """What an access touches within so many iterations."""
        accesses = self.touches.accesses
        if number >= len(accesses):
            return None
        elements: Number = 1
        inner: Number = 1
        for depth in range(len(self.nest.loops), -1, -1):
            fits = at_most(self.touches.inner[depth], iterations)
            elements = where(fits, accesses[number].elements[depth], elements)
            inner = where(fits, self.touches.inner[depth], inner)
        return WindowView(elements, inner, accesses[number].access.buffer.itemsize)


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """One loop of a stage, or all loops from a depth outwards.

    Attributes:
        stage: the stage.
        loop: the loop, or the innermost of them.
        extent: iterations of it, or of all of them.
        depth: how many loops stand around it, or around all of them.
    """

    stage: StageFigures
    loop: NestLoop
    extent: Number
    depth: int

    @property
    def inner(self) -> Number:
        """Iterations of it and of the loops inside."""
        return self.stage.touches.inner[self.depth]

    @property
    def bytes(self) -> Number:
        """Bytes that all accesses touch while it runs once."""
        return self.stage.touches.bytes[self.depth]

    @property
    def intensity(self) -> Number:
        """Operations for each byte touched."""
        return self.inner * most(self.stage.flop_per_iteration, 1) / self.bytes

    def is_marked(self, mark: str) -> int:
        """1 where the loop has this mark, else 0."""
        return int(self.loop.mark == mark)


@dataclass(frozen=True, slots=True)
class AccessFigures:
    """A load or store while one loop runs.

    Attributes:
        touches: what the stage touches.
        access: the access.
        stride: bytes from one iteration of the loop to the next.
        depth: how many loops stand around what is described.
    """

    touches: Touches
    access: Touched
    stride: Number
    depth: int

    @property
    def bytes(self) -> Number:
        """Bytes touched."""
        return self.access.elements[self.depth] * self.access.access.buffer.itemsize

    @property
    def reuse(self) -> Number:
        """Uses of each element."""
        return self.touches.inner[self.depth] / self.access.elements[self.depth]


@dataclass(frozen=True, slots=True)
class WindowView:
    """A load or store while so many iterations run, whichever loops these are of.

    Attributes:
        elements: different elements that are touched.
        iterations: those of the loops that fit, together.
        itemsize: bytes of an element.
    """

    elements: Number
    iterations: Number
    itemsize: int
