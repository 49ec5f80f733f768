"""Logs that are followed while they are written, and paths that may become one."""

from __future__ import annotations

import os

from loopwright.errors import RecordError
from loopwright.records import load, read_line
from loopwright.records.log import check_is_log, raw_lines


def check_may_grow(path: str | os.PathLike[str]) -> None:
    """Refuse, by a `RecordError`, a path that is no log and cannot become one: a folder, a pipe,
    another file.

    A missing or empty file may become a log. Only the first line of a log is read.
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
