"""Opening a log through its index: compare the two, read what is new, keep it for later."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from loopwright.records.index.block import Block
from loopwright.records.index.encoding import Values
from loopwright.records.index.file import read_index, write_index
from loopwright.records.index.stored import LogFile, StoredBlock
from loopwright.records.line import BOM
from loopwright.records.log import Log, load, take_line, without_collector
from loopwright.records.record import Record

#: Logs of fewer bytes are read whole: that takes a fifth of a second.
SMALL = 4 << 20
#: Bytes of a block, but for its last line.
_BLOCK = 1 << 20
#: So many bytes must be new before the index is written again.
_NEWS = 1 << 18


def open_log(path: str | os.PathLike[str]) -> Log:
    """Read a log as `load` does, fast and in little memory where it is large.

    Of a large log only the lines that are new since the last time are parsed; the others are known
    from an index, the file ``.NAME.index`` beside the log. The index is compared with every byte of
    the log, made again where it is missing, stale or damaged, and omitted where it cannot be
    written. The records parse their lines when their ``trace`` or ``extra`` is read.

    Args:
        path: The file.

    Returns:
        The same as `load`; the records are equal to its records.

    Raises:
        RecordError: the file does not exist or cannot be read; or, when a trace is read, its line
            has changed since the log was opened.

    Example:
        >>> log = lw.records.open_log("matmul.jsonl")
        >>> print(len(log.records) >= 6, len(log.skipped))
        True 0
    """
    path = Path(path)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size < SMALL:
            return load(path)
        with without_collector():
            return _Reading(path).log(status.st_mode)
    except OSError:
        # The words for what is wrong are there.
        return load(path)


class WholeLines(NamedTuple):
    """The whole lines of a log."""

    log: Log
    lines: int  # number of lines
    size: int  # bytes


def open_whole_lines(path: str | os.PathLike[str]) -> WholeLines:
    """Read the whole lines that a log has at this moment, and write nothing; raises OSError.

    An existing index is used, but neither made nor updated. A last line without its newline is left
    out: its writer may not have finished.
    """
    with without_collector():
        return _Reading(Path(path)).whole_lines()


def known_records(path: str | os.PathLike[str]) -> set[int]:
    """Numbers of the lines, from 1, that the index of a log knows to be records.

    The index is compared with every byte of the log, as in `open_log`, and made where it is
    missing. Empty for a log that is small, or cannot be read.
    """
    path = Path(path)
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size < SMALL:
            return set()
        with without_collector():
            return _Reading(path).record_lines(status.st_mode)
    except OSError:
        return set()


class _Reading:
    def __init__(self, path: Path) -> None:
        self._file = LogFile(path)
        self._size = self._file.size
        self._values = Values()
        self._confirmed: set[tuple[str, bytes]] = set()
        self._known = {block.start: block for block in read_index(path, self._size, self._values)}
        self._blocks: list[Block] = []
        self._fresh = 0

    def log(self, mode: int) -> Log:
        """Read the log and update its index."""
        rest = self._read_blocks()
        if self._fresh >= _NEWS:
            write_index(self._file.path, self._blocks, mode)
        log, lines = self._known_lines()
        if rest:
            take_line(log, lines + 1, rest if lines else rest.removeprefix(BOM))
        return log

    def whole_lines(self) -> WholeLines:
        """All lines except a last one without its newline."""
        self._read_blocks()
        return WholeLines(*self._known_lines(), self._blocks[-1].end if self._blocks else 0)

    def _known_lines(self) -> tuple[Log, int]:
        """Contents and number of the lines of all blocks."""
        log, lines = Log(self._file.path), 0
        for block in self._blocks:
            self._add(log, block, lines)
            lines += len(block.lengths)
        return log, lines

    def record_lines(self, mode: int) -> set[int]:
        """Numbers of the lines that are records; updates the index."""
        self._read_blocks()
        if self._fresh >= _NEWS:
            write_index(self._file.path, self._blocks, mode)
        found: set[int] = set()
        line = 1
        for block in self._blocks:
            found.update(line + position for position in block.positions)
            line += len(block.lengths)
        return found

    def _read_blocks(self) -> bytes:
        """Find or parse all blocks; returns the last line where it has no newline."""
        at = 0
        while at < self._size:
            known = self._known.get(at)
            data = self._lines(at, known)
            if not data.endswith(b"\n"):
                return data
            if known is None or not known.fits(data, self._confirmed):
                known = Block.of(self._file.path, at, data, self._values)
                self._fresh += len(data)
            self._blocks.append(known)
            at = known.end
        return b""

    def _lines(self, at: int, known: Block | None) -> bytes:
        """Whole lines from an offset: those of the known block, or about ``_BLOCK`` bytes of them;
        at the end of the log the rest of a line.
        """
        whole = known is not None and known.end <= self._size
        if known is not None and whole and not self._outgrown(known):
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

    def _outgrown(self, known: Block) -> bool:
        """Whether a short block was the end of the log before, to be read again with new lines."""
        return known.end - known.start < _BLOCK // 2 and known.end < self._size

    def _add(self, log: Log, block: Block, line: int) -> None:
        """Add the lines of a block to a log, after ``line`` other lines."""
        records: list[Record] = list(StoredBlock(self._file, block).records())
        known, none = len(log.records), 0
        for position in block.others:
            begin = block.begins[position]
            raw = self._file.read(begin, block.lengths[position])
            take_line(log, line + position + 1, raw if begin else raw.removeprefix(BOM))
            if len(log.records) == known:
                none += 1
            else:
                records.insert(position - none, log.records.pop())
        log.records += records
