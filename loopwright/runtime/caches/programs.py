"""Compiled code of devices by content: in memory, and on disk for later processes.

A driver that compiles when a program is loaded (OpenCL), or a compiler of machine code (CUDA),
gives bytes that depend on a few facts: the source, the options, the device and the versions. The
key is a hash of all of these, so that an entry never goes out of date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable
from functools import lru_cache
from pathlib import Path

from loopwright import env
from loopwright.errors import UsageError
from loopwright.runtime.caches.file_store import FileStore
from loopwright.runtime.caches.runtime_cache import RuntimeCache

#: Version of the entries' format, a part of every key.
_FORMAT = 1
#: Bytes in memory, and on disk.
MEMORY_LIMIT = 64 << 20
DISK_LIMIT = 512 << 20


def content_key(*facts: str | bytes | int | bool | None) -> str:
    """A hash of facts in their order; other facts, or other types of them, give another one.

    Raises:
        UsageError: a fact is of another type.

    Example:
        >>> from loopwright.runtime.caches.programs import content_key
        >>> print(content_key("a", "bc") == content_key("ab", "c"))
        False
        >>> print(len(content_key("source", b"binary", 3, None)))
        64
    """
    return hashlib.sha256(json.dumps([_FORMAT, *map(_plain, facts)]).encode()).hexdigest()


def _plain(fact: object) -> object:
    if isinstance(fact, bytes):
        return {"bytes": hashlib.sha256(fact).hexdigest()}
    if fact is None or isinstance(fact, str | int):
        return fact
    raise UsageError(
        f"a {type(fact).__name__} is no part of a key; use text, bytes, whole numbers or None"
    )


class ProgramCache(RuntimeCache[bytes]):
    """A `RuntimeCache` of code that looks into a folder for entries that are not in memory.

    `remove` and `clear` concern memory alone: entries of the folder are found again.

    Args:
        folder: folder of entries for other processes; None: in memory only.
        limit: bytes in memory.
        disk_limit: bytes in the folder.

    Example:
        >>> from loopwright.runtime.caches.programs import ProgramCache, content_key
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
        self._store = (
            None if folder is None else FileStore(folder, disk_limit, ".program", "programs")
        )

    def put(self, key: Hashable, value: bytes, nbytes: int | None = None) -> bool:
        """Keep code under a `content_key` in memory, as `RuntimeCache.put` does, and in the folder.

        Raises:
            UsageError: the key cannot be the name of a file.
        """
        if self._store is not None:
            self._store.put(_name(key), value)
        return super().put(key, value, nbytes)

    def _elsewhere(self, key: Hashable) -> bytes | None:
        value = None if self._store is None else self._store.get(_name(key))
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

    Example:
        >>> from loopwright.runtime.caches.programs import program_cache
        >>> print(program_cache() is program_cache())
        True
    """
    return ProgramCache(env.cache_folder())
