"""Which steps of a program must wait for which others."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from loopwright.runtime.executors.program import Program, Step, overlap


@dataclass(frozen=True)
class Dependencies:
    """The order among the steps of a program.

    Attributes:
        waits: for how many steps each waits.
        after: the steps that wait for each, in order.
    """

    waits: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]


def dependencies(program: Program, *, shared_memory: bool) -> Dependencies:
    """The order that a program needs, whatever runs side by side.

    A step waits for those that make what it reads. Where values share memory, it also waits for
    those that read, or write, what it overwrites.

    Args:
        program: the steps.
        shared_memory: whether values lie where the program puts them; else each has memory of its
            own.
    """
    count = len(program.steps)
    after: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for later, step in enumerate(program.steps):
        for earlier in _before(program, later, step, shared_memory):
            after[earlier].append(later)
            waits[later] += 1
    return Dependencies(tuple(waits), tuple(map(tuple, after)))


def _before(program: Program, later: int, step: Step, shared_memory: bool) -> Iterator[int]:
    reads, writes = _ends(step)
    for earlier in range(later):
        its_reads, its_writes = _ends(program.steps[earlier])
        meet = _meet(program, its_writes, (*reads, *writes), shared_memory)
        if meet or _meet(program, its_reads, writes, shared_memory):
            yield earlier


def _ends(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a step reads, and what it writes."""
    first = len(step.args) - step.outputs
    return step.args[:first], step.args[first:]


def _meet(program: Program, a: Collection[int], b: Collection[int], shared_memory: bool) -> bool:
    """Whether two lots of values have memory in common."""
    if not shared_memory:
        return not set(a).isdisjoint(b)
    stored = [
        [program.values[n] for n in ns if program.values[n].kind == "stored"] for ns in (a, b)
    ]
    return any(overlap(v, w) for v in stored[0] for w in stored[1])
