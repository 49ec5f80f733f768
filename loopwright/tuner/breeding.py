"""Rules by which searches breed points: first populations, mutations and crossings, by name.

Rules with a weight above zero take part in every search that names none of its own; built-in rules
with a weight of zero run only where they are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from loopwright.errors import TuneError, UsageError, did_you_mean
from loopwright.task import Digits

if TYPE_CHECKING:
    from loopwright.task import ConfigSpace


class Mutation:
    def __init__(self, space: ConfigSpace, anew: float = 0.25, more: float = 0.1) -> None:
        # Chance of a changed knob to be drawn anew instead of going to a neighbour, and of each
        # further knob to change too, beside the one that always does.
        self.anew, self.more = anew, more
        self._dims = np.array(space.dims, np.int64)
        self._movable = np.flatnonzero(self._dims > 1)
        self._tables = [_padded(knob.neighbours()) for knob in space.knobs.values()]

    def mutate(self, digits: Digits, rng: np.random.Generator) -> Digits:
        """Change at least one knob of every row, unless the space has one point."""
        rows, changed = len(digits), digits.copy()
        if not len(self._movable) or not rows:
            return changed
        chosen = rng.random(digits.shape) < self.more
        sure = self._movable[rng.integers(0, len(self._movable), size=rows)]
        chosen[np.arange(rows), sure] = True
        far = rng.random(digits.shape) < self.anew
        luck = rng.random(digits.shape)
        for number in self._movable.tolist():
            which = np.flatnonzero(chosen[:, number])
            changed[which, number] = self._step(
                number, digits[which, number], luck[which, number], far[which, number]
            )
        return changed

    def one(self, digits: Digits, rng: np.random.Generator, numbers: Sequence[int]) -> Digits:
        """Change one of some knobs of every row to a neighbour; any knob if these are fixed."""
        changed = digits.copy()
        movable = np.intersect1d(self._movable, np.array(numbers, np.int64))
        movable = movable if len(movable) else self._movable
        if not len(movable) or not len(digits):
            return changed
        chosen = movable[rng.integers(0, len(movable), size=len(digits))]
        luck, near = rng.random(len(digits)), np.zeros(len(digits), np.bool_)
        for number in np.unique(chosen).tolist():
            which = np.flatnonzero(chosen == number)
            here = digits[which, number]
            changed[which, number] = self._step(number, here, luck[which], near[which])
        return changed

    def _step(
        self,
        number: int,
        here: npt.NDArray[np.int64],
        luck: npt.NDArray[np.float64],
        far: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.int64]:
        dim = int(self._dims[number])
        # Any candidate but the one that is here.
        anew = (here + 1 + (luck * (dim - 1)).astype(np.int64)) % dim
        table, counts = self._tables[number]
        if table.shape[1] == 0:
            return anew
        count = counts[here]
        near = table[here, (luck * count).astype(np.int64)]
        return np.where(far | (count == 0), anew, near)


def _padded(lists: list[list[int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    counts = np.array([len(entries) for entries in lists], np.int64)
    table = np.zeros((len(lists), int(counts.max(initial=0))), np.int64)
    for row, entries in enumerate(lists):
        table[row, : len(entries)] = entries
    return table, counts


#: Changes digits ``(n, knobs)``: ``(space, digits, rng) -> digits``.
MutationRule = Callable[["ConfigSpace", Digits, np.random.Generator], Digits]
#: Makes a child of each two parents: ``(space, first, second, rng) -> digits``.
CrossingRule = Callable[["ConfigSpace", Digits, Digits, np.random.Generator], Digits]
#: Up to ``count`` points of the first generation: ``(known, count, rng) -> digits``.
PopulationRule = Callable[["KnownPoints", int, np.random.Generator], Digits]
R = TypeVar("R", bound=Callable[..., Digits])
#: Weights by name.
Weights = Mapping[str, float]


@dataclass(frozen=True)
class KnownPoints:
    """Points that are known when a search begins: int64 ``(n, knobs)``, best first."""

    space: ConfigSpace
    #: The best measured points.
    measured: Digits
    #: Points that the analytical model prefers.
    drafted: Digits


class Rules(Mapping[str, R], Generic[R]):
    """Rules of one kind by name, in the order of their registration.

    Example:
        >>> print(lw.tuner.mutations.weights["small_steps"], list(lw.tuner.crossings))
        1.0 ['uniform', 'one_point']
        >>> @lw.tuner.mutations.register("first_knob_anew", weight=0.1)
        ... def first_knob_anew(space, digits, rng):
        ...     changed = digits.copy()
        ...     changed[:, 0] = rng.integers(0, space.dims[0], size=len(digits))
        ...     return changed
        ...
        >>> print(lw.tuner.mutations.weights["first_knob_anew"])
        0.1
        >>> lw.tuner.mutations.remove("first_knob_anew")
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.weights: dict[str, float] = {}
        self._rules: dict[str, R] = {}

    def __getitem__(self, name: str) -> R:
        return self._rules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def register(self, name: str, weight: float) -> Callable[[R], R]:
        """Decorate a function as a rule, unless its name is taken, or the weight is negative
        (`UsageError`).

        ``weight`` is the frequency of its use relative to the others; 0: only where it is named.
        For a rule for first populations it is the share of the population that it may fill.
        """
        if name in self._rules:
            raise UsageError(f"there is a {self.kind} {name!r}; remove it first, or use a new name")
        checked = _weight(self.kind, name, weight)

        def register(rule: R) -> R:
            self._rules[name], self.weights[name] = rule, checked
            return rule

        return register

    def remove(self, name: str) -> None:
        """Forget a rule; an unknown name is a `UsageError`."""
        self._check(name)
        del self._rules[name], self.weights[name]

    def chosen(self, weights: Weights | None) -> dict[str, float]:
        """Weights of the rules that a search names, else of all registered with one above zero."""
        if weights is None:
            return {name: weight for name, weight in self.weights.items() if weight > 0}
        for name, weight in weights.items():
            self._check(name)
            _weight(self.kind, name, weight)
        return {name: float(weight) for name, weight in weights.items() if weight > 0}

    def _check(self, name: str) -> None:
        if name not in self._rules:
            raise UsageError(
                f"unknown {self.kind} {name!r}{did_you_mean(name, self._rules)}; "
                f"there are {', '.join(self._rules)}"
            )


