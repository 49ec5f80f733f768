"""Real kernels with real faults in a real runner process."""

from __future__ import annotations

import os
import signal
import time

import pytest

from loopwright.errors import RunError
from loopwright.measure.comparison import Closeness
from loopwright.measure.options import LocalRunner
from loopwright.measure.result import ErrorKind, MeasureError
from loopwright.measure.runner import Runner
from loopwright.measure.workers.process import wait_any
from loopwright.measure.workers.protocol import CheckReply, RaceReply
from loopwright.records import next_step
from tests.unit.measure import kernels
from tests.unit.measure.sessions import RIGHT, race, survives, with_options


def kill(session: Runner) -> None:
    """As the system does it when memory runs out; returns when it is dead."""
    pid = session.worker.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def check(session: Runner, text: str) -> CheckReply:
    assert isinstance(race(session, text), RaceReply)
    checked = session.check(RIGHT, Closeness(1), 1.0)
    assert isinstance(checked, CheckReply)
    return checked


def test_a_parallel_kernel_runs_on_the_pool(session: Runner) -> None:
    assert check(session, kernels.PARALLEL).problem is None


@pytest.mark.parametrize("text", [kernels.HANG, kernels.BUSY_HANG], ids=["sleeping", "spinning"])
def test_endless_loop_is_killed_at_the_limit(session: Runner, text: str) -> None:
    start = time.monotonic()
    found = race(with_options(session, timeout=0.2), text)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_TIMEOUT
    assert found.text == (
        "it ran longer than 0.2 s and was killed; its limit was the runner's timeout of 0.2 s"
    )
    assert "LocalRunner(timeout=...)`) gives it more time" in next_step(found.kind, found.text)
    assert time.monotonic() - start >= 0.2
    survives(session)


@pytest.mark.parametrize(
    ("incumbent", "timeout", "limit"),
    [
        (None, 5.0, "longer than 5 s and was killed; its limit was the runner's timeout of 5 s"),
        (1e-4, 5.0, "longer than 1 s and was killed; its limit was 20 x the best so far"),
        (0.1, 5.0, "longer than 2 s and was killed; its limit was 20 x the best so far"),
        (0.3, 5.0, "longer than 5 s and was killed; its limit was the runner's timeout of 5 s"),
        (1e-4, 0.5, "longer than 0.5 s and was killed; its limit was the runner's timeout"),
    ],
)
def test_a_timeout_names_the_limit_that_acted_and_the_advice_is_about_that_one(
    incumbent: float | None, timeout: float, limit: str
) -> None:
    session = Runner(LocalRunner(timeout=timeout), lambda workers: None)
    text = session._too_late(incumbent)
    assert limit in text
    more_time_helps = "the runner's timeout of" in text
    advice = next_step(ErrorKind.RUN_TIMEOUT, text)
    assert ("gives it more time" in advice) == more_time_helps
    assert ("cannot win" in advice) != more_time_helps


def test_segfault(session: Runner) -> None:
    found = race(session, kernels.SEGFAULT)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert "SIGSEGV" in found.text
    assert "instrument_bound_checkers" in next_step(found.kind, found.text)
    survives(session)


def test_exit(session: Runner) -> None:
    found = race(session, kernels.EXIT)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert "exited with code 3" in found.text
    survives(session)


def test_allocating_100_gb_is_refused_by_the_system(session: Runner) -> None:
    found = race(session, kernels.HUNGRY)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.MEMORY
    survives(session)


def test_workspace_of_100_gb(session: Runner) -> None:
    found = session.load_and_race(kernels.built(kernels.GOOD, workspace=100 << 30), None)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.MEMORY
    assert "workspace" in found.text
    assert "LOOPWRIGHT_WORKSPACE_LIMIT" in next_step(found.kind, found.text)
    survives(session)


def test_workspace_over_the_memory_of_the_runner(session: Runner) -> None:
    """Below the runtime's limit of half the machine, above what this process may take."""
    found = session.load_and_race(kernels.built(kernels.GOOD, workspace=3 << 29), None)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.MEMORY
    survives(session)


def test_arguments_too_large_for_memory(session: Runner) -> None:
    found = session.load_and_race(kernels.built(kernels.GOOD, n=1 << 33), None)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.MEMORY
    assert found.text.startswith("the runner is out of memory: ")
    assert "LocalRunner(memory_bytes=...)" in next_step(found.kind, found.text)
    survives(session)


def test_return_code(session: Runner) -> None:
    found = race(session, kernels.RETURNS_7)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_ERROR
    assert "7" in found.text
    survives(session)


