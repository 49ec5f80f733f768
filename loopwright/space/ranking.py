"""Order in which to try structures and configurations, by the analytical model.

The model looks at some points of every structure, and closer at those that lead: at every point of
a small one; in larger ones at random points, then at the best with one or two knobs changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loopwright.cost import AnalyticalModel, device_of, machine_of
from loopwright.errors import UsageError
from loopwright.records import Json
from loopwright.space.rules.several_cpu import Composed, combined
from loopwright.space.structure import Structure
from loopwright.task import (
    ConfigEntity,
    ConfigSpace,
    Digits,
    Scheduler,
    ValidMemo,
    digits_of,
    distinct,
    indices_of,
    random_digits,
    value_text,
)

#: Configurations of a leading structure that the model looks at, and the part of them that is
#: random; those of any structure that it looks at first; and how many structures lead.
_SAMPLE, _AT_RANDOM = 1 << 12, 0.5
_FIRST_LOOK, _CLOSER = 1 << 8, 8
#: Points that a generation begins with, and children of each; and points that filters test before
#: fewer results suffice.
_PARENTS, _CHILDREN = 64, 16
_ASKED = 1 << 9
#: Cache of this process's results for structures, and its size.
_KNOWN: dict[Hashable, list[tuple[int, float]]] = {}
_MOST_KNOWN = 1 << 13

_Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranked:
    """Structure with one of the best of its configurations that the model has seen."""

    structure: Scheduler
    config: ConfigEntity
    speed: float  #: prediction of the model, as a share of the peak of the machine


def ranked(
    structures: Sequence[Scheduler], sample: int = _SAMPLE, seed: int = 0, top: int = 1
) -> list[Ranked]:
    """Order structures by the best of their configurations that are found; nothing is measured.

    Args:
        structures: those of one expression.
        sample: number of configurations of each leading structure to look at, its default among
            them; all of a smaller one. At most 256 of the others.
        seed: of the random ones.
        top: number of configurations of each structure to return, 64 at most; the structures come
            the most promising first, each once for each of these.

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
    models = [AnalyticalModel(structure) for structure in structures]
    ranking: list[list[Ranked]] = []
    # Structures of several kernels share most of these: they begin with what is best of the first.
    start: Mapping[str, Json] = {}
    for structure, model in zip(structures, models, strict=True):
        first_of_all = isinstance(structure, Composed) and not ranking
        look = sample if first_of_all else min(sample, _FIRST_LOOK)
        ranking.append(_best(structure, model, look, seed, start, top))
        if first_of_all and ranking[0]:
            start = ranking[0][0].config.values
    if sample > _FIRST_LOOK:
        speeds = [best[0].speed if best else 0.0 for best in ranking]
        for n in sorted(range(len(ranking)), key=lambda n: -speeds[n])[:_CLOSER]:
            ranking[n] = _best(structures[n], models[n], sample, seed, start, top)
    return sorted((r for best in ranking for r in best), key=lambda r: -r.speed)


def put_together(
    leaders: Sequence[Ranked], sample: int = _FIRST_LOOK, seed: int = 0
) -> list[Ranked]:
    """Structures of several kernels that combine the best of each, with the best of their
    configurations, given the result of `ranked` of structures that differ from the first in one
    kernel; none where the expression is one kernel."""
    best: dict[Composed, Ranked] = {}
    for r in leaders:
        if isinstance(r.structure, Composed):
            best.setdefault(r.structure, r)
    composites = []
    for choice in combined({s: 1 / r.speed for s, r in best.items()}):
        first = next(s for s in best if not s.others)
        variants = {t: s.chosen[t] for t, s in choice.items()}
        (structure,) = first.composition.structures([{**first.chosen, **variants}])
        start = dict(best[first].config.values)
        for t, s in choice.items():
            prefix = first.composition.prefix(t)
            values = best[s].config.values
            start |= {name: v for name, v in values.items() if name.startswith(prefix)}
        composites += _best(structure, AnalyticalModel(structure), sample, seed, start, top=1)
    return sorted(composites, key=lambda r: -r.speed)


