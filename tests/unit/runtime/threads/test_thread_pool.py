"""Python work on threads: futures, ends, and work that comes too late."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

from loopwright.errors import RunError, UsageError
from loopwright.runtime import ThreadPool, get_num_threads
from tests.unit.runtime import kernels

ROOT = Path(__file__).parents[4]


def test_results_and_exceptions_come_through_futures() -> None:
    def fail(text: str) -> None:
        raise ValueError(text)

    with ThreadPool(3) as pool:
        futures = [pool.submit(divmod, n, 7) for n in range(200)]
        broken = pool.submit(fail, text="no luck")
        assert [f.result() for f in futures] == [divmod(n, 7) for n in range(200)]
        with pytest.raises(ValueError, match="no luck"):
            broken.result()


def test_threads_end_with_the_last_who_has_the_pool() -> None:
    pool = ThreadPool(3)
    threads: list[threading.Thread] = []
    together, gate = threading.Barrier(3), threading.Event()

    def work() -> int:
        threads.append(threading.current_thread())
        together.wait(timeout=60)
        gate.wait(60)
        return len(threads)

    futures = [pool.submit(work) for _ in range(3)]
    last = pool.submit(len, "four")
    del pool
    gate.set()
    assert [f.result(60) for f in futures] == [3, 3, 3]
    assert last.result(60) == 4
    gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_no_more_threads_than_were_asked_for_and_all_of_them() -> None:
    together = threading.Barrier(3)
    names: set[str] = set()

    def work() -> None:
        together.wait(timeout=60)
        names.add(threading.current_thread().name)

    with ThreadPool(3, name="mine") as pool:
        for future in [pool.submit(work) for _ in range(9)]:
            future.result()
    assert len(names) == 3
    assert all(name.startswith("mine") for name in names)
    assert ThreadPool().num_threads == get_num_threads()


def test_submit_after_shutdown_raises_and_what_was_submitted_is_done() -> None:
    pool, done = ThreadPool(1), []
    let_go = threading.Event()
    pool.submit(let_go.wait, 60)
    futures = [pool.submit(done.append, n) for n in range(50)]
    pool.shutdown(wait=False)
    for late in (lambda: pool.submit(print), lambda: pool.parallel_launch(print, 2)):
        with pytest.raises(RunError, match="has been shut down; make another"):
            late()
    assert not done
    let_go.set()
    pool.shutdown()
    assert done == list(range(50))
    assert all(future.done() for future in futures)
    pool.shutdown()
    assert "shut down" in repr(pool)


def test_what_nobody_began_can_be_cancelled() -> None:
    pool = ThreadPool(1)
    inside, let_go = threading.Event(), threading.Event()
    first = pool.submit(lambda: (inside.set(), let_go.wait(60)))
    second = pool.submit(print)
    assert inside.wait(60)
    pool.shutdown(wait=False, cancel=True)
    let_go.set()
    assert first.result()[1]
    with pytest.raises(CancelledError):
        second.result()


@pytest.mark.parametrize("tasks", [None, 1, 2, 7, 100])
def test_parallel_launch_runs_every_task_once(tasks: int | None) -> None:
    seen: list[tuple[int, int]] = []
    with ThreadPool(4) as pool:
        pool.parallel_launch(lambda task, count: seen.append((task, count)), tasks)
    count = 4 if tasks is None else tasks
    assert sorted(seen) == [(task, count) for task in range(count)]


def test_a_launch_ends_when_all_tasks_have_and_raises_the_first_failure() -> None:
    ended: list[int] = []

    def work(task: int, count: int) -> None:
        if task in (2, 5):
            raise ValueError(f"task {task}")
        ended.append(task)

    with ThreadPool(2) as pool, pytest.raises(ValueError, match="task 2"):
        pool.parallel_launch(work, 8)
    assert sorted(ended) == [0, 1, 3, 4, 6, 7]


def test_a_launch_inside_a_task_does_not_wait_for_itself() -> None:
    seen: list[tuple[int, int]] = []
    with ThreadPool(2) as pool:

        def outer(task: int, count: int) -> None:
            pool.parallel_launch(lambda inner, _: seen.append((task, inner)), 3)

        pool.parallel_launch(outer, 4)
    assert sorted(seen) == [(a, b) for a in range(4) for b in range(3)]


def test_compiled_functions_run_side_by_side() -> None:
    sleeper = kernels.sleep()
    counter = np.zeros(1, np.int64)
    with ThreadPool(4) as pool:
        pool.parallel_launch(lambda i, n: sleeper(np.array([1000], np.int32), counter), 20)
    assert counter[0] == 20


@pytest.mark.parametrize("bad", [0, -1, 1024, 1.5, True])
def test_numbers_that_cannot_be(bad: object) -> None:
    with pytest.raises(UsageError, match="whole number"):
        ThreadPool(bad)  # type: ignore[arg-type]
    if bad != 1024:
        with ThreadPool(1) as pool, pytest.raises(UsageError, match="whole number, at least 1"):
            pool.parallel_launch(print, bad)  # type: ignore[arg-type]


def test_a_process_that_ends_without_shutdown_does_the_work_first() -> None:
    script = (
        "import time\n"
        "from loopwright.runtime import ThreadPool\n"
        "pool = ThreadPool(2)\n"
        "for n in range(6): pool.submit(lambda n: (time.sleep(0.01), print(f'{n} ', end='')), n)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.split()) == list("012345")
