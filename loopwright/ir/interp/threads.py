"""Kernels in the interpreter: blocks in any order, threads as generators."""

# A thread runs until it waits at a barrier; then the next one runs. All threads of a block must
# wait at the same barrier, or all end. At a barrier of a warp only the lanes of that warp meet
# (threads that differ in their last index alone), and go on.

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import product
from random import Random
from typing import TypeVar

from loopwright.errors import RunError
from loopwright.ir.kinds import WARP_SIZE
from loopwright.ir.stmt import For

T = TypeVar("T")
Index = tuple[int, ...]
_Thread = Generator[int, None, None]
#: A buffer (two may have one name), and an element of it.
_Key = tuple[str, Index]
#: Who wrote an element, and up to two who read it.
_Seen = tuple[Index | None, tuple[Index, ...]]
_UNSEEN: _Seen = (None, ())


def launched_by(s: For) -> str:
    """Loops that run on a launch axis, for messages: ``loop 'C.i' is bound to threadIdx.x``."""
    text = str(dict(s.pragmas).get("bound", s.var.name))
    if text.startswith("env_threads"):
        return f"{text} launches {s.tag}"
    loops = [repr(x) for x in text.split(", ")]
    several = len(loops) > 1
    subject = f"loop{'s' if several else ''} {' and '.join(loops)}"
    return f"{subject} {'are' if several else 'is'} bound to {s.tag}"


class Races:
    """Finds two threads that touch one element, one of them writing, with no barrier between."""

    # Threads of one block are ordered by its barriers; blocks are not ordered at all. The barriers
    # of a warp order accesses of its lanes to buffers of scope ``warp``, and nothing else.

    def __init__(self) -> None:
        self.block: Index = ()
        self.thread: Index = ()
        self._phase: dict[_Key, _Seen] = {}
        self._grid: dict[_Key, _Seen] = {}
        self._warps: dict[Index, dict[_Key, _Seen]] = {}

    def start(self) -> None:
        self._phase, self._grid, self._warps = {}, {}, {}

    def barrier(self) -> None:
        self._phase, self._warps = {}, {}

    def warp_barrier(self, warp: Index) -> None:
        self._warps.pop(warp, None)

    def touch(self, which: str, name: str, scope: str, at: Index, write: bool) -> None:
        """Note an access of the running thread to an element of buffer ``which``; refuse a race."""
        key, shown = (which, at), f"{name}{list(at)}"
        warp = self._warps.setdefault(self.thread[:-1], {}) if scope == "warp" else None
        phase = self._phase if warp is None else warp
        seen = phase.get(key, _UNSEEN)
        phase[key] = self._check(shown, seen, self.thread, write, "threads")
        if scope == "global":
            seen = self._grid.get(key, _UNSEEN)
            self._grid[key] = self._check(shown, seen, self.block, write, "blocks")

    def _check(self, shown: str, seen: _Seen, who: Index, write: bool, what: str) -> _Seen:
        writer, readers = seen
        others = (*((writer,) if writer is not None else ()), *(readers if write else ()))
        other = next((t for t in others if t != who), None)
        if other is not None:
            doing = "writes" if write else "reads"
            raise RunError(
                f"race on {shown}: {what} {list(other)} and {list(who)} touch it with no barrier "
                f"between, and one writes ({list(who)} {doing} it)"
            )
        if write:
            return who, readers
        # Two readers are enough: one of them is not the thread that may write later.
        return writer, readers if who in readers or len(readers) == 2 else (*readers, who)


class Grid:
    """Runs kernels, in ascending order or, with a ``seed``, in a shuffled one anew after each
    barrier."""

    def __init__(self, seed: int | None = None, races: Races | None = None) -> None:
        self._random = None if seed is None else Random(seed)
        self.races = races
        self._thread: Index = ()
        self._visits: dict[tuple[Index, str], int] = {}
        self._of_warps: dict[tuple[Index, str, int], tuple[object, int]] = {}

    def of_warp(self, which: str, make: Callable[[], T]) -> T:
        """Memory of the running thread's warp at allocation ``which``, new at each next time."""
        visit = self._visits.get((self._thread, which), 0)
        self._visits[self._thread, which] = visit + 1
        key = (self._thread[:-1], which, visit)
        memory, lanes = self._of_warps.pop(key, (None, 0))
        if memory is None:
            memory = make()
        if lanes + 1 < WARP_SIZE:
            self._of_warps[key] = memory, lanes + 1
        return memory  # type: ignore[return-value]

    def run(
        self,
        block: Callable[..., Callable[..., _Thread]],
        blocks: Sequence[int],
        threads: Sequence[int],
        barriers: Sequence[str],
    ) -> None:
        """Run a kernel; ``barriers`` are the scopes of its barriers, by number."""
        # ``block`` makes a block from its indices: a function from thread indices to a generator.
        if self.races:
            self.races.start()
        for b in self._order(list(product(*map(range, blocks)))):
            if self.races:
                self.races.block = b
            make = block(*b)
            self._visits, self._of_warps = {}, {}
            alive = [(t, make(*t)) for t in product(*map(range, threads))]
            at: dict[int, Index] = {}
            while -1 not in at:
                at = self._to_next_barrier(alive, b, barriers)
                if len(at) > 1:
                    self._diverged(at, b, barriers)

    def _order(self, items: list[T]) -> list[T]:
        if self._random:
            self._random.shuffle(items)
        return items

    def _to_next_barrier(
        self, alive: list[tuple[Index, _Thread]], b: Index, barriers: Sequence[str]
    ) -> dict[int, Index]:
        """Run a block to its barrier; for each barrier (-1: the end) a thread that waits there."""
        if self.races:
            self.races.barrier()
        at: dict[int, Index] = {}
        running = alive
        while running:
            stops = [(self._step(t, run), t, run) for t, run in self._order(running)]
            met = {t[:-1] for k, t, _ in stops if k >= 0 and barriers[k] == "warp"}
            for warp in met:
                waiting = {k: t for k, t, _ in reversed(stops) if t[:-1] == warp}
                if len(waiting) > 1:
                    self._diverged(waiting, b, barriers)
                if self.races:
                    self.races.warp_barrier(warp)
            running = [(t, run) for _, t, run in stops if t[:-1] in met]
            for k, t, _ in stops:
                if t[:-1] not in met:
                    at.setdefault(k, t)
        return at

    def _step(self, t: Index, run: _Thread) -> int:
        """Run a thread up to where it waits: a barrier, or -1 for the end."""
        self._thread = t
        if self.races:
            self.races.thread = t
        return next(run, -1)

    def _diverged(self, at: dict[int, Index], b: Index, barriers: Sequence[str]) -> None:
        places = " and ".join(
            f"thread {list(t)} "
            + (f"waits at barrier {k} ({barriers[k]})" if k >= 0 else "has ended")
            for k, t in sorted(at.items(), reverse=True)
        )
        raise RunError(f"the threads of block {list(b)} diverge: {places}")
