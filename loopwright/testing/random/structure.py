"""Random points of the automatic space of a program."""

from __future__ import annotations

from collections import Counter

from loopwright.space import structures
from loopwright.target import Target
from loopwright.testing.random.attempts import RandomSchedule
from loopwright.testing.random.program import Program
from loopwright.testing.random.values import Draw


def random_structure(d: Draw, program: Program, target: str) -> RandomSchedule:
    """The schedule of a random point of one of the structures of a program.

    Args:
        d: the choices.
        program: the program.
        target: what its structures are for.
    """
    with Target(target):
        structure = d.pick(structures(program.outputs, program.tensors))
    space = structure.config_space
    digits = [d.integer(0, len(knob) - 1) for knob in space.knobs.values()]
    index = space.default_index if d.chance(25) else space.knob2point(digits)
    schedule, _ = structure.instantiate(space.get(index))
    trace = schedule.trace_json()
    return RandomSchedule(trace, Counter(step[0] for step in trace))
