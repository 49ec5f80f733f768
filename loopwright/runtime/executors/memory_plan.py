"""Memory plan of a program: values that are not alive at one time share memory.

Memory is assigned by liveness: a value gets the smallest gap that holds it among the values that
are alive while it is, the largest values first (greedy by size; Pisarchyk and Lee, 2020).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loopwright.runtime.executors.program import ALIGNMENT, Program, Step, Value


def placed(
    values: Sequence[Value],
    steps: Sequence[Step],
    inputs: Sequence[int],
    outputs: Sequence[int],
    output_names: Sequence[str] = (),
    alignment: int = ALIGNMENT,
) -> Program:
    """A program whose stored values have offsets in memory, which are set here.

    `alignment` is a power of two from 64 on.
    """
    lives = _lives(values, steps, outputs)
    offsets, size = share_out({n: values[n].nbytes for n in lives}, lives, alignment)
    found = [replace(v, offset=offsets.get(n, 0)) for n, v in enumerate(values)]
    return Program(
        tuple(found), tuple(steps), tuple(inputs), tuple(outputs), size, tuple(output_names)
    )


def _lives(
    values: Sequence[Value], steps: Sequence[Step], outputs: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """For each stored value the step that writes it, and the last one that reads it."""
    lives: dict[int, tuple[int, int]] = {}
    for at, step in enumerate(steps):
        for n in step.args:
            if values[n].kind == "stored":
                lives[n] = (lives.get(n, (at, at))[0], at)
    return {n: (a, len(steps) if n in outputs else b) for n, (a, b) in lives.items()}


def share_out(
    sizes: Mapping[int, int], lives: Mapping[int, tuple[int, int]], alignment: int = ALIGNMENT
) -> tuple[dict[int, int], int]:
    """Offsets in a pool for values by their bytes and their first and last steps; the pool's bytes.

    Both steps are included: values that live at one time do not overlap.
    """
    offsets: dict[int, int] = {}
    rounded = {n: -(-max(size, 1) // alignment) * alignment for n, size in sizes.items()}
    for n in sorted(rounded, key=lambda n: (-rounded[n], lives[n])):
        begin, end = lives[n]
        beside = [m for m in offsets if lives[m][0] <= end and begin <= lives[m][1]]
        offsets[n] = _gap(rounded[n], sorted((offsets[m], rounded[m]) for m in beside))
    return offsets, max((offsets[n] + rounded[n] for n in offsets), default=0)


def _gap(size: int, taken: list[tuple[int, int]]) -> int:
    """The beginning of the smallest gap between places that are taken; else their end."""
    best, end = None, 0
    for offset, taken_size in taken:
        gap = offset - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, offset + taken_size)
    return end if best is None else best[1]
