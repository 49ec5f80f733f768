"""Numbers derived from the schedules of whole populations of candidates.

Candidates that agree in words, orders and annotations form a *structure class*. A template runs
once for a class: sizes are `Sym`, and numbers are expressions of them, evaluated in NumPy columns.
Where a template asks for a value (``if tile > 8:``), the knobs of that value are fixed as well;
where it cannot run on symbols, knobs are fixed until it can (at worst all: `CandidateRows`).
"""

from __future__ import annotations

import gc
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from pickle import PicklingError  # noqa: TID251 - what joblib raises
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.cost.symbolic.evaluation import ColumnProgram, constant_row
from loopwright.cost.symbolic.symbols import DataDependent, Graph, Number, Sym
from loopwright.cost.symbolic.warps import KnownCounts
from loopwright.env import usable_cpus
from loopwright.errors import InstantiationError, TimeLimitError
from loopwright.schedule import State
from loopwright.task import ConfigEntity, Digits, Entity, Knob, Scheduler
from loopwright.time_limit import TEMPLATE_S, limited

KEPT = 1 << 14  #: cached rows: 20 MB of 300 numbers


class KnownRows:
    """Cache of rows of ``width`` numbers, functions of candidates; emptied when ``kept`` fill it.

    New candidates are sorted by the knobs ``by``, so that those evaluated together lie together.
    """

    def __init__(self, width: int, kept: int = KEPT, by: Sequence[int] = ()) -> None:
        # Memory of which nothing is touched yet takes no room.
        self._rows = np.empty((kept, width), np.float32)
        self._place: dict[bytes, int] = {}
        self._by = list(by)

    def rows(self, digits: Digits, evaluate: Callable[[Digits, Rows], None]) -> Rows:
        """Rows, float32 (n, width), of int64 (n, knobs); ``evaluate`` fills in unknown ones."""
        asked = _keys(digits)
        new = list({key: n for n, key in enumerate(asked) if key not in self._place}.values())
        if len(self._place) + len(new) > len(self._rows):
            self._place.clear()
            new = list({key: n for n, key in enumerate(asked)}.values())
        if len(new) > len(self._rows):
            out = np.empty((len(digits), self._rows.shape[1]), np.float32)
            evaluate(digits, out)
            return out
        if new:
            fresh = digits[new]
            if self._by:
                fresh = fresh[np.lexsort(fresh[:, self._by[::-1]].T)]
            at = len(self._place)
            self._place.update((key, at + n) for n, key in enumerate(_keys(fresh)))
            try:
                evaluate(fresh, self._rows[at : at + len(fresh)])
            except BaseException:
                self._place.clear()  # no row may be found that was not filled in
                raise
        places = np.fromiter((self._place[key] for key in asked), np.intp, len(asked))
        return self._rows.take(places, axis=0)

    def add(self, digits: Digits, rows: Rows) -> None:
        """Keep the rows of new candidates, for which there must be room."""
        keys = _keys(digits)
        new = [n for n, key in enumerate(keys) if key not in self._place]
        at = len(self._place)
        self._rows[at : at + len(new)] = rows if len(new) == len(rows) else rows[new]
        self._place.update((keys[n], at + k) for k, n in enumerate(new))


def _keys(digits: Digits) -> list[bytes]:
    whole = np.ascontiguousarray(digits)
    if not whole.size:
        return [b""] * len(whole)
    keys: Any = whole.view(np.dtype((np.void, whole[0].nbytes))).ravel().tolist()
    return list(keys)


#: Derives numbers from a schedule's state, always the same count.
Derive = Callable[[State], list[Number]]
Rows = npt.NDArray[np.float32]
#: Candidates derived before the time of the others is estimated; seconds from which processes may
#: pay, whose start takes two; and CPUs that processes need.
TIMED, PAYS_S, CPUS = 32, 6.0, 4
#: Parts for each process, so that one with slow candidates keeps the others from waiting.
_PARTS = 4

