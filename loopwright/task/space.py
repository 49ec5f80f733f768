"""The search space of a task: ordered knobs, the numbers of their combinations, and its points.

A point is an index in mixed radix whose least significant digit is the first knob's choice.
"""

from __future__ import annotations

import hashlib
import logging
import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from loopwright.errors import InstantiationError, SpaceError, TimeLimitError, shown
from loopwright.presenting import html_block, html_table
from loopwright.records import Json
from loopwright.target import Target
from loopwright.task.entities import Entity
from loopwright.task.knobs import Knob, value_text
from loopwright.task.template_config import Filter, TemplateConfig, missing_knob
from loopwright.time_limit import TEMPLATE_S, limited

if TYPE_CHECKING:
    from loopwright.task.template import Scheduled


#: Number of points on which filters do not end from which on that is an error.
_ENDLESS = 3
#: Candidates of a knob that are shown.
_SHOWN = 6

#: Sources of randomness that are accepted; None means seed 0.
Rng = np.random.Generator | random.Random | int | None

#: Largest number of points that are looked through one by one.
_SMALL = 20_000
#: Points that are drawn to estimate how many are valid, and at once.
_SAMPLE, _BLOCK = 4_000, 256

_log = logging.getLogger("loopwright.task")


def generator(rng: Rng) -> np.random.Generator:
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, random.Random):
        return np.random.default_rng(rng.getrandbits(64))
    return np.random.default_rng(0 if rng is None else rng)


@dataclass(frozen=True)
class ValidCount:
    """Number of valid points of a space, estimated from a random sample unless ``exact``.

    Example:
        >>> space = lw.ConfigSpace()
        >>> space.define_knob("unroll", [1, 2, 4])
        >>> space.freeze()
        >>> count = space.valid_count()
        >>> print(count, count.exact)
        3 of 3 True
    """

    count: int
    exact: bool
    total: int

    def __str__(self) -> str:
        if self.exact:
            return f"{self.count} of {self.total}"
        return f"about {self.count} of {self.total}, judging by {_SAMPLE} drawn at random"


class ConfigEntity(TemplateConfig):
    """A choice for every knob of a space; its ``index`` is None when a recorded value is no
    candidate.

    Example:
        >>> space = lw.ConfigSpace()
        >>> _ = space.define_split("tile", 16, num_outputs=2)
        >>> space.define_knob("unroll", [False, True])
        >>> space.freeze()
        >>> config = space.get(5)
        >>> print(config.index, config["tile"].size, config["unroll"].val)
        5 (-1, 1) True
    """

    def __init__(
        self, space: ConfigSpace, entities: Mapping[str, Entity], index: int | None
    ) -> None:
        self.space = space
        self.index = index
        self._entities = dict(entities)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._entities[name]
        except KeyError:
            raise missing_knob(name, list(self._entities)) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self._entities == other._entities

    def __hash__(self) -> int:
        return hash(value_text(self.values))

    def __str__(self) -> str:
        return " ".join(f"{name}={entity}" for name, entity in self._entities.items())

    def __repr__(self) -> str:
        return f"<config {self.index}: {self}>"

    def _repr_html_(self) -> str:
        number = "which its space does not have" if self.index is None else f"number {self.index:,}"
        return html_block(f"Configuration, {number}", html_table(self._entities.items()))

    @property
    def values(self) -> dict[str, Json]:
        """JSON form of each knob's choice, as a record keeps it: ``{"tile_i": [-1, 8]}``."""
        return {name: entity.value for name, entity in self._entities.items()}

    @property
    def is_fallback(self) -> bool:
        return False

    def raise_error(self, msg: str) -> None:
        raise InstantiationError(msg)

    def valid(self) -> bool:
        return True

    def multi_filter(self, filter: Filter) -> None: ...

    def _define(self, name: str, build: Callable[[], Knob], default: Json) -> None:
        if name not in self._entities:
            raise InstantiationError(
                f"knob {name!r} is defined for some configurations only; define every knob before "
                "the template branches on one"
            )


