"""Functions of users that never return are ended, and nothing else is disturbed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from loopwright import time_limit
from loopwright.errors import TimeLimitError
from loopwright.time_limit import limited
from tests.covering import covering


def spins() -> None:
    while True:
        pass


def swallows_exceptions() -> None:
    while True:
        with contextlib.suppress(Exception):
            spins()


def swallows_everything() -> str:
    """Twice; the third time it is caught outside."""
    for _ in range(2):
        with contextlib.suppress(BaseException):
            spins()
    spins()
    return "never"


def raises_another() -> None:
    try:
        spins()
    except BaseException as exc:
        raise ValueError("the user's own") from exc


def returns_late() -> str:
    try:
        spins()
    except BaseException:
        return "late"
    return "never"


def on_a_thread(function: Callable[[], Any]) -> Any:
    """What the function gives on another thread."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(function())
        except BaseException as exc:
            found.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (one,) = found
    if isinstance(one, BaseException):
        raise one
    return one


def directly(function: Callable[[], Any]) -> Any:
    return function()


WHERE = pytest.mark.parametrize("where", [directly, on_a_thread])
#: For tests that wait long.
BOTH_BY_NIGHT = pytest.mark.parametrize(
    "where", [directly, pytest.param(on_a_thread, marks=pytest.mark.slow)]
)
FUNCTIONS = [spins, swallows_exceptions, swallows_everything, raises_another, returns_late]


@pytest.mark.parametrize(
    ("where", "function"), covering([directly, on_a_thread], FUNCTIONS, strength=1)
)
def test_what_takes_too_long_is_ended(
    where: Callable[..., Any], function: Callable[[], Any]
) -> None:
    with pytest.raises(TimeLimitError, match=r"^the template took longer than 0\.05 s$"):
        where(lambda: limited(0.05, "the template", function))


def test_a_sleep_is_ended_too() -> None:
    start = time.monotonic()
    with pytest.raises(TimeLimitError):
        limited(0.05, "it", time.sleep, 60)
    assert time.monotonic() - start < 30


@BOTH_BY_NIGHT
def test_a_function_that_others_keep_from_running_is_not_ended(where: Callable[..., Any]) -> None:
    assert where(lambda: limited(0.3, "it", time.sleep, 0.5)) is None
    with pytest.raises(TimeLimitError):
        where(lambda: limited(0.3, "it", spins))


@WHERE
def test_values_and_errors_pass(where: Callable[..., Any]) -> None:
    assert where(lambda: limited(5.0, "it", divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        where(lambda: limited(5.0, "it", divmod, 7, 0))


@BOTH_BY_NIGHT
def test_nothing_is_raised_afterwards(where: Callable[..., Any]) -> None:
    """Limits that are over at about the time of the end, again and again."""

    def many() -> int:
        late = 0
        for _ in range(200):
            try:
                limited(0.001, "it", wait, 0.001)
            except TimeLimitError:
                late += 1
        wait(0.4)  # longer than what is raised again takes to come
        return late

    assert 0 <= where(many) <= 200


@pytest.mark.parametrize("often", [False, True])
def test_however_late_nothing_is_raised_outside_of_the_function(
    monkeypatch: pytest.MonkeyPatch, often: bool
) -> None:
    """The function is quick, but before its limit is taken off, this process does not run for so
    long that the exception is due more than once."""
    guard = time_limit._AsyncException if often else time_limit._Alarm
    stop = guard.stop

    def stops_late(self: Any) -> None:
        wait(0.04)
        stop(self)

    monkeypatch.setattr(time_limit, "_AGAIN_S", 0.005)
    monkeypatch.setattr(guard, "stop", stops_late)
    for _ in range(5):
        assert limited(0.01, "it", divmod, 7, 2, often=often) == (3, 1)


class Slow:
    """An object whose destructor takes a while."""

    def __init__(self, destructor: Callable[[], None]) -> None:
        self.destructor = destructor

    def __del__(self) -> None:
        self.destructor()


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Exceptions that Python could not raise, as in destructors."""
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda of: seen.append(of.exc_type))
    return seen


@pytest.mark.parametrize("often", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_destructor_is_let_finish(unraisable: list[Any], often: bool) -> None:
    done: list[bool] = []

    def destroys() -> None:
        Slow(lambda: (wait(0.3), done.append(True)))
        spins()

    with pytest.raises(TimeLimitError):
        limited(0.05, "it", destroys, often=often)
    assert done == [True]
    assert unraisable == []


@pytest.mark.parametrize("often", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_destructor_that_does_not_end_is_ended(unraisable: list[Any], often: bool) -> None:
    with pytest.raises(TimeLimitError):
        limited(0.05, "it", lambda: bool(Slow(spins)) and None, often=often)
    assert len(unraisable) == 1


def wait(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def compute(seconds: float) -> None:
    """Take some CPU time, however busy the machine is."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@WHERE
def test_the_outermost_limit_counts(where: Callable[..., Any]) -> None:
    where(lambda: limited(30.0, "outer", limited, 0.01, "inner", wait, 0.1))
    with pytest.raises(TimeLimitError, match="outer"):
        where(lambda: limited(0.05, "outer", limited, 30.0, "inner", spins))
    with pytest.raises(TimeLimitError, match="it"):
        where(lambda: limited(0.05, "it", spins))  # the limits of before are forgotten


@pytest.fixture
def alarms() -> Iterator[list[int]]:
    """Alarms that a handler of the user has counted."""
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    yield seen
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_the_timer_of_the_user_comes_back(alarms: list[int]) -> None:
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 1000.0, 7.0)
    with pytest.raises(TimeLimitError):
        limited(0.05, "it", spins)
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    assert signal.getsignal(signal.SIGALRM) is handler
    assert 900 < left < 1000
    assert interval == 7.0
    assert not alarms


def test_an_alarm_that_was_due_meanwhile_goes_off(alarms: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    limited(30.0, "it", wait, 0.05)
    wait(0.05)
    assert alarms == [signal.SIGALRM]


@pytest.mark.usefixtures("usual_signals")
def test_ctrl_c_passes() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with pytest.raises(KeyboardInterrupt):
        limited(30.0, "it", signal.raise_signal, signal.SIGINT)
    assert signal.getsignal(signal.SIGALRM) is handler


def test_two_threads_have_limits_of_their_own() -> None:
    late: list[str] = []

    def run(seconds: float) -> None:
        try:
            limited(seconds, f"{seconds}", compute, 0.3)
        except TimeLimitError as exc:
            late.append(str(exc))

    threads = [threading.Thread(target=run, args=(s,)) for s in (0.05, 30.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert late == ["0.05 took longer than 0.05 s"]


def test_limits_after_a_fork() -> None:
    with pytest.raises(TimeLimitError):
        limited(0.05, "it", spins, often=True)
    child = os.fork()
    if child == 0:
        try:
            limited(0.05, "it", spins, often=True)
        except TimeLimitError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


TRACED = """
import sys, threading
from loopwright.time_limit import limited

def spins():
    while True:
        pass

def run():
    sys.settrace(lambda *_: None)
    for _ in range(2):
        try:
            limited(0.05, "it", spins)
        except Exception as exc:
            print(exc, flush=True)

threading.Thread(target=run).start()
"""


def test_a_function_is_ended_on_a_thread_with_a_trace_function() -> None:
    """As of a debugger, or of what measures coverage."""
    command = [sys.executable, "-c", TRACED]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "it took longer than 0.05 s\n" * 2