_log = logging.getLogger("loopwright.cost")


# A template that branches on every knob runs for each candidate, about a thousand times a second.
# Where that takes long enough to pay for the start of processes, and there are enough CPUs (two
# bring nothing), candidates are shared out over them (joblib's loky), with the same results.


def derived(
    task: Scheduler, derive: Derive, config: ConfigEntity
) -> tuple[list[Number] | None, str]:
    """Numbers of a configuration, whose choices may be symbols, and an empty text.

    None where the template fails, with a text unless that is its own refusal.
    """
    try:
        schedule, _ = limited(TEMPLATE_S, "the template", task.instantiate, config, often=True)
        return derive(schedule.state), ""
    except (InstantiationError, TimeLimitError, DataDependent):
        return None, ""
    except Exception as exc:  # a schedule that cannot be described costs its own candidates only
        return None, f"{task}: nothing can be derived from the schedule of {config}: {exc!r}"


def rows_of(
    task: Scheduler, derive: Derive, logged: Sequence[bool], digits: Digits
) -> tuple[Rows, list[str]]:
    """Rows of candidates (n, knobs) in turn, all NaN where a template fails; and warnings."""
    out = np.full((len(digits), len(logged)), np.nan, np.float32)
    marks, texts = np.array(logged, bool), []
    knobs = task.config_space.knobs.values()
    for row, choice in zip(out, digits, strict=True):
        chosen = {k.name: k.entities[at] for k, at in zip(knobs, choice, strict=True)}
        numbers, text = derived(task, derive, ConfigEntity(task.config_space, chosen, None))
        if numbers is not None:
            row[:] = constant_row([float(x) for x in numbers], marks)
        texts += [text] if text else []
    return out, texts


class CandidateRows:
    def __init__(self, task: Scheduler, derive: Derive, logged: Sequence[bool]) -> None:
        self._task, self._derive, self._logged = task, derive, tuple(logged)
        #: Reason why the candidates stay in this process, however many they are; empty if they need
        #: not.
        self.why_alone = ""

    def rows(self, digits: Digits) -> Rows:
        """Rows, float32 (n, numbers), of candidates (n, knobs); all NaN where a template fails."""
        begin = time.perf_counter()
        first = self.in_one_process(digits[:TIMED])
        rest = digits[TIMED:]
        expected = (time.perf_counter() - begin) / TIMED * len(rest)
        processes = len(usable_cpus())
        if self.why_alone or processes < CPUS or expected < PAYS_S:
            return np.concatenate([first, self.in_one_process(rest)])
        return np.concatenate([first, self.side_by_side(rest, processes)])

    def in_one_process(self, digits: Digits) -> Rows:
        return self._warned(rows_of(self._task, self._derive, self._logged, digits))

    def side_by_side(self, digits: Digits, processes: int) -> Rows:
        from joblib import Parallel, delayed

        parts = np.array_split(digits, processes * _PARTS)
        jobs = [delayed(rows_of)(self._task, self._derive, self._logged, part) for part in parts]
        try:
            results = Parallel(processes, backend="loky", batch_size=1, max_nbytes=None)(jobs)
        except (PicklingError, BrokenProcessPool) as exc:
            # A template that holds what cannot be sent, or a process that died: neither is a fault
            # of a candidate.
            lines = [line for x in (exc, exc.__cause__) for line in str(x or "").splitlines()]
            said = [line.strip() for line in lines if line.strip(' "')]
            # The last line of the error, if any, tells what cannot be sent.
            self.why_alone = f"{type(exc).__name__}: {said[-1] if said else ''}"
            _log.warning(
                "%s: its candidates are derived in one process, since others cannot: %.300s",
                self._task,
                self.why_alone,
            )
            return self.in_one_process(digits)
        return np.concatenate([self._warned(part) for part in results])

    def _warned(self, part: tuple[Rows, list[str]]) -> Rows:
        rows, texts = part
        for text in texts:
            _log.warning("%s", text)
        return rows


