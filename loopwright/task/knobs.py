"""Knobs: a name, an ordered list of candidates, and which of them is the default.

The index of a configuration depends on the order of candidates, which is part of the space's
identity; so it never depends on hashes, sets or the platform.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, pairwise, permutations
from typing import ClassVar, Literal

import numpy as np

from loopwright.errors import InternalError, SpaceError, shown
from loopwright.ir.sizes import Symbol
from loopwright.records import Json
from loopwright.task.entities import (
    AnnotateEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)
from loopwright.te import THREAD_TAGS

KnobKind = Literal["split", "reorder", "annotate", "other"]
#: A name and the number that each candidate has under it.
Column = tuple[str, list[float]]

#: A knob of more candidates than this has no table of neighbours.
_MOST_WITH_NEIGHBOURS = 8192
#: Number of values of a knob that are printed.
_SHOWN = 8
#: The numbers of annotations.
_ANNOTATION_NUMBERS: dict[str | int, int] = {"none": -1, "unroll": -2, "vec": -3, "fuse": -4}
#: Thread axes come behind these, from -5 on, in the order in which `THREAD_TAGS` has them.
_ANNOTATION_NUMBERS |= {tag: -5 - at for at, tag in enumerate(THREAD_TAGS)}


#: Made once: `json.dumps` makes an encoder for each call that says how to write.
_JSON = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False)


def value_text(value: Json) -> str:
    """Text by which two values of a knob are compared: ``True``, ``1`` and ``1.0`` differ."""
    if type(value) is int:  # most values are, and the encoder takes ten times as long
        return str(value)
    try:
        return _JSON.encode(value)
    except (TypeError, ValueError) as exc:
        raise SpaceError(f"{value!r} cannot be a candidate: {exc}; use JSON values") from exc


class Knob(ABC):
    """One dimension of a space.

    Candidates that are equal as JSON are kept once, so that no point of a space has two indices.

    Raises:
        SpaceError: there is no candidate.

    Example:
        >>> space = lw.ConfigSpace()
        >>> _ = space.define_split("tile", 16, num_outputs=2)
        >>> space.define_knob("unroll", [False, True])
        >>> space.freeze()
        >>> knob = space.knobs["tile"]
        >>> print(knob.name, len(knob.entities))
        tile 5
    """

    kind: ClassVar[KnobKind]

    def __init__(self, name: str, entities: Iterable[Entity]) -> None:
        first: dict[str, Entity] = {}
        for entity in entities:
            first.setdefault(value_text(entity.value), entity)
        if not first:
            raise SpaceError(f"knob {name!r} has no candidate; loosen its filter or its limits")
        self.name = name
        self.entities: tuple[Entity, ...] = tuple(first.values())
        self._positions = {text: number for number, text in enumerate(first)}
        self.default = self._first_default()

    def __len__(self) -> int:
        return len(self.entities)

    def __repr__(self) -> str:
        return f"Knob({self.name!r}, {self.kind}, {len(self)} candidates)"

    def __str__(self) -> str:
        count = "1 candidate" if len(self) == 1 else f"{len(self)} candidates"
        return f"{self.name}: {self._meaning()}, {count}, default {self.entities[self.default]}"

    def value(self, position: int) -> Json:
        return self.entities[position].value

    def position(self, value: Json) -> int | None:
        return self._positions.get(value_text(self._normal(value)))

    def entity(self, value: Json) -> Entity:
        """An entity of a value, a candidate or not, since records outlive spaces; one without the
        form of this knob is a `SpaceError`."""
        position = self.position(value)
        return self._entity_of(value) if position is None else self.entities[position]

    def set_default(self, value: Json) -> None:
        """Make the candidate with this JSON value the default; any other is a `SpaceError`."""
        position = self.position(value)
        if position is None:
            raise SpaceError(
                f"knob {self.name!r}: the default {value!r} is not among its candidates"
            )
        self.default = position

    @property
    def signature(self) -> list[Json]:
        return [self.name, self.kind, list(self._positions)]

    def adapted(self, value: Json) -> tuple[Json, int] | None:
        """The value of a record of another shape, made to fit this knob, and how many inner sizes
        of a split stayed as they were; None where it cannot be made to fit."""
        return None if self.position(value) is None else (value, 0)

    def neighbours(self) -> list[list[int]]:
        """For each candidate the positions of those a small step away, ascending; none for knobs of
        more than 8192 candidates."""
        if len(self) > _MOST_WITH_NEIGHBOURS:
            return [[] for _ in range(len(self))]
        return self._neighbours()

    @abstractmethod
    def _meaning(self) -> str: ...

    @abstractmethod
    def columns(self) -> list[Column]:
        """The candidates as named columns of numbers, for cost models of this space."""

    def parts(self) -> list[tuple[int, ...]]:
        """The whole numbers that candidates consist of: for each part its value in each candidate.

        Symbols may take their place, see `from_parts`; knobs of words, orders and annotations have
        none.
        """
        return []

    def from_parts(self, parts: Sequence[int | Symbol]) -> Entity:
        """The entity whose parts are these numbers, or symbols that stand for many numbers."""
        raise InternalError(f"knob {self.name!r} has no parts")

    def _first_default(self) -> int:
        return 0

    def _normal(self, value: Json) -> Json:
        return value

    @abstractmethod
    def _entity_of(self, value: Json) -> Entity: ...
    @abstractmethod
    def _neighbours(self) -> list[list[int]]: ...

    def _check_form(self, value: Json) -> None:
        if not isinstance(value, (list, tuple)) or len(value) != len(self.value(0)):
            raise SpaceError(
                f"knob {self.name!r} ({self.kind}) cannot have the value {shown(value)}"
            )

    def _numbered(self, rows: Sequence[Sequence[float]], first: int = 0) -> list[Column]:
        """Columns ``name.0``, ``name.1``, ... of rows of numbers, counted from ``first``."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        return [(f"{self.name}.{first + k}", column) for k, column in enumerate(columns)]


