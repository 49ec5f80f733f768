"""What is said of a worker that ended, was stopped or could not be started, and who is blamed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from loopwright.errors import (
    RunError,
)
from loopwright.measure.workers import process as process_module
from loopwright.measure.workers.process import (
    FailureCause,
    Outcome,
    Worker,
    WorkerFailure,
    WorkerProgram,
    cause_of_exit,
    take,
    wait_any,
)
from tests.unit.measure.echo import EchoReply, EchoRequest


def echo(worker: Worker, *names: str, **options: bool) -> Outcome:
    worker.submit(EchoRequest(names=names), seconds=30, **options)
    wait_any([worker])
    return take(worker)


@pytest.fixture
def worker(usual_signals: None) -> Iterator[Worker]:
    made = Worker("echo", 1 << 30, program=WorkerProgram("tests.unit.measure.echo"))
    yield made
    made.close()


def test_a_worker_outlives_the_thread_that_started_it(worker: Worker) -> None:
    thread = threading.Thread(target=worker.start)
    thread.start()
    thread.join()
    pid = worker.pid
    assert isinstance(echo(worker, "A"), EchoReply)
    assert worker.pid == pid


def test_what_a_thread_wrote_later_blames_nobody(worker: Worker) -> None:
    assert isinstance(echo(worker, "write later"), EchoReply)
    pid = worker.pid
    time.sleep(0.2)
    assert isinstance(echo(worker, "A"), EchoReply)
    assert worker.pid != pid


def test_what_needs_the_spoilt_process_fails(worker: Worker) -> None:
    assert isinstance(echo(worker, "write later"), EchoReply)
    time.sleep(0.3)
    found = echo(worker, "A", restart=False)
    assert isinstance(found, WorkerFailure)
    assert found.cause is FailureCause.CRASH


@pytest.mark.parametrize(
    ("number", "cause"),
    [
        (signal.SIGKILL, FailureCause.KILLED),
        (signal.SIGTERM, FailureCause.KILLED),
        (signal.SIGHUP, FailureCause.KILLED),
        (signal.SIGSEGV, FailureCause.CRASH),
        (signal.SIGABRT, FailureCause.CRASH),
    ],
)
def test_what_signals_say(worker: Worker, number: signal.Signals, cause: FailureCause) -> None:
    assert isinstance(echo(worker, "A"), EchoReply)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    worker.submit(EchoRequest(names=("A",)), seconds=30)
    os.kill(worker.pid, number)
    os.kill(worker.pid, signal.SIGCONT)
    wait_any([worker])
    found = take(worker)
    assert isinstance(found, WorkerFailure)
    assert found.cause is cause
    assert number.name in found.text


def test_one_that_is_stopped_until_its_deadline(worker: Worker) -> None:
    assert isinstance(echo(worker, "A"), EchoReply)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    worker.submit(EchoRequest(names=("A",)), seconds=0.3)
    wait_any([worker])
    found = take(worker)
    assert isinstance(found, WorkerFailure)
    assert found.cause is FailureCause.STOPPED
    assert "was stopped by a signal from outside: no answer within 0.3 s" in found.text
    assert isinstance(echo(worker, "A"), EchoReply)


def test_a_process_that_ended_is_not_stopped() -> None:
    """Also before it is waited for: it may end between two looks at it."""
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not process_module.stopped(process)
        assert process_module.ended(process)


def test_what_needs_a_process_that_never_was_fails(worker: Worker) -> None:
    found = echo(worker, "A", restart=False)
    assert isinstance(found, WorkerFailure)
    assert found.text == "the echo process had died before it was asked"


@pytest.mark.parametrize(
    ("role", "code", "printed", "full"),
    [
        ("builder", -signal.SIGABRT, ["LLVM ERROR: out of memory", "more"], True),
        ("builder", -signal.SIGABRT, ["LLVM ERROR: no such thing"], False),
        ("builder", -signal.SIGSEGV, ["LLVM ERROR: out of memory"], False),
        ("builder", 1, ["MemoryError"], False),
        ("runner", -signal.SIGABRT, ["LLVM ERROR: out of memory"], False),
    ],
)
def test_an_end_for_want_of_memory(role: str, code: int, printed: list[str], full: bool) -> None:
    assert (cause_of_exit(role, code, printed) is FailureCause.MEMORY) == full


@pytest.mark.parametrize(
    ("number", "failures", "words"),
    [
        (errno.EAGAIN, 2, ""),
        (errno.ENOMEM, 99, "Cannot allocate memory; there is no memory left"),
        (errno.EAGAIN, 99, "the limit of processes is reached"),
        (errno.EMFILE, 99, "too many open files"),
    ],
)
def test_a_system_without_room(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, number: int, failures: int, words: str
) -> None:
    real, left = subprocess.Popen, [None] * failures

    def popen(*args: object, **options: object) -> object:
        if left:
            left.pop()
            raise OSError(number, os.strerror(number))
        return real(*args, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(process_module, "_PAUSES", (0.01, 0.01, 0.01))
    monkeypatch.setattr("subprocess.Popen", popen)
    if not words:
        worker.start()
        return
    with pytest.raises(RunError, match=words):
        worker.start()
