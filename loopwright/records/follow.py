"""Reading what came to a log since the last look, while another process writes it."""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from loopwright.errors import RecordError
from loopwright.files import read_at
from loopwright.records.file_kinds import open_at_once
from loopwright.records.foreign import is_lines
from loopwright.records.line import BEGINNING, BOM, MAX_LINE
from loopwright.records.log import Log, lines_of, take_line, without_collector
from loopwright.records.own_lines import SharedValues

_CHUNK = MAX_LINE + (1 << 16)  # bytes that are read at once; more than the longest line
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

    It takes no lock and writes nothing, so that the writer never waits. Only whole lines are read:
    one that is being written comes with the next look.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._inode: tuple[int, int] | None = None
        self._restart()

    def _restart(self) -> None:
        self._end = self._lines = 0
        self._before = b""
        self._shared = SharedValues()
        self._whole: tuple[int, ...] = ()  # state of a file that was read at once
        self._in_long = False  # the place that was reached is inside a line that is too long

    def look(self) -> News:
        """Read the new lines; raises a RecordError where the path is no readable regular file."""
        log = Log(self.path)
        try:
            self._check_regular(os.stat(self.path))
            with open(self.path, "rb", opener=open_at_once) as file, without_collector():
                status = os.fstat(file.fileno())
                self._check_regular(status)  # in the meantime it may have become a pipe
                if not is_lines(read_at(file.fileno(), BEGINNING, 0)):
                    file.seek(0)  # it has moved where the system has no pread
                    return self._look_at_whole(file, status)
                restarted = bool(self._whole) or not self._is_same(file.fileno(), status)
                if restarted:
                    self._restart()
                    self._inode = (status.st_dev, status.st_ino)
                while self._end < status.st_size and self._take(file.fileno(), log):
                    pass
            return News(True, restarted, log)
        except FileNotFoundError:
            restarted = self._inode is not None
            self._inode = None
            return News(False, restarted, log)
        except OSError as exc:
            self._inode = None  # lines of this look are lost: the next begins at the first one
            reason = exc.strerror or exc
            raise RecordError(f"cannot read the log {str(self.path)!r}: {reason}") from exc

    def _check_regular(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise RecordError(f"{str(self.path)!r} is no regular file; name a log")

    def _look_at_whole(self, file: io.BufferedReader, status: os.stat_result) -> News:
        """Read a file that is not read line by line, whenever it has changed."""
        log, state = Log(self.path), (status.st_dev, status.st_ino, status.st_mtime_ns)
        restarted = self._whole != (*state, status.st_size)
        if restarted:
            self._restart()
            for number, raw in enumerate(lines_of(file), 1):
                take_line(log, number, raw, self._shared)
            self._inode, self._whole = state[:2], (*state, status.st_size)
        return News(True, restarted, log)

    def _is_same(self, fd: int, status: os.stat_result) -> bool:
        """Whether the file is the one that was read before, with nothing cut off."""
        if self._inode != (status.st_dev, status.st_ino) or status.st_size < self._end:
            return False
        length = len(self._before)
        return read_at(fd, length, self._end - length) == self._before

    def _take(self, fd: int, log: Log) -> bool:
        """Read the whole lines of a chunk; False where there is none."""
        data = read_at(fd, _CHUNK, self._end)
        lines = data[: data.rfind(b"\n") + 1]
        if not lines and len(data) == _CHUNK:
            lines = data  # the part of a line that is too long, which `take_line` says
        for raw in io.BytesIO(lines if self._end else lines.removeprefix(BOM)):
            if not self._in_long:
                self._lines += 1
                take_line(log, self._lines, raw, self._shared)
            self._in_long = not raw.endswith(b"\n")
        if lines:
            self._end += len(lines)
            length = min(_REMEMBERED, self._end)
            self._before = read_at(fd, length, self._end - length)
        return bool(lines)
