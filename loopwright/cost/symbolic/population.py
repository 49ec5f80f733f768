"""Numbers derived from the schedules of whole populations of candidates.

Candidates that agree in all words, orders and annotations form a *structure class*. A template runs
once for a class: its numbers (sizes of splits, knobs of ints) are then `Sym`, which stand for those
of every candidate of the class. Numbers derived from the schedule are expressions of them,
evaluated in NumPy columns. Where a template asks for a value (``if tile > 8:``), the knobs of that
value are fixed as well, and the smaller classes are derived anew. Where it cannot run on symbols at
all (a size becomes the shape of a tensor), knobs are fixed until it can: in the worst case every
candidate is a class of its own (`loopwright.cost.symbolic.candidates`).
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loopwright.cost.symbolic.candidates import Candidates, Derive, derived
from loopwright.cost.symbolic.evaluation import ColumnProgram, constant_row
from loopwright.cost.symbolic.known_counts import KnownCounts
from loopwright.cost.symbolic.known_rows import KEPT, KnownRows
from loopwright.cost.symbolic.symbols import Graph, Number, Sym
from loopwright.task import ConfigEntity, Knob
from loopwright.task.entities import Entity
from loopwright.task.sampling import Digits
from loopwright.task.space import Scheduler

#: Number of classes that must have been divided before all are, by the same knobs.
APART = 64
#: Cached structure classes, and rows evaluated at once (columns then stay in the cache).
CLASSES, CHUNK = 4096, 2048

_Row = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _FixMore:
    """A class that must be divided, by fixing these knobs too."""

    knobs: frozenset[int]


#: Result for a class: a program for all its candidates, their common row, or the demand to divide
#: it.
_Class = ColumnProgram | _Row | _FixMore


class Population:
    """Numbers derived from the schedules of a task's candidates.

    ``logged`` says for each whether ``log2(1 + x)`` of it is wanted; ``symbolic=False``
    instantiates every candidate, for comparison.
    """

    def __init__(
        self, task: Scheduler, derive: Derive, logged: Sequence[bool], symbolic: bool = True
    ) -> None:
        self.task, self.logged = task, tuple(logged)
        self.derived = 0  # number of times that the template has run
        self._derive = derive
        self._knobs: list[Knob] = list(task.config_space.knobs.values())
        self._fixed = frozenset(
            k for k, knob in enumerate(self._knobs) if not symbolic or not knob.parts()
        )
        self._logged = np.array(self.logged, bool)
        #: Knobs by which classes had to be taken apart, and how many classes were.
        self._asked: frozenset[int] = frozenset()
        self._apart = 0
        self._classes: OrderedDict[tuple[frozenset[int], tuple[int, ...]], _Class] = OrderedDict()
        self._columns: dict[tuple[int, int], npt.NDArray[np.float64]] = {}
        self._known = KnownRows(len(self.logged), by=sorted(self._fixed))
        self._counts = KnownCounts()
        self._candidates = Candidates(task, derive, logged)

    def evaluate(self, digits: Digits) -> _Row:
        """Numbers, float32 (n, numbers), of candidates (n, knobs); NaN where a template fails."""
        return self._known.rows(np.ascontiguousarray(digits, np.int64), self._evaluate)

    def _evaluate(self, digits: Digits, out: _Row) -> None:
        # Where most classes were taken apart, that is not tried again for each.
        fixed = self._fixed | self._asked if self._apart >= APART else self._fixed
        alone: list[Digits] = [np.zeros(0, np.int64)]
        self._fill(digits, np.arange(len(digits)), fixed, out, alone)
        rows = np.concatenate(alone)
        out[rows] = self._rows_alone(digits[rows])

    def _fill(
        self,
        digits: Digits,
        rows: Digits,
        fixed: frozenset[int],
        out: _Row,
        alone: list[Digits],
    ) -> None:
        """Fill the rows ``rows`` of ``out``, which belong to the candidates ``digits``; rows of
        candidates that are classes of their own go to ``alone``.
        """
        if len(fixed) == len(self._knobs):
            alone.append(rows)
            return
        for choice, members in _groups(digits, sorted(fixed), self.task.config_space.dims):
            structure = self._class(fixed, choice, digits[members[0]])
            if isinstance(structure, _FixMore):
                self._fill(digits[members], rows[members], fixed | structure.knobs, out, alone)
            elif isinstance(structure, np.ndarray):
                out[rows[members]] = structure
            else:
                self._run(structure, digits[members], rows[members], out)
                self._run_whole(structure, fixed, digits[members[0]])

    def _rows_alone(self, digits: Digits) -> _Row:
        """Rows of candidates that are classes of their own."""
        if not len(digits):
            return np.empty((0, len(self.logged)), np.float32)
        different, place = np.unique(digits, axis=0, return_inverse=True)
        self.derived += len(different)
        return self._candidates.rows(different)[place.reshape(-1)]

    def _run_whole(self, program: ColumnProgram, fixed: frozenset[int], sample: Digits) -> None:
        """Evaluate all candidates of the class of ``sample``, where the space is small: a program
        takes as long for a hundred candidates as for one, and others will be asked for.
        """
        space = self.task.config_space
        if space.range_length > KEPT:
            return
        free = [k for k in range(len(self._knobs)) if k not in fixed]
        choices = np.indices([space.dims[k] for k in free]).reshape(len(free), -1).T
        digits = np.repeat(sample[None], len(choices), axis=0)
        digits[:, free] = choices
        out = np.empty((len(digits), len(self.logged)), np.float32)
        self._run(program, digits, np.arange(len(digits)), out)
        self._known.add(digits, out)

    def _run(self, program: ColumnProgram, digits: Digits, rows: Digits, out: _Row) -> None:
        for at in range(0, len(rows), CHUNK):
            part = slice(at, at + CHUNK)
            columns, these = program.columns(digits[part]), rows[part]
            first, last = int(these[0]), int(these[-1]) + 1
            if last - first == len(these):  # ascending, so all that lie between
                program.evaluate(columns, out[first:last])
                continue
            block = np.empty((len(these), len(self.logged)), np.float32)
            program.evaluate(columns, block)
            out[these] = block

    def _column(self, knob: int, part: int) -> npt.NDArray[np.float64]:
        """Value of one part of a knob in each of its candidates."""
        if (knob, part) not in self._columns:
            self._columns[knob, part] = np.array(self._knobs[knob].parts()[part], np.float64)
        return self._columns[knob, part]

    def _class(self, fixed: frozenset[int], choice: tuple[int, ...], sample: Digits) -> _Class:
        key = (fixed, choice)
        if key in self._classes:
            self._classes.move_to_end(key)
            return self._classes[key]
        derived = self._derive_class(fixed, sample)
        if isinstance(derived, _FixMore):
            self._asked |= derived.knobs
            self._apart += 1
        self._classes[key] = derived
        if len(self._classes) > CLASSES:
            self._classes.popitem(last=False)
        return derived

    def _derive_class(self, fixed: frozenset[int], sample: Digits) -> _Class:
        graph = Graph()
        with _collector_paused():
            found = self._derived_in(graph, fixed, sample)
            graph.forget()
        return found

    def _derived_in(self, graph: Graph, fixed: frozenset[int], sample: Digits) -> _Class:
        numbers = self._numbers(fixed, sample, graph)
        if graph.asked - fixed:
            return _FixMore(frozenset(graph.asked))
        if numbers is None:
            return _FixMore(self._without_symbols(fixed, sample))
        constants = [x for x in numbers if not isinstance(x, Sym)]
        if len(constants) == len(numbers):
            return constant_row(constants, self._logged)
        return ColumnProgram(numbers, self.logged, self._column, self._counts)

    def _numbers(self, fixed: frozenset[int], sample: Digits, graph: Graph) -> list[Number] | None:
        """Numbers of a class; None where its template fails, or asks for a value."""
        self.derived += 1
        chosen = {
            knob.name: knob.entities[sample[k]] if k in fixed else _symbolic(knob, k, graph)
            for k, knob in enumerate(self._knobs)
        }
        config = ConfigEntity(self.task.config_space, chosen, None)
        return derived(self.task, self._derive, config)[0]

    def _without_symbols(self, fixed: frozenset[int], sample: Digits) -> frozenset[int]:
        """Knobs on whose symbols a template fails: all that cannot be freed, one by one."""
        held = frozenset(range(len(self._knobs)))
        for k in sorted(held - fixed):
            graph = Graph()
            numbers = self._numbers(held - {k}, sample, graph)
            if numbers is not None and not graph.asked:
                held -= {k}
        return held


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cycle collector: a graph of tens of thousands of live nodes would have it look at
    every object of the process again and again.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _groups(
    digits: Digits, fixed: Sequence[int], dims: Sequence[int]
) -> Iterable[tuple[tuple[int, ...], Digits]]:
    """Groups of candidates that agree in the fixed knobs: those choices, and the rows."""
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
    """Entity with symbols, in place of a candidate of a knob that has parts."""
    leaves = [graph.leaf(number, part, values) for part, values in enumerate(knob.parts())]
    return knob.from_parts(leaves)
