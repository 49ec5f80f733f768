"""How worker processes end: whether they have, of what, and making sure."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess


def describe_exit(code: int, role: str) -> str:
    """How a process ended, in words, from its return code."""
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

    Its parent does not wait for it here, so that the system gives its id to no other process.
    """
    if proc.returncode is not None:
        return True
    return os.waitid(os.P_PID, proc.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill_group(proc: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads its own group, and the group; returns when it has ended."""
    # The worker leads its own group, which may outlive it. The number of the group is free for
    # reuse once the leader has been waited for, so killing comes first.
    if proc.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(proc.pid, signal.SIGKILL)
        proc.wait()