APART = 64  #: number of classes that must have been divided before all are, by the same knobs
#: Cached structure classes, and rows evaluated at once (columns then stay in the cache).
CLASSES, CHUNK = 4096, 2048


@dataclass(frozen=True, slots=True)
class _FixMore:
    """A class that must be divided, by fixing these knobs too."""

    knobs: frozenset[int]


#: Result for a class: a program for all its candidates, their common row, or the demand to divide
#: it.
_Class = ColumnProgram | Rows | _FixMore


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
        self._candidates = CandidateRows(task, derive, logged)

    def evaluate(self, digits: Digits) -> Rows:
        """Numbers, float32 (n, numbers), of candidates (n, knobs); NaN where a template fails."""
        return self._known.rows(np.ascontiguousarray(digits, np.int64), self._evaluate)

    def _evaluate(self, digits: Digits, out: Rows) -> None:
        # Where most classes were taken apart, that is not tried again for each.
        fixed = self._fixed | self._asked if self._apart >= APART else self._fixed
        alone: list[Digits] = [np.zeros(0, np.int64)]
        self._fill(digits, np.arange(len(digits)), fixed, out, alone)
        rows = np.concatenate(alone)
        out[rows] = self._rows_alone(digits[rows])

    def _fill(
        self, digits: Digits, rows: Digits, fixed: frozenset[int], out: Rows, alone: list[Digits]
    ) -> None:
        """Fill ``rows`` of ``out`` for ``digits``; ``alone`` gets classes of one candidate."""
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

    def each(self, digits: Digits) -> Rows:
        """`evaluate` for few candidates, each of which is derived by itself, without symbols."""
        return self._rows_alone(np.ascontiguousarray(digits, np.int64))

    def _rows_alone(self, digits: Digits) -> Rows:
        if not len(digits):
            return np.empty((0, len(self.logged)), np.float32)
        different, place = np.unique(digits, axis=0, return_inverse=True)
        self.derived += len(different)
        return self._candidates.rows(different)[place.reshape(-1)]

    def _run_whole(self, program: ColumnProgram, fixed: frozenset[int], sample: Digits) -> None:
        """Evaluate the whole class of ``sample`` in a small space: a program takes as long for a
        hundred candidates as for one, and others will be needed."""
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

    def _run(self, program: ColumnProgram, digits: Digits, rows: Digits, out: Rows) -> None:
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
        graph = Graph()
        with _collector_paused():
            derived = self._derived_in(graph, fixed, sample)
            graph.forget()
        if isinstance(derived, _FixMore):
            self._asked |= derived.knobs
            self._apart += 1
        self._classes[key] = derived
        if len(self._classes) > CLASSES:
            self._classes.popitem(last=False)
        return derived

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

        def symbolic(knob: Knob, number: int) -> Entity:
            """Entity with symbols, in place of a candidate of a knob that has parts."""
            return knob.from_parts(
                [graph.leaf(number, part, values) for part, values in enumerate(knob.parts())]
            )

        self.derived += 1
        chosen = {
            knob.name: knob.entities[sample[k]] if k in fixed else symbolic(knob, k)
            for k, knob in enumerate(self._knobs)
        }
        config = ConfigEntity(self.task.config_space, chosen, None)
        return derived(self.task, self._derive, config)[0]

    def _without_symbols(self, fixed: frozenset[int], sample: Digits) -> frozenset[int]:
        """Knobs on whose symbols a template fails: all that cannot be freed, one by one."""
        held = frozenset(range(len(self._knobs)))
        for k in sorted(held - fixed):
            graph = Graph()
            if self._numbers(held - {k}, sample, graph) is not None and not graph.asked:
                held -= {k}
        return held


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cycle collector, which would look at a graph's many nodes again and again."""
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
