"""Which structures and configurations to try first, as the analytical model has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loopwright.cost.analytical import AnalyticalModel
from loopwright.task.interfaces import Scheduler
from loopwright.task.space import ConfigEntity
from loopwright.task.vectors import digits_of, indices_of, random_digits

#: Configurations of each structure that the model looks at.
_SAMPLE = 256


@dataclass(frozen=True, eq=False)
class Ranked:
    """A structure with the best of its configurations that the model has seen.

    Attributes:
        structure: the structure.
        config: the configuration.
        speed: what the model predicts, as a share of the peak of the machine.
    """

    structure: Scheduler
    config: ConfigEntity
    speed: float


def ranked(structures: Sequence[Scheduler], sample: int = _SAMPLE, seed: int = 0) -> list[Ranked]:
    """Order structures by the best of some of their configurations; nothing is measured.

    Args:
        structures: those of one expression.
        sample: configurations of each that are looked at: its default, and others at random; all
            of one that has no more.
        seed: of the random ones.

    Returns:
        The structures, the most promising first.

    Example:
        >>> A, B = te.placeholder((256, 64), name="A"), te.placeholder((64, 256), name="B")
        >>> C = lw.ops.matmul_compute(A, B)
        >>> with lw.Target("llvm"):
        ...     best = lw.space.ranked(lw.space.structures(C, [A, B, C]))[0]
        ...
        >>> s, args = best.structure.instantiate(best.config)
        >>> print([t.name for t in args])
        ['A', 'B', 'C']
    """
    found = [_best(structure, sample, np.random.default_rng(seed)) for structure in structures]
    return sorted(found, key=lambda r: -r.speed)


def _best(structure: Scheduler, sample: int, rng: np.random.Generator) -> Ranked:
    space = structure.config_space
    if space.range_length <= sample:
        points = [i for i in range(space.range_length) if space.is_valid(i)]
        digits = digits_of(space, points)
    elif space.is_filtered:  # what a device refuses
        points = [space.default_index, *space.sample_ints(sample - 1, rng)]
        digits = digits_of(space, points)
    else:
        default = digits_of(space, [space.default_index])
        digits = np.concatenate([default, random_digits(space, sample - 1, rng)])
    predicted = AnalyticalModel(structure).predict(digits)
    at = int(np.argmax(predicted))
    (index,) = indices_of(space, digits[at : at + 1])
    return Ranked(structure, space.get(index), float(2.0 ** predicted[at]))
