"""Open a log by way of its index: compare it with the log, read what is new, keep it for later."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from loopwright.records.index.block import Block
from loopwright.records.index.encoding import Values
from loopwright.records.index.file import read_index, write_index
from loopwright.records.index.stored import LogFile, StoredBlock
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

    Of a large log only what is new since the last time is parsed; what was, is known from an index,
    the file ``.NAME.index`` beside the log. It is compared with every byte of the log, made again
    where it is missing, stale or damaged, and done without where it cannot be written. The records
    parse their lines when their ``trace`` or ``extra`` is asked for.

    Args:
        path: The file.

    Returns:
        What `load` returns; the records are equal to those.

    Raises:
        RecordError: the file does not exist or cannot be read; or, when a trace is asked for, its
            line is not what it was when the log was opened.

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


class _Reading:
    """One reading of a log.

    Args:
        path: the log.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._file = LogFile(path)
        self._size = self._file.size
        self._values = Values()
        self._confirmed: set[tuple[str, bytes]] = set()
        self._known = {block.start: block for block in read_index(path, self._size, self._values)}
        self._blocks: list[Block] = []
        self._fresh = 0

    def log(self, mode: int) -> Log:
        """What the log holds; its index is brought up to date."""
        rest = self._read_blocks()
        if self._fresh >= _NEWS:
            write_index(self._file.path, self._blocks, mode)
        log = Log(self._file.path)
        line = 0
        for block in self._blocks:
            self._add(log, block, line)
            line += len(block.lengths)
        if rest:
            take_line(log, line + 1, rest)
        return log

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
        """Whole lines from a place: those of the known block, or about ``_BLOCK`` bytes of them; at
        the end of the log what is left of a line."""
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
        """A short block at the end of what was the log then: it is read again with what follows."""
        return known.end - known.start < _BLOCK // 2 and known.end < self._size

    def _add(self, log: Log, block: Block, line: int) -> None:
        """Add the lines of a block to a log, ``line`` lines standing before it."""
        records: list[Record] = list(StoredBlock(self._file, block).records())
        known, none = len(log.records), 0
        for position in block.others:
            raw = self._file.read(block.begins[position], block.lengths[position])
            take_line(log, line + position + 1, raw)
            if len(log.records) == known:
                none += 1
            else:
                records.insert(position - none, log.records.pop())
        log.records += records
