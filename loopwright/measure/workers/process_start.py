"""Start of worker processes, also where the system is briefly out of room."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO

from loopwright.errors import RunError

#: Errors of the system that may pass in a moment: too many processes, no memory.
_TRANSIENT = (errno.EAGAIN, errno.ENOMEM)
#: Seconds of waiting before each further attempt.
_PAUSES = (0.1, 0.4, 1.0)
_ADVICE = {
    errno.EAGAIN: "the limit of processes is reached (ulimit -u, or the container's): end some, "
    "or raise it",
    errno.ENOMEM: "there is no memory left: end other programs, or take fewer builders",
    errno.EMFILE: "this process has too many open files (ulimit -n): close some, or raise it",
    errno.ENFILE: "the machine has too many open files: end other programs",
}


def folder_of_its_own(role: str) -> tempfile.TemporaryDirectory[str]:
    """An empty folder for a process, removed with all that the process leaves there."""
    try:
        return tempfile.TemporaryDirectory(prefix=f"loopwright-{role}-", ignore_cleanup_errors=True)
    except OSError as e:
        raise RunError(
            f"cannot start a {role} process: no temporary folder to work in "
            f"({e.strerror or e}); make room, or set TMPDIR to another folder"
        ) from e


def start_process(
    role: str,
    args: Sequence[str],
    stderr: IO[bytes] | None,
    environment: Mapping[str, str],
    folder: str | None = None,
) -> subprocess.Popen[bytes]:
    """Start a Python process with pipes, in a session and process group of its own.

    It works in ``folder``; None: in that of this process. Raises a RunError where the system cannot
    start it even after a moment.
    """
    for pause in (*_PAUSES, None):
        try:
            return subprocess.Popen(
                [sys.executable, *args],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                cwd=folder,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as e:
            if e.errno not in _TRANSIENT or pause is None:
                advice = _ADVICE.get(e.errno or 0, f"is {sys.executable} still there?")
                text = f"cannot start a {role} process: {e.strerror or e}; {advice}"
                raise RunError(text) from e
        time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")
