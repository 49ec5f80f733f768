"""Caches: values in memory by bytes, bytes in a folder by key, compiled code of devices by content.

A cache counts in an object of its own, a pool tells its bytes on request; nothing is reported in
between, so that it costs nothing to be watched by `PerformanceMonitor`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from loopwright import env
from loopwright.errors import UsageError, shown
from loopwright.files import PARTIAL, is_own, open_flags, replaced

#: Seconds after which a file that a killed process left half-written is removed.
_ABANDONED_S = 3600.0
#: Fraction of the limit that a process writes before it measures the folder again.
_TRIM_SHARE = 0.1
_KEY = re.compile(r"[0-9A-Za-z_-]{1,128}")

_Owner = TypeVar("_Owner", bound=object)
_lock = threading.Lock()
_live: set[CacheCounts] = set()
# Counts whose caches are gone. The collector of garbage may come at any moment, also while this
# thread holds the lock: it appends here, and the next reading adds them up.
_gone: deque[CacheCounts] = deque()
_past = [0, 0]
_pools: weakref.WeakKeyDictionary[object, Callable[[object], int]] = weakref.WeakKeyDictionary()
V = TypeVar("V")
#: Default limit of a cache in bytes.
DEFAULT_LIMIT = 1 << 30
#: Version of the entries' format, a part of every key.
_FORMAT = 1
#: Bytes in memory, and on disk.
MEMORY_LIMIT = 64 << 20
DISK_LIMIT = 512 << 20


class FileStore:
    """Bytes in a folder, which is made, for this user alone, when the first entry is written.

    An entry is one file, which several processes may share. It begins with a checksum of the rest,
    so that a damaged one counts as missing, and is written beside its place and renamed, so that
    nobody reads half of one. Code that is read here is run as it is: the folder must belong to this
    user, and nobody else may write to it.

    ``limit`` is the bytes of all entries of this suffix, with their checksums. A folder may exceed
    it by a tenth for each process that writes, until one of them looks. Stores of other suffixes
    may share the folder. ``what`` is the name of the entries in messages, in the plural.
    """

    def __init__(
        self, folder: Path, limit: int, suffix: str = ".entry", what: str = "entries"
    ) -> None:
        self.folder, self.limit, self.suffix, self.what = folder, limit, suffix, what
        self._lock = threading.Lock()
        self._since_trim: int | None = None

    def get(self, key: str) -> bytes | None:
        """The bytes of a key, which then counts as used now; None where missing or damaged."""
        path = self.path(key)
        if not self._is_private():
            return None
        try:
            descriptor = os.open(path, open_flags("RDONLY", "NOFOLLOW"))
        except OSError:  # missing or unreadable: it is made again
            return None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or not is_own(status):
                return None
            with contextlib.suppress(OSError):  # a read-only folder is usable
                os.utime(descriptor if os.utime in os.supports_fd else path)
            digest, _, body = file.read().partition(b"\n")
        return body if hashlib.sha256(body).hexdigest().encode() == digest else None

    def put(self, key: str, body: bytes) -> None:
        """Keep or replace the bytes of a key; nothing is kept where they are more than the limit.

        Where the folder cannot be written, the log says so once, and nothing is kept.
        """
        path = self.path(key)
        data = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
        try:
            if len(data) > self.limit:
                path.unlink(missing_ok=True)  # the old bytes are out of date
                return
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_private():
                return
            with replaced(path, 0o600, durable=False) as file:
                file.write(data)
            if self._must_trim(len(data)):
                self._trim()
        except OSError as error:
            _say_once(f"{self.what} cannot be kept in {self.folder}: {error.strerror or error}")

    def path(self, key: str) -> Path:
        """The file of a key, present or not; UsageError where the key cannot be a file name."""
        if not _KEY.fullmatch(key):
            raise UsageError(
                f"the key {shown(key)} cannot name a file; use 1 to 128 letters, digits, - and _"
            )
        return self.folder / f"{key}{self.suffix}"

    def sizes(self) -> list[int]:
        """Bytes of each entry on disk."""
        return [size for _, size, name in self._files() if name.endswith(self.suffix)]

    def clear(self) -> None:
        """Remove all entries; UsageError where the folder is not this user's, or read-only."""
        if problem := self._problem():
            raise UsageError(f"the {self.what} in {self.folder} are left as they are: {problem}")
        try:
            for _, _, name in self._files():
                if name.endswith(self.suffix):
                    (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(
                f"the {self.what} in {self.folder} cannot be removed: {error.strerror or error}"
            ) from error

    def _is_private(self) -> bool:
        """Whether the folder exists, is this user's, and nobody else can write to it."""
        if problem := self._problem():
            _say_once(f"the {self.what} kept in {self.folder} are not used: {problem}")
        return not problem and os.path.lexists(self.folder)

    def _problem(self) -> str:
        """Reason why the folder is not used; empty where it is, or where there is none yet."""
        try:
            status = os.lstat(self.folder)
        except OSError:
            return ""
        if not stat.S_ISDIR(status.st_mode):
            return "it is no folder"
        if not is_own(status):
            return "it belongs to another user"
        if os.name == "posix" and status.st_mode & 0o022:
            return f"others may write to it; chmod 700 {self.folder}"
        return ""

    def _must_trim(self, nbytes: int) -> bool:
        """Whether so much was written that the folder may be over its limit; true at first."""
        with self._lock:
            before = self._since_trim
            self._since_trim = nbytes + (before or 0)
            if before is not None and self._since_trim < _TRIM_SHARE * self.limit:
                return False
            self._since_trim = 0
            return True

    def _trim(self) -> None:
        """Remove least recently used entries until nine tenths of the limit are left."""
        total = sum(self.sizes())
        left = total if total <= self.limit else 0.9 * self.limit
        for used, size, name in sorted(self._files()):
            kept = name.endswith(self.suffix)
            abandoned = name.endswith(PARTIAL) and used < time.time() - _ABANDONED_S
            if abandoned or (kept and total > left):
                total -= size if kept else 0
                (self.folder / name).unlink(missing_ok=True)

    def _files(self) -> list[tuple[float, int, str]]:
        """Time of the last use, bytes and name of everything in the folder."""
        files = []
        with (
            contextlib.suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(self.folder) as items,
        ):
            for item in items:
                with contextlib.suppress(FileNotFoundError):  # another process trims as well
                    status = item.stat(follow_symlinks=False)
                    files.append((status.st_mtime, status.st_size, item.name))
        return files


@lru_cache(maxsize=64)
def _say_once(text: str) -> None:
    import logging  # nothing is loaded for it unless something is to be said

    logging.getLogger("loopwright").warning("%s", text)


@dataclass(slots=True, eq=False)
class CacheCounts:
    """Number of requests that a cache could answer, and could not."""

    hits: int = 0
    misses: int = 0


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


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """Counts of a cache since its creation, and its present entries, bytes and limit in bytes.

    ``evictions`` are values that were dropped for others.
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
    need their bytes. A value larger than the limit, default 1 GiB, is not kept. UsageError where
    the limit is negative or no whole number.

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

    def __init__(self, limit: int = DEFAULT_LIMIT, counted: bool = True) -> None:
        self.limit = _whole("limit", limit)
        self._lock = threading.RLock()
        self._entries: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._nbytes = self._evictions = 0
        self._counts = count_cache(self) if counted else CacheCounts()
        self._making: WeakValueDictionary[Hashable, threading.RLock] = WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def hits(self) -> int:
        return self._counts.hits

    @property
    def misses(self) -> int:
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
        """Keep a value, which replaces the one that the key had; returns whether it is kept.

        A value larger than the limit is not kept; the old one is dropped as well, since it is out
        of date. ``nbytes`` defaults to that of a ``bytes`` or of whatever has ``nbytes``, such as
        arrays.

        Raises:
            UsageError: the value is None, or its bytes are not known or negative.
        """
        if value is None:
            raise UsageError("a cache keeps no None, which `get` returns for what is missing")
        size = _whole("nbytes", _nbytes(value) if nbytes is None else nbytes)
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
        Exceptions of ``make`` pass through, and nothing is kept; ``nbytes`` is as of `put`.
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
    if not isinstance(nbytes, int):
        raise UsageError(f"a {type(value).__name__} does not tell its bytes; pass nbytes")
    return nbytes


def content_key(*facts: str | bytes | int | bool | None) -> str:
    """A hash of facts in their order; other facts, or other types of them, give another one.

    UsageError for a fact that is no text, bytes, whole number or None.
    """
    for fact in facts:
        if fact is not None and not isinstance(fact, str | bytes | int):
            raise UsageError(
                f"a {type(fact).__name__} is no part of a key; use text, bytes, whole numbers or "
                "None"
            )
    plain = [{"bytes": hashlib.sha256(f).hexdigest()} if isinstance(f, bytes) else f for f in facts]
    return hashlib.sha256(json.dumps([_FORMAT, *plain]).encode()).hexdigest()


class ProgramCache(RuntimeCache[bytes]):
    """A `RuntimeCache` of code that looks into a folder for entries that are not in memory.

    A driver that compiles when a program is loaded (OpenCL), or a compiler of machine code (CUDA),
    gives bytes that depend on a few facts: the source, the options, the device and the versions.
    The key is a hash of all of these (`content_key`), so that an entry never goes out of date.

    `remove` and `clear` concern memory alone: entries of the folder are found again. Without a
    folder entries are in memory only. The limits are bytes in memory, and in the folder.

    Example:
        >>> from loopwright.runtime.caches import ProgramCache, content_key
        >>> from pathlib import Path
        >>> key = content_key("kernel void f() {}", "-O2", "device", "driver 1.0")
        >>> code = ProgramCache(Path("kept")).get_or_make(key, lambda: b"compiled")
        >>> print(ProgramCache(Path("kept")).get(key))
        b'compiled'
    """

    def __init__(
        self, folder: Path | None = None, limit: int = MEMORY_LIMIT, disk_limit: int = DISK_LIMIT
    ) -> None:
        super().__init__(limit)
        self.store = (
            None if folder is None else FileStore(folder, disk_limit, ".program", "programs")
        )

    def put(self, key: Hashable, value: bytes, nbytes: int | None = None) -> bool:
        """Keep code as `RuntimeCache.put` does, and in the folder.

        UsageError where the key, such as a `content_key`, cannot be the name of a file.
        """
        if self.store is not None:
            self.store.put(_name(key), value)
        return super().put(key, value, nbytes)

    def _elsewhere(self, key: Hashable) -> bytes | None:
        value = None if self.store is None else self.store.get(_name(key))
        if value is not None:
            super().put(key, value)
        return value


def _name(key: Hashable) -> str:
    if not isinstance(key, str):
        raise UsageError(f"the key {key!r} is no text; content_key gives one")
    return key


@lru_cache(maxsize=1)
def program_cache() -> ProgramCache:
    """The cache of this process, in memory and in the folder that ``LOOPWRIGHT_CACHE`` names.

    See `loopwright.env.cache_folder`; in memory only where that is switched off.
    """
    return ProgramCache(env.cache_folder())
