"""Axes under knobs, and candidates of knobs by policy: ``define_split`` and its like."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Protocol, TypeAlias

from loopwright.errors import SpaceError, did_you_mean
from loopwright.ir.expr import Expr
from loopwright.records import Json
from loopwright.task.entities import AnnotateEntity, OtherOptionEntity, ReorderEntity, SplitEntity
from loopwright.task.knobs import (
    AnnotateKnob,
    Knob,
    OtherKnob,
    ReorderKnob,
    SplitKnob,
    checked_order,
    checked_split,
)


@dataclass(frozen=True)
class Axis:
    """A loop that knobs are defined over; ``length`` is None for a part of a split, where it
    depends on the configuration.

    Example:
        >>> print(lw.ConfigSpace.axis(16))
        Axis(length=16, name='')
    """

    length: int | None
    name: str = ""


class HasExtent(Protocol):
    @property
    def extent(self) -> object: ...


class HasDomain(Protocol):
    """An axis in the form of TVM."""

    @property
    def dom(self) -> HasExtent: ...


#: Anything that a knob may be defined over: a loop axis of a tensor, a length, or a part of a
#: split.
AxisLike: TypeAlias = Axis | int | HasExtent | HasDomain


def axis(source: AxisLike) -> Axis:
    """Make an `Axis` of a loop axis of a tensor (``C.op.axis[0]``), a positive int, or an Axis."""
    if isinstance(source, Axis):
        return source
    length = source if isinstance(source, int) else _extent(source)
    name = str(getattr(source, "name", "") or "")
    if isinstance(length, bool) or not isinstance(length, int):
        raise SpaceError(f"an axis is a loop axis or an integer length, got {source!r}")
    if length < 1:
        raise SpaceError(f"axis {name or '?'} has length {length}; it must be at least 1")
    return Axis(length, name)


def known_length(source: AxisLike, knob: str) -> int:
    """Length of an axis that a knob needs now; a part of another split has none and is refused."""
    resolved = axis(source)
    if resolved.length is None:
        raise SpaceError(
            f"knob {knob!r}: the length of part {resolved.name!r} of a split depends on the "
            "configuration; give the original axis more outputs instead (num_outputs=3)"
        )
    return resolved.length


def _extent(source: object) -> int | None:
    """``extent`` or ``dom.extent`` of an axis as an int; one over size variables is refused."""
    extent = getattr(source, "extent", None)
    if extent is None:
        extent = getattr(getattr(source, "dom", None), "extent", None)
    if isinstance(extent, bool) or extent is None:
        return None
    if isinstance(extent, Expr):
        raise SpaceError(
            f"axis {getattr(source, 'name', '?')!r} has {extent} iterations, and a knob needs a "
            "number; give the template ints for its size variables"
        )
    try:
        return int(extent)
    except (TypeError, ValueError):
        return None


SPLIT_POLICIES = ("factors", "power2", "verbose", "candidate")
REORDER_POLICIES = ("identity", "all", "interval_all", "candidate", "interleave", "interleave_cuda")
ANNOTATE_POLICIES = (
    *("none", "unroll", "try_unroll", "vec", "try_vec", "unroll_vec", "try_unroll_vec"),
    *("locate_cache", "bind_gpu", "bind_gpu_virtual"),
)
#: The parts of a launch that ``bind_gpu`` and ``bind_gpu_virtual`` bind loops to, outermost first.
_LAUNCHES = {
    "bind_gpu": ("blockIdx", "threadIdx"),
    "bind_gpu_virtual": ("blockIdx", "vthread", "threadIdx"),
}


def split_knob(
    name: str,
    axis: AxisLike,
    policy: str = "factors",
    num_outputs: int = 2,
    filter: Callable[[SplitEntity], bool] | None = None,
    max_factor: int = 1 << 31,
    no_tail: bool = False,
    candidate: Sequence[Sequence[int]] | None = None,
) -> Knob:
    length = known_length(axis, name)
    if policy not in SPLIT_POLICIES:
        raise SpaceError(_unknown(name, "split", policy, SPLIT_POLICIES))
    sizes: Iterable[Sequence[int]]
    if policy == "candidate":
        if not candidate:
            raise SpaceError(f"knob {name!r}: policy 'candidate' needs candidate=[[-1, 8], ...]")
        sizes = [checked_split(name, size, length) for size in candidate]
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
    return SplitKnob(name, entities, length)


def _factors(length: int, policy: str, max_factor: int) -> list[int]:
    low = [n for n in range(1, math.isqrt(length) + 1) if length % n == 0]
    divisors = {*low, *(length // n for n in low)}
    powers = {1 << n for n in range(length.bit_length())}
    chosen = {"factors": divisors, "power2": powers, "verbose": divisors | powers}[policy]
    return sorted(n for n in chosen if n <= max_factor)


def _inner_sizes(
    length: int, factors: Sequence[int], levels: int, exact: bool
) -> Iterator[tuple[int, ...]]:
    """``levels`` sizes whose product fits into (or divides) ``length``, in lexicographic order."""
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


def reorder_knob(
    name: str,
    axes: Sequence[AxisLike],
    policy: str,
    candidate: Sequence[Sequence[AxisLike]] | None = None,
    interval: tuple[int, int] | None = None,
    spatial: Sequence[Sequence[AxisLike]] | None = None,
    reduce: Sequence[Sequence[AxisLike]] | None = None,
) -> Knob:
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
        if interval is None or len(interval) != 2 or not 0 <= interval[0] < interval[1] <= count:
            raise SpaceError(
                f"knob {name!r}: policy 'interval_all' needs interval=(begin, end) within {count} "
                "axes"
            )
        begin, end = interval
        perms = [
            (*numbers[:begin], *middle, *numbers[end:])
            for middle in permutations(numbers[begin:end])
        ]
    elif policy == "candidate":
        if not candidate:
            raise SpaceError(f"knob {name!r}: policy 'candidate' needs candidate=[[axes], ...]")
        perms = [_where(name, axes, order) for order in candidate]
    else:
        perms = _interleave(name, axes, spatial or [], reduce or [], policy)
    entities = [ReorderEntity(checked_order(name, perm, count)) for perm in perms]
    return ReorderKnob(name, entities)


def _where(name: str, axes: Sequence[AxisLike], order: Sequence[AxisLike]) -> list[int]:
    """Positions of ``order`` in ``axes``; ints are positions, axes are told apart by identity."""
    positions = []
    for item in order:
        same = [number for number, axis in enumerate(axes) if axis is item]
        if isinstance(item, int):
            same = [item]
        if len(same) != 1:
            raise SpaceError(f"knob {name!r}: {item!r} is not one of its {len(axes)} axes")
        positions += same
    return positions


def _interleave(
    name: str,
    axes: Sequence[AxisLike],
    spatial: Sequence[Sequence[AxisLike]],
    reduce: Sequence[Sequence[AxisLike]],
    policy: str,
) -> list[tuple[int, ...]]:
    """Outer spatial loops in any merge, then the innermost spatial loops merged with the reduction
    loops; loops of one chain keep their order.

    For ``interleave_cuda`` the reductions stand between the two, and the innermost spatial loops,
    which are a thread's own, keep the order of the chains.
    """
    chains = [_where(name, axes, chain) for chain in spatial]
    inner = [_where(name, axes, chain) for chain in reduce]
    if not chains and not inner:
        raise SpaceError(f"knob {name!r}: policy {policy!r} needs spatial=[[...]], reduce=[[...]]")
    outer_merged = _merges([chain[:-1] for chain in chains])
    innermost = [chain[-1:] for chain in chains]
    if policy == "interleave_cuda":
        last = tuple(axis for chain in innermost for axis in chain)
        inner_merged = [(*merged, *last) for merged in _merges(inner)]
    else:
        inner_merged = list(_merges(innermost + inner))
    return [(*head, *tail) for head in outer_merged for tail in inner_merged]


def _merges(chains: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    if not any(chains):
        yield ()
        return
    for number, chain in enumerate(chains):
        if chain:
            rest = [*chains[:number], chain[1:], *chains[number + 1 :]]
            yield from ((chain[0], *tail) for tail in _merges(rest))


def annotate_knob(
    name: str, axes: Sequence[AxisLike], policy: str, num_anchor: int | None = None
) -> Knob:
    if policy not in ANNOTATE_POLICIES:
        raise SpaceError(_unknown(name, "annotate", policy, ANNOTATE_POLICIES))
    if not axes:
        raise SpaceError(f"knob {name!r}: there is no axis to annotate")
    if policy == "locate_cache":
        if not isinstance(num_anchor, int) or num_anchor < 1:
            raise SpaceError(f"knob {name!r}: policy 'locate_cache' needs num_anchor >= 1")
        places = product(range(len(axes)), repeat=num_anchor)
        return AnnotateKnob(name, map(AnnotateEntity, places))
    if policy in _LAUNCHES:
        return AnnotateKnob(name, [AnnotateEntity(_launch(name, len(axes), policy))])
    words = ["none"] if policy.startswith("try_") or policy in ("none", "vec") else []
    words += ["unroll"] if "unroll" in policy else []
    inner = [word for word in words if policy != "vec"] + (["vec"] if "vec" in policy else [])
    choices = product(*[words] * (len(axes) - 1), inner)
    return AnnotateKnob(name, map(AnnotateEntity, choices))


def _launch(name: str, count: int, policy: str) -> list[str]:
    """Words for loops: at most three dimensions; loops left over are fused into the outermost."""
    parts = _LAUNCHES[policy]
    dims = min(3, count // len(parts))
    if dims == 0:
        raise SpaceError(
            f"knob {name!r}: policy {policy!r} needs at least {len(parts)} axes, one for each of "
            f"{', '.join(parts)}; it has {count}"
        )
    letters = "zyx"[-dims:]
    tags = [part if part == "vthread" else f"{part}.{c}" for part in parts for c in letters]
    return ["fuse"] * (count - len(tags)) + tags


def other_knob(name: str, candidates: Sequence[Json]) -> Knob:
    if isinstance(candidates, (str, bytes)) or not isinstance(candidates, Iterable):
        raise SpaceError(f"knob {name!r}: candidates are a list, got {candidates!r}")
    return OtherKnob(name, map(OtherOptionEntity, candidates))


def _unknown(name: str, what: str, policy: object, names: Sequence[str]) -> str:
    return (
        f"knob {name!r}: unknown {what} policy {policy!r}{did_you_mean(str(policy), names)}; "
        f"use one of {', '.join(names)}"
    )
