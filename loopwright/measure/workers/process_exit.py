"""Exits of worker processes: detection, causes, and killing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

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
    """A request without a reply, and a text for people."""

    cause: FailureCause
    text: str


def cause_of_exit(role: str, code: int, printed: Sequence[str]) -> FailureCause:
    """The reason why a process has ended that we did not kill; a negative ``code`` is a signal."""
    if -code in _SIGNALS_FROM_OUTSIDE:
        return FailureCause.KILLED
    full = _found_no_memory(role, code, printed)
    return FailureCause.MEMORY if full else FailureCause.CRASH


def _found_no_memory(role: str, code: int, printed: Sequence[str]) -> bool:
    """Whether LLVM or C++ aborted a process for want of memory."""
    if role not in _ROLES_WITHOUT_CANDIDATES or -code != signal.SIGABRT:
        return False
    return any(line.startswith(_MEMORY_LINES) for line in printed)


def describe_exit(code: int, role: str) -> str:
    """The end of a process in words, from its return code."""
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
    """Whether a process has ended.

    It is not waited for here, so that the system gives its id to no other process.
    """
    if proc.returncode is not None:
        return True
    return os.waitid(os.P_PID, proc.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def stopped(proc: subprocess.Popen[bytes]) -> bool:
    """Whether a process has been stopped, as by SIGSTOP; True only once for each stop."""
    if proc.returncode is not None:
        return False
    return os.waitid(os.P_PID, proc.pid, os.WSTOPPED | os.WNOHANG) is not None


def kill_group(proc: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own group, and the group; returns when it has ended."""
    # The worker leads its own group, which may outlive it. The number of the group is free for
    # reuse once the leader has been waited for, so killing comes first.
    if proc.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(proc.pid, signal.SIGKILL)
        proc.wait()
