"""What rules for GPUs choose by: knobs of a template, or symbols of a structure.

A rule says what can be chosen and schedules by what it reads. For a template that is a
configuration, whose yes-or-no choices are knobs as well; for a structure sizes are symbols, yes or
no as far as it decides a size is a symbol of 0 or 1, and every other choice is a structure of its
own. So each rule is written once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log2
from typing import Any, Protocol, TypeVar

from loopwright import te
from loopwright.schedule import Schedule
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure

T = TypeVar("T")
#: Reads what was chosen under a name: a number, a tuple of sizes, a bool; symbols in structures.
Values = Callable[[str], Any]
#: Structures of an expression at most: programs of many kernels have choices for each.
_MOST_STRUCTURES = 8


@dataclass(frozen=True)
class LoopSizes:
    """How a loop may be cut.

    Attributes:
        length: of the loop.
        candidates: sizes of its parts but the outermost, from the outside in.
        default: one of them.
    """

    length: int
    candidates: Sequence[tuple[int, ...]]
    default: tuple[int, ...]


class Knobs(Protocol):
    """What a rule for GPUs defines its choices on, and reads them from.

    Attributes:
        s: the schedule.
    """

    s: Schedule

    @property
    def collects(self) -> bool:
        """Whether candidates are asked for; else they are known, and definitions may be skipped."""

    def value(self, name: str) -> Any:
        """What is chosen under a name."""

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What no choice changes; computed once for all structures of a rule."""

    def number(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """A size; by default the first."""

    def numbers(
        self,
        name: str,
        each: Mapping[str, tuple[Sequence[int], int]],
        accepts: Callable[[Values], bool],
    ) -> None:
        """Sizes with their defaults, of which only some go together; in a structure they are one
        knob ``name``."""

    def loops(
        self,
        name: str,
        each: Mapping[str, LoopSizes],
        together: Callable[[], Sequence[tuple[tuple[int, ...], ...]]] | None,
    ) -> None:
        """How several loops are cut; in a structure one knob ``name`` of what ``together`` gives,
        sizes of each loop in order, or without it a knob for each loop."""

    def flag(self, name: str, candidates: Sequence[bool], default: bool | None = None) -> Any:
        """Yes or no, which decides a size: true is 1 and false 0."""

    def choice(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """A number, or yes or no, which decides more than sizes."""

    def keep(self, accepts: Callable[[Values], bool]) -> None:
        """Leave out what a device would refuse."""


def width_of(flag: Any, widest: int) -> Any:
    """A vector of ``widest`` elements where a flag is set, else of one."""
    return 1 + flag * (widest - 1)


def is_one(size: Any) -> bool:
    """Whether a size is 1 in every configuration."""
    return isinstance(size, int) and size == 1


class Choices:
    """What is chosen beside sizes while one structure is made.

    Args:
        decided: the first choices; later ones take the first option.

    Attributes:
        taken: what was chosen, by name.
        others: how other structures decide: one choice differs, the later ones are open.
    """

    def __init__(self, decided: tuple[int, ...] = ()) -> None:
        self._decided = decided
        self.taken: dict[str, int] = {}
        self.others: list[tuple[int, ...]] = []

    @property
    def words(self) -> list[str]:
        """What was chosen, for people; what was not done is left out."""
        found = [(name, x) for name, x in self.taken.items() if x is not False]
        return [name if x is True else f"{name} {x}" for name, x in found]

    def take(self, name: str, options: Sequence[int]) -> int:
        """The next choice."""
        before = tuple(self.taken.values())
        if len(before) < len(self._decided):
            chosen = self._decided[len(before)]
        else:
            chosen = options[0]
            self.others += [(*before, option) for option in options[1:]]
        self.taken[name] = chosen
        return chosen


class StructureKnobs:
    """Knobs of a structure under construction.

    Args:
        outputs: the results.
        args: the arguments in calling order.
        choices: what is chosen beside sizes.
        known: what was computed once for all structures of the rule.
    """

    def __init__(
        self,
        outputs: Sequence[te.Tensor],
        args: Sequence[te.Tensor],
        choices: Choices,
        known: dict[str, Any],
    ) -> None:
        self.sketch = Sketch(outputs, args)
        self.s = self.sketch.s
        self.choices = choices
        self.collects = True
        self._values: dict[str, Any] = {}
        self._parts: dict[str, _Part] = {}
        self._known = known

    def value(self, name: str) -> Any:
        """What is chosen under a name, as symbols."""
        return self._values[name]

    def once(self, name: str, make: Callable[[], T]) -> T:
        """What no choice changes."""
        if name not in self._known:
            self._known[name] = make()
        found: T = self._known[name]
        return found

    def number(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """A size; by default the first."""
        value = candidates[0]
        if len(candidates) > 1:
            value = self.sketch.number(name, candidates, default)
            self._parts[name] = _Part(name)
        self._values[name] = value
        return value

    def numbers(
        self,
        name: str,
        each: Mapping[str, tuple[Sequence[int], int]],
        accepts: Callable[[Values], bool],
    ) -> None:
        """Sizes as one knob of those that go together; by default those nearest to the defaults."""
        names = list(each)
        found = [
            sizes
            for sizes in product(*(candidates for candidates, _ in each.values()))
            if accepts(dict(zip(names, sizes, strict=True)).__getitem__)
        ]
        wanted = [default for _, default in each.values()]

        def distance(sizes: Sequence[int]) -> float:
            return sum(abs(log2(a / b)) for a, b in zip(sizes, wanted, strict=True))

        chosen = self.sketch.numbers(name, found, min(found, key=distance))
        for at, part in enumerate(names):
            self._values[part] = chosen[at]
            self._parts[part] = _Part(name, at)

    def loops(
        self,
        name: str,
        each: Mapping[str, LoopSizes],
        together: Callable[[], Sequence[tuple[tuple[int, ...], ...]]] | None,
    ) -> None:
        """How several loops are cut, as one knob or one each."""
        if together is None:
            for part, loop in each.items():
                self._values[part] = self.sketch.numbers(part, loop.candidates, loop.default)
                self._parts[part] = _Part(part, 0, len(loop.default))
            return
        default = tuple(n for loop in each.values() for n in loop.default)
        found = self.once(
            name, lambda: [tuple(n for sizes in point for n in sizes) for point in together()]
        )
        chosen = self.sketch.numbers(name, found, default)
        at = 0
        for part, loop in each.items():
            end = at + len(loop.default)
            self._values[part] = chosen[at:end]
            self._parts[part] = _Part(name, at, end)
            at = end

    def flag(self, name: str, candidates: Sequence[bool], default: bool | None = None) -> Any:
        """Yes or no as a symbol of 1 and 0."""
        first = candidates[0] if default is None else default
        return self.number(name, [int(x) for x in candidates], int(first))

    def choice(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """One of the options; each other one is another structure."""
        options = sorted(candidates, key=lambda x: x is not default)
        chosen = options[0] if len(options) == 1 else self.choices.take(name, options)
        self._values[name] = chosen
        return chosen

    def keep(self, accepts: Callable[[Values], bool]) -> None:
        """Refuse points of the space."""
        parts, fixed = dict(self._parts), self._values

        def passes(config: Any) -> bool:
            def value(name: str) -> Any:
                return parts[name].of(config) if name in parts else fixed[name]

            return accepts(value)

        self.sketch.space.multi_filter(passes)


@dataclass(frozen=True)
class _Part:
    """Where a value stands: a knob, or some of its numbers.

    Attributes:
        knob: its name.
        first: the number, or the first of them; None: the knob is a number.
        end: behind the last of them; None: it is one.
    """

    knob: str
    first: int | None = None
    end: int | None = None

    def of(self, config: Any) -> Any:
        """The value in a configuration."""
        value = config[self.knob].val
        if self.first is None:
            return value
        return value[self.first] if self.end is None else tuple(value[self.first : self.end])


@dataclass
class Names:
    """Names of knobs, each once: axes and stages may be called alike."""

    taken: set[str] = field(default_factory=set)

    def of(self, name: str) -> str:
        """The name, with a number where it is taken."""
        found = next(n for n in _numbered(name) if n not in self.taken)
        self.taken.add(found)
        return found


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 1
    while True:
        yield f"{name}_{number}"
        number += 1


def every_structure(
    outputs: Sequence[te.Tensor],
    args: Sequence[te.Tensor],
    name: str,
    why: str,
    schedule: Callable[[Knobs], object],
) -> list[Structure]:
    """The structures that a rule makes: one for each way to choose.

    Args:
        outputs: the results.
        args: the arguments in calling order.
        name: of the structures; what was chosen otherwise than not is added.
        why: the reason, for people.
        schedule: the rule.

    Returns:
        The structure of all defaults first, then those that differ in one choice, and so on; not
        more than 8.
    """
    found: list[Structure] = []
    waiting = deque([()])  # type: deque[tuple[int, ...]]
    known: dict[str, Any] = {}
    while waiting and len(found) < _MOST_STRUCTURES:
        choices = Choices(waiting.popleft())
        knobs = StructureKnobs(outputs, args, choices, known)
        schedule(knobs)
        knobs.sketch.why.append(why)
        found.append(knobs.sketch.finished(", ".join([name, *choices.words])))
        waiting += choices.others
    return found
