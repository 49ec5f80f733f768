"""The thread pool: every index exactly once, whatever happens around it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from loopwright import env
from loopwright.errors import RunError, UsageError
from loopwright.runtime import (
    Module,
    config_threadpool,
    get_num_threads,
    linker,
    pinned,
    pool,
    set_num_threads,
)
from tests.covering import covering
from tests.unit.runtime import kernels

ROOT = Path(__file__).parents[3]
THREADS = 4
ON_LINUX = pytest.mark.skipif(not linker.on_linux(), reason="only Linux places threads")


@pytest.fixture(autouse=True)
def _four_threads() -> Iterator[None]:
    set_num_threads(THREADS)
    yield
    set_num_threads(None)


@pytest.fixture(scope="module")
def cover() -> Module:
    return kernels.cover(5000)


def run(
    module: Module, n: int, *, size: int = 5000, nbytes: int = 0, us: int = 0, bad: int = -1
) -> tuple[np.ndarray, np.ndarray]:
    hits, where = np.zeros(size, np.int32), np.zeros(size, np.int64)
    module(np.array([n, nbytes, us, 7, bad], np.int64), hits, where)
    return hits, where


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 97, 5000])
def test_every_index_is_run_exactly_once(cover: Module, n: int) -> None:
    hits, _ = run(cover, n)
    assert (hits[:n] == 1).all()
    assert not hits[n:].any()


def test_a_thousand_launches_cover_their_range(cover: Module) -> None:
    hits, where = np.zeros(5000, np.int32), np.zeros(5000, np.int64)
    params = np.array([64, 0, 0, 0, -1], np.int64)
    for _ in range(1000):
        cover(params, hits, where)
    assert (hits[:64] == 1000).all()


def test_slow_bodies_are_shared_by_several_threads_with_workspaces_of_their_own(
    cover: Module,
) -> None:
    _, where = run(cover, 40, nbytes=1000, us=2000)
    used = set(where[:40].tolist())
    assert 1 < len(used) <= THREADS
    assert all(address % 64 == 0 for address in used)


@ON_LINUX
def test_workers_sleep_soon_after_launches_however_they_followed(cover: Module) -> None:
    """Those that were woken soon after they lay down look for longer, and not for ever."""
    workers = pool.start_workers(THREADS)
    for pause in (0.0, 0.0003, 0.0003, 0.0003, 0.003):
        run(cover, 64)
        time.sleep(pause)
    deadline = time.monotonic() + 30
    states: set[str] = set()
    while states != {"S"} and time.monotonic() < deadline:
        time.sleep(0.001)
        stats = [Path(f"/proc/self/task/{w}/stat").read_text() for w in workers]
        states = {stat.rpartition(")")[2].split()[0] for stat in stats}
    assert states == {"S"}
    run(cover, 5000)


def test_each_thread_keeps_its_share_of_every_loop(cover: Module) -> None:
    set_num_threads(2)
    for _ in range(50):  # one thread may take from the other's, where that comes late
        _, where = run(cover, 8, nbytes=1000, us=3000)
        first, second = where[:4], where[4:8]
        if len(set(first)) == len(set(second)) == 1 and first[0] != second[0]:
            return
    pytest.fail("no launch gave each of two threads its half")


def test_who_has_done_its_share_takes_of_others_from_their_ends(cover: Module) -> None:
    set_num_threads(2)
    for _ in range(50):  # [0, 2) and [2, 5): the caller is done first, and sleeps less than late
        _, where = run(cover, 5, nbytes=1000, us=3000)
        if where[0] == where[1] == where[4] != where[2] == where[3]:
            return
    pytest.fail("the index that is one too many stayed where it was in all launches")


@pytest.mark.parametrize("n", [2**31 - 1, 2**31, 2**33 + 5, 2**40 + 123457])
def test_ranges_may_be_longer_than_32_bits_tell(n: int) -> None:
    calls, indices = np.zeros(1, np.int64), np.zeros(1, np.int64)
    kernels.ranges()(np.array([n]), calls, indices)
    assert indices[0] == n
    assert calls[0] <= 64 * THREADS


def test_a_workspace_grows_between_launches(cover: Module) -> None:
    for nbytes in (64, 1 << 20, 128):
        hits, where = run(cover, 20, nbytes=nbytes, us=500)
        assert (hits[:20] == 1).all()
        assert 0 not in where[:20]


def test_one_thread_runs_inline_with_the_callers_workspace(cover: Module) -> None:
    set_num_threads(1)
    _, where = run(cover, 40, nbytes=1000)
    assert len(set(where[:40].tolist())) == 1


def test_a_worker_without_memory_makes_the_launch_fail(cover: Module) -> None:
    with pytest.raises(RunError, match="got no memory for its workspace"):
        run(cover, 40, nbytes=1 << 60, us=2000)
    hits, _ = run(cover, 40, nbytes=64)
    assert (hits[:40] == 1).all(), "the pool works on after a failure"


def test_the_code_of_a_failing_body_is_returned(cover: Module) -> None:
    with pytest.raises(RunError, match="cover failed with code 7"):
        run(cover, 500, bad=123)


def test_nested_launches_run_inline_inside_the_body() -> None:
    hits = np.zeros(128, np.int32)
    module = kernels.nested()
    for _ in range(50):
        module(hits)
    assert (hits == 50).all()


def test_python_threads_may_launch_at_the_same_time(cover: Module) -> None:
    wrong: list[int] = []

    def work() -> None:
        for _ in range(200):
            hits, _ = run(cover, 300)
            wrong.extend(np.flatnonzero(hits[:300] != 1).tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert not wrong


def test_the_number_of_threads_can_be_set_and_reset(cover: Module) -> None:
    for threads in (2, 6, 3):
        set_num_threads(threads)
        assert get_num_threads() == threads
        hits, where = run(cover, 60, nbytes=64, us=500)
        assert (hits[:60] == 1).all()
        assert len(set(where[:60].tolist())) <= threads
    set_num_threads(None)
    assert get_num_threads() == pool.default_num_threads()


@pytest.mark.parametrize("n", [0, -1, 1024, 2.0, True])
def test_a_silly_number_of_threads_is_refused(n: object) -> None:
    with pytest.raises(UsageError, match="whole number from 1 to 1023"):
        set_num_threads(n)  # type: ignore[arg-type]


def test_an_artifact_with_its_own_number_of_threads_keeps_it() -> None:
    single = kernels.cover(100, num_threads=1)
    _, where = run(single, 40, size=100, nbytes=64, us=200)
    assert len(set(where[:40].tolist())) == 1
    triple = kernels.cover(100, num_threads=3)
    set_num_threads(1)
    _, where = run(triple, 40, size=100, nbytes=64, us=2000)
    assert 1 < len(set(where[:40].tolist())) <= 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux pins threads")
def test_pinned_threads_have_one_cpu_each_and_get_all_back() -> None:
    before = os.sched_getaffinity(0)
    with pinned(3):
        cpus = sorted(before)
        for place, thread in enumerate((0, *pool.start_workers(3))):
            assert os.sched_getaffinity(thread) == {cpus[place % len(cpus)]}
        assert pool.default_num_threads() == len(before), "being pinned does not shrink the default"
        with pinned(3):
            assert len(os.sched_getaffinity(0)) == 1
    assert all(os.sched_getaffinity(t) == before for t in (0, *pool.start_workers(3)))


@pytest.fixture
def _anywhere() -> Iterator[None]:
    yield
    config_threadpool()


def where_workers_may_run(threads: int) -> list[set[int]]:
    return [os.sched_getaffinity(thread) for thread in pool.start_workers(threads)]


@ON_LINUX
@pytest.mark.usefixtures("_anywhere")
def test_workers_run_where_the_mode_puts_them(cover: Module) -> None:
    everywhere = os.sched_getaffinity(0)
    cpus = sorted(everywhere)
    last, several = cpus[-1], set(cpus[:2])
    for mode, listed, expected in [
        ("one_per_thread", [last], [{last}, {last}]),
        ("one_per_thread", cpus, [{cpus[1 % len(cpus)]}, {cpus[2 % len(cpus)]}]),
        (-3, sorted(several), [several, several]),
        ("none", None, [everywhere, everywhere]),
    ]:
        config_threadpool(mode, 3, listed)
        assert get_num_threads() == 3
        assert where_workers_may_run(3) == expected
        hits, _ = run(cover, 500)
        assert (hits[:500] == 1).all()
    for mode in ("compact", "spread", "big", "little"):
        config_threadpool(mode, 3)
        assert all(len(cpus) == 1 for cpus in where_workers_may_run(3))
    assert os.sched_getaffinity(0) == everywhere, "the caller stays where it was"


@ON_LINUX
@pytest.mark.usefixtures("_anywhere")
def test_places_outlast_pinned_blocks_and_end_with_the_mode() -> None:
    everywhere = os.sched_getaffinity(0)
    last = max(everywhere)
    config_threadpool("shared", 2, [last])
    with pinned(4):
        with pytest.raises(UsageError, match="inside a pinned block"):
            config_threadpool("compact")
        config = [os.sched_getaffinity(thread) for thread in pool.start_workers(4)]
        assert all(len(cpus) == 1 for cpus in config)
    assert where_workers_may_run(4) == [{last}, everywhere, everywhere]
    config_threadpool("one_per_thread", 4, [last])
    config_threadpool("one_per_thread", 2, [last])
    assert where_workers_may_run(4) == [{last}, everywhere, everywhere], "others are let go"
    config_threadpool()
    assert where_workers_may_run(4) == [everywhere] * 3


@ON_LINUX
@pytest.mark.usefixtures("_anywhere")
def test_the_number_of_threads_follows_the_mode() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    config_threadpool("shared", cpus=cpus[:1])
    assert get_num_threads() == (1 if len(cpus) > 1 else pool.default_num_threads())
    config_threadpool("compact")
    assert get_num_threads() == pool.default_num_threads()
    config_threadpool(nthreads=3)
    assert get_num_threads() == 3


def test_a_pool_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    before = get_num_threads()
    for arguments, message in [
        (("fast",), "no affinity mode 'fast'"),
        (("spread", -1), "whole number from 1 to 1023"),
        (("spread", 1024), "whole number from 1 to 1023"),
        (("none", 1, [0]), "'none' takes no list of CPUs"),
        (("shared", 1, [10_000]), "CPU 10000 may not be used here"),
    ]:
        with pytest.raises(UsageError, match=message):
            config_threadpool(*arguments)
    monkeypatch.setattr(linker, "on_linux", lambda: False)
    with pytest.raises(RunError, match="only Linux places threads"):
        config_threadpool("compact")
    assert get_num_threads() == before


def test_both_ways_to_sleep_are_accepted_by_llvm() -> None:
    assert linker.compile_text(pool.pool_text("pthread"))
    assert "pthread_cond_wait" in pool.pool_text("pthread")


SCRIPT = """
import os, sys, time
import numpy as np
from loopwright.runtime import config_threadpool, set_num_threads
from tests.unit.runtime import kernels
set_num_threads(3)
def check():
    for us in (0, 0, 100):
        hits, where = np.zeros(1000, np.int32), np.zeros(1000, np.int64)
        n = 60 if us else 1000
        module(np.array([n, 64, us, 0, -1]), hits, where)
        assert (hits[:n] == 1).all(), hits
        time.sleep(0.002)
    return len(set(where[:60].tolist()))