def _best(
    structure: Scheduler,
    model: AnalyticalModel,
    sample: int,
    seed: int,
    start: Mapping[str, Json],
    top: int,
) -> list[Ranked]:
    """Most promising of the examined configurations of a structure, best first; the one with the
    values ``start`` for its knobs is examined too. Earlier results are cached."""
    key: Hashable = None  # none for filters and templates, functions that cannot be compared
    if isinstance(structure, Structure) and not structure.config_space.is_filtered:
        target = structure.target
        machine = device_of(target) if "gpu" in target.keys else machine_of(target)
        key = structure.content, repr(machine), sample, seed, top, value_text(dict(start))
    points = _KNOWN.get(key)
    if points is None:
        points = _points(structure, model, sample, seed, start)[:top]
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        if key is not None:
            _KNOWN[key] = points
    return [Ranked(structure, structure.config_space.get(index), s) for index, s in points]


def _points(
    structure: Scheduler, model: AnalyticalModel, sample: int, seed: int, start: Mapping[str, Json]
) -> list[tuple[int, float]]:
    space = structure.config_space
    valid = ValidMemo(space)
    if space.range_length <= sample:
        digits = digits_of(space, range(space.range_length))
        scores = model.predict(digits)
    else:
        digits, scores = _searched(space, model, sample, np.random.default_rng(seed), start, valid)
    best = _leaders(space, digits, scores, valid)
    indices = indices_of(space, digits[best])
    return [(index, float(2.0 ** scores[at])) for at, index in zip(best, indices, strict=True)]


def _leaders(space: ConfigSpace, digits: Digits, scores: _Scores, valid: ValidMemo) -> list[int]:
    """Positions of the best points that the filters of a space accept, best first; filters take
    longer than the model, so few points are tested."""
    leaders: list[int] = []
    order = np.argsort(-scores, kind="stable")
    for begin in range(0, len(order), _PARENTS):
        some = order[begin : begin + _PARENTS]
        leaders += some[valid(indices_of(space, digits[some]))].tolist()
        if len(leaders) >= _PARENTS or (leaders and begin >= _ASKED):
            break
    return leaders[:_PARENTS]


def _searched(
    space: ConfigSpace,
    model: AnalyticalModel,
    sample: int,
    rng: np.random.Generator,
    start: Mapping[str, Json],
    valid: ValidMemo,
) -> tuple[Digits, _Scores]:
    """At most ``sample`` different points and their predictions."""
    default = digits_of(space, [space.default_index])
    started = default.copy()
    for number, (name, knob) in enumerate(space.knobs.items()):
        at = knob.position(start[name]) if name in start else None
        if at is not None:
            started[0, number] = at
    firsts = [default, *([started] if start else [])]
    at_random = random_digits(space, max(int(sample * _AT_RANDOM) - len(firsts), 0), rng)
    seen: set[int] = set()
    digits = _fresh(space, np.concatenate([*firsts, at_random])[:sample], seen)
    scores = model.predict(digits)
    while len(digits) < sample:
        parents = digits[_leaders(space, digits, scores, valid)]
        if not len(parents):
            break
        children = _changed(space, np.repeat(parents, _CHILDREN, axis=0), rng)
        new = _fresh(space, children, seen)[: sample - len(digits)]
        if not len(new):
            break
        digits = np.concatenate([digits, new])
        scores = np.concatenate([scores, model.predict(new)])
    return digits, scores


def _changed(space: ConfigSpace, digits: Digits, rng: np.random.Generator) -> Digits:
    """Points with one knob changed each, or two."""
    rows, drawn = np.arange(len(digits)), random_digits(space, len(digits), rng)
    out = digits.copy()
    for _ in range(2):
        knob = rng.integers(0, digits.shape[1], len(digits))
        out[rows, knob] = drawn[rows, knob]
    return out


def _fresh(space: ConfigSpace, digits: Digits, seen: set[int]) -> Digits:
    """New points without repetitions, in order; adds them to ``seen``."""
    indices = indices_of(space, digits)
    new = distinct(indices, seen)
    seen.update(indices[n] for n in new.tolist())
    return digits[new]
