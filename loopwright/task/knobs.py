"""Knobs: a name, an ordered list of candidates, and which of them is the default.

The order of candidates is part of the space's identity, since the index of a configuration depends
on it; so it never depends on hashes, sets or the platform.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations, product
from typing import Any

from loopwright.errors import SpaceError, did_you_mean
from loopwright.task.axes import known_length
from loopwright.task.entities import (
    AnnotateEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)

SPLIT_POLICIES = ("factors", "power2", "verbose", "candidate")
REORDER_POLICIES = ("identity", "all", "interval_all", "candidate", "interleave")
ANNOTATE_POLICIES = (
    "none",
    "unroll",
    "try_unroll",
    "vec",
    "try_vec",
    "unroll_vec",
    "try_unroll_vec",
    "locate_cache",
)


def value_text(value: Any) -> str:
    """The text by which two values of a knob are compared: ``True``, ``1`` and ``1.0`` differ.

    Raises:
        SpaceError: a record could not store the value.
    """
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise SpaceError(f"{value!r} cannot be a candidate: {exc}; use JSON values") from exc


class Knob:
    """One dimension of a space.

    Candidates that are equal as JSON are kept once, so that no point of a space has two indices.

    Attributes:
        name: Unique in its space.
        kind: ``"split"``, ``"reorder"``, ``"annotate"`` or ``"other"``.
        entities: The candidates, in order.
        default: Position of the default candidate.
        length: For a split, the length of the axis; else 0.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        entities: Iterable[Entity],
        pick: Callable[[Sequence[Entity]], int],
        length: int = 0,
    ) -> None:
        first: dict[str, Entity] = {}
        for entity in entities:
            first.setdefault(value_text(entity.value), entity)
        if not first:
            raise SpaceError(f"knob {name!r} has no candidate; loosen its filter or its limits")
        self.name, self.kind, self.length = name, kind, length
        self.entities: tuple[Entity, ...] = tuple(first.values())
        self._positions = {text: number for number, text in enumerate(first)}
        self.default = pick(self.entities)

    def __len__(self) -> int:
        return len(self.entities)

    def __repr__(self) -> str:
        return f"Knob({self.name!r}, {self.kind}, {len(self)} candidates)"

    def value(self, position: int) -> Any:
        """JSON form of a candidate."""
        return self.entities[position].value

    def position(self, value: Any) -> int | None:
        """Where a JSON value stands among the candidates, or None."""
        return self._positions.get(value_text(self._normal(value)))

    def entity(self, value: Any) -> Entity:
        """An entity of any value of the right form, a candidate or not: records outlive spaces.

        Raises:
            SpaceError: the value does not have the form of this knob.
        """
        found = self.position(value)
        if found is not None:
            return self.entities[found]
        sample = self.entities[0]
        if isinstance(sample, OtherOptionEntity):
            return OtherOptionEntity(value)
        if not isinstance(value, (list, tuple)) or len(value) != len(sample.value):
            raise SpaceError(f"knob {self.name!r} ({self.kind}) cannot have the value {value!r}")
        if isinstance(sample, SplitEntity):
            return SplitEntity(_checked_split(self.name, value, self.length))
        if isinstance(sample, ReorderEntity):
            return ReorderEntity(_checked_perm(self.name, value, len(value)))
        raise SpaceError(f"knob {self.name!r} has no candidate {value!r}")

    def set_default(self, value: Any) -> None:
        """Make the candidate with this JSON value the default.

        Raises:
            SpaceError: there is no such candidate.
        """
        found = self.position(value)
        if found is None:
            raise SpaceError(
                f"knob {self.name!r}: the default {value!r} is not among its candidates"
            )
        self.default = found

    @property
    def signature(self) -> list[Any]:
        """What tells this knob from another: name, kind and candidates."""
        return [self.name, self.kind, list(self._positions)]

    def _normal(self, value: Any) -> Any:
        """A split may name its outermost size; it is derived all the same."""
        if self.kind == "split" and isinstance(value, (list, tuple)) and value:
            return [-1, *value[1:]]
        return value


