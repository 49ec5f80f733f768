"""Opening a log through its index: compare the two, read what is new, keep it for later.

The file of an index has a line that names the code that made it, and for each block a line with its
checksum and sizes, its head as JSON, and its columns. It is replaced as a whole, in one step.
Whatever is wrong with it, the log is read without it. `Follower` reads what came to a log since the
last look, while another process writes it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import re
import stat
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from loopwright.errors import RecordError, UsageError
from loopwright.files import PARTIAL, FileKind, destination, marked, replaced
from loopwright.records.index.block import (
    LogBlock,
    LogFile,
    SharedValues,
    StoredBlock,
    StoredRecord,
    index_path,
)
from loopwright.records.line import BOM, MAX_LINE
from loopwright.records.log import Log, load, take_line, without_collector
from loopwright.records.record import Record

_FORM = 2  # the form of the file
#: The line of a block: SHA-256 of its head and body, and how long these are.
_FRAME = re.compile(rb"([0-9a-f]{64}) ([0-9]{1,12}) ([0-9]{1,12})\n")
_ABANDONED_S = 600.0  # seconds after which files of a killed writer are removed
_NAME = "loopwright index"
_INDEX = FileKind("an index", marked(_NAME.encode()))


@functools.cache
def _made_by() -> bytes:
    """The first line: form, byte order, and a hash of the code that gives lines their meaning."""
    digest = hashlib.sha256()
    root = Path(__file__).parent.parent
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0")
        digest.update(file.read_bytes() + b"\0")
    return f"{_NAME} {_FORM} {sys.byteorder} {digest.hexdigest()}".encode()


def read_index(log: Path, most: int, known: SharedValues) -> list[LogBlock]:
    """The undamaged blocks of a log's index, which share values through ``known``; none of a file
    of more than ``most`` bytes, since no index is larger than its log.
    """
    try:
        fd = os.open(index_path(log), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                return []
            data = file.read(most)
    except OSError:
        return []
    first = _made_by() + b"\n"
    if not data.startswith(first):
        return []
    blocks, at, view = list[LogBlock](), len(first), memoryview(data)
    while frame := _FRAME.match(data, at):
        digest, *sizes = frame.groups()
        middle = frame.end() + int(sizes[0])
        at = middle + int(sizes[1]) + 1
        head, body = data[frame.end() : middle], view[middle : at - 1]
        with contextlib.suppress(RecordError):  # a block that is malformed is left out
            if _digest(head, body) == digest:
                blocks.append(LogBlock.from_parts(head, body, known))
    return blocks


def _digest(head: bytes, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(body)
    return digest.hexdigest().encode()


def write_index(log: Path, blocks: Iterable[LogBlock], mode: int) -> None:
    """Replace the index of a log, with the log's ``mode`` so that the same users may read it. Where
    the folder or disk takes no file, the log stays without one: that costs time, and is no error.
    """
    path = index_path(log)
    with contextlib.suppress(OSError, UsageError):
        for file in path.parent.glob(f".{path.name}.*{PARTIAL}"):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - file.stat().st_mtime > _ABANDONED_S:
                    file.unlink()
        destination(path, _INDEX, force=None)
        with replaced(path, mode & 0o666, durable=False) as index:
            index.write(_made_by() + b"\n")
            for block in blocks:
                head, body = block.to_parts()
                sizes = b"%d %d" % (len(head), len(body))
                index.write(b"%s %s\n%s" % (_digest(head, body), sizes, head))
                index.write(body + b"\n")


SMALL = 4 << 20  # logs of fewer bytes are read whole: that takes a fifth of a second
_BLOCK = 1 << 20  # bytes of a block, but for its last line
_NEWS = 1 << 18  # so many bytes must be new before the index is written again


def open_log(path: str | os.PathLike[str]) -> Log:
    """Read a log as `load` does, fast and in little memory where it is large.

    Of a large log only the lines that are new since the last time are parsed; the others are known
    from an index, the file ``.NAME.index`` beside the log. The index is compared with every byte of
    the log, made again where it is missing, stale or damaged, and omitted where it cannot be
    written. The records parse their lines when their ``trace`` or ``extra`` is read.

    RecordError where the file does not exist or cannot be read; or, when a trace is read, where its
    line has changed since the log was opened.

    Example:
        >>> log = lw.records.open_log("matmul.jsonl")
        >>> print(len(log.records) >= 6, len(log.skipped))
        True 0
    """
    with contextlib.suppress(OSError), without_collector():  # `load` has the words for errors
        mode = _mode_of_large(path)
        if mode is not None:
            return _Reading(Path(path)).log(mode)
    return load(path)


def known_records(path: str | os.PathLike[str]) -> set[int]:
    """Numbers of the lines, from 1, that the index of a log, compared or made as in `open_log`,
    knows to be records. Empty for a log that is small, or cannot be read.
    """
    with contextlib.suppress(OSError), without_collector():
        mode = _mode_of_large(path)
        if mode is not None:
            return _Reading(Path(path)).record_lines(mode)
    return set()


def _mode_of_large(path: str | os.PathLike[str]) -> int | None:
    """The mode of a log that is worth an index; None for another file."""
    status = os.stat(path)
    return status.st_mode if stat.S_ISREG(status.st_mode) and status.st_size >= SMALL else None


class _Reading:
    def __init__(self, path: Path) -> None:
        self._file = LogFile(path)
        self._size = self._file.size
        self._values = SharedValues()
        self._confirmed: set[tuple[str, bytes]] = set()
        self._known = {block.start: block for block in read_index(path, self._size, self._values)}
        self._blocks: list[LogBlock] = []
        self._fresh = 0

    def log(self, mode: int) -> Log:
        rest = self._read_blocks(mode)
        log, lines = self._known_lines()
        if rest:
            take_line(log, lines + 1, rest if lines else rest.removeprefix(BOM))
        return log

    def whole_lines(self) -> tuple[Log, int, int]:
        """The whole lines that the log has at this moment, their number, and their bytes; a last
        one without newline may be unfinished. An index is used, but neither made nor updated.
        """
        self._read_blocks()
        return *self._known_lines(), self._blocks[-1].end if self._blocks else 0

    def _known_lines(self) -> tuple[Log, int]:
        """Contents and number of the lines of all blocks."""
        log, lines = Log(self._file.path), 0
        for block in self._blocks:
            self._add(log, block, lines)
            lines += len(block.lengths)
        return log, lines

    def record_lines(self, mode: int) -> set[int]:
        """Numbers of the lines that are records; updates the index."""
        self._read_blocks(mode)
        numbers: set[int] = set()
        line = 1
        for block in self._blocks:
            numbers.update(line + position for position in block.positions)
            line += len(block.lengths)
        return numbers

    def _read_blocks(self, mode: int | None = None) -> bytes:
        """Find or parse all blocks; returns the last line where it has no newline. With the mode of
        the log, the index is written again where much is new.
        """
        at, rest = 0, b""
        while at < self._size:
            block = self._known.get(at)
            data = self._lines(at, block)
            if not data.endswith(b"\n"):
                rest = data
                break
            if block is None or not block.fits(data, self._confirmed):
                block = LogBlock.of(self._file.path, at, data, self._values)
                self._fresh += len(data)
            self._blocks.append(block)
            at = block.end
        if mode is not None and self._fresh >= _NEWS:
            write_index(self._file.path, self._blocks, mode)
        return rest

    def _lines(self, at: int, known: LogBlock | None) -> bytes:
        """Whole lines from an offset: those of the known block, or about ``_BLOCK`` bytes of them;
        at the end of the log the rest of a line.
        """
        # A short block was the end of the log before: it is read again with the lines behind it.
        if known is not None and (
            known.end == self._size or (known.end < self._size and known.end - at >= _BLOCK // 2)
        ):
            data = self._file.read(at, known.end - at)
            if data.endswith(b"\n"):
                return data
        data = self._file.read(at, min(_BLOCK, self._size - at))
        while (end := data.rfind(b"\n") + 1) == 0 and at + len(data) < self._size:
            more = self._file.read(at + len(data), min(len(data), self._size - at - len(data)))
            if not more:
                break
            data += more
        return data[:end] if end else data

    def _add(self, log: Log, block: LogBlock, line: int) -> None:
        """Add the lines of a block to a log, after ``line`` other lines."""
        stored = StoredBlock(self._file, block)
        records: list[Record] = [StoredRecord.at(stored, row) for row in range(block.count)]
        count, none = len(log.records), 0
        for position in block.others:
            begin = block.begins[position]
            raw = self._file.read(begin, block.lengths[position])
            take_line(log, line + position + 1, raw if begin else raw.removeprefix(BOM))
            if len(log.records) == count:
                none += 1
            else:
                records.insert(position - none, log.records.pop())
        log.records += records


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
                log = self._appended(status.st_size)
                if log is not None:
                    return News(True, False, log)
            with without_collector():
                log, self._lines, end = _Reading(self.path).whole_lines()
            with open(self.path, "rb") as file:
                status = os.fstat(file.fileno())
                self._inode = (status.st_dev, status.st_ino)
                self._reached(file.fileno(), end)
            return News(True, True, log)
        except FileNotFoundError:
            restarted = self._inode is not None
            self._inode, self._end, self._before, self._lines = None, 0, b"", 0
            return News(False, restarted, Log(self.path))
        except OSError as exc:
            reason = exc.strerror or exc
            raise RecordError(f"cannot read the log {str(self.path)!r}: {reason}") from exc

    def _appended(self, size: int) -> Log | None:
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
        return log

    def _take(self, fd: int, log: Log) -> bool:
        """Read the whole lines of a chunk; False where there is none."""
        data = os.pread(fd, _CHUNK, self._end)
        lines = data[: data.rfind(b"\n") + 1]
        if not lines and len(data) == _CHUNK:
            lines = data  # the part of a line that is too long, which `take_line` says
        for raw in io.BytesIO(lines):
            self._lines += 1
            take_line(log, self._lines, raw)
        if lines:
            self._reached(fd, self._end + len(lines))
        return bool(lines)

    def _reached(self, fd: int, end: int) -> None:
        self._end = end
        length = min(_REMEMBERED, end)
        self._before = os.pread(fd, length, end - length)
