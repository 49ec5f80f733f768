"""`RuntimeCache`: values in memory up to a limit of bytes; least recently used ones are evicted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from loopwright.errors import UsageError
from loopwright.runtime.usage import count_cache

V = TypeVar("V")
#: Default limit of a cache in bytes.
DEFAULT_LIMIT = 1 << 30


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counts of a cache since its creation.

    Attributes:
        hits, misses: number of requests with and without a cached value.
        evictions: values that were dropped for others.
        entries: values that are kept now.
        nbytes: their bytes.
        limit: the most bytes that it may keep.
    """

    hits: int
    misses: int
    evictions: int
    entries: int
    nbytes: int
    limit: int


class RuntimeCache(Generic[V]):
    """Values by key, up to a limit of bytes; safe to use from several threads.

    A value that is put or got counts as used now; least recently used ones are dropped when others
    need their bytes. A value larger than the limit is not kept.

    Args:
        limit: bytes of all values together; default 1 GiB.

    Raises:
        UsageError: the limit is negative or no whole number.

    Example:
        >>> cache = lw.runtime.RuntimeCache(limit=10)
        >>> print(cache.put("a", b"12345"), cache.put("b", b"12345"))
        True True
        >>> print(cache.get("a"))
        b'12345'
        >>> print(cache.put("c", b"123"))
        True
        >>> print(cache.get("b"), cache.nbytes, cache.statistics().evictions)
        None 8 1
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = _whole("limit", limit)
        self._lock = threading.RLock()
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._nbytes = self._evictions = 0
        self._counts = count_cache(self)
        self._making: WeakValueDictionary[Hashable, threading.RLock] = WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        """Bytes of all values that are kept."""
        return self._nbytes

    @property
    def hits(self) -> int:
        """Number of requests with a cached value."""
        return self._counts.hits

    @property
    def misses(self) -> int:
        """Number of requests without a cached value."""
        return self._counts.misses

    def get(self, key: Hashable) -> V | None:
        """The value of a key, which then counts as used now; None where there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                self._counts.hits += 1
                return entry[0]
        value = self._elsewhere(key)
        with self._lock:
            self._counts.hits += value is not None
            self._counts.misses += value is None
        return value

    def put(self, key: Hashable, value: V, nbytes: int | None = None) -> bool:
        """Keep a value; the one that the key had is replaced.

        Args:
            value: anything but None.
            nbytes: its bytes; default those of a ``bytes`` or of whatever has ``nbytes``, such as
                arrays.

        Returns:
            Whether it is kept: False where it is larger than the limit. The old value is then
            dropped as well, since it is out of date.

        Raises:
            UsageError: the value is None, or its bytes are not known or negative.
        """
        if value is None:
            raise UsageError("a cache keeps no None, which `get` returns for what is missing")
        size = _nbytes(value) if nbytes is None else _whole("nbytes", nbytes)
        with self._lock:
            self._drop(key)
            if size > self.limit:
                return False
            while self._nbytes + size > self.limit:
                self._drop(next(iter(self._entries)))
                self._evictions += 1
            self._entries[key] = (value, size)
            self._nbytes += size
            return True

    def get_or_make(self, key: Hashable, make: Callable[[], V], nbytes: int | None = None) -> V:
        """The value of a key; computed and cached where it is missing.

        Threads that request one key at the same time compute its value once. Others do not wait.

        Args:
            make: computes the value; its exceptions pass through, and nothing is kept.
            nbytes: see `put`.
        """
        with self._lock:
            making = self._making.setdefault(key, threading.RLock())
        with making:
            value = self.get(key)
            if value is None:
                value = make()
                self.put(key, value, nbytes)
            return value

    def remove(self, key: Hashable) -> bool:
        """Drop the value of a key; returns whether there was one."""
        with self._lock:
            return self._drop(key)

    def clear(self) -> None:
        """Drop all values; the counts stay."""
        with self._lock:
            self._entries.clear()
            self._nbytes = 0

    def statistics(self) -> CacheStatistics:
        """The counts since creation, as of one moment."""
        with self._lock:
            hits, misses, entries = self.hits, self.misses, len(self)
            return CacheStatistics(hits, misses, self._evictions, entries, self._nbytes, self.limit)

    def _elsewhere(self, key: Hashable) -> V | None:
        """The value of a key from a store behind the memory, for subclasses that have one."""
        return None

    def _drop(self, key: Hashable) -> bool:
        entry = self._entries.pop(key, None)
        if entry is None:
            return False
        self._nbytes -= entry[1]
        return True

    def __contains__(self, key: Hashable) -> bool:
        """Whether a value is in memory; asking neither counts nor refreshes."""
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.nbytes} of {self.limit} bytes in {len(self)} values>"


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{name} is {value!r}; it must be a whole number of bytes, at least 0")
    return value


def _nbytes(value: object) -> int:
    if isinstance(value, bytes | bytearray):
        return len(value)
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return _whole("nbytes", nbytes)
    raise UsageError(f"a {type(value).__name__} does not tell its bytes; pass nbytes")
