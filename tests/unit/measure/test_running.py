"""Real kernels with real faults in a real runner process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from loopwright.errors import RunError
from loopwright.measure.checking.check import Closeness
from loopwright.measure.data.plan import SETS, DataPlan, input_set
from loopwright.measure.options import LocalRunner
from loopwright.measure.result import ErrorKind, MeasureError
from loopwright.measure.running import Answers, RunSession
from loopwright.measure.workers.messages import CheckReply, RaceReply
from loopwright.measure.workers.waiting import wait_any
from loopwright.runtime import Arg
from tests.unit.measure import kernels

ARG = Arg("A", (kernels.N,), np.dtype("float32"), False)
INPUTS = [input_set(DataPlan(), [ARG], 0, None, number)[0] for number in SETS]
RIGHT = Answers(tuple((a + np.float32(1)).tobytes() for a in INPUTS))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def session() -> Iterator[RunSession]:
    made = RunSession(LocalRunner(timeout=0.5, memory_bytes=1 << 30), wait_any)
    yield made
    made.close()


def race(
    session: RunSession, text: str, incumbent: float | None = None
) -> RaceReply | MeasureError:
    return session.load_and_race(kernels.built(text), incumbent)


def sample(session: RunSession, found: RaceReply, **options: Any) -> tuple[float, ...]:
    times = session.sample(found.first, **options)
    assert isinstance(times, tuple), times
    return times


def survives(session: RunSession) -> None:
    """The next candidate is measured as if nothing had happened."""
    found = race(session, kernels.GOOD)
    assert isinstance(found, RaceReply), found
    assert session.check("r", RIGHT, Closeness(1), 1.0) == CheckReply(
        max_error=0.0, rss=session.worker.rss
    )


def kill(session: RunSession) -> None:
    """As the system does it when memory runs out; returns when it is dead."""
    pid = session.worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def check(session: RunSession, text: str) -> CheckReply:
    assert isinstance(race(session, text), RaceReply)
    checked = session.check("r", RIGHT, Closeness(1), 1.0)
    assert isinstance(checked, CheckReply)
    return checked


def test_samples_of_a_good_kernel(session: RunSession) -> None:
    found = race(session, kernels.GOOD)
    assert isinstance(found, RaceReply)
    assert not found.dropped
    times = sample(session, found)
    assert len(times) == 5
    assert all(0 < t < session.worker.seconds for t in times)
    survives(session)


def test_windows_of_a_kernel_that_takes_longer_are_single_calls(session: RunSession) -> None:
    found = race(session, kernels.sleepy(25_000))
    assert isinstance(found, RaceReply)
    times = sample(session, found, windows=2)
    assert len(times) == 2
    assert all(t >= 0.025 for t in times)


@pytest.mark.parametrize(("incumbent", "count"), [(None, 5), (1.0, 5), (0.008, 2)])
def test_two_windows_settle_what_is_clearly_behind(
    session: RunSession, incumbent: float | None, count: int
) -> None:
    found = race(session, kernels.sleepy(13_000))
    assert isinstance(found, RaceReply)
    times = sample(session, found, incumbent=incumbent)
    assert len(times) == count


def test_windows_hold_many_calls_of_a_tiny_kernel(session: RunSession) -> None:
    found = race(session, kernels.GOOD)
    assert isinstance(found, RaceReply)
    times = sample(session, found, windows=1)
    # a window that long cannot hold fewer than a hundred calls of this length
    assert times[0] * 100 < session.worker.seconds


def test_a_parallel_kernel_runs_on_the_pool(session: RunSession) -> None:
    assert check(session, kernels.PARALLEL).problem is None


def test_race_drops_what_is_far_behind(session: RunSession) -> None:
    found = race(session, kernels.sleepy(5000), incumbent=0.001)
    assert isinstance(found, RaceReply)
    assert found.dropped
    assert found.first >= 0.005
    close = race(session, kernels.sleepy(5000), incumbent=0.004)
    assert isinstance(close, RaceReply)
    assert not close.dropped


def test_a_hopeless_warm_up_is_the_only_run(session: RunSession) -> None:
    found = race(session, kernels.sleepy(60_000), incumbent=0.001)
    assert isinstance(found, RaceReply)
    assert found.dropped
    assert found.first == found.warm


@pytest.mark.parametrize("text", [kernels.HANG, kernels.BUSY_HANG], ids=["sleeping", "spinning"])
def test_endless_loop_is_killed_at_the_limit(session: RunSession, text: str) -> None:
    start = time.monotonic()
    found = race(session, text)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_TIMEOUT
    assert "longer than 0.5 s" in found.text
    assert time.monotonic() - start >= 0.5
    survives(session)


def test_segfault(session: RunSession) -> None:
    found = race(session, kernels.SEGFAULT)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert "SIGSEGV" in found.text
    survives(session)


def test_exit(session: RunSession) -> None:
    found = race(session, kernels.EXIT)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert "exited with code 3" in found.text
    survives(session)


def test_abort_reports_what_was_printed(session: RunSession) -> None:
    found = race(session, kernels.ABORT)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert "SIGABRT" in found.text
    assert "hello from the kernel" in found.text
    survives(session)


def test_allocating_100_gb_is_refused_by_the_system(session: RunSession) -> None:
    found = race(session, kernels.HUNGRY)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.MEMORY
    survives(session)


def test_workspace_of_100_gb(session: RunSession) -> None:
    found = session.load_and_race(kernels.built(kernels.GOOD, workspace=100 << 30), None)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.MEMORY
    assert "workspace" in found.text
    survives(session)


def test_workspace_over_the_memory_of_the_runner(session: RunSession) -> None:
    """Below the runtime's limit of half the machine, above what this process may take."""
    found = session.load_and_race(kernels.built(kernels.GOOD, workspace=3 << 29), None)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.MEMORY
    survives(session)


