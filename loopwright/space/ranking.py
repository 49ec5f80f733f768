"""Order in which to try structures and configurations, by the analytical model.

The model looks at some points of every structure, and closer at those that lead: at every point of
a small one; in larger ones at random points, then at the best with one or two knobs changed. Of
structures that are alike, one is searched, and the others are judged at its best point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loopwright.cost import AnalyticalModel, device_of, machine_of
from loopwright.errors import UsageError
from loopwright.records import Json
from loopwright.schedule import Annotate, StageId
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
_SAMPLE, _AT_RANDOM = 2048, 0.5
_FIRST_LOOK, _CLOSER = 1 << 8, 8
#: Share of the leader's speed from which a structure that was judged by another one is searched
#: itself; differences of their speeds from which it is another case, and looked at where it may be
#: better; and share below which it is not.
_NEAR, _OTHER, _DIFFERENT, _BEHIND = 0.975, 0.003, 0.03, 0.8
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
        sample: number of configurations of a leading structure to look at, its default among
            them; all of a smaller one. At most 256 of others, and with ``top`` 1 only one or two of
            those that are like another one: with the same knobs, and reductions marked alike.
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
    ranking = _Ranking(structures, sample, seed, top)
    return sorted((r for best in ranking.best for r in best), key=lambda r: -r.speed)


class _Ranking:
    """The best of each structure.

    Deriving the numbers of all configurations takes as long as deriving those of three. So a
    structure like one that was searched is judged at the best point of that one; it is searched
    itself where it leads by this, or nearly.
    """

    def __init__(self, structures: Sequence[Scheduler], sample: int, seed: int, top: int) -> None:
        self.best: list[list[Ranked]] = []
        self._structures, self._seed, self._top = structures, seed, top
        self._models = [AnalyticalModel(structure) for structure in structures]
        #: Structures that were searched; and for those that were only judged, the one like it.
        self._searched: list[int] = []
        self._like: dict[int, int] = {}
        for number, structure in enumerate(structures):
            self.best.append([])
            like = self._alike(structure) if top == 1 else None
            if like is not None and self.best[like]:
                self._like[number] = like
                self._judge(number, self.best[like][0])
            if not self.best[number]:
                # Structures of several kernels share most knobs with the first.
                first_of_all = isinstance(structure, Composed) and not number
                self._search(number, sample if first_of_all else min(sample, _FIRST_LOOK))
        self._search_leaders(sample)

    def _search_leaders(self, sample: int) -> None:
        if not self._like:
            order = sorted(range(len(self.best)), key=lambda n: -self._speed(n))
            for number in order[:_CLOSER]:
                self._search(number, sample)
            return
        closely: set[int] = set()
        while len(closely) < min(_CLOSER, len(self.best)):
            leader = max(range(len(self.best)), key=self._speed)
            if leader in closely:
                break
            closely.add(leader)
            self._search(leader, sample)
            for number in self._near(leader):
                self._search(number, min(sample, _FIRST_LOOK))

    def _near(self, leader: int) -> list[int]:
        """Structures that were only judged, differ from those by which they were, and may lead."""
        return [
            number
            for number, like in self._like.items()
            if self._speed(number) >= _NEAR * self._speed(leader)
            and abs(self._speed(number) / self._speed(like) - 1) > _OTHER
        ]

    def _speed(self, number: int) -> float:
        return self.best[number][0].speed if self.best[number] else 0.0

    def _search(self, number: int, sample: int) -> None:
        structure, start = self._structures[number], list[Ranked]()
        if number in self._like:
            start = self.best[number]
        elif isinstance(structure, Composed):
            start = self.best[0]
        values = start[0].config.values if start else {}
        found = _best(structure, self._models[number], sample, self._seed, values, self._top)
        if found and found[0].speed >= self._speed(number):
            self.best[number] = found
        self._searched.append(number)
        self._like.pop(number, None)

    def _alike(self, structure: Scheduler) -> int | None:
        """The first searched structure with the knobs of another one and with its reductions marked
        alike: the best point of one is a good one of the other."""
        if not isinstance(structure, Structure) or structure.config_space.is_filtered:
            return None
        mine, body = structure.config_space.knobs, _body(structure)
        for number in self._searched:
            other = self._structures[number]
            theirs = other.config_space.knobs
            # A switch has little effect on the others, and keeps its default.
            weighty = [name for name, knob in mine.items() if len(knob) > 2]
            if (
                isinstance(other, Structure)
                and _body(other) == body
                and all(
                    name in theirs and theirs[name].signature == mine[name].signature
                    for name in weighty
                )
            ):
                return number
        return None

    def _judge(self, number: int, like: Ranked) -> None:
        """Look at the best point of another structure; and at its own default, if they differ."""
        structure, model = self._structures[number], self._models[number]
        found = [_judged(structure, model, like.config.values)]
        share = 1.0 if found[0] is None else found[0].speed / like.speed
        if found[0] is None or (share >= _BEHIND and abs(share - 1) > _DIFFERENT):
            found.append(_judged(structure, model, {}))
        self.best[number] = sorted(filter(None, found), key=lambda r: -r.speed)[:1]


def _body(structure: Structure) -> Counter[tuple[StageId, str]]:
    """Marks of the loops of reductions, by stage and kind."""
    ops = structure.dag.ops
    return Counter(
        (step.stage, step.kind)
        for step in structure.trace
        if isinstance(step, Annotate)
        and isinstance(step.stage, int)
        and ops[step.stage].reduction is not None
    )


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
    key = _key(structure, sample, seed, top, value_text(dict(start)))
    points = _KNOWN.get(key)
    if points is None:
        points = _points(structure, model, sample, seed, start)[:top]
        _keep(key, points)
    return [Ranked(structure, structure.config_space.get(index), s) for index, s in points]


def _judged(
    structure: Scheduler, model: AnalyticalModel, values: Mapping[str, Json]
) -> Ranked | None:
    """Structure at its default with some other values; None where its schedule fails."""
    space = structure.config_space
    digits = _with_values(space, digits_of(space, [space.default_index]), values)
    (index,) = indices_of(space, digits)
    key = _key(structure, index)
    points = _KNOWN.get(key)
    if points is None:
        scores = model.predict_each(digits)
        points = [(index, float(2.0**score)) for score in scores if not np.isnan(score)]
        _keep(key, points)
    return next((Ranked(structure, space.get(n), speed) for n, speed in points), None)


def _key(structure: Scheduler, *question: Hashable) -> Hashable:
    """Key of a cached answer; none for filters and templates, functions that cannot be compared."""
    if not isinstance(structure, Structure) or structure.config_space.is_filtered:
        return None
    target = structure.target
    machine = device_of(target) if "gpu" in target.keys else machine_of(target)
    return structure.content, repr(machine), *question


def _keep(key: Hashable, points: list[tuple[int, float]]) -> None:
    if len(_KNOWN) >= _MOST_KNOWN:
        _KNOWN.clear()
    if key is not None:
        _KNOWN[key] = points


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
    started = _with_values(space, default, start)
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


def _with_values(space: ConfigSpace, digits: Digits, values: Mapping[str, Json]) -> Digits:
    """Points with ``values`` for the knobs that have them."""
    out = digits.copy()
    for number, (name, knob) in enumerate(space.knobs.items()):
        at = knob.position(values[name]) if name in values else None
        if at is not None:
            out[:, number] = at
    return out


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