class ConfigSpace(TemplateConfig):
    """Collects knobs while a template runs for the first time, and is searched afterwards.

    While it collects, ``cfg[name]`` acts with the default candidate, so that the template runs
    through. ``len(space)`` counts all points, those that a filter refuses included.

    Attributes:
        errors: Messages of ``raise_error`` about the default configuration.
        asked_fallback: True when the template looked at ``cfg.is_fallback``.

    Example:
        >>> space = lw.ConfigSpace()
        >>> _ = space.define_split("tile", 16, num_outputs=2)
        >>> space.define_knob("unroll", [False, True])
        >>> space.freeze()
        >>> print(len(space))
        10
        >>> print(space.get(7))
        tile=[-1, 4] unroll=True
        >>> space.multi_filter(lambda config: config["tile"].size[-1] <= 4)
        >>> print(len(space), space.valid_count(), [space.is_valid(i) for i in range(5)])
        10 6 of 10 [True, True, True, False, False]
    """

    def __init__(self, defaults: Mapping[str, Json] | None = None) -> None:
        self.knobs: dict[str, Knob] = {}
        self.errors: list[str] = []
        self.asked_fallback = False
        self._defaults = dict(defaults or {})
        self._filters: list[Filter] = []
        self._frozen = False
        self._dims: tuple[int, ...] = ()
        self._default: int | None = None
        self._endless: set[int] = set()

    # -- while it collects ----------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        knob = self.knobs.get(name)
        if knob is None:
            raise missing_knob(name, list(self.knobs))
        return knob.entities[knob.default]

    @property
    def is_fallback(self) -> bool:
        self.asked_fallback = True
        return False

    def raise_error(self, msg: str) -> None:
        """Take note that the default configuration is refused; the collecting run goes on."""
        self.errors.append(msg)

    def valid(self) -> bool:
        return not self.errors

    def multi_filter(self, filter: Filter) -> None:
        self._filters.append(filter)

    def freeze(self) -> None:
        """End the collecting run; a default of a knob that does not exist is a `SpaceError`."""
        for name in self._defaults:
            if name not in self.knobs:
                raise missing_knob(name, list(self.knobs))
        self._frozen = True
        self._dims = self.dims

    def extend(self, define: Callable[[], object]) -> None:
        """Define more knobs of a space that is complete, behind the others."""
        self._frozen, self._dims = False, ()
        define()
        self.freeze()

    def _define(self, name: str, build: Callable[[], Knob], default: Json) -> None:
        if self._frozen:
            raise SpaceError(f"knob {name!r}: the space is complete; define knobs in the template")
        knob = build()
        if name in self._defaults:
            knob.set_default(self._defaults[name])
        elif default is not None:
            knob.set_default(default)
        before = self.knobs.setdefault(name, knob)
        if before.signature != knob.signature:
            raise SpaceError(
                f"knob {name!r} is defined twice with different candidates; rename one"
            )
        self._default = None

    # -- what it is -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.range_length

    def __repr__(self) -> str:
        return f"ConfigSpace({len(self.knobs)} knobs, {self.range_length} points)"

    def __str__(self) -> str:
        lines = [f"ConfigSpace({len(self.knobs)} knobs, {self.range_length} points):"]
        lines += [f"  {number} {knob}" for number, knob in enumerate(self.knobs.values())]
        if self.is_filtered:
            lines.append(f"  its filters accept {self.valid_count()} points")
        return "\n".join(lines) if self.knobs else repr(self)

    def _repr_html_(self) -> str:
        rows = []
        for knob in self.knobs.values():
            candidates = ", ".join(map(str, knob.entities[:_SHOWN]))
            more = f", and {len(knob) - _SHOWN} more" if len(knob) > _SHOWN else ""
            default = knob.entities[knob.default]
            rows.append((knob.name, knob.kind, len(knob), default, candidates + more))
        refused = ", of which a filter refuses some" if self.is_filtered else ""
        title = f"Space of {len(rows)} knobs, {self.range_length:,} points{refused}"
        return html_block(
            title, html_table(rows, ("knob", "kind", "candidates", "default", "which"))
        )

    @property
    def space_map(self) -> dict[str, Knob]:
        """AutoTVM's name of ``knobs``."""
        return self.knobs

    @property
    def dims(self) -> tuple[int, ...]:
        """Number of candidates of each knob."""
        return self._dims or tuple(len(knob) for knob in self.knobs.values())

    @property
    def range_length(self) -> int:
        """Number of points, refused ones included; may exceed what ``len`` can say."""
        return math.prod(self.dims)

    @property
    def is_filtered(self) -> bool:
        """True when a ``multi_filter`` may refuse points."""
        return bool(self._filters)

    @property
    def filters(self) -> tuple[Filter, ...]:
        return tuple(self._filters)

    @property
    def space_hash(self) -> str:
        """Hash of the ordered knobs and their candidates; 16 hexadecimal digits."""
        text = value_text([knob.signature for knob in self.knobs.values()])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def space_hashes(self) -> tuple[str, ...]:
        """The hashes that records of this space may have."""
        return (self.space_hash,)

    def hash_of(self, config: ConfigEntity) -> str:
        """The hash that a record of a configuration has."""
        return self.space_hash

    @property
    def default_index(self) -> int:
        """Index of the default configuration, trial 0 of every tuner: the default of each knob, or
        a point near it where a filter refuses that; `SpaceError` without any."""
        if self._default is None:
            index = self.knob2point([knob.default for knob in self.knobs.values()])
            self._default = index if self.is_valid(index) else self._nearest_valid(index)
        return self._default

    def set_default(self, index: int) -> None:
        self._check(index)
        self._default = index

    # -- points ---------------------------------------------------------------------------------

    def point2knob(self, index: int) -> tuple[int, ...]:
        """The position of each knob's choice; an index outside of the space is a `SpaceError`."""
        self._check(index)
        digits = []
        for dim in self.dims:
            index, digit = divmod(index, dim)
            digits.append(digit)
        return tuple(digits)

    def knob2point(self, vector: Sequence[int]) -> int:
        """The index of the choices, inverse of `point2knob`; `SpaceError` where they do not fit."""
        dims = self.dims
        if len(vector) != len(dims):
            raise SpaceError(f"{len(vector)} choices for {len(dims)} knobs")
        index = 0
        for knob, digit in zip(reversed(self.knobs.values()), reversed(vector), strict=True):
            if not 0 <= digit < len(knob):
                raise SpaceError(f"{knob!r} has no candidate number {digit}")
            index = index * len(knob) + int(digit)
        return index

    def get(self, index: int) -> ConfigEntity:
        """The configuration at an index, valid or not; `SpaceError` where it is outside."""
        digits = self.point2knob(index)
        pairs = zip(self.knobs.values(), digits, strict=True)
        return ConfigEntity(self, {k.name: k.entities[digit] for k, digit in pairs}, int(index))

    def find(self, values: Mapping[str, Json] | ConfigEntity) -> int | None:
        """The index of ``{knob: value}``, or None when it is not a point of this space."""
        if isinstance(values, ConfigEntity):
            values = values.values
        if set(values) != set(self.knobs):
            return None
        digits = [knob.position(values[name]) for name, knob in self.knobs.items()]
        positions = [digit for digit in digits if digit is not None]
        return self.knob2point(positions) if len(positions) == len(digits) else None

    def index_of(self, values: Mapping[str, Json] | ConfigEntity) -> int:
        """The index of ``{knob: value}``, as a record holds it; a `SpaceError` says which knob does
        not fit."""
        index = self.find(values)
        if index is None:
            raise SpaceError(f"not a point of this space: {self._misfit(values)}")
        return index

    def entity_of(self, values: Mapping[str, Json]) -> ConfigEntity:
        """A configuration of recorded values, which may be no candidates but have the form of their
        knobs, or it is a `SpaceError`.

        A knob that is missing takes its default, one that is unknown here is left out.
        """
        index = self.find(values)
        if index is not None:
            return self.get(index)
        chosen = {
            name: knob.entity(values[name]) if name in values else self[name]
            for name, knob in self.knobs.items()
        }
        return ConfigEntity(self, chosen, None)

    def lines_of(self, config: ConfigEntity) -> list[str]:
        """Lines that tell people a configuration of this space."""
        return [str(config)]

    def is_valid(self, index: int) -> bool:
        """True when the index is within the space and every filter accepts the point.

        A filter that takes longer than `TEMPLATE_S` seconds refuses the point, with a warning; one
        that raises, or takes too long for the third time, is a `SpaceError`.
        """
        if not 0 <= index < self.range_length:
            return False
        if not self._filters:
            return True
        if index in self._endless:
            return False
        config = self.get(index)
        try:
            accepted = (accepts(config) for accepts in self._filters)
            return limited(TEMPLATE_S, "a filter", all, accepted, often=True)
        except KeyboardInterrupt:
            raise
        except TimeLimitError as exc:
            self._note_endless(config, exc)
            return False
        except BaseException as exc:  # a user's filter: one that calls sys.exit ends nothing
            text = f"a filter failed on configuration {index} ({config}): "
            raise SpaceError(f"{text}{type(exc).__name__}: {exc}") from exc

    def _note_endless(self, config: ConfigEntity, exc: TimeLimitError) -> None:
        """Remember a point on which a filter does not end; too many are an error."""
        assert config.index is not None
        self._endless.add(config.index)
        text = f"{exc} on configuration {config.index} ({config})"
        if len(self._endless) >= _ENDLESS:
            raise SpaceError(
                f"{text}, the {_ENDLESS}rd such point; correct the multi_filter"
            ) from exc
        _log.warning("%s, which counts as refused", text)

    # -- choosing points: deterministic for a seed, in bounded time, without listing the product ---

    def valid_count(self) -> ValidCount:
        """Number of points that the filters accept; an estimate, marked as one, for large
        spaces."""
        total = self.range_length
        if not self.is_filtered:
            return ValidCount(total, True, total)
        if total <= _SMALL:
            return ValidCount(sum(map(self.is_valid, range(total))), True, total)
        draws = self._draws(generator(0))
        hits = sum(self.is_valid(next(draws)) for _ in range(_SAMPLE))
        return ValidCount(total * hits // _SAMPLE, False, total)

    def sample_ints(self, m: int, rng: Rng = None) -> list[int]:
        """Up to ``m`` different valid indices at random; fewer when hardly any point is valid.

        ``rng`` is a ``numpy.random.Generator``, a ``random.Random``, or a seed; None is seed 0.
        """
        return self._sampled(m, rng)

    def _sampled(self, m: int, rng: Rng, exclude: Collection[int] = frozenset()) -> list[int]:
        source, total = generator(rng), self.range_length
        chosen: dict[int, None] = {}
        if total <= max(_SMALL, 2 * m):
            # So few that a shuffle finds every last one; drawing would meet the same ones again.
            points: Iterator[int] = iter(source.permutation(total).tolist())
        else:
            points = islice(self._draws(source), 10_000 + 200 * m)
        for index in points:
            if len(chosen) >= m:
                break
            if index not in chosen and index not in exclude and self.is_valid(index):
                chosen[index] = None
        return list(chosen)

    def get_rand_index(self, rng: Rng = None, to_exclude: Sequence[int] = ()) -> int:
        """A valid index at random that is not excluded; `SpaceError` where none was found."""
        chosen = self._sampled(1, rng, frozenset(to_exclude))
        if not chosen:
            raise SpaceError(
                f"no valid point found among {self.range_length}, {len(to_exclude)} being excluded"
            )
        return chosen[0]

    def random_walk(self, index: int, rng: Rng = None) -> int:
        """A valid point that differs from ``index`` in one knob; ``index`` where there is none."""
        source, start, dims = generator(rng), self.point2knob(index), self.dims
        movable = [number for number, dim in enumerate(dims) if dim > 1]
        for _ in range(64 if movable else 0):
            number = movable[int(source.integers(len(movable)))]
            shift = 1 + int(source.integers(dims[number] - 1))
            point = self._moved(start, number, (start[number] + shift) % dims[number])
            if self.is_valid(point):
                return point
        # Nearly everything around is refused: look at each neighbour once.
        around = list(self._neighbours(start)) if self.is_filtered else []
        order: list[int] = source.permutation(len(around)).tolist()
        return next((around[i] for i in order if self.is_valid(around[i])), index)

    def _nearest_valid(self, index: int) -> int:
        """A valid point near a refused one: of its neighbours, of growing walks, or of all."""
        source, start = generator(0), self.point2knob(index)
        near = chain(self._neighbours(start), self._far_neighbours(start, source))
        for point in filter(self.is_valid, near):
            return point
        if anywhere := self._sampled(1, source):
            return anywhere[0]
        looked = "all" if self.range_length <= _SMALL else "more than 10000 random ones"
        raise SpaceError(
            f"no valid configuration: the filters refuse {looked} of {self.range_length} points; "
            "loosen multi_filter or add candidates"
        )

    def _moved(self, vector: tuple[int, ...], number: int, digit: int) -> int:
        return self.knob2point([*vector[:number], digit, *vector[number + 1 :]])

    def _neighbours(self, vector: tuple[int, ...]) -> Iterator[int]:
        """Points that differ in one knob, nearest candidates first."""
        for number, dim in enumerate(self.dims):
            here = vector[number]
            others = [digit for digit in range(dim) if digit != here]
            for digit in sorted(others, key=lambda digit: (abs(digit - here), digit)):
                yield self._moved(vector, number, digit)

    def _far_neighbours(self, start: tuple[int, ...], source: np.random.Generator) -> Iterator[int]:
        """Random points that differ in two knobs, then some in three, and so on."""
        for changes in (n for n in range(2, len(start) + 1) for _ in range(_BLOCK)):
            vector = list(start)
            for number in source.permutation(len(start))[:changes]:
                vector[number] = int(source.integers(self.dims[number]))
            yield self.knob2point(vector)

    def _draws(self, source: np.random.Generator) -> Iterator[int]:
        """Endless random points, repetitions included."""
        dims = np.array(self.dims)
        while self.range_length < 1 << 62:
            yield from source.integers(self.range_length, size=_BLOCK).tolist()
        while True:
            vectors = source.integers(dims, size=(_BLOCK, len(dims))).tolist()
            yield from map(self.knob2point, vectors)

    def get_next_index(self, index: int, step: int = 1) -> int | None:
        """The ``step``-th valid index after ``index`` (-1 is before the first); None at the end."""
        if step < 1:
            raise SpaceError(f"step must be at least 1, got {step}")
        valid = filter(self.is_valid, range(index + 1, self.range_length))
        return next(islice(valid, step - 1, None), None)

    def _check(self, index: int) -> None:
        if not 0 <= index < self.range_length:
            raise SpaceError(f"index {index} is outside of the space of {self.range_length} points")

    def _misfit(self, values: Mapping[str, Json] | ConfigEntity) -> str:
        if isinstance(values, ConfigEntity):
            values = values.values
        for name, knob in self.knobs.items():
            if name not in values:
                return f"there is no value for knob {name!r}"
            if knob.position(values[name]) is None:
                what = f"the {len(knob)} candidates of knob {name!r}"
                return f"{shown(values[name])} is not among {what}"
        return f"unknown knobs {shown(', '.join(sorted(set(values) - set(self.knobs))))}"


class StructureRanking(Protocol):
    """A task whose space is a list of structures, of which some are more promising than others."""

    @property
    def ranking(self) -> Sequence[tuple[int, float]]:
        """Index of each structure's best point and its predicted share of the peak, best first."""


class Scheduler(Protocol):
    """A space whose configurations are schedules: a `loopwright.task.Task`, or a part of one."""

    @property
    def target(self) -> Target: ...
    @property
    def config_space(self) -> ConfigSpace: ...
    def instantiate(self, config: ConfigEntity) -> Scheduled: ...