def test_arguments_too_large_for_memory(session: RunSession) -> None:
    found = session.load_and_race(kernels.built(kernels.GOOD, n=1 << 33), None)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.MEMORY
    survives(session)


def test_return_code(session: RunSession) -> None:
    found = race(session, kernels.RETURNS_7)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_ERROR
    assert "7" in found.text
    survives(session)


def test_code_that_does_not_link(session: RunSession) -> None:
    text = kernels.text("  call void @no_such_function()")
    found = race(session, "declare void @no_such_function()\n" + text)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_ERROR
    assert "linking kernel failed" in found.text
    survives(session)


def test_printing_does_not_disturb_the_protocol(session: RunSession) -> None:
    assert check(session, kernels.PRINTS).problem is None


def test_a_flood_of_text_is_bounded(session: RunSession) -> None:
    """20 MB per call, twice and more: writes fail at the limit, the kernel goes on."""
    found = race(session, kernels.FLOODS)
    assert isinstance(found, RaceReply)
    assert 0 < session.worker.printed_bytes <= 16 << 20
    survives(session)


def test_last_words_after_a_flood(session: RunSession) -> None:
    """What the next candidate prints begins at the start of the file again."""
    race(session, kernels.FLOODS)
    found = race(session, kernels.ABORT)
    assert isinstance(found, MeasureError)
    assert "hello from the kernel" in found.text
    survives(session)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (kernels.WRITES_EVERYWHERE, "it wrote to the pipes of the runner process"),
        (kernels.CLOSES_EVERYTHING, "exited with code 1; it had printed: it closed"),
        (kernels.CLOSES_STDERR, "exited with code 1"),
    ],
    ids=["writes", "closes", "closes stderr"],
)
def test_touching_the_descriptors_costs_that_candidate(
    session: RunSession, text: str, words: str
) -> None:
    found = race(session, text)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert words in found.text
    survives(session)


def test_no_text_of_a_candidate_is_taken_for_one_of_ours(session: RunSession) -> None:
    found = race(session, kernels.PRETENDS_TO_LACK_MEMORY)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert "out of memory" in found.text
    survives(session)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (kernels.OFF_BY_A_BIT, "64 of 64 elements are wrong"),
        (kernels.SKIPS_LAST, "B[63] is nan"),
        (kernels.SPOILS_INPUT, "it changed its input A"),
    ],
    ids=["value", "unwritten", "input"],
)
def test_wrong_answers(session: RunSession, text: str, words: str) -> None:
    found = check(session, text)
    assert found.problem is not None
    assert words in found.problem
    survives(session)


def test_wrong_value_says_where_and_how_much(session: RunSession) -> None:
    found = check(session, kernels.OFF_BY_A_BIT)
    assert found.max_error == pytest.approx(0.5, rel=1e-6)
    assert found.problem is not None
    assert "(error 0.5, allowed" in found.problem


def test_writing_past_the_end_is_found_and_the_process_replaced(session: RunSession) -> None:
    survives(session)
    before = session.worker.pid
    found = race(session, kernels.OVERRUNS)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.WRONG_ANSWER
    assert "outside the memory of B" in found.text
    assert session.worker.pid != before
    survives(session)


def test_killed_from_outside_while_it_runs(session: RunSession) -> None:
    survives(session)
    pid = session.worker.pid
    assert pid is not None
    child = os.fork()
    if child == 0:
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
    found = race(session, kernels.HANG)
    os.waitpid(child, 0)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert "SIGKILL" in found.text
    survives(session)


