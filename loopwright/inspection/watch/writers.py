"""Processes of this machine that have a log open for writing: whether its run still lives.

A run keeps its log open until it ends, and holds the lock of the file only while it writes a line.
So the lock tells nothing most of the time, and asking for it would disturb the writer; the table of
open files, which Linux shows under ``/proc``, tells without touching the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: Folder in which Linux shows processes.
PROC = Path("/proc")


class Writers(NamedTuple):
    """Processes that have a log open for writing."""

    pids: tuple[int, ...]  # ascending
    known: bool  # False where the system does not tell
    hidden: bool  # whether processes, perhaps a writer among them, hide their files from this user


def writers_of(path: str | os.PathLike[str], proc: Path = PROC) -> Writers:
    """Find the processes of this machine that have a file open for writing.

    Args:
        path: the file.
        proc: folder in which the system shows its processes.

    Example:
        >>> from loopwright.inspection.watch import writers_of
        >>> print(writers_of("matmul.jsonl").pids)
        ()
    """
    try:
        wanted = os.stat(path)
        processes = [entry for entry in os.listdir(proc) if entry.isdigit()]
    except OSError:
        return Writers((), False, False)
    pids, hidden = [], False
    for pid in processes:
        try:
            if _writes(proc / pid, wanted):
                pids.append(int(pid))
        except PermissionError:
            hidden = True
        except OSError:
            continue  # it has ended in the meantime
    return Writers(tuple(sorted(pids)), bool(processes), hidden)


def _writes(process: Path, wanted: os.stat_result) -> bool:
    """Whether a process has a file open for writing.

    `PermissionError` if its open files are hidden, another `OSError` if it has ended.
    """
    return any(_is_for_writing(process / "fdinfo" / fd) for fd in _open_as(process, wanted))


def _open_as(process: Path, wanted: os.stat_result) -> Iterator[str]:
    """Numbers of a process's descriptors that are of one file."""
    for fd in os.listdir(process / "fd"):
        try:
            status = os.stat(process / "fd" / fd)
        except FileNotFoundError:
            continue  # closed in the meantime, or no file that has a name
        if os.path.samestat(status, wanted):
            yield fd


def _is_for_writing(info: Path) -> bool:
    """Whether a descriptor may write, from its octal flags."""
    try:
        lines = info.read_text().splitlines()
    except FileNotFoundError:
        return False
    flags = next((line.split()[1] for line in lines if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
