"""Expressions of a template's schedule for whole populations of candidates.

A template runs once for each *structure class*: knobs that choose among words, orders and
annotations are fixed, numbers (sizes of splits, knobs of ints) are `Sym`. What is derived from the
schedule then holds for every candidate of the class and is evaluated in NumPy columns. Where a
template asks for a value (``if tile > 8:``), the knobs concerned are fixed as well and the class is
derived anew. Where it cannot run on symbols at all (a size becomes the shape of a tensor), knobs
are fixed until it can: in the worst case each candidate is instantiated.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.cost.symbolic.evaluation import Program, constant_row
from loopwright.cost.symbolic.symbols import Graph, Number, Sym
from loopwright.schedule.state import State
from loopwright.task import ConfigEntity, Knob, Task
from loopwright.task.entities import Entity

#: Derives numbers from a schedule's state, always the same count.
Derive = Callable[[State], list[Number]]
#: Classes that were taken apart after which all are, by the same knobs.
APART = 64
#: Structure classes that are kept, and rows evaluated at once (columns then stay in the cache).
CLASSES, CHUNK = 4096, 2048


@dataclass(frozen=True, slots=True)
class _More:
    """A class that must be taken apart by more knobs."""

    knobs: frozenset[int]


#: What is known of a class: how to evaluate it, the numbers of its only candidate, that it must be
#: taken apart, or that its template fails.
_Found = Program | np.ndarray | _More | None


class Population:
    """Numbers derived from the schedules of a task's candidates.

    Args:
        task: the task.
        derive: what to derive from a schedule; see `Derive`.
        logged: for each of them whether ``log2(1 + x)`` of it is wanted.
        symbolic: False instantiates every candidate, for comparison.

    Attributes:
        derived: how often the template has run.
    """

    def __init__(
        self, task: Task, derive: Derive, logged: Sequence[bool], symbolic: bool = True
    ) -> None:
        self.task, self.logged = task, tuple(logged)
        self.derived = 0
        self._derive = derive
        self._knobs: list[Knob] = list(task.config_space.knobs.values())
        self._fixed = frozenset(
            k for k, knob in enumerate(self._knobs) if not symbolic or not knob.parts()
        )
        self._logged = np.array(self.logged, bool)
        #: Knobs that classes had to be taken apart by, and how many classes.
        self._asked: frozenset[int] = frozenset()
        self._apart = 0
        self._classes: OrderedDict[Any, _Found] = OrderedDict()
        self._columns: dict[tuple[int, int], np.ndarray] = {}

    def evaluate(self, digits: np.ndarray) -> np.ndarray:
        """float32 (n, numbers) for candidates (n, knobs); all NaN where a template fails."""
        out = np.empty((len(digits), len(self.logged)), np.float32)
        # Where most classes were taken apart, that is not tried again for each.
        fixed = self._fixed | self._asked if self._apart >= APART else self._fixed
        self._fill(np.ascontiguousarray(digits, np.int64), np.arange(len(digits)), fixed, out)
        return out

    def _fill(
        self, digits: np.ndarray, rows: np.ndarray, fixed: frozenset[int], out: np.ndarray
    ) -> None:
        """Fill the rows ``rows`` of ``out``, which belong to the candidates ``digits``."""
        for choice, members in _groups(digits, sorted(fixed), self.task.config_space.dims):
            found = self._class(fixed, choice, digits[members[0]])
            if isinstance(found, _More):
                self._fill(digits[members], rows[members], fixed | found.knobs, out)
            elif found is None:
                out[rows[members]] = np.nan
            elif isinstance(found, np.ndarray):
                out[rows[members]] = found
            else:
                self._run(found, digits[members], rows[members], out)

    def _run(self, program: Program, digits: np.ndarray, rows: np.ndarray, out: np.ndarray) -> None:
        for at in range(0, len(rows), CHUNK):
            part = slice(at, at + CHUNK)
            columns = [self._column(k, p)[digits[part, k]] for k, p in program.leaves]
            block = np.empty((len(rows[part]), len(self.logged)), np.float32)
            program.evaluate(columns, block)
            out[rows[part]] = block

    def _column(self, knob: int, part: int) -> np.ndarray:
        """What each candidate of a knob gives for one part of it."""
        if (knob, part) not in self._columns:
            self._columns[knob, part] = np.array(self._knobs[knob].parts()[part], np.float64)
        return self._columns[knob, part]

    def _class(self, fixed: frozenset[int], choice: tuple[int, ...], sample: np.ndarray) -> _Found:
        key = (fixed, choice)
        if key in self._classes:
            self._classes.move_to_end(key)
            return self._classes[key]
        found = self._derive_class(fixed, sample)
        if isinstance(found, _More):
            self._asked |= found.knobs
            self._apart += 1
        self._classes[key] = found
        if len(self._classes) > CLASSES:
            self._classes.popitem(last=False)
        return found

    def _derive_class(self, fixed: frozenset[int], sample: np.ndarray) -> _Found:
        everything = frozenset(range(len(self._knobs)))
        graph = Graph()
        try:
            numbers = self._instantiate(fixed, sample, graph)
        except Exception:  # whatever a template or an unusual schedule raises marks rows
            if graph.asked - fixed:
                return _More(frozenset(graph.asked))
            return None if fixed == everything else _More(self._stubborn(fixed, sample))
        if graph.asked - fixed:
            return _More(frozenset(graph.asked))
        if not any(isinstance(x, Sym) for x in numbers):
            return constant_row(numbers, self._logged)
        return Program(numbers, self.logged)

    def _instantiate(self, fixed: frozenset[int], sample: np.ndarray, graph: Graph) -> list[Number]:
        self.derived += 1
        chosen = {
            knob.name: knob.entities[sample[k]] if k in fixed else _symbolic(knob, k, graph)
            for k, knob in enumerate(self._knobs)
        }
        schedule, _ = self.task.instantiate(ConfigEntity(self.task.config_space, chosen, None))
        return self._derive(schedule.state)

    def _stubborn(self, fixed: frozenset[int], sample: np.ndarray) -> frozenset[int]:
        """Knobs on whose symbols a template fails: all that cannot be freed, one by one."""
        held = frozenset(range(len(self._knobs)))
        for k in sorted(held - fixed):
            graph = Graph()
            try:
                self._instantiate(held - {k}, sample, graph)
            except Exception:  # this knob cannot be a symbol, for whatever reason
                continue
            if not graph.asked:
                held -= {k}
        return held


def _groups(
    digits: np.ndarray, fixed: Sequence[int], dims: Sequence[int]
) -> Iterable[tuple[tuple[int, ...], np.ndarray]]:
    """Candidates that agree in the fixed knobs: what they chose, and where they are."""
    if not len(digits):
        return []
    codes = np.zeros(len(digits), np.int64)
    room = 1
    for k in fixed:
        if room * dims[k] >= 1 << 62:
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
            room = len(digits)
        codes = codes * dims[k] + digits[:, k]
        room *= dims[k]
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(codes[order])) + 1
    return [
        (tuple(digits[members[0], fixed].tolist()), members) for members in np.split(order, ends)
    ]


def _symbolic(knob: Knob, number: int, graph: Graph) -> Entity:
    """What a template gets in place of a candidate of a knob that has parts."""
    return knob.from_parts(
        [graph.leaf(number, part, values) for part, values in enumerate(knob.parts())]
    )
