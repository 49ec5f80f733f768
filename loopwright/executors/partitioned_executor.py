"""Partition of a program for several devices, and the executor of one.

Two devices are a bipartition by repeated minimum cuts: the side that is too light is merged with an
adjacent step, and the cut is computed again (Yang and Wong, Efficient network flow based min-cut
balanced partitioning, 1996). More devices are halved, and each half is cut again. Nets are cut, one
for each value, so that a value that several steps of another device read counts, and is copied,
once. Steps and copies run as soon as their predecessors have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from loopwright.errors import UsageError
from loopwright.executors.callees import Callee, HostStep, ParallelRun, copied, dependencies
from loopwright.executors.executor import Executor
from loopwright.executors.places import (
    DevicePlace,
    HostPlace,
    PlacedProgram,
    constants_of,
    prepared,
)
from loopwright.executors.program import Array, Program, Step, Value, placed
from loopwright.runtime import HOST, Device, Module, ThreadPool

#: Edges that are never cut, and the largest sum of bytes that a cut can have: flows are of 32 bits.
_NEVER = (1 << 31) - 1
_MOST = 1 << 30

_CALLER = -1  # the number that stands for the caller's memory, among those of devices
_COPY = HostStep("copy", lambda x: [x], 1, "loopwright")


class Edge(NamedTuple):
    """A value, by its number in the program, that one device writes and another one reads.

    Example:
        >>> print(lw.executors.Edge(value=3, source=0, target=1))
        Edge(value=3, source=0, target=1)
    """

    value: int
    source: int
    target: int


@dataclass(frozen=True)
class Partition:
    """Assignment of steps to devices.

    Attributes:
        devices: for each step the number of its device.
        loads: work of each device.

    Example:
        >>> y = lw.graph.op.nn.softmax(lw.graph.op.nn.softmax(lw.graph.var("x", (4,))))
        >>> program = lw.graph.compile(lw.graph.IRModule.from_expr(y), "llvm").program
        >>> cut = lw.executors.partition(program, loads=[1, 1], capacities=[1, 1])
        >>> print(cut.devices, cut.communication_edges, cut.bytes_moved)
        (0, 1) (Edge(value=1, source=0, target=1),) 16
    """

    program: Program
    devices: tuple[int, ...]
    loads: tuple[float, ...]

    @property
    def homes(self) -> dict[int, int]:
        """For each value that a step writes the number of the device where it does."""
        return {
            n: device
            for step, device in zip(self.program.steps, self.devices, strict=True)
            for n in step.writes
        }

    @property
    def communication_edges(self) -> tuple[Edge, ...]:
        """The values that go from one device to another, each once, as steps read them."""
        home, edges = self.homes, dict[Edge, None]()
        for step, device in zip(self.program.steps, self.devices, strict=True):
            for n in step.reads:
                if n in home and home[n] != device:
                    edges[Edge(n, home[n], device)] = None
        return tuple(edges)

    @property
    def bytes_moved(self) -> int:
        """Bytes that a run moves between devices."""
        return sum(self.program.values[e.value].nbytes for e in self.communication_edges)


def partition(
    program: Program, loads: Sequence[float], capacities: Sequence[float], tolerance: float = 0.1
) -> Partition:
    """Cut a program into one part for each device; steps at the beginning go to the first devices.

    UsageError where there is not one load for each step, or a number is out of range.

    Args:
        loads: work of each step, such as its operations.
        capacities: speed of each device, in proportion to the others.
        tolerance: fraction of all work by which a part may differ from its due; where no cut lies
            within it, the closest is taken.

    Example:
        >>> x = lw.graph.var("x", (1, 4))
        >>> for _ in range(3):
        ...     x = lw.graph.op.nn.softmax(x)
        >>> program = lw.graph.compile(lw.graph.IRModule.from_expr(x), "llvm").program
        >>> print(lw.executors.partition(program, loads=[1, 1, 2], capacities=[1, 1]).devices)
        (0, 0, 1)
    """
    if len(loads) != len(program.steps) or not all(0 <= x < np.inf for x in loads):
        raise UsageError(
            f"partition: give a load of 0 or more for each of {len(program.steps)} steps"
        )
    if not capacities or not all(0 < c < np.inf for c in capacities):
        raise UsageError(f"partition: capacities are above zero, got {list(capacities)}")
    if not 0 <= tolerance < 1:
        raise UsageError(f"partition: tolerance is {tolerance}; choose 0 up to 1")
    devices = [0] * len(program.steps)
    cutter = _Cutter(program, loads, tolerance * sum(loads))
    cutter.assign(list(range(len(devices))), list(enumerate(capacities)), devices)
    total = [0.0] * len(capacities)
    for device, load in zip(devices, loads, strict=True):
        total[device] += load
    return Partition(program, tuple(devices), tuple(total))


class _Cutter:
    def __init__(self, program: Program, loads: Sequence[float], slack: float) -> None:
        self._loads, self._slack = loads, slack
        users: dict[int, set[int]] = {}
        for at, step in enumerate(program.steps):
            for n in step.args:
                if program.values[n].kind == "stored":
                    users.setdefault(n, set()).add(at)
        #: For each value the steps that write and read it, and its bytes.
        self._nets = [(s, program.values[n].nbytes) for n, s in users.items() if len(s) > 1]

    def assign(self, steps: list[int], shares: list[tuple[int, float]], devices: list[int]) -> None:
        if len(shares) == 1 or not steps:
            for step in steps:
                devices[step] = shares[0][0]
            return
        half = len(shares) // 2
        first, second = shares[:half], shares[half:]
        share = sum(c for _, c in first) / sum(c for _, c in shares)
        left = self._cut(steps, share * sum(self._loads[s] for s in steps))
        self.assign([s for s in steps if s in left], first, devices)
        self.assign([s for s in steps if s not in left], second, devices)

    def _cut(self, steps: list[int], due: float) -> set[int]:
        """The steps of the first side, whose work is to be `due`."""
        if len(steps) == 1:
            load = self._loads[steps[0]]
            return set(steps) if 2 * due >= load else set()
        sources, sinks = {steps[0]}, {steps[-1]}
        best: tuple[float, set[int]] | None = None
        while True:
            left = self._least_cut(steps, sources, sinks)
            off = sum(self._loads[s] for s in left) - due
            if best is None or abs(off) < best[0]:
                best = abs(off), left
            free = len(steps) - len(sources) - len(sinks)
            if abs(off) <= self._slack or not free:
                return best[1]
            if off < 0:
                sources = left | {self._beside(steps, left, sinks)} - sinks
            else:
                right = set(steps) - left
                sinks = right | {self._beside(steps, right, sources, last=True)} - sources

    def _beside(
        self, steps: list[int], side: set[int], other: set[int], *, last: bool = False
    ) -> int:
        """A step outside of a side that shares a net with it, the nearest in the program."""
        outside = [s for s in steps if s not in side and s not in other]
        touching = {s for users, _ in self._nets if users & side for s in users}
        near = [s for s in outside if s in touching] or outside
        if not near:  # all that is left is pinned to the other side
            return next(iter(other))
        return max(near) if last else min(near)

    def _least_cut(self, steps: list[int], sources: set[int], sinks: set[int]) -> set[int]:
        """The steps on the side of the sources in a cut of least bytes."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        place = {s: n + 2 for n, s in enumerate(steps)}
        tails, heads, bounds = [], [], []

        def add(tail: int, head: int, bound: int) -> None:
            tails.append(tail)
            heads.append(head)
            bounds.append(bound)

        for s in sources:
            add(0, place[s], _NEVER)
        for s in sinks:
            add(place[s], 1, _NEVER)
        size = len(steps) + 2
        # Bytes that count as one, so that the sum of all nets is a number of 32 bits.
        unit = 1 + sum(nbytes for _, nbytes in self._nets) // _MOST
        for users, nbytes in self._nets:
            inside = [place[s] for s in users if s in place]
            if len(inside) < 2:
                continue
            entry, leave = size, size + 1
            size += 2
            add(entry, leave, max(1, nbytes // unit))
            for p in inside:
                add(p, entry, _NEVER)
                add(leave, p, _NEVER)
        graph = csr_array((np.array(bounds, np.int32), (tails, heads)), shape=(size, size))
        flow = maximum_flow(graph, 0, 1).flow
        residual = graph - flow
        residual.data = np.where(residual.data > 0, residual.data, 0)
        residual.eliminate_zeros()
        reached = set(breadth_first_order(residual, 0, return_predecessors=False).tolist())
        return {s for s in steps if place[s] in reached}


class _Placement:
    """The program of a cut with one value for each place where a value lies, and the copies."""

    def __init__(self, cut: Partition, places: Sequence[HostPlace]) -> None:
        self._cut, self._home = cut.program, cut.homes
        self._places = [*places, HostPlace()]  # the last is the caller's
        self._numbers: dict[tuple[int, int], int] = {}  # of a value in the cut, and its device
        self._values: list[Value] = []
        self._devices: list[int] = []  # of the values
        self._steps: list[Step] = []
        self._at_device: list[list[int]] = [[] for _ in places]  # steps without the copies
        for n, v in enumerate(self._cut.values):
            if v.kind != "stored":
                self._value(n, _CALLER)
        for step, device in zip(self._cut.steps, cut.devices, strict=True):
            read = [self._brought(n, device) for n in step.reads]
            written = [self._value(n, device) for n in step.writes]
            self._at_device[device].append(len(self._steps))
            self._steps.append(replace(step, args=(*read, *written)))
        inputs = [self._value(n, _CALLER) for n in self._cut.inputs]
        homes = [self._home.get(n, _CALLER) for n in self._cut.outputs]
        outputs = [
            self._brought(n, home if self._on_host(home) else _CALLER)
            for n, home in zip(self._cut.outputs, homes, strict=True)
        ]
        self.program = placed(self._values, self._steps, inputs, outputs, self._cut.output_names)

    def _on_host(self, device: int) -> bool:
        return self._places[device].device.device_type == HOST

    def _value(self, number: int, device: int) -> int:
        """The value at a device; the host reads a caller's array without a copy."""
        v = self._cut.values[number]
        if v.kind != "stored" and self._on_host(device):
            device = _CALLER
        if (number, device) not in self._numbers:
            self._numbers[number, device] = len(self._values)
            copied_input = v.kind == "input" and device != _CALLER
            self._values.append(replace(v, kind="stored") if copied_input else v)
            self._devices.append(device)
        return self._numbers[number, device]

    def _brought(self, number: int, device: int) -> int:
        """The value at a device that reads it, copied there before if it is not there yet."""
        count, target = len(self._values), self._value(number, device)
        if target == count and self._values[target].kind == "stored":
            source = self._value(number, self._home.get(number, _CALLER))
            self._steps.append(Step(_COPY.name, (source, target)))
        return target

    def prepare(
        self, kernels: Sequence[Mapping[str, Module]], constants: Mapping[str, Array]
    ) -> PlacedProgram:
        arrays = constants_of(self.program, constants)
        callees = [Callee(_COPY, (), step.args) for step in self._steps]
        weights: dict[int, Any] = {**arrays}
        for device, numbers in enumerate(self._at_device):
            steps = [self._steps[n] for n in numbers]
            called, here = prepared(self._places[device], steps, kernels[device], arrays)
            for n, callee in zip(numbers, called, strict=True):
                callees[n] = callee
            weights |= {n: a for n, a in here.items() if self._devices[n] == device}
        homes = {n: self._places[device] for n, device in enumerate(self._devices)}
        return PlacedProgram(self.program, {}, HostPlace(), arrays, callees, weights, homes)


class PartitionedExecutor(Executor):
    """A model over several devices.

    Each value has memory of its own on each device that writes or reads it, and each device one
    worker thread. UsageError where the numbers of devices and of sets of kernels differ from the
    cut's; ArgumentError where a kernel or a constant is missing, or has another shape or dtype.

    Args:
        kernels: for each device the kernels of its steps by name, built for its target.
        devices: the device of each part; two may be the same one.
        constants: by the names of the program's values.

    Example:
        >>> y = lw.graph.op.nn.softmax(lw.graph.op.nn.softmax(lw.graph.var("x", (2,))))
        >>> model = lw.graph.compile(lw.graph.IRModule.from_expr(y), "llvm")
        >>> cut = lw.executors.partition(model.program, loads=[1, 1], capacities=[1, 1])
        >>> kernels, devices = [model.kernels] * 2, [lw.cpu(0)] * 2
        >>> executor = lw.executors.PartitionedExecutor(cut, kernels, devices, model.constants)
        >>> executor.run(x=np.ones(2, "float32"))
        >>> print(cut.devices, executor.get_output(0).numpy())
        (0, 1) [0.5 0.5]
    """

    _parallel = _apart = True

    def __init__(
        self,
        cut: Partition,
        kernels: Sequence[Mapping[str, Module]],
        devices: Sequence[Device],
        constants: Mapping[str, Array],
    ) -> None:
        if not len(devices) == len(kernels) == len(cut.loads):
            raise UsageError(
                f"the program is cut for {len(cut.loads)} devices; there are {len(devices)}, and "
                f"kernels for {len(kernels)}"
            )
        self.cut, self.devices = cut, tuple(devices)
        places = [(HostPlace if d.device_type == HOST else DevicePlace)(d) for d in devices]
        placement = _Placement(cut, places)
        self._order = dependencies(placement.program.steps)
        self._begin(placement.prepare(kernels, constants))
        self._workers = ThreadPool(len(devices), "loopwright-device")

    def _bound(self, callee: Callee) -> Any:
        if callee.function is _COPY:
            return partial(copied, *(self._arrays[n] for n in callee.rest))
        call = super()._bound(callee)
        place = self._placed.homes[callee.rest[-1]]
        return partial(_finished, call, place) if isinstance(place, DevicePlace) else call

    def _run(self) -> None:
        ParallelRun(self._calls, self._order, self._workers).begin().result()


def _finished(call: Callable[[], object], place: DevicePlace) -> None:
    """Run a call, which on a device returns earlier, and wait for it."""
    call()
    place.device.sync()