def forked():
    assert check() > 1
    child = os.fork()
    if child == 0:
        code = 3
        try:
            code = 0 if check() > 1 else 4
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    assert check() > 1
for number, mode in enumerate(sys.argv[1:]):
    if mode != "none":
        config_threadpool(mode, 3)
    if number == 0:
        module = kernels.cover(1000)
    forked()
print("fine")
"""


@pytest.mark.parametrize(("kind", "spin"), covering(["auto", "pthread"], ["0", "2000"], strength=1))
@pytest.mark.parametrize(
    "modes",
    [
        pytest.param(["none", "spread"] if linker.on_linux() else ["none"], id="placed_later"),
        pytest.param(["spread"], id="placed_first", marks=[ON_LINUX, pytest.mark.slow]),
    ],
)
def test_a_forked_child_has_a_pool_of_its_own_and_exit_is_clean(
    kind: str, spin: str, modes: list[str]
) -> None:
    """As the pool is, and where its threads were placed, while it ran or before it started."""
    environ = os.environ | {"LOOPWRIGHT_POOL": kind, "LOOPWRIGHT_SPIN": spin}
    environ["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, *modes],
        env=environ,
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "fine\n"


@pytest.mark.skipif(not linker.on_linux(), reason="only Linux pins threads")
@pytest.mark.parametrize("where", ["start_workers", "sched_setaffinity"])
def test_pinning_that_fails_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    before = os.sched_getaffinity(0)
    calls = []
    real = os.sched_setaffinity

    def second_fails(thread: int, cpus: set[int]) -> None:
        calls.append(thread)
        if len(calls) == 2:
            raise OSError("no such thread")
        real(thread, cpus)

    def no_workers(num_threads: int | None) -> tuple[int, ...]:
        raise OSError("no such thread")

    with monkeypatch.context() as patch:
        if where == "start_workers":
            patch.setattr(pool, "start_workers", no_workers)
        else:
            patch.setattr(os, "sched_setaffinity", second_fails)
        with pytest.raises(OSError, match="no such thread"), pinned(2):
            pytest.fail("the block ran")
    assert os.sched_getaffinity(0) == before
    try:  # outside of a block, the default follows the CPUs of the calling thread
        os.sched_setaffinity(0, {min(before)})
        assert pool.default_num_threads() == (env.settings().num_threads or 1)
    finally:
        os.sched_setaffinity(0, before)
    with pinned(2):
        assert len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


BUSY = """
import sys, threading, time
import numpy as np
from loopwright.runtime import set_num_threads
from tests.unit.runtime import kernels
set_num_threads(3)
module = kernels.cover(1000)
hits, where = np.zeros(1000, np.int32), np.zeros(1000, np.int64)
work = lambda: module(np.array([1000, 64, 5000, 0, -1]), hits, where)
threading.Thread(target=work, daemon=True).start()
while not hits.any():
    time.sleep(0.001)
print("ends", flush=True)
"""


def test_a_process_may_end_while_workers_are_busy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")
