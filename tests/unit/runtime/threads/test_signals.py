"""Signals end a long parallel loop between its pieces, and the pool works on."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from loopwright.runtime import Module, pool, set_num_threads
from tests.unit.runtime import kernels

THREADS, INDICES = 3, 600
#: Each index takes 20 ms: all of them 4 s.
PARAMS = np.array([INDICES, 64, 20_000, 0, -1])


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    set_num_threads(THREADS)
    yield
    set_num_threads(None)


@pytest.fixture(scope="module")
def cover() -> Module:
    module = kernels.cover(INDICES)
    check_whole(module)  # it is linked, and the workers are there
    return module


@contextmanager
def alarm(handler: Callable[..., Any], seconds: float = 0.05) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def check_whole(cover: Module) -> None:
    hits, where = np.zeros(INDICES, np.int32), np.zeros(INDICES, np.int64)
    cover(np.array([INDICES, 64, 0, 0, -1]), hits, where)
    assert (hits == 1).all()


class StopError(Exception):
    pass


def stop(*_: object) -> None:
    raise StopError("by a handler")


@pytest.mark.parametrize(
    ("handler", "error"), [(signal.default_int_handler, KeyboardInterrupt), (stop, StopError)]
)
@pytest.mark.parametrize("bound", [False, True])
def test_the_exception_of_a_handler_ends_the_loop(
    cover: Module, handler: Callable[..., Any], error: type[BaseException], bound: bool
) -> None:
    hits, where = np.zeros(INDICES, np.int32), np.zeros(INDICES, np.int64)
    call = cover.get_function("cover").bind(PARAMS, hits, where) if bound else None
    with alarm(handler), pytest.raises(error):
        call() if call is not None else cover(PARAMS, hits, where)
    left = hits.copy()
    assert 0 < left.sum() < INDICES // 2
    assert left.max() == 1
    time.sleep(0.03)
    assert (hits == left).all(), "no thread works on outputs when the call has ended"
    check_whole(cover)


def test_the_exception_counts_where_another_thread_failed_before(cover: Module) -> None:
    hits, where = np.zeros(INDICES, np.int32), np.zeros(INDICES, np.int64)
    with alarm(stop, 0.005), pytest.raises(StopError):
        cover(np.array([INDICES, 64, 30_000, 7, INDICES // THREADS]), hits, where)


def test_the_exception_of_a_handler_ends_a_series_of_short_loops() -> None:
    again = kernels.cover(THREADS, text=kernels.AGAIN, name="again")
    hits, where = np.zeros(THREADS, np.int32), np.zeros(THREADS, np.int64)
    with alarm(stop), pytest.raises(StopError):
        again(np.array([THREADS, 64, 100, 0, -1]), hits, where)
    assert hits.max() < 5000


def test_the_thread_that_forks_is_the_main_one_of_the_child(cover: Module) -> None:
    def fork() -> None:
        child = os.fork()
        if child == 0:
            os._exit(pool._watch().main != threading.get_ident())
        statuses.append(os.waitpid(child, 0)[1])

    statuses: list[int] = []
    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    assert statuses == [0]


def test_a_handler_that_raises_nothing_leaves_the_loop_alone(cover: Module) -> None:
    begun: list[int] = []
    hits, where = np.zeros(INDICES, np.int32), np.zeros(INDICES, np.int64)
    with alarm(lambda *_: begun.append(int(hits.sum()))):
        cover(np.array([45, 64, 20_000, 0, -1]), hits, where)
    assert len(begun) == 1
    assert begun[0] < 45 == hits.sum()


def test_loops_of_other_threads_go_on(cover: Module) -> None:
    """Signals are the main thread's."""
    done = threading.Event()
    hits, where = np.zeros(INDICES, np.int32), np.zeros(INDICES, np.int64)

    def work() -> None:
        cover(np.array([30, 64, 20_000, 0, -1]), hits, where)
        done.set()

    thread = threading.Thread(target=work)
    with alarm(stop):
        thread.start()
        with pytest.raises(StopError):
            done.wait()
    assert done.wait(10)
    assert (hits[:30] == 1).all()
    check_whole(cover)
