"""The parent's handle of one worker process: start, ask with a deadline, kill, restart, wait.

A worker answers one request at a time. Only `wait_any` blocks: it watches workers and passes them
events, which become an outcome: a `Reply`, or a `WorkerFailure` when the worker died, or was killed
at its deadline. The next request starts it again.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import IO, Literal

from loopwright import env
from loopwright.errors import InternalError, RunError
from loopwright.measure.devices import check_can_measure
from loopwright.measure.workers.protocol import (
    KEY_SIZE,
    Decoder,
    FrameError,
    Message,
    Reply,
    Seal,
    encode,
)
from loopwright.records import ErrorKind

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
    """Start a Python process with pipes in a group of its own; a RunError where it cannot be."""
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
_SIGNALS_FROM_OUTSIDE = ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT")


class FailureCause(Enum):
    """Reasons why there is no reply."""

    TIMEOUT = "the worker was killed at its deadline"
    CRASH = "the worker died"
    KILLED = "the worker was killed by somebody else"
    STOPPED = "the worker was stopped by somebody else, and killed at its deadline"
    MEMORY = "the worker died for want of memory"

    def kind(self, step: Literal["BUILD", "RUN"]) -> ErrorKind:
        if self is FailureCause.MEMORY:
            return ErrorKind.MEMORY
        late = self in (FailureCause.TIMEOUT, FailureCause.STOPPED)
        return ErrorKind[f"{step}_{'TIMEOUT' if late else 'CRASH'}"]


#: Causes that do not depend on the request.
FROM_OUTSIDE = (FailureCause.KILLED, FailureCause.STOPPED)


@dataclass(frozen=True)
class WorkerFailure:
    cause: FailureCause
    text: str


def cause_of_exit(role: str, code: int, printed: Sequence[str]) -> FailureCause:
    """The reason why a process has ended that we did not kill; a negative ``code`` is a signal."""
    if any(-code == getattr(signal, name) for name in _SIGNALS_FROM_OUTSIDE):
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
    if proc.returncode is not None or not hasattr(os, "waitid"):  # macOS before Python 3.13
        return proc.poll() is not None
    return os.waitid(os.P_PID, proc.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def stopped(proc: subprocess.Popen[bytes]) -> bool:
    """Whether a process has been stopped, as by SIGSTOP; True only once for each stop."""
    if proc.returncode is not None or not hasattr(os, "waitid"):
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
    def size(self) -> int:
        return 0 if self._file is None else os.fstat(self._file.fileno()).st_size

    def open(self) -> IO[bytes]:
        """The file that processes print to; raises a RunError where it has no room or folder."""
        if self._file is not None:
            return self._file
        try:
            self._file = tempfile.TemporaryFile(prefix="loopwright-worker-")  # noqa: SIM115
        except OSError as e:
            raise RunError(
                f"cannot start a {self._role} process: no temporary file for what it prints "
                f"({e.strerror or e}); make room, or set TMPDIR to another folder"
            ) from e
        # A process whose flood was cut off at its limit prints at the start again after `clear`.
        import fcntl

        flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
        fcntl.fcntl(self._file, fcntl.F_SETFL, flags | os.O_APPEND)
        return self._file

    def clear(self) -> None:
        if self._file is not None and self.size:
            os.ftruncate(self._file.fileno(), 0)

    def lines(self) -> list[str]:
        if self._file is None:
            return []
        data = os.pread(self._file.fileno(), _TAIL, max(0, self.size - _TAIL))
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


_START_S = 120.0
_STARTS = 3


Outcome = Reply | WorkerFailure


class Worker:
    """One worker process, started by the first request or by `start`.

    ``memory_bytes`` limits the memory beyond that at the start; 0: no limit. The process is
    replaced after ``max_requests``, or when its resident memory has passed ``max_rss`` bytes.
    """

    def __init__(
        self,
        role: str,
        memory_bytes: int,
        max_requests: int = 2000,
        max_rss: int | None = None,
        program: WorkerProgram | None = None,
    ) -> None:
        self.role, self.memory_bytes = role, memory_bytes
        self.max_requests = max_requests
        self.max_rss = max_rss or max(1 << 30, memory_bytes // 2)
        self.program = program or WorkerProgram()
        # Names of data that this process was sent already; empty after a restart.
        self.sent: set[str] = set()
        # Of the last request, until `take` is called.
        self.outcome: Outcome | None = None
        self.seconds = 0.0  # that the last request took
        self.launched = 0  # processes
        self.answered = 0  # requests
        self._starts = 0  # in a row, without one that became ready
        self._proc: Popen[bytes] | None = None
        self._printed = Printed(role)
        self._folder: TemporaryDirectory[str] | None = None
        self._clear()

    def _clear(self) -> None:
        self.sent.clear()
        self._ready = False
        self._requests = 0
        self.rss = 0  # bytes after the last reply
        self._decoder = Decoder(Seal(b""))
        self._unsent = memoryview(b"")
        self._busy = self._stopped = False
        self._request: bytes | bytearray = b""
        self._label = ""
        self._limit = 0.0
        self._begun = 0.0
        self.deadline = 0.0  # by ``time.monotonic``

    @property
    def pid(self) -> int | None:
        return self._proc.pid if self._proc is not None else None

    @property
    def busy(self) -> bool:
        return self._busy

    @property
    def printed_bytes(self) -> int:
        """Bytes that the process has printed since the last request."""
        return self._printed.size

    @property
    def doing(self) -> str:
        """The awaited request and the time waited, for people; empty while idle."""
        if not self._busy:
            return ""
        what = self._label if self._ready else "starting"
        return f"{self.role} {self.pid} ({what} for {time.monotonic() - self._begun:.0f} s)"

    def start(self) -> None:
        """Start the process unless it runs, without waiting; a RunError for want of room."""
        if self._fit:
            return
        self.kill()
        check_can_measure()
        printed = self._printed.open()
        self._printed.clear()
        if self.program.own_folder:
            self._folder = folder_of_its_own(self.role)
        args = ["-P", "-m", self.program.module, self.role]
        self._proc = start_process(
            self.role,
            [*args, str(self.memory_bytes), str(os.getpid()), *self.program.arguments],
            printed,
            self.program.variables(),
            None if self._folder is None else self._folder.name,
        )
        key = secrets.token_bytes(KEY_SIZE)
        self._decoder = Decoder(Seal(key))
        for pipe in self._pipes():
            os.set_blocking(pipe, False)
        with contextlib.suppress(BrokenPipeError):  # it died; the first request finds that out
            os.write(self._pipes()[0], key)
        self._starts += 1
        self.launched += 1
        self._begun = time.monotonic()
        self.deadline = self._begun + _START_S

    def refresh(self) -> None:
        if self._requests >= self.max_requests or self.rss > self.max_rss:
            self.kill()

    def submit(
        self, request: Message, *, seconds: float, restart: bool = True, label: str = ""
    ) -> None:
        """Send a request; its answer becomes ``outcome`` in some later `wait_any`.

        After ``seconds``, which exclude the start, the worker is killed. ``restart`` is False when
        the request needs data of the present process, whose death is then the outcome.
        """
        if self._busy:
            raise InternalError(f"{self.role} worker {self.pid} was asked twice")
        self.outcome = None
        if not restart and not self._fit:
            self.outcome, self.seconds = self._unfit(), 0.0
            self.kill()
            return
        self.start()
        self._printed.clear()
        self._busy, self._stopped, self._limit = True, False, seconds
        self._label = label or type(request).__name__.removesuffix("Request").lower()
        self._requests += 1
        self._request = encode(request)
        self._send()

    def _send(self) -> None:
        self._unsent = memoryview(self._request)
        if self._ready:
            self._begun = time.monotonic()
            self.deadline = self._begun + self._limit
        self._write()

    def kill(self) -> None:
        """Kill the process and everything in its group, and drop its answer."""
        proc, self._proc = self._proc, None
        if proc is not None:
            kill_group(proc)
            for pipe in filter(None, (proc.stdin, proc.stdout)):
                pipe.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()
        self._clear()

    def close(self) -> None:
        self.kill()
        self._printed.close()

    @property
    def _fit(self) -> bool:
        """Whether there is a process to ask, to whose pipe no thread left behind has written."""
        if self._proc is None or ended(self._proc):
            return False
        if self._busy or not self._ready:
            return True
        poller = select.poll()
        poller.register(self._pipes()[1], select.POLLIN)
        return self._decoder.empty and not poller.poll(0)

    def _unfit(self) -> WorkerFailure:
        text = f"the {self.role} process had died before it was asked"
        if self._proc is None or not ended(self._proc):
            return WorkerFailure(FailureCause.CRASH, text + self._printed.text())
        kill_group(self._proc)
        code = self._proc.returncode
        how = f"{text}: {describe_exit(code, '')}{self._printed.text()}"
        return WorkerFailure(cause_of_exit(self.role, code, []), how)

    # -- events, for whoever waits ---------------------------------------------------------------

    def _pipes(self) -> tuple[int, int]:
        proc = self._proc
        if proc is None or proc.stdin is None or proc.stdout is None:
            raise InternalError(f"there is no {self.role} process to talk to")
        return proc.stdin.fileno(), proc.stdout.fileno()

    def register(self, poller: select.poll) -> list[int]:
        """Put the descriptors to be watched into the poller; returns them."""
        requests, replies = self._pipes()
        poller.register(replies, select.POLLIN)
        if not self._unsent:
            return [replies]
        poller.register(requests, select.POLLOUT)
        return [replies, requests]

    def _write(self) -> None:
        fd, _ = self._pipes()
        # BrokenPipeError: the worker died; reading its end of stream tells how.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self._unsent:
                self._unsent = self._unsent[os.write(fd, self._unsent) :]

    def event(self, fd: int) -> None:
        if fd == self._pipes()[0]:
            self._write()
            return
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return
        if not data:
            self._died()
            return
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        self._decoder.feed(data)
        try:
            while (message := self._decoder.pop()) is not None:
                self._take(message)
        except FrameError:
            text = f"it wrote to the pipes of the {self.role} process that it ran in"
            if not self._busy:
                self.kill()
            elif self._ready:
                self._fail(WorkerFailure(FailureCause.CRASH, text + self._printed.text()))
            else:
                self._start_failed(f"something else wrote to its pipes{self._printed.text()}")

    def _take(self, message: Message) -> None:
        if not isinstance(message, Reply):
            raise InternalError(f"a {self.role} sent a {type(message).__name__}")
        self.rss = message.rss
        if self._ready:
            self._finish(message)
            return
        self._ready, self._starts = True, 0
        self._begun = time.monotonic()
        self.deadline = self._begun + self._limit

    def _finish(self, outcome: Outcome) -> None:
        if not self._busy:
            raise InternalError(f"{self.role} worker {self.pid} answered without being asked")
        self._busy = False
        self._request = b""
        self.answered += 1
        self.seconds = time.monotonic() - self._begun
        self.outcome = outcome

    def check(self) -> None:
        if not self._busy or self._proc is None:
            return
        self._stopped |= stopped(self._proc)
        if time.monotonic() >= self.deadline:
            self._late()
        elif ended(self._proc):
            self._drain()

    def _drain(self) -> None:
        """Read the rest of the output of an ended process, then report how it died."""
        while self._busy and self._proc is not None:
            try:
                data = os.read(self._pipes()[1], 1 << 20)
            except BlockingIOError:  # a descendant keeps the pipe open
                data = b""
            if not data:
                self._died()
                return
            self._receive(data)

    def _late(self) -> None:
        if not self._ready:
            raise RunError(
                f"the {self.role} process did not start within {_START_S:.0f} s; the machine is "
                f"overloaded, or the disk with Python is slow{self._printed.text()}"
            )
        limit = self._limit
        text = f"no answer within {limit:.3g} s; the {self.role} was killed{self._printed.text()}"
        if self._stopped:
            text = f"the {self.role} was stopped by a signal from outside: {text}"
        cause = FailureCause.STOPPED if self._stopped else FailureCause.TIMEOUT
        self._fail(WorkerFailure(cause, text))

    def _died(self) -> None:
        assert self._proc is not None
        until = time.monotonic() + 1.0
        while not (gone := ended(self._proc)) and time.monotonic() < until:
            time.sleep(0.001)  # the pipe closes an instant before the process has ended
        kill_group(self._proc)
        how_ended = (
            describe_exit(self._proc.returncode, self.role)
            if gone
            else f"the {self.role} process closed the pipe to its parent"
        )
        tail = self._printed.text()
        if not self._ready:
            self._start_failed(how_ended + tail)
            return
        code = self._proc.returncode if gone else 0
        cause = cause_of_exit(self.role, code, self._printed.lines())
        self._fail(WorkerFailure(cause, how_ended + tail))

    def _start_failed(self, text: str) -> None:
        request, limit = self._request, self._limit
        if self._starts >= _STARTS:
            self.kill()
            raise RunError(f"cannot start a {self.role} process: {text}")
        self.kill()
        self.start()
        self._busy, self._request, self._limit = True, request, limit
        self._send()

    def _fail(self, failure: WorkerFailure) -> None:
        self._finish(failure)
        self.kill()
        self._starts = 0
        self.start()  # the next request finds it warm


def take(worker: Worker) -> Outcome:
    outcome, worker.outcome = worker.outcome, None
    if outcome is None:
        raise InternalError(f"{worker.role} worker {worker.pid} has no answer")
    return outcome


_SLICE_S = 0.1  # a worker whose descendant keeps the pipe open is seen dead within this


def wait_any(workers: Iterable[Worker], seconds: float | None = None) -> list[Worker]:
    """Wait, for at most ``seconds``, for outcomes of busy workers; returns all that have one."""
    watched = list(workers)
    end = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        done = [w for w in watched if w.outcome is not None]
        busy = [w for w in watched if w.busy]
        if done or not busy or time.monotonic() >= end:
            return done
        _wait_once(busy, end)


def _wait_once(busy: Sequence[Worker], end: float) -> None:
    poller = select.poll()
    owners = {fd: w for w in busy for fd in w.register(poller)}
    until = min([end, *(w.deadline for w in busy)])
    pause = max(0.0, min(until - time.monotonic(), _SLICE_S))
    for fd, _ in poller.poll(pause * 1000 + 1):
        if owners[fd].busy:
            owners[fd].event(fd)
    for w in busy:
        w.check()