class SplitKnob(Knob):
    kind = "split"
    entities: tuple[SplitEntity, ...]

    def __init__(self, name: str, entities: Iterable[SplitEntity], length: int) -> None:
        self.length = length
        super().__init__(name, entities)

    def _meaning(self) -> str:
        return f"split of {self.length} into {len(self.value(0))} loops"

    def within(self, limits: Sequence[int]) -> list[int]:
        """Sizes that divide the length within limits; one limit may be -1, for what is left."""
        if len(limits) != len(self.value(0)):
            raise SpaceError(f"knob {self.name!r} is no split into {len(limits)} loops")
        free = [place for place, limit in enumerate(limits) if limit == -1]
        if len(free) > 1 or any(limit < 1 for limit in limits if limit != -1):
            raise SpaceError(
                f"knob {self.name!r}: limits are at least 1, and one may be -1: {limits!r}"
            )
        sizes = [1] * len(limits)
        left = self.length
        for place in reversed(range(len(limits))):
            if place not in free:
                largest = min(limits[place], left)
                sizes[place] = max(n for n in range(1, largest + 1) if left % n == 0)
                left //= sizes[place]
        sizes[free[0] if free else 0] *= left
        return [-1, *sizes[1:]]

    def adapted(self, value: Json) -> tuple[Json, int] | None:
        """The sizes rounded down to divisors, and the number of inner ones that did not change."""
        if not isinstance(value, list) or value[:1] != [-1]:
            return super().adapted(value)
        if len(value) != len(self.value(0)):
            return None
        sizes = self.within(value)
        kept = sum(new == old for new, old in zip(sizes[1:], value[1:], strict=True))
        return sizes, kept

    def columns(self) -> list[Column]:
        rows = [[float(n) for n in entity.size[1:]] for entity in self.entities]
        return self._numbered(rows, first=1)

    def parts(self) -> list[tuple[int, ...]]:
        return list(zip(*(entity.size[1:] for entity in self.entities), strict=True))

    def from_parts(self, parts: Sequence[int | Symbol]) -> SplitEntity:
        return SplitEntity([-1, *parts])

    def _first_default(self) -> int:
        """The innermost loop near 16 and a power of two, the other inner ones near 4. Two such
        tiles make 16 vectors of 16 floats, which fit the registers of any recent CPU."""

        def distance(position: int) -> tuple[float, int]:
            *middle, inner = (1, *self.entities[position].size[1:])
            cost = abs(math.log2(inner) - 4) + (inner & (inner - 1) != 0)
            return (cost + sum(abs(math.log2(part) - 2) for part in middle[1:]), position)

        return min(range(len(self)), key=distance)

    def _normal(self, value: Json) -> Json:
        """A split may name its outermost size; it is derived all the same."""
        return [-1, *value[1:]] if isinstance(value, (list, tuple)) and value else value

    def _entity_of(self, value: Json) -> Entity:
        self._check_form(value)
        return SplitEntity(checked_split(self.name, value, self.length))

    def _neighbours(self) -> list[list[int]]:
        return factor_moves([e.size[1:] for e in self.entities], self.length)


