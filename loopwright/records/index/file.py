"""The file of an index: a line that says which code made it, and two for each block.

It is replaced as a whole, in one step. Whatever is wrong with it, the log is read without it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from loopwright.errors import RecordError
from loopwright.records.index.block import Block
from loopwright.records.index.stored import index_path

#: The form of the file.
_FORM = 1
#: What a killed writer left is removed after so many seconds.
_ABANDONED_S = 600.0


@functools.cache
def _made_by() -> bytes:
    """The first line: the form, and a hash of the code that decides what a line of a log means."""
    digest = hashlib.sha256()
    root = Path(__file__).parent.parent
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0")
        digest.update(file.read_bytes() + b"\0")
    return f"loopwright index {_FORM} {digest.hexdigest()}".encode()


def read_index(log: Path, most: int) -> list[Block]:
    """The blocks of a log's index that are whole; none where there is no index that can be used.

    Args:
        log: the log.
        most: a file of more bytes is not read: no index is larger than its log.
    """
    try:
        fd = os.open(index_path(log), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                return []
            first, *lines = file.read(most).split(b"\n")
    except OSError:
        return []
    if first != _made_by():
        return []
    found = (_block(*pair) for pair in zip(lines[::2], lines[1::2], strict=False))
    return [block for block in found if block is not None]


def _block(line: bytes, description: bytes) -> Block | None:
    digest, _, text = line.partition(b" ")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    try:
        return Block.from_text(text, description)
    except RecordError:
        return None


def write_index(log: Path, blocks: Iterable[Block], mode: int) -> None:
    """Replace the index of a log. A folder or disk that takes no file leaves the log without one:
    that costs time, and is no error.

    Args:
        log: the log.
        blocks: what the index shall hold.
        mode: the log's; who may read that may read the index.
    """
    path = index_path(log)
    with contextlib.suppress(OSError):
        _remove_abandoned(path)
        fd, partial = tempfile.mkstemp(".partial", f"{path.name}.", path.parent)
        try:
            with open(fd, "wb") as file:
                os.fchmod(fd, mode & 0o666)
                file.write(_made_by() + b"\n")
                for block in blocks:
                    text = block.to_text()
                    digest = hashlib.sha256(text).hexdigest().encode()
                    file.write(b"%s %s\n%s\n" % (digest, text, block.description))
            os.replace(partial, path)
        except BaseException:
            os.unlink(partial)
            raise


def _remove_abandoned(path: Path) -> None:
    for file in path.parent.glob(f"{path.name}.*.partial"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > _ABANDONED_S:
                file.unlink()