def split_knob(
    name: str,
    axis: Any,
    policy: str = "factors",
    num_outputs: int = 2,
    filter: Callable[[SplitEntity], bool] | None = None,
    max_factor: int = 1 << 31,
    no_tail: bool = False,
    candidate: Sequence[Sequence[int]] | None = None,
) -> Knob:
    """The knob of ``ConfigSpace.define_split``; see there."""
    length = known_length(axis, name)
    if policy not in SPLIT_POLICIES:
        raise SpaceError(_unknown(name, "split", policy, SPLIT_POLICIES))
    sizes: Iterable[Sequence[int]]
    if policy == "candidate":
        if not candidate:
            raise SpaceError(f"knob {name!r}: policy 'candidate' needs candidate=[[-1, 8], ...]")
        sizes = [_checked_split(name, size, length) for size in candidate]
        if len({len(size) for size in sizes}) != 1:
            raise SpaceError(f"knob {name!r}: its candidates have different numbers of sizes")
    else:
        if not isinstance(num_outputs, int) or num_outputs < 1:
            raise SpaceError(f"knob {name!r}: num_outputs must be an integer >= 1")
        factors = _factors(length, policy, max_factor)
        exact = no_tail or policy == "factors"
        sizes = ([-1, *inner] for inner in _inner_sizes(length, factors, num_outputs - 1, exact))
    entities = [SplitEntity(size) for size in sizes]
    if filter is not None:
        entities = [entity for entity in entities if filter(entity)]
    return Knob(name, "split", entities, _balanced, length)