class ReorderKnob(Knob):
    kind = "reorder"
    entities: tuple[ReorderEntity, ...]

    def _meaning(self) -> str:
        return f"order of {len(self.value(0))} loops"

    def columns(self) -> list[Column]:
        columns = self._numbered([[float(n) for n in e.perm] for e in self.entities])
        return columns if len(columns) != 1 else [(self.name, columns[0][1])]

    def _first_default(self) -> int:
        sorted_ones = (n for n, e in enumerate(self.entities) if e.value == sorted(e.value))
        return next(sorted_ones, 0)

    def _entity_of(self, value: Json) -> Entity:
        self._check_form(value)
        return ReorderEntity(checked_order(self.name, value, len(value)))

    def _neighbours(self) -> list[list[int]]:
        return _by_steps([e.perm for e in self.entities], _swapped)


class AnnotateKnob(Knob):
    kind = "annotate"
    entities: tuple[AnnotateEntity, ...]

    def _meaning(self) -> str:
        anchors = all(isinstance(ann, int) for ann in self.value(0))
        return "places of caches" if anchors else f"annotation of {len(self.value(0))} loops"

    def columns(self) -> list[Column]:
        numbers = _ANNOTATION_NUMBERS  # a place to attach a cache at is its own number
        rows = [[float(numbers.get(a, a)) for a in e.anns] for e in self.entities]
        columns = self._numbered(rows)
        return columns if len(columns) != 1 else [(self.name, columns[0][1])]

    def _entity_of(self, value: Json) -> Entity:
        self._check_form(value)
        raise SpaceError(f"knob {self.name!r} has no candidate {shown(value)}")

    def _neighbours(self) -> list[list[int]]:
        values = [e.anns for e in self.entities]
        words = sorted({word for value in values for word in value}, key=str)
        return _by_steps(values, lambda value: _replaced(value, words))


class OtherKnob(Knob):
    """A choice among values. Where all are ints, or tuples of as many ints each (rows and columns
    of a tile that are chosen together, since not every pair fits), cost models know the numbers."""

    kind = "other"
    entities: tuple[OtherOptionEntity, ...]

    def _meaning(self) -> str:
        shown_ones = ", ".join(str(entity) for entity in self.entities[:_SHOWN])
        return f"one of {shown_ones}{', ...' if len(self) > _SHOWN else ''}"

    def columns(self) -> list[Column]:
        if self._tuples:
            return self._numbered([[float(n) for n in row] for row in self._tuples])
        values = [e.val for e in self.entities]
        if not all(map(_is_number, values)):
            values = list(range(len(values)))
        return [(self.name, [float(value) for value in values])]

    def parts(self) -> list[tuple[int, ...]]:
        if self._tuples:
            return list(zip(*self._tuples, strict=True))
        values = tuple(e.val for e in self.entities)
        return [values] if all(type(value) is int for value in values) else []

    def from_parts(self, parts: Sequence[int | Symbol]) -> OtherOptionEntity:
        return OtherOptionEntity(tuple(parts) if self._tuples else parts[0])

    @property
    def _tuples(self) -> list[tuple[int, ...]]:
        """The candidates, where all are tuples of as many ints; else nothing."""
        values = [e.val for e in self.entities]
        rows = [tuple(value) for value in values if isinstance(value, (list, tuple))]
        alike = len(rows) == len(values) and len({len(row) for row in rows}) == 1 and rows[0]
        return rows if alike and all(type(n) is int for row in rows for n in row) else []

    def _entity_of(self, value: Json) -> Entity:
        return OtherOptionEntity(value)

    def _neighbours(self) -> list[list[int]]:
        if self._tuples:
            return next_in_one_part(self._tuples)
        values = [e.val for e in self.entities]
        if not all(map(_is_number, values)):
            return [[] for _ in values]
        return next_numbers(values)


