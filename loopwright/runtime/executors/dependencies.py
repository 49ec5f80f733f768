"""Which steps of a program must wait for which others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from loopwright.runtime.executors.program import Step, Value, overlap


@dataclass(frozen=True)
class Dependencies:
    """The order among steps.

    Attributes:
        waits: for how many steps each waits.
        after: the steps that wait for each, in order.
    """

    waits: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]


def dependencies(steps: Sequence[Step], values: Sequence[Value] | None = None) -> Dependencies:
    """The order that steps need, whatever runs side by side.

    A step waits for those that make what it reads. Where values share memory, it also waits for
    those that read, or write, what it overwrites.

    Args:
        steps: in an order in which they could run.
        values: where the program puts them, if they share memory; None: each has its own.
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
    """Steps one behind the other that could run side by side, in groups as long as can be.

    Args:
        steps: of a program.
        values: where the program puts them.

    Returns:
        The groups of two steps or more, in order; none overlaps another.
    """
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
    """What a step reads, and what it writes."""
    first = len(step.args) - step.outputs
    return step.args[:first], step.args[first:]


def _meet(a: Collection[int], b: Collection[int], values: Sequence[Value] | None) -> bool:
    """Whether two lots of values have memory in common."""
    if values is None:
        return not set(a).isdisjoint(b)
    these, those = ([values[n] for n in ns if values[n].kind == "stored"] for ns in (a, b))
    return any(overlap(v, w) for v, w in product(these, those))
