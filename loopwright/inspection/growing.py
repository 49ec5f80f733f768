"""Logs that are followed while they are written: what may be one, or become one."""

from __future__ import annotations

import os

from loopwright.errors import RecordError
from loopwright.records import load, read_line
from loopwright.records.log import check_is_log, raw_lines


def check_may_grow(path: str | os.PathLike[str]) -> None:
    """Refuse what is no log and cannot become one: a folder, a pipe, a file of something else.

    A path at which there is nothing yet, and an empty file, may become a log. Of a log no more is
    read than its first line.

    Args:
        path: where a log is, or will be.

    Raises:
        RecordError: it is none, or cannot be read; the message says what it is.
    """
    if not os.path.exists(path):
        return
    if not os.path.isfile(path) and not os.path.isdir(path):
        raise RecordError(f"{str(path)!r} is no regular file; name a log")
    foreign = False
    for raw in raw_lines(path):
        try:
            if read_line(raw) is not None:
                return
        except RecordError:
            foreign = True
    if foreign:
        check_is_log(load(path))
