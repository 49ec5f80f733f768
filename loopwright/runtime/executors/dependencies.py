"""Dependencies between the steps of a program."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from loopwright.runtime.executors.program import Step, Value, overlap


@dataclass(frozen=True)
class Dependencies:
    """The order among steps."""

    #: Number of predecessors of each step.
    waits: tuple[int, ...]
    #: Successors of each step, in order.
    after: tuple[tuple[int, ...], ...]


def dependencies(steps: Sequence[Step], values: Sequence[Value] | None = None) -> Dependencies:
    """The dependencies of steps that are given in a valid order.

    A step waits for the writers of the values that it reads. Where `values` give places in shared
    memory, it also waits for readers and writers of the bytes that it overwrites; None: each value
    has memory of its own.
    """
    count = len(steps)
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for later in range(count):
        for earlier in _before(steps, later, values):
            after[earlier].append(later)
            waits[later] += 1
    return Dependencies(tuple(waits), tuple(map(tuple, after)))


def independent_runs(steps: Sequence[Step], values: Sequence[Value]) -> list[range]:
    """Longest groups of adjacent steps (at least two) that could run in parallel, in order."""
    earlier = [set(_before(steps, n, values)) for n in range(len(steps))]
    groups, start = [], 0
    for n in range(1, len(steps) + 1):
        if n == len(steps) or earlier[n] & set(range(start, n)):
            groups.append(range(start, n))
            start = n
    return [group for group in groups if len(group) > 1]


def _before(steps: Sequence[Step], later: int, values: Sequence[Value] | None) -> Iterator[int]:
    reads, writes = _ends(steps[later])
    for earlier in range(later):
        its_reads, its_writes = _ends(steps[earlier])
        if _meet(its_writes, (*reads, *writes), values) or _meet(its_reads, writes, values):
            yield earlier


def _ends(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Values that a step reads, and those that it writes."""
    first = len(step.args) - step.outputs
    return step.args[:first], step.args[first:]


def _meet(a: Collection[int], b: Collection[int], values: Sequence[Value] | None) -> bool:
    """Whether two sets of values share memory."""
    if values is None:
        return not set(a).isdisjoint(b)
    these, those = ([values[n] for n in ns if values[n].kind == "stored"] for ns in (a, b))
    return any(overlap(v, w) for v, w in product(these, those))
