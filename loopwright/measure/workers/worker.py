"""The worker process: ``python -m loopwright.measure.workers.worker ROLE MEMORY_BYTES PARENT_PID``.

It answers messages on the pipes that were its standard input and output; for everything else these
are the null device and standard error, so a printing or reading kernel cannot disturb the protocol.
It imports neither the user's main module nor templates nor operators: a builder gets a DAG and a
trace, a runner gets machine code. It dies with its parent, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from loopwright.errors import LoopwrightError, OutOfMemoryError, ScheduleError
from loopwright.measure.workers.messages import Failed, Ready
from loopwright.measure.workers.protocol import Message, Reply, read_message, write_message
from loopwright.records import ErrorKind

_STDERR_BYTES = 16 << 20
_TEXT = 2000


class Role(Protocol):
    """What a worker does."""

    def answer(self, request: Message) -> Reply:
        """Do what the request says; an exception becomes a `Failed` reply."""


def _private_pipes() -> tuple[int, int]:
    """Move the pipes to descriptors of our own; leave the standard ones harmless."""
    requests, replies = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    return requests, replies


def _die_with_parent(requests: int, parent: int) -> None:
    """Watch the pipe and the parent from a thread; kernels and LLVM run without the GIL."""

    def watch() -> None:
        poller = select.poll()
        poller.register(requests, 0)  # only hang-up and errors are reported
        while os.getppid() == parent and not poller.poll(1000):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    with contextlib.suppress(OSError, ValueError):  # a system without this limit
        resource.setrlimit(which, (value, hard))


def _pages(field: int) -> int:
    """Bytes from /proc: field 0 is address space, 1 is resident; 0 where there is no /proc."""
    try:
        with open("/proc/self/statm", encoding="ascii") as f:
            return int(f.read().split()[field]) * resource.getpagesize()
    except OSError:
        return 0


def _limit_memory(memory_bytes: int) -> None:
    _limit(resource.RLIMIT_AS, _pages(0) + memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    # Python ignores SIGXFSZ, so a flood of text ends in failed writes, not in a full disk.
    _limit(resource.RLIMIT_FSIZE, _STDERR_BYTES)


def make_role(name: str) -> Role:
    """The role of a builder or a runner; imports what it needs."""
    if name == "builder":
        from loopwright.measure.workers.build_role import BuildRole

        return BuildRole()
    from loopwright.measure.workers.run_role import RunRole

    return RunRole()


def describe(e: BaseException, default: ErrorKind) -> Failed:
    """A failed request as a reply: the kind of error and one text.

    Args:
        e: what was raised.
        default: kind of errors that say nothing more special.
    """
    text = str(e).strip() or type(e).__name__
    kind = default
    if isinstance(e, MemoryError | OutOfMemoryError):
        kind = ErrorKind.MEMORY
        text = f"out of memory: {text}"
    elif isinstance(e, ScheduleError):
        kind = ErrorKind.INSTANTIATION
    if not isinstance(e, LoopwrightError | MemoryError):
        frames = traceback.extract_tb(e.__traceback__)[-3:]
        where = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in reversed(frames))
        text = f"{type(e).__name__}: {text} (at {where})"
    return Failed(kind=kind, text=text[:_TEXT])


def serve(role: Role, requests: int, replies: int, default: ErrorKind) -> None:
    """Answer requests until the parent closes the pipe."""
    while (request := read_message(requests)) is not None:
        try:
            reply = role.answer(request)
        except (Exception, SystemExit) as e:  # whatever a candidate raises costs that candidate
            reply = describe(e, default)
        write_message(replies, replace(reply, rss=_pages(1)))


def main(argv: Sequence[str], make: Callable[[str], Role] = make_role) -> int:
    """Run a worker process.

    Args:
        argv: name of the role, memory in bytes beyond what it starts with, id of the parent.
        make: the role of a name.

    Returns:
        The exit code: 1 when the role cannot be had, which standard error explains.
    """
    name, memory_bytes, parent = argv[0], int(argv[1]), int(argv[2])
    requests, replies = _private_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent(requests, parent)
    try:
        role = make(name)
    except LoopwrightError as e:  # such as a setting that is not understood
        print(e, file=sys.stderr)
        return 1
    _limit_memory(memory_bytes)
    write_message(replies, Ready(rss=_pages(1)))
    serve(role, requests, replies, ErrorKind.COMPILE if name == "builder" else ErrorKind.RUN_ERROR)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
