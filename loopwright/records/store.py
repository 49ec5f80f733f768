"""The append-only file of records.

The rules come from experience: with one ``os.write`` of a whole line ``kill -9`` costs at most the
line that is being written, and hardly ever that (buffered writes tore one in five runs of eight);
``flock`` lets several processes append to one log; and a torn tail is closed with a newline before
the next line.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path

from loopwright.errors import RecordError
from loopwright.files import flock, open_flags, read_at, unlock
from loopwright.records.line import BEGINNING, Json, begins_log
from loopwright.records.record import Expression, Record, header_line

_REMEDY = {
    errno.ENOSPC: "the disk is full; free some space and run the same command again",
    errno.EDQUOT: "the quota is used up; free some space and run the same command again",
    errno.EFBIG: "the file may not grow any further (limit of the system or of the shell); raise "
    "the limit and run the same command again",
    errno.EACCES: "permission denied; choose a file that you may write",
    errno.EPERM: "permission denied; choose a file that you may write",
    errno.EROFS: "the file system is read-only; choose a file elsewhere",
    errno.EISDIR: "it is a directory; name a file",
    errno.ENOENT: "its directory does not exist; create it first",
    errno.ENOTDIR: "its directory is not a directory; choose another path",
}
_KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


class Store:
    """Append records to a log, which is created when it does not exist.

    Opens the file at once, so that a path that cannot be written is found before anything is
    measured. Safe for several threads and for several processes on one file; a context manager.
    RecordError where the file cannot be opened for writing; or it is no regular file, or one that
    is neither empty nor begins as a log.

    Example:
        >>> with lw.records.Store("copy.jsonl") as store:
        ...     store.append(lw.records.load("matmul.jsonl").records[0])
        >>> print(len(lw.records.load("copy.jsonl").records))
        1
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._fd: int | None = self._open()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def append(self, record: Record) -> None:
        """Write one record as one line; on return the operating system has all of it. RecordError
        where that fails, as when the disk is full: what was in the log is untouched and readable.
        """
        self._write(record.to_line())

    def header(self, data: Mapping[str, Json]) -> None:
        """Write the line that opens a run: seed, options, and the logs it pretrains from;
        RecordError as of `append`.
        """
        self._write(header_line(dict(data)))

    def expression(self, expression: Expression) -> None:
        """Write the line of an expression, which must precede the first record that refers to it;
        RecordError, too, where it is too large for a line.
        """
        self._write(expression.to_line())

    def sync(self) -> None:
        """Flush appended lines to the disk (``fsync``), once per measured batch; RecordError where
        the disk reports a failure.
        """
        with self._lock:
            if self._fd is None:
                return
            try:
                os.fsync(self._fd)
            except OSError as exc:
                raise self._error(exc) from exc

    def close(self) -> None:
        """Close the file. Further calls of ``append`` raise."""
        with self._lock:
            fd, self._fd = self._fd, None
            if fd is not None:
                os.close(fd)

    def _open(self) -> int:
        try:
            # Before opening: a pipe without a reader would block, a device might act.
            if self.path.exists() and not self.path.is_file():
                kind = _KINDS.get(stat.S_IFMT(os.stat(self.path).st_mode), "a device")
                raise RecordError(
                    f"cannot write the log {str(self.path)!r}: it is {kind}, and a log is read "
                    "again; name a regular file"
                )
            fd = os.open(self.path, open_flags("RDWR", "APPEND", "CREAT"), 0o666)
            try:
                beginning = read_at(fd, BEGINNING, 0)
                if beginning and not begins_log(beginning):
                    raise RecordError(
                        f"cannot write the log {str(self.path)!r}: the file that is there is no "
                        f"log (it begins with {beginning[:20]!r}); name another file"
                    )
            except BaseException:
                os.close(fd)
                raise
            return fd
        except OSError as exc:
            raise self._error(exc) from exc

    def _error(self, exc: OSError) -> RecordError:
        reason = _REMEDY.get(exc.errno or 0, exc.strerror or str(exc))
        return RecordError(f"cannot write the log {str(self.path)!r}: {reason}")

    def _write(self, line: str) -> None:
        data = line.encode("ascii") + b"\n"
        with self._lock:
            fd = self._locked()
            try:
                _append(fd, data)
            except OSError as exc:
                raise self._error(exc) from exc
            finally:
                unlock(fd)

    def _locked(self) -> int:
        """The descriptor to write to, locked; the file may be replaced while this waits."""
        while True:
            fd = self._current()
            try:
                flock(fd)
            except OSError as exc:
                raise self._error(exc) from exc
            if self._is_same_file(fd):
                return fd
            unlock(fd)

    def _current(self) -> int:
        """The descriptor to write to: reopened after a fork, and when the file was replaced."""
        if self._fd is None:
            raise RecordError(f"the log {str(self.path)!r} was closed; open a new Store")
        if self._pid != os.getpid() or not self._is_same_file(self._fd):
            # A lock belongs to the open file, which a forked child shares with its parent; and
            # lines written to a file that was removed would be lost.
            fresh = self._open()
            os.close(self._fd)
            self._fd, self._pid = fresh, os.getpid()
        return self._fd

    def _is_same_file(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise self._error(exc) from exc


def _append(fd: int, data: bytes) -> None:
    """Append ``data`` whole, or leave no part of it behind; the caller holds the lock."""
    start = os.fstat(fd).st_size
    if start and read_at(fd, 1, start - 1) != b"\n":
        data = b"\n" + data
    done = 0
    try:
        while done < len(data):
            done += os.write(fd, data[done:])
    except BaseException:  # Ctrl-C too must leave no part of a line
        if done and os.fstat(fd).st_size == start + done:
            os.ftruncate(fd, start)
        elif done:  # a writer without lock has come in between
            os.write(fd, b"\n")
        raise
