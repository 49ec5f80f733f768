"""Random points of spaces, built, run and compared with NumPy, in processes; what was done is kept
line by line, so that the same command goes on."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.expressions.measuring import error_of
from benchmarks.spaces_quality import subjects
from benchmarks.spaces_quality.subjects import Array
from loopwright.task import Task

#: Points that a process of the pool takes at once: what they need is made once.
_CHUNK = 32
_TARGET = "llvm -num-threads=1"


@dataclass(frozen=True)
class Fault:
    """A point that failed, or is wrong.

    Attributes:
        what: name of the workload.
        index: of the point.
        text: what happened.
    """

    what: str
    index: int
    text: str


@dataclass(frozen=True)
class Chunk:
    """Some points of one space.

    Attributes:
        what: name of the workload.
        seed: of the points that are drawn of it.
        drawn: how many of them.
        first: the first one of this chunk.
        alone: its only one, None where there are more.
    """

    what: str
    seed: int
    drawn: int
    first: int
    alone: int | None = None

    @property
    def places(self) -> range:
        """Places of its points among those that are drawn."""
        if self.alone is not None:
            return range(self.alone, self.alone + 1)
        return range(self.first, min(self.first + _CHUNK, self.drawn))


@dataclass(frozen=True)
class Checked:
    """What came of some points.

    Attributes:
        chunk: the points.
        points: how many there were; a small space has fewer than are drawn.
        seconds: what building and running all of them took.
        faults: those that failed, or are wrong.
    """

    chunk: Chunk
    points: int
    seconds: float
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class _Prepared:
    """What checking points of a space takes.

    Attributes:
        task: the task.
        arrays: its arguments in memory, the result last.
        right: the right answer.
        tolerance: largest error of it.
    """

    task: Task
    arrays: list[Any]
    right: Array
    tolerance: float


@lru_cache(maxsize=1)
def prepared(name: str) -> _Prepared:
    """The task, the data and the answer of a workload."""
    subject = next(s for s in subjects.subjects() if s.name == name)
    tensors = subject.tensors()
    inputs, right = subject.data(tensors)
    out = np.empty(tensors[-1].static_shape, tensors[-1].dtype)
    arrays = [lw.nd.array(x) for x in (*inputs, out)]
    return _Prepared(lw.create_task(tensors, target=_TARGET), arrays, right, subject.tolerance)


def indices_of(task: Task, chunk: Chunk) -> list[int]:
    """The points of a chunk; every structure has as many of all that are drawn, as far as it has
    them."""
    space = task.config_space
    count = min(chunk.drawn, space.range_length)
    indices = space.sample_ints(count, random.Random(f"{chunk.seed} {chunk.what}"))
    return indices[chunk.places.start : chunk.places.stop]


def check(chunk: Chunk) -> Checked:
    """Build, run and compare some points of a space."""
    known = prepared(chunk.what)
    indices = indices_of(known.task, chunk)
    begin = time.perf_counter()
    found = [f for index in indices if (f := _check(chunk.what, index, known))]
    return Checked(chunk, len(indices), time.perf_counter() - begin, tuple(found))


def _check(name: str, index: int, known: _Prepared) -> Fault | None:
    out = known.arrays[-1]
    # What no kernel writes is seen, and a former answer is none.
    out.copyfrom(np.full(out.shape, 77, out.dtype))
    try:
        f = lw.build(*known.task.instantiate(index), known.task.target, name="f")
        f(*known.arrays)
    except Exception as error:  # whatever it is, it is the point's fault, and is told
        return Fault(name, index, f"{type(error).__name__}: {error}")
    error_found = error_of(out.numpy().reshape(known.right.shape), known.right)
    if error_found <= known.tolerance:
        return None
    return Fault(name, index, f"wrong: error {error_found:.1e}")


def drawn(names: Sequence[str], count: int, seed: int) -> Iterator[Chunk]:
    """Random points, shared out over workloads alike, some of one workload at a time."""
    for number, name in enumerate(names):
        own = count // len(names) + (number < count % len(names))
        yield from (Chunk(name, seed, own, first) for first in range(0, own, _CHUNK))


class Journal:
    """What was checked, a line of JSON for each chunk, appended.

    Args:
        path: of the file.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def read(self) -> list[Checked]:
        """All of it; a line that was cut off is passed over."""
        if not self._path.exists():
            return []
        return [x for line in self._path.read_text().splitlines() if (x := _parsed(line))]

    def add(self, checked: Checked) -> None:
        """Add what came of a chunk."""
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(checked)) + "\n")


def _parsed(line: str) -> Checked | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    faults = tuple(Fault(**f) for f in found["faults"])
    return Checked(Chunk(**found["chunk"]), found["points"], found["seconds"], faults)


class Pool:
    """Processes that check points; one that crashes costs the point that it checked.

    Args:
        processes: how many.
        work: what they do with some points.
    """

    def __init__(self, processes: int, work: Callable[[Chunk], Checked] = check) -> None:
        self._processes, self._work = processes, work

    def run(self, chunks: Iterable[Chunk], end: float = float("inf")) -> Iterator[Checked]:
        """What comes of each chunk, as it is done.

        Args:
            chunks: the points.
            end: by `time.monotonic`, when no more are begun.
        """
        todo = iter(chunks)
        while crashed := (yield from self._until_crash(todo, end)):
            for chunk in crashed:
                begin = time.perf_counter()
                faults = tuple(f for at in chunk.places for f in self._alone(chunk, at))
                yield Checked(chunk, len(chunk.places), time.perf_counter() - begin, faults)

    def _until_crash(
        self, todo: Iterator[Chunk], end: float
    ) -> Generator[Checked, None, list[Chunk]]:
        """What comes of chunks until a process crashes; returns those that were under way then."""
        flying: dict[Future[Checked], Chunk] = {}
        with self._executor(self._processes) as executor:
            while True:
                while len(flying) < self._processes and time.monotonic() < end:
                    if (chunk := next(todo, None)) is None:
                        break
                    flying[executor.submit(self._work, chunk)] = chunk
                if not flying:
                    return []
                done, _ = wait(flying, return_when=FIRST_COMPLETED)
                for future in done:
                    try:
                        checked = future.result()
                    except BrokenProcessPool:
                        return list(flying.values())
                    del flying[future]
                    yield checked

    def _alone(self, chunk: Chunk, place: int) -> Sequence[Fault]:
        with self._executor(1) as executor:
            try:
                return executor.submit(self._work, replace(chunk, alone=place)).result().faults
            except BrokenProcessPool:
                return [Fault(chunk.what, place, "crashed; the number is its place in the sample")]

    def _executor(self, processes: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(processes, mp_context=get_context("spawn"))


def summary(done: Sequence[Checked]) -> list[str]:
    """Lines on what came of all chunks."""
    faults = [f for c in done for f in c.faults]
    wrong = sum(f.text.startswith("wrong") for f in faults)
    slow = sorted((c for c in done if c.points), key=lambda c: -c.seconds / c.points)[:3]
    each = ", ".join(f"{c.chunk.what} {c.seconds / c.points:.1f} s" for c in slow)
    return [
        *(f"{f.what} #{f.index}: {f.text}" for f in faults),
        f"{sum(c.points for c in done)} points of {len({c.chunk.what for c in done})} workloads "
        f"({sum(c.seconds for c in done):.0f} s of processes; slowest a point: {each}): "
        f"{len(faults) - wrong} failed (bar 0), {wrong} wrong (bar 0)",
    ]
