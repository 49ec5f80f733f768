"""Files of JSON lines with checksums, to which one process appends; any line may be the last.

A line that was torn by the death of its writer is cut off when the file is opened for writing
again. A damaged line in the middle is passed over and counted.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from loopwright.errors import RecordError, UsageError
from loopwright.records.line import body_of, parse_line, sealed

Line = dict[str, Any]


def read_lines(path: Path) -> tuple[list[Line], int]:
    """The lines of a file, and how many were damaged; none where there is no file."""
    if not path.exists():
        return [], 0
    lines: list[Line] = []
    damaged = 0
    for raw in path.read_bytes().splitlines():
        try:
            lines.append(parse_line(raw))
        except RecordError:
            damaged += 1
    return lines, damaged


class Journal:
    """A file that is open for appending.

    Attributes:
        lines: what is in it.
        damaged: lines that were passed over.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file = file
        self.lines, self.damaged = read_lines(path)

    def append(self, line: Line) -> None:
        """Write a line; it is on the disk when this returns."""
        self._file.write(sealed(body_of(line, "a line of the benchmark")).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.lines.append(line)


@contextmanager
def opened(path: Path) -> Iterator[Journal]:
    """A file to append to, which no other process has open in this way.

    Raises:
        UsageError: another process has it.
    """
    with open(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process writes {path}; wait until it has ended, or take another folder"
            ) from None
        _cut_torn_line(path)
        yield Journal(file, path)


def _cut_torn_line(path: Path) -> None:
    """Take the end off a file that does not end with a whole line."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
