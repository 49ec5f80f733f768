"""Random points of the automatic space of a program."""

from __future__ import annotations

from collections import Counter

from loopwright.codegen.gpu.split import split_host_device
from loopwright.errors import LowerError
from loopwright.lowering import lower_ids
from loopwright.lowering.gpu_limits import limits_of, verify_gpu_limits
from loopwright.schedule import Schedule
from loopwright.space import structures
from loopwright.target import Target
from loopwright.task.space import ConfigSpace
from loopwright.te.dag import ArgId
from loopwright.testing.random.attempts import RandomSchedule
from loopwright.testing.random.program import Program
from loopwright.testing.random.values import Draw

#: Points that are drawn at most until a device can launch one; then the default is taken.
_DRAWN = 64


def random_structure(d: Draw, program: Program, target: str) -> RandomSchedule:
    """The schedule of a random point of one of the structures of a program for a target; a point
    beyond the limits of a device, or with a stage that is not bound, is a `LowerError`.
    """
    with Target(target):
        structure = d.pick(structures(program.outputs, program.tensors))
    index = _random_index(d, structure.config_space)
    schedule, args = structure.instantiate(structure.config_space.get(index))
    if "gpu" in structure.target.keys:
        _check_launchable(schedule, schedule.arg_ids(args), structure.target)
    trace = schedule.trace_json()
    return RandomSchedule(trace, Counter(step[0] for step in trace))


def _random_index(d: Draw, space: ConfigSpace) -> int:
    """The index of a point that the filters of a space accept: the default, or any other."""
    index = _drawn_index(d, space)
    if d.chance(25):
        return space.default_index
    for _ in range(_DRAWN):
        if space.is_valid(index):
            return index
        index = _drawn_index(d, space)
    return space.default_index


def _drawn_index(d: Draw, space: ConfigSpace) -> int:
    return space.knob2point([d.integer(0, len(knob) - 1) for knob in space.knobs.values()])


def _check_launchable(s: Schedule, ids: list[ArgId], target: Target) -> None:
    """Check that a point of a space is bound, and within the limits, before it is built."""
    with target:
        func = lower_ids(s, ids)
    verify_gpu_limits(func, limits_of(target.options), s)
    for kernel in split_host_device(func, target.kind.name).kernels:
        if not kernel.threads:
            raise LowerError(f"gpu limits: {kernel.name} runs unbound:\n{func}")