def test_code_that_does_not_link(session: Runner) -> None:
    text = kernels.text("  call void @no_such_function()")
    found = race(session, "declare void @no_such_function()\n" + text)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_ERROR
    assert "linking kernel failed" in found.text
    survives(session)


def test_printing_does_not_disturb_the_protocol(session: Runner) -> None:
    assert check(session, kernels.PRINTS).problem is None


def test_a_flood_of_text_is_bounded_and_last_words_follow_it(session: Runner) -> None:
    """20 MB per call, twice and more: writes fail at the limit, the kernel goes on.

    What the next candidate prints begins at the start of the file again.
    """
    found = race(session, kernels.FLOODS)
    assert isinstance(found, RaceReply)
    assert 0 < session.worker.printed_bytes <= 16 << 20
    assert isinstance(race(session, kernels.FLOODS), RaceReply)
    found = race(session, kernels.ABORT)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert "SIGABRT" in found.text
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
    session: Runner, text: str, words: str
) -> None:
    found = race(session, text)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert words in found.text
    survives(session)


def test_no_text_of_a_candidate_is_taken_for_one_of_ours(session: Runner) -> None:
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
def test_wrong_answers(session: Runner, text: str, words: str) -> None:
    found = check(session, text)
    assert found.problem is not None
    assert words in found.problem
    if text == kernels.OFF_BY_A_BIT:
        assert found.max_error == pytest.approx(0.5, rel=1e-6)
        assert "(error 0.5, allowed" in found.problem
    survives(session)


def test_writing_past_the_end_is_found_and_the_process_replaced(session: Runner) -> None:
    survives(session)
    before = session.worker.pid
    found = race(session, kernels.OVERRUNS)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.WRONG_ANSWER
    assert "outside the memory of B" in found.text
    assert session.worker.pid != before
    survives(session)


def test_killed_from_outside_while_it_runs(session: Runner) -> None:
    survives(session)
    pid = session.worker.pid
    assert pid is not None
    child = os.fork()
    if child == 0:
        time.sleep(0.2)
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


def test_killed_from_outside_is_raced_again(session: Runner) -> None:
    survives(session)
    assert session.worker.pid is not None
    child = killed_soon(session.worker.pid)
    found = session.undisturbed(lambda: race(session, kernels.sleepy(200_000)))
    os.waitpid(child, 0)
    assert isinstance(found, RaceReply), found


def test_one_that_is_killed_again_is_at_fault(session: Runner) -> None:
    survives(session)
    before = session.worker.launched
    found = session.undisturbed(lambda: race(session, kernels.KILLS_ITSELF))
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    assert session.worker.launched == before + 2
    survives(session)


def test_killed_from_outside_between_requests_blames_nobody(session: Runner) -> None:
    survives(session)
    kill(session)
    survives(session)


def test_stopped_process_is_late(session: Runner) -> None:
    survives(session)
    assert session.worker.pid is not None
    os.kill(session.worker.pid, signal.SIGSTOP)
    found = race(with_options(session, timeout=0.2), kernels.GOOD)
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_TIMEOUT
    assert "find out what stops processes" in next_step(found.kind, found.text)
    survives(session)


def test_death_between_race_and_sample(session: Runner) -> None:
    found = race(session, kernels.GOOD)
    assert isinstance(found, RaceReply)
    kill(session)
    samples = session.sample(found.first)
    assert isinstance(samples, MeasureError)
    assert samples.kind == ErrorKind.RUN_CRASH
    survives(session)


def test_process_is_replaced_after_its_requests(session: Runner) -> None:
    survives(session)
    before = session.worker.pid
    session.worker.max_requests = 1
    survives(session)
    session.worker.max_requests = 2000
    assert session.worker.pid != before


def test_process_is_replaced_when_it_has_grown(session: Runner) -> None:
    survives(session)
    before = session.worker.pid
    session.worker.max_rss = 1 << 20
    survives(session)
    session.worker.max_rss = 1 << 30
    assert session.worker.pid != before


def test_naive_outputs_are_the_answer(session: Runner) -> None:
    assert session.outputs_of(kernels.built(kernels.GOOD)) == RIGHT.sets[0]


def test_start_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPWRIGHT_NUM_THREADS", "many")
    session = Runner(LocalRunner(), wait_any)
    try:
        with pytest.raises(RunError, match=r"cannot start a runner.*LOOPWRIGHT_NUM_THREADS"):
            race(session, kernels.GOOD)
    finally:
        session.worker.close()
