"""The file of an index: a line that names the code that made it, and for each block a line with its
checksum and sizes, its head as JSON, and its columns.

It is replaced as a whole, in one step. Whatever is wrong with it, the log is read without it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from loopwright.errors import RecordError, UsageError
from loopwright.files import PARTIAL, Kind, destination, marked, replaced
from loopwright.records.index.block import Block
from loopwright.records.index.encoding import Values
from loopwright.records.index.stored import index_path

#: The form of the file.
_FORM = 2
#: The line of a block: SHA-256 of its head and body, and how long these are.
_FRAME = re.compile(rb"([0-9a-f]{64}) ([0-9]{1,12}) ([0-9]{1,12})\n")
#: Seconds after which files of a killed writer are removed.
_ABANDONED_S = 600.0


_NAME = "loopwright index"
_INDEX = Kind("an index", marked(_NAME.encode()))


@functools.cache
def _made_by() -> bytes:
    """The first line: form, byte order, and a hash of the code that gives lines their meaning."""
    digest = hashlib.sha256()
    root = Path(__file__).parent.parent
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0")
        digest.update(file.read_bytes() + b"\0")
    return f"{_NAME} {_FORM} {sys.byteorder} {digest.hexdigest()}".encode()


def read_index(log: Path, most: int, known: Values) -> list[Block]:
    """The undamaged blocks of a log's index; none where there is no usable index.

    A file of more than ``most`` bytes is not read, since no index is larger than its log; the
    blocks share their values through ``known``.
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
    blocks = (_block(*parts, known) for parts in _framed(data, len(first)))
    return [block for block in blocks if block is not None]


def _framed(data: bytes, at: int) -> Iterator[tuple[bytes, bytes, memoryview]]:
    """Digest, head and body of each block from an offset on, up to the first that is damaged."""
    view = memoryview(data)
    while frame := _FRAME.match(data, at):
        digest, *sizes = frame.groups()
        head, body = map(int, sizes)
        middle = frame.end() + head
        yield digest, data[frame.end() : middle], view[middle : middle + body]
        at = middle + body + 1


def _block(digest: bytes, head: bytes, body: memoryview, known: Values) -> Block | None:
    if _digest(head, body) != digest:
        return None
    try:
        return Block.from_parts(head, body, known)
    except RecordError:
        return None


def _digest(head: bytes, body: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(body)
    return digest.hexdigest().encode()


def write_index(log: Path, blocks: Iterable[Block], mode: int) -> None:
    """Replace the index of a log, with the log's ``mode`` so that the same users may read it.

    Where the folder or disk takes no file, the log stays without one: that costs time, and is no
    error.
    """
    path = index_path(log)
    with contextlib.suppress(OSError, UsageError):
        _remove_abandoned(path)
        destination(path, _INDEX, force=None)
        with replaced(path, mode & 0o666, durable=False) as file:
            file.write(_made_by() + b"\n")
            for block in blocks:
                head, body = block.to_parts()
                sizes = b"%d %d" % (len(head), len(body))
                file.write(b"%s %s\n%s" % (_digest(head, body), sizes, head))
                file.write(body + b"\n")


def _remove_abandoned(path: Path) -> None:
    for file in path.parent.glob(f".{path.name}.*{PARTIAL}"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > _ABANDONED_S:
                file.unlink()
