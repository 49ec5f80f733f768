"""Processes of the operating system: program, start, captured output, end, and its cause."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO

from loopwright import env
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
    """Start a Python process with pipes, in a session and process group of its own, in a folder, or
    that of this process. A RunError where the system cannot start it even after a moment.
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


#: Where LLVM and C++ find no memory they print such a line and abort, where Python would raise.
_MEMORY_LINES = (
    "LLVM ERROR: out of memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
)
#: In processes of these roles no code of a candidate runs, so that what they print is our own.
_ROLES_WITHOUT_CANDIDATES = ("builder",)
#: Signals by which operators, batch systems and the kernel's OOM killer end a process; code that
#: fails ends by others.
_SIGNALS_FROM_OUTSIDE = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT}
)


class FailureCause(Enum):
    """Reasons why there is no reply."""

    TIMEOUT = "the worker was killed at its deadline"
    CRASH = "the worker died"
    KILLED = "the worker was killed by somebody else"
    STOPPED = "the worker was stopped by somebody else, and killed at its deadline"
    MEMORY = "the worker died for want of memory"


#: Causes that do not depend on the request.
FROM_OUTSIDE = (FailureCause.KILLED, FailureCause.STOPPED)


@dataclass(frozen=True)
class WorkerFailure:
    cause: FailureCause
    text: str


def cause_of_exit(role: str, code: int, printed: Sequence[str]) -> FailureCause:
    """The reason why a process has ended that we did not kill; a negative ``code`` is a signal."""
    if -code in _SIGNALS_FROM_OUTSIDE:
        return FailureCause.KILLED
    # LLVM and C++ abort a process that finds no memory.
    aborted = role in _ROLES_WITHOUT_CANDIDATES and -code == signal.SIGABRT
    full = aborted and any(line.startswith(_MEMORY_LINES) for line in printed)
    return FailureCause.MEMORY if full else FailureCause.CRASH


def describe_exit(code: int, role: str) -> str:
    who = f"the {role} process" if role else "it"
    if code >= 0:
        return f"{who} exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    more = " (the system does this when memory runs out)" if -code == signal.SIGKILL else ""
    words = signal.strsignal(-code) or ""
    return f"{who} was killed by {name}{f', {words.lower()}' if words else ''}{more}"


def ended(proc: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended; it is not waited for, so that its id goes to no other one."""
    if proc.returncode is not None:
        return True
    return os.waitid(os.P_PID, proc.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def stopped(proc: subprocess.Popen[bytes]) -> bool:
    """Whether a process has been stopped, as by SIGSTOP; True only once for each stop."""
    if proc.returncode is not None:
        return False
    try:
        return os.waitid(os.P_PID, proc.pid, os.WSTOPPED | os.WNOHANG) is not None
    except ChildProcessError:  # one that has ended can no longer be stopped
        return False


def kill_group(proc: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own group, and the group; returns when it has ended."""
    # The worker leads its own group, which may outlive it. The number of the group is free for
    # reuse once the leader has been waited for, so killing comes first.
    if proc.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(proc.pid, signal.SIGKILL)
        proc.wait()


_TAIL = 2000


class Printed:
    """The printed output of the processes of one worker, one after the other."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._file: IO[bytes] | None = None

    @property
    def file(self) -> IO[bytes]:
        assert self._file is not None
        return self._file

    @property
    def size(self) -> int:
        return 0 if self._file is None else os.fstat(self._file.fileno()).st_size

    def open(self) -> None:
        """Make the file unless it exists; raises a RunError where it has no room or folder."""
        if self._file is not None:
            return
        try:
            self._file = tempfile.TemporaryFile(prefix="loopwright-worker-")  # noqa: SIM115
        except OSError as e:
            raise RunError(
                f"cannot start a {self._role} process: no temporary file for what it prints "
                f"({e.strerror or e}); make room, or set TMPDIR to another folder"
            ) from e
        # A process whose flood was cut off at its limit prints at the start again after `clear`.
        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        fcntl.fcntl(self._file, fcntl.F_SETFL, flags | os.O_APPEND)

    def clear(self) -> None:
        if self.size:
            os.ftruncate(self.file.fileno(), 0)

    def lines(self) -> list[str]:
        if self._file is None:
            return []
        fd = self.file.fileno()
        data = os.pread(fd, _TAIL, max(0, self.size - _TAIL))
        lines = data.replace(b"\0", b"").decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()]

    def text(self) -> str:
        """The last lines as the end of a sentence; empty when there are none."""
        joined = " | ".join(self.lines())
        return f"; it had printed: {joined}" if joined else ""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


#: Folders, or lists of folders, that a process in another folder would look for there.
_FOLDERS = ("CUDA_CACHE_PATH", "LD_LIBRARY_PATH", "POCL_CACHE_DIR", "PYTHONPATH", "TMPDIR")
#: Workers use NumPy only to fill and compare arrays: its own threads would disturb what is timed.
_SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class WorkerProgram:
    #: Run as ``python -m MODULE ROLE MEMORY_BYTES PARENT_PID ARGUMENTS``; its main calls
    #: `loopwright.measure.workers.worker.main`.
    module: str = "loopwright.measure.workers.worker"
    #: Variables that differ from those of this process; None unsets one.
    environment: Mapping[str, str | None] = field(default_factory=_SINGLE_THREADED.copy)
    arguments: tuple[str, ...] = ()  # of the role, such as the name of a device
    #: Whether it works in an empty folder, removed at its end: drivers of devices leave files in
    #: the working folder, such as PoCL its drawings of what it cannot compile. Relative folders in
    #: its environment still refer to the folder of this process.
    own_folder: bool = False

    def variables(self) -> dict[str, str]:
        """The environment of the process, in which our own package is found."""
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        wanted = {**os.environ, "PYTHONPATH": path, **self.environment}
        variables = {name: value for name, value in wanted.items() if value is not None}
        if self.own_folder:
            for name in filter(variables.get, _FOLDERS):
                folders = variables[name].split(os.pathsep)
                variables[name] = os.pathsep.join(map(os.path.abspath, folders))
            if variables.get("LOOPWRIGHT_CACHE"):
                variables["LOOPWRIGHT_CACHE"] = str(env.cache_folder() or 0)
        return variables
