"""Bytes kept in a folder by key, which several processes may share.

An entry is one file. It begins with a checksum of the rest, so that a damaged one counts as
missing. It is written beside its place and renamed, so that nobody reads half of one. Least
recently used entries are removed when the folder is over its limit.

Code that is read here is run as it is: the folder must belong to this user, and nobody else may
write to it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
import threading
import time
from functools import lru_cache
from pathlib import Path

from loopwright.errors import UsageError, shown
from loopwright.files import PARTIAL, replaced

#: Seconds after which a file that a killed process left half-written is removed.
_ABANDONED_S = 3600.0
#: Fraction of the limit that a process writes before it measures the folder again.
_TRIM_SHARE = 0.1
_KEY = re.compile(r"[0-9A-Za-z_-]{1,128}")

log = logging.getLogger("loopwright")


class FileStore:
    """Bytes in a folder, which is made, for this user alone, when the first entry is written.

    ``limit`` is the bytes of all entries of this suffix, with their checksums. A folder may exceed
    it by a tenth for each process that writes, until one of them looks. Stores of other suffixes
    may share the folder. ``what`` is the name of the entries in messages, in the plural.
    """

    def __init__(
        self, folder: Path, limit: int, suffix: str = ".entry", what: str = "entries"
    ) -> None:
        self.folder = folder
        self.limit = limit
        self.suffix = suffix
        self.what = what
        self._lock = threading.Lock()
        self._since_trim: int | None = None

    def get(self, key: str) -> bytes | None:
        """The bytes of a key, which then counts as used now; None where missing or damaged."""
        digest, _, body = self._read(self.path(key)).partition(b"\n")
        whole = hashlib.sha256(body).hexdigest().encode() == digest
        return body if whole else None

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
            self._write(path, data)
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

    def _write(self, path: Path, data: bytes) -> None:
        with replaced(path, 0o600, durable=False) as file:
            file.write(data)

    def _read(self, path: Path) -> bytes:
        """The bytes of a file, which is marked as used; empty where there is none of ours."""
        if not self._is_private():
            return b""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # missing or unreadable: it is made again
            return b""
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                return b""
            with contextlib.suppress(OSError):  # a read-only folder is usable
                os.utime(descriptor)
            return file.read()

    def _is_private(self) -> bool:
        """Whether the folder exists, is this user's, and nobody else can write to it."""
        try:
            status = os.lstat(self.folder)
        except OSError:
            return False
        if not stat.S_ISDIR(status.st_mode):
            problem = "it is no folder"
        elif status.st_uid != os.geteuid():
            problem = "it belongs to another user"
        elif status.st_mode & 0o022:
            problem = f"others may write to it; chmod 700 {self.folder}"
        else:
            return True
        _say_once(f"the {self.what} kept in {self.folder} are not used: {problem}")
        return False

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
        entries = []
        for item in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):  # another process trims as well
                status = item.stat(follow_symlinks=False)
                entries.append((status.st_mtime, status.st_size, item.name))
        total = sum(size for _, size, name in entries if name.endswith(self.suffix))
        left = total if total <= self.limit else 0.9 * self.limit
        for used, size, name in sorted(entries):
            kept = name.endswith(self.suffix)
            abandoned = name.endswith(PARTIAL) and used < time.time() - _ABANDONED_S
            if abandoned or (kept and total > left):
                total -= size if kept else 0
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.folder / name)


@lru_cache(maxsize=64)
def _say_once(text: str) -> None:
    log.warning("%s", text)
