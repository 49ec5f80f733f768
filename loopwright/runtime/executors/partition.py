"""Partition of a program for several devices: few bytes between them, work by their capacity.

Two devices are a bipartition by repeated minimum cuts: the side that is too light is merged with
an adjacent step, and the cut is computed again (Yang and Wong, Efficient network flow based
min-cut balanced partitioning, 1996). More devices are halved, and each half is cut again. Nets
are cut, one for each value, so that a value that several steps of another device read counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from loopwright.errors import UsageError
from loopwright.runtime.executors.program import Program

#: Edges that are never cut, and the largest sum of bytes that a cut can have: flows are of 32 bits.
_NEVER = (1 << 31) - 1
_MOST = 1 << 30


class Edge(NamedTuple):
    """A value that one device writes and another one reads.

    Attributes:
        value: its number in the program.
        source: number of the device that writes it.
        target: number of the device that reads it.

    Example:
        >>> from loopwright.runtime.executors import Edge
        >>> print(Edge(value=3, source=0, target=1))
        Edge(value=3, source=0, target=1)
    """

    value: int
    source: int
    target: int


@dataclass(frozen=True)
class Partition:
    """Assignment of steps to devices.

    Attributes:
        program: the steps.
        devices: for each step the number of its device.
        loads: work of each device.

    Example:
        >>> from loopwright.runtime.executors import Program, Step, Value, partition
        >>> values = [Value("x", (4,), "float32", "input")]
        >>> values += [Value(f"v{n}", (4,), "float32", "stored", 64 * n) for n in range(4)]
        >>> steps = tuple(Step("f", (n, n + 1)) for n in range(4))
        >>> program = Program(tuple(values), steps, (0,), (4,), 256)
        >>> cut = partition(program, loads=[1, 1, 1, 1], capacities=[3, 1])
        >>> print(cut.devices, cut.communication_edges, cut.bytes_moved)
        (0, 0, 0, 1) (Edge(value=3, source=0, target=1),) 16
    """

    program: Program
    devices: tuple[int, ...]
    loads: tuple[float, ...]

    @property
    def communication_edges(self) -> tuple[Edge, ...]:
        """The values that go from one device to another, each once, as steps read them."""
        home = {
            n: device
            for step, device in zip(self.program.steps, self.devices, strict=True)
            for n in step.args[-step.outputs :]
        }
        edges: dict[Edge, None] = {}
        for step, device in zip(self.program.steps, self.devices, strict=True):
            for n in step.args[: -step.outputs]:
                if n in home and home[n] != device:
                    edges[Edge(n, home[n], device)] = None
        return tuple(edges)

    @property
    def bytes_moved(self) -> int:
        """Bytes that a run moves between devices."""
        return sum(self.program.values[e.value].nbytes for e in self.communication_edges)


def partition(
    program: Program,
    loads: Sequence[float],
    capacities: Sequence[float],
    tolerance: float = 0.1,
) -> Partition:
    """Cut a program into one part for each device.

    Args:
        program: the steps.
        loads: work of each step, such as its operations.
        capacities: speed of each device, in proportion to the others.
        tolerance: fraction of all work by which a part may differ from its due; where no cut lies
            within it, the closest is taken.

    Returns:
        The device of each step. Steps at the beginning of the program go to the first devices.

    Raises:
        UsageError: there is not one load for each step, or a number is out of range.

    Example:
        >>> from loopwright.runtime.executors import partition
        >>> x = lw.graph.var("x", (1, 4))
        >>> for _ in range(3):
        ...     x = lw.graph.op.nn.softmax(x)
        ...
        >>> program = lw.graph.compile(lw.graph.IRModule.from_expr(x), "llvm").program
        >>> print(partition(program, loads=[1, 1, 2], capacities=[1, 1]).devices)
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
        self._program, self._loads, self._slack = program, loads, slack
        self._nets = _nets(program)

    def assign(self, steps: list[int], shares: list[tuple[int, float]], devices: list[int]) -> None:
        """Assign steps to devices with the given shares of the work."""
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
            whole = self._loads[steps[0]]
            return set(steps) if 2 * due >= whole else set()
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
        touching = {s for net in self._nets if net.steps & side for s in net.steps}
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
        size, unit = len(steps) + 2, self._unit()
        for net in self._nets:
            inside = [place[s] for s in net.steps if s in place]
            if len(inside) < 2:
                continue
            entry, leave = size, size + 1
            size += 2
            add(entry, leave, max(1, net.nbytes // unit))
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

    def _unit(self) -> int:
        """Bytes that count as one, so that the sum of all nets is a number of 32 bits."""
        return 1 + sum(net.nbytes for net in self._nets) // _MOST


@dataclass(frozen=True)
class _Net:
    """The steps that write and read a value."""

    steps: frozenset[int]
    nbytes: int


def _nets(program: Program) -> list[_Net]:
    users: dict[int, set[int]] = {}
    for at, step in enumerate(program.steps):
        for n in step.args:
            if program.values[n].kind == "stored":
                users.setdefault(n, set()).add(at)
    return [_Net(frozenset(s), program.values[n].nbytes) for n, s in users.items() if len(s) > 1]