def checked_split(name: str, size: Json, length: int) -> list[int]:
    """Sizes of a split of ``length``, the outermost one as -1."""
    what = f"knob {name!r}: {shown(size)} is no split of {length}"
    if not isinstance(size, (list, tuple)) or not size:
        raise SpaceError(f"{what}; write sizes from the outside in, such as [-1, 8, 4]")
    if any(isinstance(part, bool) or not isinstance(part, int) for part in size):
        raise SpaceError(f"{what}; sizes are integers")
    outer, *inner = size
    if any(part < 1 for part in inner):
        raise SpaceError(f"{what}; only the first size may be -1, the others are at least 1")
    derived = -(-length // math.prod(inner))
    if outer not in (-1, derived):
        raise SpaceError(f"{what}; the first size is {derived}, or -1 for what is left")
    return [-1, *inner]


def checked_order(name: str, order: Sequence[int], count: int) -> Sequence[int]:
    if sorted(order) != list(range(count)):
        raise SpaceError(f"knob {name!r}: {list(order)} is no permutation of {count} axes")
    return order


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


#: Least number of neighbours of a split, where filters leave no single factor to move.
_NEAREST = 4

#: The neighbours of one value, which need not be candidates.
_Steps = Callable[[tuple[object, ...]], Iterator[tuple[object, ...]]]


# Candidates that are a small step apart, by their values. A step of a split moves one prime factor
# from a loop to another (TVM's ``MutateTileSize``), a step of an order swaps two axes, a step of an
# annotation changes one axis, and a step of a number goes to the next smaller or greater one. Every
# function returns, for each candidate, the positions of its neighbours in ascending order.


def factor_moves(sizes: Sequence[Sequence[int]], length: int) -> list[list[int]]:
    """Splits with one prime factor in another loop; ``sizes`` leave out the outermost."""
    positions = {tuple(size): position for position, size in enumerate(sizes)}
    primes = _primes({length, *(part for size in sizes for part in size)})
    logs = np.log2(np.array(sizes, np.float64).reshape(len(sizes), -1))
    neighbours = []
    for position, size in enumerate(positions):
        near = {positions[s] for s in _moved_factors(size, primes) if s in positions}
        if len(near) < _NEAREST:
            distances = np.abs(logs - logs[position]).sum(axis=1)
            order = np.argsort(distances, kind="stable")[: _NEAREST + 1].tolist()
            near.update(other for other in order if other != position)
        neighbours.append(sorted(near))
    return neighbours


def next_numbers(numbers: Sequence[float]) -> list[list[int]]:
    order = np.argsort(np.array(numbers, np.float64), kind="stable").tolist()
    neighbours: list[list[int]] = [[] for _ in numbers]
    for rank, position in enumerate(order):
        neighbours[position] = sorted(order[max(0, rank - 1) : rank] + order[rank + 1 : rank + 2])
    return neighbours


def next_in_one_part(rows: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Tuples that are equal but for one part, and next to each other in that."""
    neighbours: list[set[int]] = [set() for _ in rows]
    for part in range(len(rows[0])):
        lines: dict[tuple[int, ...], list[int]] = {}
        for position, row in enumerate(rows):
            lines.setdefault((*row[:part], *row[part + 1 :]), []).append(position)
        for line in lines.values():
            line.sort(key=lambda position: rows[position][part])
            for a, b in pairwise(line):
                neighbours[a].add(b)
                neighbours[b].add(a)
    return [sorted(near) for near in neighbours]


def _by_steps(values: Sequence[Sequence[object]], steps: _Steps) -> list[list[int]]:
    positions = {tuple(value): position for position, value in enumerate(values)}
    return [sorted({positions[s] for s in steps(value) if s in positions}) for value in positions]


def _swapped(value: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    for a, b in combinations(range(len(value)), 2):
        swapped = list(value)
        swapped[a], swapped[b] = swapped[b], swapped[a]
        yield tuple(swapped)


def _replaced(value: tuple[object, ...], words: Sequence[object]) -> Iterator[tuple[object, ...]]:
    for place, word in enumerate(value):
        others = [other for other in words if other != word]
        yield from ((*value[:place], other, *value[place + 1 :]) for other in others)


def _moved_factors(size: tuple[int, ...], primes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Move one prime from a loop to another; the outermost one, -1 here, takes what is left."""
    for source, target in permutations(range(-1, len(size)), 2):
        for prime in primes:
            if source >= 0 and size[source] % prime:
                continue
            moved = list(size)
            if source >= 0:
                moved[source] //= prime
            if target >= 0:
                moved[target] *= prime
            yield tuple(moved)


def _primes(numbers: set[int]) -> list[int]:
    primes: set[int] = set()
    for number in numbers:
        rest = number
        for prime in range(2, math.isqrt(number) + 1):
            while rest % prime == 0:
                primes.add(prime)
                rest //= prime
        primes |= {rest} - {1}
    return sorted(primes)