def _factors(length: int, policy: str, max_factor: int) -> list[int]:
    """Sizes that one inner loop may have, ascending."""
    low = [n for n in range(1, math.isqrt(length) + 1) if length % n == 0]
    divisors = {*low, *(length // n for n in low)}
    powers = {1 << n for n in range(length.bit_length())}
    chosen = {"factors": divisors, "power2": powers, "verbose": divisors | powers}[policy]
    return sorted(n for n in chosen if n <= max_factor)


def _inner_sizes(
    length: int, factors: Sequence[int], levels: int, exact: bool
) -> Iterator[tuple[int, ...]]:
    """Every choice of ``levels`` inner sizes whose product fits into (or divides) ``length``, in
    lexicographic order."""
    if levels == 0:
        yield ()
        return
    for first in factors:
        if first > length:
            return
        if exact and length % first:
            continue
        # What is left for the inner loops: floor, since products are compared with the length.
        for rest in _inner_sizes(length // first, factors, levels - 1, exact):
            yield (first, *rest)


def _checked_split(name: str, size: Any, length: int) -> list[int]:
    what = f"knob {name!r}: {size!r} is no split of {length}"
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


def _balanced(entities: Sequence[Entity]) -> int:
    """Default of a split: the innermost loop near 16 and a power of two, the other inner ones near
    4. Two such tiles make 16 vectors of 16 floats, which fit the registers of any recent CPU."""

    def distance(position: int) -> tuple[float, int]:
        entity = entities[position]
        assert isinstance(entity, SplitEntity)
        *middle, inner = (1, *entity.size[1:])
        cost = abs(math.log2(inner) - 4) + (inner & (inner - 1) != 0)
        return (cost + sum(abs(math.log2(part) - 2) for part in middle[1:]), position)

    return min(range(len(entities)), key=distance)


def reorder_knob(
    name: str,
    axes: Sequence[Any],
    policy: str,
    candidate: Sequence[Sequence[Any]] | None = None,
    interval: tuple[int, int] | None = None,
    spatial: Sequence[Sequence[Any]] | None = None,
    reduce: Sequence[Sequence[Any]] | None = None,
) -> Knob:
    """The knob of ``ConfigSpace.define_reorder``; see there."""
    count = len(axes)
    if policy not in REORDER_POLICIES:
        raise SpaceError(_unknown(name, "reorder", policy, REORDER_POLICIES))
    numbers = range(count)
    perms: Iterable[Sequence[int]]
    if policy == "identity":
        perms = [tuple(numbers)]
    elif policy == "all":
        perms = permutations(numbers)
    elif policy == "interval_all":
        begin, end = _interval(name, interval, count)
        perms = [
            (*numbers[:begin], *middle, *numbers[end:])
            for middle in permutations(numbers[begin:end])
        ]
    elif policy == "candidate":
        if not candidate:
            raise SpaceError(f"knob {name!r}: policy 'candidate' needs candidate=[[axes], ...]")
        perms = [_where(name, axes, order) for order in candidate]
    else:
        perms = _interleave(name, axes, spatial or [], reduce or [])
    entities = [ReorderEntity(_checked_perm(name, perm, count)) for perm in perms]
    return Knob(name, "reorder", entities, _identity)


def _identity(entities: Sequence[Entity]) -> int:
    """Default of a reorder: leave the order as it is, where that is a candidate."""
    for position, entity in enumerate(entities):
        if entity.value == sorted(entity.value):
            return position
    return 0


def _interval(name: str, interval: tuple[int, int] | None, count: int) -> tuple[int, int]:
    if interval is None or len(interval) != 2 or not 0 <= interval[0] < interval[1] <= count:
        raise SpaceError(
            f"knob {name!r}: policy 'interval_all' needs interval=(begin, end) within {count} axes"
        )
    return interval


def _where(name: str, axes: Sequence[Any], order: Sequence[Any]) -> list[int]:
    """Positions of ``order`` in ``axes``; numbers stand for positions, axes are told apart by
    identity."""
    found = []
    for item in order:
        same = [number for number, axis in enumerate(axes) if axis is item]
        if isinstance(item, int):
            same = [item]
        if len(same) != 1:
            raise SpaceError(f"knob {name!r}: {item!r} is not one of its {len(axes)} axes")
        found += same
    return found


def _checked_perm(name: str, perm: Sequence[int], count: int) -> Sequence[int]:
    if sorted(perm) != list(range(count)):
        raise SpaceError(f"knob {name!r}: {list(perm)} is no permutation of {count} axes")
    return perm


def _interleave(
    name: str,
    axes: Sequence[Any],
    spatial: Sequence[Sequence[Any]],
    reduce: Sequence[Sequence[Any]],
) -> list[tuple[int, ...]]:
    """Outer spatial loops in any merge, then the innermost spatial loops merged with the reduction
    loops; loops of one chain keep their order."""
    chains = [_where(name, axes, chain) for chain in spatial]
    inner = [_where(name, axes, chain) for chain in reduce]
    if not chains and not inner:
        raise SpaceError(
            f"knob {name!r}: policy 'interleave' needs spatial=[[...]], reduce=[[...]]"
        )
    outer_merged = _merges([chain[:-1] for chain in chains])
    inner_merged = list(_merges([chain[-1:] for chain in chains] + inner))
    return [(*head, *tail) for head in outer_merged for tail in inner_merged]


def _merges(chains: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    if not any(chains):
        yield ()
        return
    for number, chain in enumerate(chains):
        if chain:
            rest = [*chains[:number], chain[1:], *chains[number + 1 :]]
            for tail in _merges(rest):
                yield (chain[0], *tail)


def annotate_knob(
    name: str, axes: Sequence[Any], policy: str, num_anchor: int | None = None
) -> Knob:
    """The knob of ``ConfigSpace.define_annotate``; see there."""
    if policy not in ANNOTATE_POLICIES:
        raise SpaceError(_unknown(name, "annotate", policy, ANNOTATE_POLICIES))
    if not axes:
        raise SpaceError(f"knob {name!r}: there is no axis to annotate")
    if policy == "locate_cache":
        if not isinstance(num_anchor, int) or num_anchor < 1:
            raise SpaceError(f"knob {name!r}: policy 'locate_cache' needs num_anchor >= 1")
        places = product(range(len(axes)), repeat=num_anchor)
        return Knob(name, "annotate", map(AnnotateEntity, places), lambda _: 0)
    words = ["none"] if policy.startswith("try_") or policy in ("none", "vec") else []
    words += ["unroll"] if "unroll" in policy else []
    inner = [word for word in words if policy != "vec"] + (["vec"] if "vec" in policy else [])
    choices = product(*[words] * (len(axes) - 1), inner)
    return Knob(name, "annotate", map(AnnotateEntity, choices), lambda _: 0)


def other_knob(name: str, candidates: Sequence[Any]) -> Knob:
    """The knob of ``ConfigSpace.define_knob``; see there."""
    if isinstance(candidates, (str, bytes)) or not isinstance(candidates, Iterable):
        raise SpaceError(f"knob {name!r}: candidates are a list, got {candidates!r}")
    return Knob(name, "other", map(OtherOptionEntity, candidates), lambda _: 0)


def _unknown(name: str, what: str, policy: object, known: Sequence[str]) -> str:
    return (
        f"knob {name!r}: unknown {what} policy {policy!r}{did_you_mean(str(policy), known)}; "
        f"use one of {', '.join(known)}"
    )
