"""Which structures and configurations to try first, as the analytical model has it.

The model scores hundreds of thousands of points a second, so that it looks at every point of most
structures. In larger ones it searches: points at random, then the best of them with one or two
knobs changed, for some generations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from loopwright.cost.analytical import AnalyticalModel
from loopwright.errors import UsageError
from loopwright.task.interfaces import Scheduler
from loopwright.task.space import ConfigEntity, ConfigSpace
from loopwright.task.vectors import Digits, digits_of, distinct, indices_of, random_digits

#: Configurations of each structure that the model looks at: most structures have fewer. The part
#: of them that is random.
_SAMPLE, _AT_RANDOM = 1 << 14, 0.5
#: Points that a generation begins with, and children of each.
_PARENTS, _CHILDREN = 64, 16

_Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranked:
    """A structure with one of the best of its configurations that the model has seen.

    Attributes:
        structure: the structure.
        config: the configuration.
        speed: what the model predicts, as a share of the peak of the machine.
    """

    structure: Scheduler
    config: ConfigEntity
    speed: float


def ranked(
    structures: Sequence[Scheduler], sample: int = _SAMPLE, seed: int = 0, top: int = 1
) -> list[Ranked]:
    """Order structures by the best of their configurations that are found; nothing is measured.

    Args:
        structures: those of one expression.
        sample: configurations of each that are looked at, its default among them; all of one that
            has no more.
        seed: of the random ones.
        top: configurations of each structure that are returned, as far as it has so many.

    Returns:
        The structures, the most promising first; with ``top`` above 1 a structure comes once for
        each of its configurations.

    Raises:
        UsageError: sample or top is below 1.

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
    for name, value in (("sample", sample), ("top", top)):
        if value < 1:
            raise UsageError(f"ranked: {name} must be at least 1, got {value}")
    found = [
        r for x in structures for r in islice(_best(x, sample, np.random.default_rng(seed)), top)
    ]
    return sorted(found, key=lambda r: -r.speed)


def _best(structure: Scheduler, sample: int, rng: np.random.Generator) -> Iterator[Ranked]:
    """The configurations of a structure that were looked at, the most promising first."""
    space, model = structure.config_space, AnalyticalModel(structure)
    if space.range_length <= sample:
        digits = digits_of(space, range(space.range_length))
        scores = model.predict(digits)
    else:
        digits, scores = _searched(space, model, sample, rng)
    for at in np.argsort(-scores, kind="stable"):
        (index,) = indices_of(space, digits[at : at + 1])
        if space.is_valid(index):
            yield Ranked(structure, space.get(index), float(2.0 ** scores[at]))


def _searched(
    space: ConfigSpace, model: AnalyticalModel, sample: int, rng: np.random.Generator
) -> tuple[Digits, _Scores]:
    """Points and what is predicted of them: no more than ``sample``, all different."""
    default = digits_of(space, [space.default_index])
    at_random = random_digits(space, max(int(sample * _AT_RANDOM) - 1, 0), rng)
    digits = _different(space, np.concatenate([default, at_random]))
    scores = model.predict(digits)
    while len(digits) < sample:
        parents = digits[np.argsort(-scores, kind="stable")[:_PARENTS]]
        children = _changed(space, np.repeat(parents, _CHILDREN, axis=0), rng)
        known = len(digits)
        digits = _different(space, np.concatenate([digits, children]))[:sample]
        if len(digits) == known:
            break
        scores = np.concatenate([scores, model.predict(digits[known:])])
    return digits, scores


def _changed(space: ConfigSpace, digits: Digits, rng: np.random.Generator) -> Digits:
    """Points with one knob changed each, or two."""
    rows, drawn = np.arange(len(digits)), random_digits(space, len(digits), rng)
    out = digits.copy()
    for _ in range(2):
        knob = rng.integers(0, digits.shape[1], len(digits))
        out[rows, knob] = drawn[rows, knob]
    return out


def _different(space: ConfigSpace, digits: Digits) -> Digits:
    """Points without repetitions, in order."""
    return digits[distinct(indices_of(space, digits))]
