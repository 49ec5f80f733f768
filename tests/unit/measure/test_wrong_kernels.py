"""Kernels that run well and are wrong: each is refused, by what a user would run into."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest

from loopwright.measure import Measurer
from loopwright.measure.comparison import Closeness
from loopwright.measure.inputs import SETS, DataPlan, input_set
from loopwright.measure.result import ErrorKind, MeasureError
from loopwright.measure.runner import Answers, Runner
from loopwright.measure.workers.protocol import CheckReply, RaceReply
from loopwright.runtime import Arg
from tests.unit.measure import kernels, wrong_kernels
from tests.unit.measure.canned import Canned
from tests.unit.measure.programs import OPTION, MatmulTask
from tests.unit.measure.sessions import with_options

PLAN = DataPlan(largest=4)
ARG = Arg("A", (kernels.N,), np.dtype("float32"), False)
INPUTS = [input_set(PLAN, [ARG], 0, None, number)[0] for number in SETS]
FIRST = float(INPUTS[0][0])
ANSWERS = Answers("r", ((INPUTS[0] + 1).tobytes(), (INPUTS[1] + 1).tobytes()), exact=True)


@pytest.fixture(scope="module")
def session(session: Runner) -> Runner:
    made = with_options(session, timeout=1.0)
    made.learn([((kernels.N,), "float32", output) for output in (False, True)], PLAN)
    return made


def checked(
    session: Runner, text: str, *, workspace: int = 0, limit: float = 1.0
) -> CheckReply | MeasureError:
    """Race, time and check a kernel as the measurer does."""
    found = session.load_and_race(kernels.built(text, workspace=workspace), None)
    assert isinstance(found, RaceReply), found
    times = session.sample(found.first, windows=3)
    assert isinstance(times, tuple), times
    seconds = float(np.median(times))
    return session.check(ANSWERS, Closeness(1), limit, seconds=seconds)


@pytest.mark.parametrize("workspace", [0, 256])
def test_a_right_kernel_passes_and_keeps_its_times(session: Runner, workspace: int) -> None:
    reply = checked(session, wrong_kernels.RIGHT, workspace=workspace)
    assert isinstance(reply, CheckReply)
    assert (reply.problem, reply.times) == (None, ())


AGAIN = "called again on the outputs it had filled, with other inputs"
WRONG = {
    "works once": (wrong_kernels.WORKS_ONCE, "B[0] is nan"),
    "works at every other call": (wrong_kernels.EVERY_OTHER_CALL, "elements are wrong"),
    "works on NaN only": (wrong_kernels.WORKS_ON_NAN, AGAIN),
    "accumulates": (wrong_kernels.ACCUMULATES, AGAIN),
    "nearly right": (wrong_kernels.NEARLY, "allowed 0)"),
    "right for the first inputs": (wrong_kernels.right_for(FIRST), AGAIN),
    "skips its work": (wrong_kernels.PROBES, "it skips its work"),
    "spoils an input": (kernels.SPOILS_INPUT, "it changed its input A"),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_answer(session: Runner, name: str) -> None:
    text, words = WRONG[name]
    reply = checked(session, text)
    assert isinstance(reply, CheckReply), reply
    assert words in str(reply.problem)


FAULTS = {
    "reads before an array": (wrong_kernels.READS_BEFORE, "SIGSEGV"),
    "reads behind an array": (wrong_kernels.READS_BEHIND, "SIGSEGV"),
    "exits": (wrong_kernels.exits_for_others(FIRST), "exited with code 3"),
    "fails": (wrong_kernels.returns_7_for_others(FIRST), "in its check it failed"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_check_is_a_wrong_answer(session: Runner, name: str) -> None:
    text, words = FAULTS[name]
    error = checked(session, text)
    assert isinstance(error, MeasureError)
    assert error.kind == ErrorKind.WRONG_ANSWER
    assert words in error.text
    assert "in its check" in error.text


def test_a_hang_in_the_check_is_a_wrong_answer(session: Runner) -> None:
    error = checked(session, wrong_kernels.hangs_for_others(FIRST), limit=0.05)
    assert isinstance(error, MeasureError)
    assert error.kind == ErrorKind.WRONG_ANSWER
    assert "its check did not end within" in error.text


def test_the_workspace_is_guarded(session: Runner) -> None:
    error = checked(session, wrong_kernels.BEHIND_WORKSPACE, workspace=256)
    assert isinstance(error, MeasureError)
    assert error.kind == ErrorKind.WRONG_ANSWER


def test_a_workspace_that_is_read_before_it_is_written(session: Runner) -> None:
    reply = checked(session, wrong_kernels.READS_WORKSPACE, workspace=256)
    assert isinstance(reply, CheckReply)
    assert "elements are wrong" in str(reply.problem)


def test_what_looks_before_it_works_is_timed_at_work(session: Runner) -> None:
    """It is right; only its times, taken on outputs that held the answer, were not."""
    found = session.load_and_race(kernels.built(wrong_kernels.PROBES_ALL), None)
    assert isinstance(found, RaceReply)
    times = session.sample(found.first, windows=3)
    assert isinstance(times, tuple)
    reply = session.check(ANSWERS, Closeness(1), 1.0, seconds=times[0])
    assert isinstance(reply, CheckReply)
    assert reply.problem is None
    assert min(reply.times) >= wrong_kernels.WORK_S > max(times)


def test_a_process_that_somebody_kills_brands_no_kernel(session: Runner) -> None:
    found = session.load_and_race(kernels.built(wrong_kernels.hangs_for_others(FIRST)), None)
    assert isinstance(found, RaceReply)
    pid = session.worker.pid
    assert pid is not None
    child = os.fork()
    if child == 0:
        time.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
    error = session.check(ANSWERS, Closeness(1), 5.0)
    os.waitpid(child, 0)
    assert isinstance(error, MeasureError)
    assert error.kind == ErrorKind.RUN_CRASH


def test_results_say_whether_they_were_checked(measurer: Measurer) -> None:
    """Each measured as the first of a run."""
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    m = Measurer(task, OPTION, beside=measurer)
    Canned(m, [wrong_kernels.RIGHT, wrong_kernels.READS_BEHIND, wrong_kernels.PROBES_ALL])
    with m:
        right, behind, probes = [r for i in range(3) for r in m.measure(task.inputs(i))]
    assert (right.checked, right.check_reason) == ("yes", "")
    assert behind.error.kind == ErrorKind.WRONG_ANSWER
    assert (behind.times, behind.checked) == ((), "no")
    assert probes.checked == "yes"
    assert min(probes.times) >= wrong_kernels.WORK_S


def test_what_cannot_be_checked_is_nothing_to_beat(measurer: Measurer) -> None:
    task = MatmulTask(reference=lambda a: a + np.float32(1))
    m = Measurer(task, OPTION, beside=measurer)
    Canned(m, [wrong_kernels.RIGHT, kernels.sleepy(3000), kernels.sleepy(4000)])
    get, asked = m.session.references.get, []

    def once_none(*args: Any) -> Any:
        asked.append(args)
        return None if len(asked) == 1 else get(*args)

    m.session.references.get = once_none  # type: ignore[method-assign]
    with m:
        unchecked, right, slower = m.measure(task.inputs(0, 1, 2))
    assert (unchecked.checked, unchecked.check_reason) == ("no", "there is no reference")
    assert (right.checked, right.dropped) == ("yes", False)
    assert slower.check_reason == "it would not have become the best"
