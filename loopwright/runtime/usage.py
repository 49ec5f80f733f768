"""Counts of caches and pools, for `PerformanceMonitor`.

A cache counts in an object of its own, a pool tells its bytes on request; nothing is reported
in between, so that it costs nothing to be watched.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar

_Owner = TypeVar("_Owner", bound=object)

_lock = threading.Lock()
_live: set[CacheCounts] = set()
# Counts whose caches are gone. The collector of garbage may come at any moment, also while this
# thread holds the lock: it appends here, and the next reading adds them up.
_gone: deque[CacheCounts] = deque()
_past = [0, 0]
_pools: weakref.WeakKeyDictionary[object, Callable[[object], int]] = weakref.WeakKeyDictionary()


class CacheCounts:
    """Number of requests that a cache could answer, and could not."""

    __slots__ = ("hits", "misses")

    def __init__(self) -> None:
        self.hits = self.misses = 0


def count_cache(cache: object) -> CacheCounts:
    """The counts of a cache, which it raises itself; they outlive it in `cache_totals`."""
    counts = CacheCounts()
    with _lock:
        _live.add(counts)
    weakref.finalize(cache, _gone.append, counts).atexit = False
    return counts


def cache_totals() -> tuple[int, int]:
    """Hits and misses of all caches since the process began; they never fall."""
    with _lock:
        while _gone:
            counts = _gone.popleft()
            _live.discard(counts)
            _past[0] += counts.hits
            _past[1] += counts.misses
        hits = sum(counts.hits for counts in tuple(_live))
        misses = sum(counts.misses for counts in tuple(_live))
        return _past[0] + hits, _past[1] + misses


def watch_pool(pool: _Owner, bytes_in_use: Callable[[_Owner], int]) -> None:
    """Let a pool of memory count in `pooled_bytes` as long as it exists; it is not kept alive.

    `bytes_in_use` gives the bytes of memory that it holds now, beside those of the process.
    """
    with _lock:
        _pools[pool] = bytes_in_use  # type: ignore[assignment]


def pooled_bytes() -> int:
    with _lock:
        pools = list(_pools.items())
    return sum(read(pool) for pool, read in pools)