def killed_soon(pid: int) -> int:
    """A process that kills the other one in a moment."""
    child = os.fork()
    if child == 0:
        time.sleep(0.2)
        os.kill(pid, signal.SIGTERM)
        os._exit(0)
    return child


def test_killed_from_outside_is_raced_again(session: RunSession) -> None:
    survives(session)
    assert session.worker.pid is not None
    child = killed_soon(session.worker.pid)
    found = session.undisturbed(lambda: race(session, kernels.sleepy(200_000)))
    os.waitpid(child, 0)
    assert isinstance(found, RaceReply), found


def test_one_that_is_killed_again_is_at_fault(session: RunSession) -> None:
    survives(session)
    before = session.worker.launched
    found = session.undisturbed(lambda: race(session, kernels.KILLS_ITSELF))
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert session.worker.launched == before + 2
    survives(session)


def test_killed_from_outside_between_requests_blames_nobody(session: RunSession) -> None:
    survives(session)
    kill(session)
    survives(session)


def test_stopped_process_is_late(session: RunSession) -> None:
    survives(session)
    assert session.worker.pid is not None
    os.kill(session.worker.pid, signal.SIGSTOP)
    found = race(session, kernels.GOOD)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_TIMEOUT
    survives(session)


def test_death_between_race_and_sample(session: RunSession) -> None:
    found = race(session, kernels.GOOD)
    assert isinstance(found, RaceReply)
    kill(session)
    samples = session.sample(found.first)
    assert isinstance(samples, MeasureError)
    assert samples.kind == ErrorKind.RUN_CRASH
    survives(session)


def test_process_is_replaced_after_its_requests(session: RunSession) -> None:
    survives(session)
    before = session.worker.pid
    session.worker.max_requests = 1
    survives(session)
    session.worker.max_requests = 2000
    assert session.worker.pid != before


def test_process_is_replaced_when_it_has_grown(session: RunSession) -> None:
    survives(session)
    before = session.worker.pid
    session.worker.max_rss = 1 << 20
    survives(session)
    session.worker.max_rss = 1 << 30
    assert session.worker.pid != before


def test_naive_outputs_are_the_answer(session: RunSession) -> None:
    assert session.outputs_of(kernels.built(kernels.GOOD)) == RIGHT.sets[0]


def with_options(**options: object) -> RunSession:
    return RunSession(LocalRunner(**options), wait_any)  # type: ignore[arg-type]


def test_explicit_counts_have_the_meaning_of_autotvm() -> None:
    session = with_options(number=2, repeat=3)
    try:
        found = race(session, kernels.sleepy(2000))
        assert isinstance(found, RaceReply)
        times = sample(session, found)
        assert len(times) == 3
        assert all(t >= 0.002 for t in times)
        assert session.worker.seconds >= 0.012
    finally:
        session.close()


def test_min_repeat_ms_raises_the_number_of_calls() -> None:
    session = with_options(number=1, repeat=2, min_repeat_ms=30)
    try:
        found = race(session, kernels.sleepy(1000))
        assert isinstance(found, RaceReply)
        times = sample(session, found)
        assert len(times) == 2
        assert session.worker.seconds >= 0.06
    finally:
        session.close()


def test_cache_flush_makes_samples_of_one_call() -> None:
    session = with_options(number=4, repeat=3, enable_cpu_cache_flush=True)
    try:
        found = race(session, kernels.sleepy(3000))
        assert isinstance(found, RaceReply)
        times = sample(session, found)
        assert len(times) == 3
        assert all(t >= 0.003 for t in times)
    finally:
        session.close()


def test_slow_kernel_gets_the_samples_that_fit() -> None:
    session = with_options(timeout=0.5)
    try:
        found = race(session, kernels.sleepy(90_000))
        assert isinstance(found, RaceReply)
        times = sample(session, found, spent=found.warm + found.first)
        assert 1 <= len(times) < 5
        assert found.warm + found.first + sum(times) < 0.5
    finally:
        session.close()


def test_incumbent_shortens_the_limit() -> None:
    option = LocalRunner(timeout=10)
    assert option.limit(None) == 10
    assert option.limit(0.001) == 1
    assert option.limit(0.2) == pytest.approx(4)
    assert option.limit(3.0) == 10


def test_start_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPWRIGHT_NUM_THREADS", "many")
    session = with_options()
    try:
        with pytest.raises(RunError, match=r"cannot start a runner.*LOOPWRIGHT_NUM_THREADS"):
            race(session, kernels.GOOD)
    finally:
        session.close()
