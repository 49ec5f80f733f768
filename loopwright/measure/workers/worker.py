"""The worker process: ``python -m loopwright.measure.workers.worker ROLE MEMORY_BYTES PARENT_PID``.

A runner of kernels for a device has the device's name as a fourth argument.

It answers messages on the pipes that were its standard input and output; for everything else these
are the null device and standard error, so a printing or reading kernel cannot disturb the protocol.
A kernel that writes to the pipes themselves, or closes them, is detected: replies are sealed with a
key that is read once, and the descriptors are checked before each reply. The process has no
terminal. It imports neither the user's main module nor templates nor operators: a builder gets a
DAG and a trace, a runner gets machine code. It dies with its parent, however that ends, even while
it is stopped.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn, Protocol

from loopwright.errors import LoopwrightError, OutOfMemoryError, ScheduleError
from loopwright.measure.workers.protocol import (
    KEY_SIZE,
    Failed,
    Message,
    Ready,
    Reply,
    Seal,
    read_exactly,
    read_message,
    write_message,
)
from loopwright.records import ErrorKind

_STDERR_BYTES = 16 << 20
_TEXT = 2000
_PR_SET_PDEATHSIG = 1


class Role(Protocol):
    def answer(self, request: Message) -> Reply:
        """Carry out a request; an exception becomes a `Failed` reply."""


class Channel:
    """The pipes to the parent, moved away from the standard descriptors."""

    def __init__(self) -> None:
        self.requests, self._replies = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(2, 1)
        os.close(null)
        key = read_exactly(self.requests, KEY_SIZE)
        if key is None:
            raise EOFError
        self._seal = Seal(key)
        self._files = self._present_files()

    def read(self) -> Message | None:
        return read_message(self.requests)

    def write(self, reply: Reply) -> None:
        """Send a reply; ends the process where the last request has changed its descriptors."""
        if self._present_files() != self._files:
            _end("it closed or replaced descriptors of the process that it ran in")
        write_message(self._replies, replace(reply, rss=_pages(1)), self._seal)

    def _present_files(self) -> list[tuple[int, int] | None]:
        """Device and inode of the descriptors that requests must leave alone."""
        files: list[tuple[int, int] | None] = []
        for fd in (0, 1, 2, self.requests, self._replies):
            try:
                status = os.fstat(fd)
                files.append((status.st_dev, status.st_ino))
            except OSError:
                files.append(None)
        return files


def _end(text: str) -> NoReturn:
    """Exit at once, in whatever state the process is; the parent reads the text."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
    os._exit(1)


def _die_with_parent(requests: int, parent: int) -> None:
    """Watch the pipe and the parent from a thread; kernels and LLVM run without the GIL.

    When the parent ends, the thread kills the whole process group, so that a compiler that the
    worker has started ends too. In a stopped process no thread runs: there the system is asked to
    send SIGCONT when the parent ends. SIGKILL would end the worker alone, and would do so also when
    only the thread that started it ends (prctl(2)); to a worker that runs, SIGCONT means nothing.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)

    def watch() -> None:
        poller = select.poll()
        poller.register(requests, 0)  # only hang-up and errors are reported
        events: list[tuple[int, int]] = []
        while os.getppid() == parent and not events:
            events = poller.poll(1000)
        if os.getppid() == parent and any(event & select.POLLNVAL for _, event in events):
            _end("it closed the pipes of the process that it ran in")
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


def make_role(name: str, *args: str) -> Role:
    if name == "builder":
        from loopwright.measure.workers.build_role import BuildRole

        return BuildRole()
    from loopwright.measure.workers.run_role import RunRole

    return RunRole(*args)


def describe(e: BaseException, default: ErrorKind) -> Failed:
    """The reply for an exception; ``default`` is the kind of other errors: COMPILE in a builder."""
    text = str(e).strip() or type(e).__name__
    kind = default
    if isinstance(e, MemoryError | OutOfMemoryError):
        kind = ErrorKind.MEMORY
        role = "builder" if default == ErrorKind.COMPILE else "runner"
        text = f"the {role} is out of memory: {text}"
    elif isinstance(e, ScheduleError):
        kind = ErrorKind.INSTANTIATION
    if not isinstance(e, LoopwrightError | MemoryError):
        frames = traceback.extract_tb(e.__traceback__)[-3:]
        where = " < ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in reversed(frames))
        text = f"{type(e).__name__}: {text} (at {where})"
    return Failed(kind=kind, text=text[:_TEXT])


def serve(role: Role, channel: Channel, default: ErrorKind) -> int:
    """Answer requests until the parent closes the pipe; returns the exit code."""
    while True:
        try:
            request = channel.read()
        except MemoryError as e:  # what is left of the request is still in the pipe
            channel.write(describe(e, default))
            return 1
        if request is None:
            return 0
        try:
            channel.write(role.answer(request))
        except (Exception, SystemExit) as e:  # whatever a candidate raises costs that candidate
            channel.write(describe(e, default))


def main(argv: Sequence[str], make: Callable[..., Role] = make_role) -> int:
    """Run a worker process; returns 1 when the role cannot be had, which standard error explains.

    ``argv`` has the name of the role, memory in bytes beyond that at the start (0 for no limit), id
    of the parent, and further arguments of the role. After the last request the process ends with
    its group.
    """
    name, memory_bytes, parent = argv[0], int(argv[1]), int(argv[2])
    try:
        channel = Channel()
    except EOFError:
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent(channel.requests, parent)
    try:
        role = make(name, *argv[3:])
    except LoopwrightError as e:  # such as a setting that is not understood
        print(e, file=sys.stderr)
        return 1
    if memory_bytes:
        _limit(resource.RLIMIT_AS, _pages(0) + memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    # Python ignores SIGXFSZ, so a flood of text ends in failed writes, not in a full disk.
    _limit(resource.RLIMIT_FSIZE, _STDERR_BYTES)
    channel.write(Ready())
    code = serve(role, channel, ErrorKind.COMPILE if name == "builder" else ErrorKind.RUN_ERROR)
    os.killpg(0, signal.SIGKILL)  # whatever the requests have left behind
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