def _weight(kind: str, name: str, weight: float) -> float:
    number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
    if not number or not 0 <= weight < float("inf"):
        raise UsageError(f"the weight of {kind} {name!r} must be a number >= 0, got {weight!r}")
    return float(weight)


#: Rules that change a point.
mutations: Rules[MutationRule] = Rules("mutation")
#: Rules that make a point of two.
crossings: Rules[CrossingRule] = Rules("crossing")
#: Rules that make the first points of a search; what they leave is filled up by chance.
populations: Rules[PopulationRule] = Rules("population")


class Breeding:
    """The rules of one search in one space; weights of None stand for the registered rules."""

    def __init__(
        self,
        space: ConfigSpace,
        mutating: Weights | None = None,
        crossing: Weights | None = None,
        beginning: Weights | None = None,
    ) -> None:
        self.space = space
        self._dims = np.array(space.dims, np.int64)
        self._mutating = mutations.chosen(mutating)
        self._crossing = crossings.chosen(crossing)
        self._beginning = populations.chosen(beginning)

    def mutate(self, digits: Digits, rng: np.random.Generator) -> Digits:
        """Change each row by a rule that is drawn by its weight, if there are rules."""
        return self._by_rules(mutations, self._mutating, rng, digits)

    def cross(self, first: Digits, second: Digits, rng: np.random.Generator) -> Digits:
        return self._by_rules(crossings, self._crossing, rng, first, second)

    def _by_rules(
        self, rules: Rules[R], weights: Weights, rng: np.random.Generator, *parents: Digits
    ) -> Digits:
        out = parents[0].copy()
        for name, rows in _drawn(weights, len(out), rng):
            children = rules[name](self.space, *(digits[rows] for digits in parents), rng)
            out[rows] = self._checked(rules.kind, name, children, len(out[rows]))
        return out

    def begin(self, starts: KnownPoints, size: int, rng: np.random.Generator) -> Digits:
        parts = [np.empty((0, len(self._dims)), np.int64)]
        for name, share in self._beginning.items():
            count = min(int(share * size), size - sum(map(len, parts)))
            points = populations[name](starts, count, rng)[:count]
            parts.append(self._checked("population", name, points, len(points)))
        return np.concatenate(parts)

    def _checked(self, kind: str, name: str, digits: Digits, rows: int) -> Digits:
        digits = np.asarray(digits)
        fits = digits.shape == (rows, len(self._dims)) and digits.dtype.kind in "iu"
        if not fits or not ((digits >= 0) & (digits < self._dims)).all():
            raise TuneError(
                f"{kind} {name!r} must return whole numbers of shape ({rows}, {len(self._dims)}) "
                f"below {self._dims.tolist()}; it gave {digits.dtype} {digits.shape}"
            )
        return digits.astype(np.int64)


