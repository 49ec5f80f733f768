"""Reading a log while another process writes it: what came since the last look."""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from loopwright.errors import RecordError
from loopwright.records.index.open import open_whole_lines
from loopwright.records.line import MAX_LINE
from loopwright.records.log import Log, take_line

#: Bytes that are read at once; more than the longest line.
_CHUNK = MAX_LINE + (1 << 16)
#: So many bytes before the place that was reached tell whether the file is still the same one.
_REMEMBERED = 256


@dataclass(frozen=True)
class News:
    """Changes of a log since the last look."""

    exists: bool  # False while there is no file at the path
    #: True where ``log`` begins at the first line: at the first look, and when the file was cut,
    #: replaced or removed; what was read before is void.
    restarted: bool
    log: Log  # the lines since the last look


class Follower:
    """Reads a log that is written at the same time, or does not exist yet.

    It takes no lock and writes nothing, not even an index, so that the writer never waits. Only
    whole lines are read: one that is being written comes with the next look.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._inode: tuple[int, int] | None = None
        self._end = 0
        self._before = b""
        self._lines = 0

    def look(self) -> News:
        """Read the new lines; raises a RecordError where the path is no readable regular file."""
        try:
            status = os.stat(self.path)
            if not stat.S_ISREG(status.st_mode):
                raise RecordError(f"{str(self.path)!r} is no regular file; name a log")
            if self._inode == (status.st_dev, status.st_ino):
                news = self._appended(status.st_size)
                if news is not None:
                    return news
            return self._from_the_beginning()
        except FileNotFoundError:
            return self._gone()
        except OSError as exc:
            reason = exc.strerror or exc
            raise RecordError(f"cannot read the log {str(self.path)!r}: {reason}") from exc

    def _gone(self) -> News:
        restarted = self._inode is not None
        self._inode, self._end, self._before, self._lines = None, 0, b"", 0
        return News(False, restarted, Log(self.path))

    def _from_the_beginning(self) -> News:
        log, self._lines, end = open_whole_lines(self.path)
        with open(self.path, "rb") as file:
            status = os.fstat(file.fileno())
            self._inode = (status.st_dev, status.st_ino)
            self._reached(file.fileno(), end)
        return News(True, True, log)

    def _appended(self, size: int) -> News | None:
        """The appended lines; None where the file is not the one that was read before."""
        log = Log(self.path)
        if size < self._end:
            return None
        with open(self.path, "rb") as file:
            fd = file.fileno()
            if os.pread(fd, len(self._before), self._end - len(self._before)) != self._before:
                return None
            while self._end < size and self._take(fd, log):
                pass
        return News(True, False, log)

    def _take(self, fd: int, log: Log) -> bool:
        """Read the whole lines of a chunk; False where there is none."""
        data = os.pread(fd, _CHUNK, self._end)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == _CHUNK:
            whole = data  # the part of a line that is too long, which `take_line` says
        for raw in io.BytesIO(whole):
            self._lines += 1
            take_line(log, self._lines, raw)
        if whole:
            self._reached(fd, self._end + len(whole))
        return bool(whole)

    def _reached(self, fd: int, end: int) -> None:
        self._end = end
        length = min(_REMEMBERED, end)
        self._before = os.pread(fd, length, end - length)
