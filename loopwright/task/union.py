"""`SpaceUnion`: a space of several parts, each a space of its own with knobs of its own.

A point's index is that in its part, counted on from the points of the parts before. Every part has
a knob `STRUCTURE` with its own name as the one candidate.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from loopwright.errors import SpaceError, did_you_mean, shown
from loopwright.presenting import counted
from loopwright.records import STRUCTURE as STRUCTURE
from loopwright.records import Json
from loopwright.task.space import ConfigEntity, ConfigSpace, Rng, Scheduler, ValidCount, generator

#: Columns of the text of a space.
_WIDTH = 100
#: Names that a message lists.
_LISTED = 4


class SpaceUnion(ConfigSpace):
    """The points of several spaces as one; cost models and searches work on its parts."""

    def __init__(
        self,
        parts: Sequence[Scheduler],
        default: Callable[[], int] | None = None,
        more: Callable[[], Sequence[Scheduler]] | None = None,
        unnamed: str | None = None,
    ) -> None:
        super().__init__()
        if not parts:
            raise SpaceError("a space needs at least one part")
        self.given = tuple(parts)
        # Called when first needed: for the index of the default configuration, else that of the
        # first part; and for parts that take long to find and are not needed to know the task.
        self._choose, self._more = default, more
        #: The part of values that name none.
        self._unnamed = unnamed
        _check_names(self.given)
        self._frozen = True

    @cached_property
    def parts(self) -> tuple[Scheduler, ...]:
        all_parts = (*self.given, *(self._more() if self._more is not None else ()))
        _check_names(all_parts)
        return all_parts

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(str(_structure(part.config_space)) for part in self.parts)

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Index of the first point of each part, and at the end the number of all points."""
        return (0, *accumulate(part.config_space.range_length for part in self.parts))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def __repr__(self) -> str:
        return f"SpaceUnion({len(self.parts)} structures, {self.range_length} points)"

    def __str__(self) -> str:
        from textwrap import fill

        lines = [
            f"{counted(len(self.parts), 'structure')}, {self.range_length} points (S1, S2, ... of "
            "a log count what it holds, in its order):"
        ]
        alike: dict[str, list[str]] = {}
        for number, (name, part) in enumerate(zip(self.names, self.parts, strict=True), 1):
            lines.append(fill(f"{number:3}  {name}", _WIDTH, subsequent_indent=" " * 5))
            space = part.config_space
            sizes = (f"{knob.name} {len(knob)}" for knob in space.knobs.values() if len(knob) > 1)
            text = f"{counted(space.range_length, 'point')}: {', '.join(sizes) or 'no knob'}"
            alike.setdefault(text, []).append(str(number))
        lines.append("knobs and their number of values:")
        for text, numbers in alike.items():
            which = "each" if len(alike) == 1 else ", ".join(numbers)
            lines.append(
                fill(f"{which}: {text}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from loopwright.presenting import html_block, html_text

        return html_block(repr(self), html_text(str(self)))

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.range_length,)

    @property
    def range_length(self) -> int:
        return self.offsets[-1]

    @property
    def is_filtered(self) -> bool:
        return any(part.config_space.is_filtered for part in self.parts)

    @property
    def space_hash(self) -> str:
        return hashlib.sha256(" ".join(self.space_hashes).encode()).hexdigest()[:16]

    @property
    def space_hashes(self) -> tuple[str, ...]:
        return tuple(part.config_space.space_hash for part in self.parts)

    def hash_of(self, config: ConfigEntity) -> str:
        number, _ = self.place_of(config)
        return self.parts[number].config_space.space_hash

    @property
    def has_default(self) -> bool:
        """Whether the index of the default is known: it was asked for, or chosen by hand."""
        return self._default is not None

    @property
    def default_index(self) -> int:
        if self._default is None:
            first = self.parts[0].config_space
            self._default = first.default_index if self._choose is None else self._choose()
        return self._default

    def place(self, index: int) -> tuple[int, int]:
        self._check(index)
        number = bisect_right(self.offsets, index) - 1
        return number, index - self.offsets[number]

    def place_of(self, config: ConfigEntity | Mapping[str, Json]) -> tuple[int, ConfigEntity]:
        values = self._named(config)
        number = self._number(values)
        return number, self.parts[number].config_space.entity_of(values)

    def lifted(self, number: int, config: ConfigEntity) -> ConfigEntity:
        """The configuration of a part as one of this space."""
        index = None if config.index is None else self.offsets[number] + config.index
        return ConfigEntity(self, {name: config[name] for name in config.values}, index)

    def get(self, index: int) -> ConfigEntity:
        number, local = self.place(index)
        return self.lifted(number, self.parts[number].config_space.get(local))

    def find(self, values: Mapping[str, Json] | ConfigEntity) -> int | None:
        values = self._named(values)
        number = self._numbers.get(str(values.get(STRUCTURE)))
        if number is None:
            return None
        local = self.parts[number].config_space.find(values)
        return None if local is None else self.offsets[number] + local

    def index_of(self, values: Mapping[str, Json] | ConfigEntity) -> int:
        values = self._named(values)
        number = self._number(values)
        return self.offsets[number] + self.parts[number].config_space.index_of(values)

    def entity_of(self, values: Mapping[str, Json]) -> ConfigEntity:
        number, config = self.place_of(values)
        return self.lifted(number, config)

    def lines_of(self, config: ConfigEntity) -> list[str]:
        name = str(config[STRUCTURE].value)
        knobs = [f"{knob}={config[knob]}" for knob in config.values if knob != STRUCTURE]
        structure = f"structure {self._numbers[name] + 1} of {len(self.names)}: {name}"
        return [" ".join(knobs), structure] if knobs else [structure]

    def is_valid(self, index: int) -> bool:
        if not 0 <= index < self.range_length:
            return False
        number, local = self.place(index)
        return self.parts[number].config_space.is_valid(local)

    def valid_count(self) -> ValidCount:
        counts = [part.config_space.valid_count() for part in self.parts]
        total = sum(count.count for count in counts)
        return ValidCount(total, all(count.exact for count in counts), self.range_length)

    def sample_ints(self, m: int, rng: Rng = None) -> list[int]:
        """Different valid points at random, as many from each part as from others if it can."""
        source = generator(rng)
        sizes = [end - begin for begin, end in pairwise(self.offsets)]
        wanted = _shares(m, sizes)
        chosen = [
            self.offsets[number] + local
            for number, count in enumerate(wanted)
            for local in self.parts[number].config_space.sample_ints(count, source)
        ]
        order: list[int] = source.permutation(len(chosen)).tolist()
        return [chosen[i] for i in order]

    def get_rand_index(self, rng: Rng = None, to_exclude: Collection[int] = ()) -> int:
        source = generator(rng)
        order: list[int] = source.permutation(len(self.parts)).tolist()
        for number in order:
            begin, end = self.offsets[number], self.offsets[number + 1]
            taken = frozenset(i - begin for i in to_exclude if begin <= i < end)
            drawn = self.parts[number].config_space._sampled(1, source, taken)
            if drawn:
                return begin + drawn[0]
        raise SpaceError(
            f"no valid point found among {self.range_length}, {len(to_exclude)} being excluded"
        )

    def random_walk(self, index: int, rng: Rng = None) -> int:
        """A valid point of the same part that differs in one knob; ``index`` where none does."""
        number, local = self.place(index)
        return self.offsets[number] + self.parts[number].config_space.random_walk(local, rng)

    def _named(self, values: Mapping[str, Json] | ConfigEntity) -> Mapping[str, Json]:
        values = values.values if isinstance(values, ConfigEntity) else values
        return values if self._unnamed is None else {STRUCTURE: self._unnamed, **values}

    def _number(self, values: Mapping[str, Json]) -> int:
        name = values.get(STRUCTURE)
        if name is None:
            raise SpaceError(f"not a point of this space: there is no value for {STRUCTURE!r}")
        number = self._numbers.get(str(name))
        if number is None:
            near = did_you_mean(str(name), self.names)
            rest = len(self.names) - _LISTED
            listed = [*self.names[:_LISTED], *([f"and {rest} more"] if rest > 0 else [])]
            raise SpaceError(
                f"there is no structure {shown(name)}{near}; there are: {'; '.join(listed)}"
            )
        return number


def _check_names(parts: Sequence[Scheduler]) -> None:
    names = [str(_structure(part.config_space)) for part in parts]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise SpaceError(f"two structures are called {twice!r}; rename one")


def _structure(space: ConfigSpace) -> Json:
    knob = space.knobs.get(STRUCTURE)
    if knob is None or len(knob) != 1:
        raise SpaceError(f"a part of a space needs the knob {STRUCTURE!r} with its name alone")
    return knob.entities[0].value


def _shares(m: int, sizes: Sequence[int]) -> list[int]:
    """``m`` in even shares; those that a part has no room for go to the others."""
    wanted = [0] * len(sizes)
    left = m
    while left > 0:
        open_ = [n for n, size in enumerate(sizes) if wanted[n] < size]
        if not open_:
            break
        each = max(left // len(open_), 1)
        for number in open_[: left if each == 1 else None]:
            added = min(each, sizes[number] - wanted[number])
            wanted[number] += added
            left -= added
    return wanted