def _drawn(
    weights: Weights, count: int, rng: np.random.Generator
) -> list[tuple[str, slice | npt.NDArray[np.intp]]]:
    """Rules with their rows; nothing is drawn where there is one rule."""
    names = list(weights)
    if len(names) < 2:
        return [(name, slice(None)) for name in names]
    chances = np.array(list(weights.values()))
    which = rng.choice(len(names), size=count, p=chances / chances.sum())
    groups = [(name, np.flatnonzero(which == number)) for number, name in enumerate(names)]
    return [(name, rows) for name, rows in groups if len(rows)]


_small_steps: WeakKeyDictionary[ConfigSpace, Mutation] = WeakKeyDictionary()


def _steps_of(space: ConfigSpace) -> Mutation:
    if space not in _small_steps:
        _small_steps[space] = Mutation(space)
    return _small_steps[space]


@mutations.register("small_steps", weight=1.0)
def small_steps(space: ConfigSpace, digits: Digits, rng: np.random.Generator) -> Digits:
    """Knobs of any kind go to a neighbour, a quarter of them to any choice (`Mutation`)."""
    return _steps_of(space).mutate(digits, rng)


def _of_kind(*kinds: str) -> MutationRule:
    def mutate(space: ConfigSpace, digits: Digits, rng: np.random.Generator) -> Digits:
        numbers = [k for k, knob in enumerate(space.knobs.values()) if knob.kind in kinds]
        return _steps_of(space).one(digits, rng, numbers)

    return mutate


# Ansor's rules, of which a knob is the place where its rewriting applies: sizes of tiles; unrolling
# and parallel loops; where a stage is computed, and other words. Weights are its own (OSDI 2020).
mutations.register("tile_size", weight=0.0)(_of_kind("split"))
mutations.register("annotation", weight=0.0)(_of_kind("annotate"))
mutations.register("placement", weight=0.0)(_of_kind("other", "reorder"))


@crossings.register("uniform", weight=1.0)
def uniform(space: ConfigSpace, first: Digits, second: Digits, rng: np.random.Generator) -> Digits:
    return np.where(rng.random(first.shape) < 0.5, second, first)


@crossings.register("one_point", weight=0.0)
def one_point(
    space: ConfigSpace, first: Digits, second: Digits, rng: np.random.Generator
) -> Digits:
    knobs = first.shape[1]
    cut = rng.integers(0, knobs + 1, size=(len(first), 1))
    return np.where(np.arange(knobs) < cut, first, second)


@populations.register("measured", weight=0.2)
def measured(starts: KnownPoints, count: int, rng: np.random.Generator) -> Digits:
    return starts.measured[:count]


@populations.register("drafted", weight=0.5)
def drafted(starts: KnownPoints, count: int, rng: np.random.Generator) -> Digits:
    """Points that the analytical model prefers among many (the draft of Pruner, ASPLOS 2025)."""
    return starts.drafted[:count]


_BUILT_IN = (mutations.chosen(None), crossings.chosen(None), populations.chosen(None))


def own_rules() -> dict[str, dict[str, float]]:
    """Weights for the header of a log, of the kinds that have rules of a user."""
    named = {"mutations": mutations.chosen(None), "crossings": crossings.chosen(None)}
    named["populations"] = populations.chosen(None)
    return {
        kind: weights
        for (kind, weights), built_in in zip(named.items(), _BUILT_IN, strict=True)
        if weights != built_in
    }
