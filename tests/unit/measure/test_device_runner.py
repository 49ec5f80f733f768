"""Kernels with real faults on a real device, in a runner process of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from loopwright.errors import RunError
from loopwright.measure.comparison import Closeness
from loopwright.measure.options import LocalRunner
from loopwright.measure.result import ErrorKind, MeasureError
from loopwright.measure.runner import Runner
from loopwright.measure.workers.process import wait_any
from loopwright.measure.workers.protocol import CheckReply, RaceReply
from loopwright.runtime import Artifact
from tests.unit.measure import device_kernels as kernels
from tests.unit.measure import kernels as cpu_kernels
from tests.unit.measure.sessions import INPUTS, RIGHT, with_options

pytestmark = kernels.needs_opencl


@pytest.fixture(scope="module")
def session() -> Iterator[Runner]:
    """A runner of the first device."""
    made = Runner(LocalRunner(timeout=2.0), wait_any, device="opencl:0")
    yield made
    made.worker.close()


def race(session: Runner, artifact: Artifact) -> RaceReply | MeasureError:
    return session.load_and_race(artifact, None)


def checked(session: Runner, statement: str, temporary: bool = False) -> CheckReply | MeasureError:
    raced = race(session, kernels.built(statement, temporary=temporary))
    assert isinstance(raced, RaceReply), raced
    return session.check(RIGHT, Closeness(1), 1.0, seconds=raced.first)


def survives(session: Runner) -> None:
    """The next candidate is measured as if nothing had happened."""
    reply = checked(session, kernels.GOOD)
    assert isinstance(reply, CheckReply)
    assert (reply.problem, reply.max_error, reply.tainted) == (None, 0.0, False)


def test_a_right_kernel_is_timed_by_windows_and_by_counts(session: Runner) -> None:
    survives(session)
    raced = race(session, kernels.built(kernels.GOOD))
    assert isinstance(raced, RaceReply)
    assert 0 < raced.first < 0.1  # what the driver compiles at the first launch is not in it
    times = session.sample(raced.first, windows=3, window_s=1e-3)
    assert isinstance(times, tuple)
    assert len(times) == 3
    assert min(times) > 0
    counted = Runner(
        LocalRunner(number=3, repeat=2, enable_cpu_cache_flush=True),
        wait_any,
        worker=session.worker,
    )
    assert isinstance(counted.sample(raced.first), tuple)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (kernels.WRONG, "B"),
        (kernels.SPOILS_ITS_INPUT, "it changed its input A"),
        (kernels.ADDS_TO_ITS_OUTPUT, "called again on the outputs it had filled"),
    ],
    ids=["wrong", "input", "output"],
)
def test_a_wrong_kernel_is_found_in_its_check(
    session: Runner, statement: str, problem: str
) -> None:
    reply = checked(session, statement)
    assert isinstance(reply, CheckReply)
    assert problem in str(reply.problem)
    survives(session)


@pytest.mark.parametrize("statement", [kernels.WRITES_BEHIND, kernels.WRITES_BEFORE])
def test_a_write_outside_is_found_when_it_is_timed_and_the_process_is_replaced(
    session: Runner, statement: str
) -> None:
    before = session.worker.launched
    found = race(session, kernels.built(statement))
    assert found == MeasureError(ErrorKind.WRONG_ANSWER, "it wrote outside the memory of B")
    assert session.worker.launched == before + 1
    survives(session)


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (kernels.READS_UNWRITTEN, "B"),
        (kernels.WRITES_BEHIND_TEMPORARY, "it wrote outside the memory of temporary buffer 0"),
    ],
    ids=["reads", "writes"],
)
def test_temporary_buffers_are_poisoned_and_guarded_in_checks(
    session: Runner, statement: str, problem: str
) -> None:
    reply = checked(session, statement, temporary=True)
    assert isinstance(reply, CheckReply)
    assert problem in str(reply.problem)
    survives(session)


def test_a_kernel_that_kills_its_process_costs_itself_alone(session: Runner) -> None:
    found = race(session, kernels.built(kernels.CRASHES))
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_CRASH
    survives(session)


def test_a_kernel_that_crashes_in_its_check_alone_is_wrong(session: Runner) -> None:
    """It ran when it was timed; that memory around arrays were guarded by pages is not said."""
    found = checked(session, kernels.CRASHES_WHERE % float(INPUTS[1][0]).hex())
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.WRONG_ANSWER
    assert found.text.startswith("in its check, the runner process was killed by SIG")
    survives(session)


def test_a_hanging_kernel_ends_with_its_process(session: Runner) -> None:
    short = with_options(session, timeout=0.5)
    short._load_s = 0.25
    found = race(short, kernels.built(kernels.HANGS))
    assert found == MeasureError(
        ErrorKind.RUN_TIMEOUT,
        "it ran longer than 0.5 s, with 0.25 s for loading it onto the device, and was killed; its "
        "limit was the runner's timeout of 0.5 s",
    )
    survives(session)


def test_what_the_device_refuses_is_a_typed_error_and_the_process_stays(
    session: Runner,
) -> None:
    survives(session)
    before = session.worker.launched
    found = race(session, kernels.built(kernels.GOOD, block=1 << 14, grid=1))
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.RUN_ERROR
    assert "add_one has blocks of 16384 threads, and the device takes" in found.text
    found = race(session, kernels.built(kernels.NO_CODE))
    assert isinstance(found, MeasureError)
    assert "opencl(0): its compiler refused the code" in found.text
    assert session.worker.launched == before
    survives(session)


@pytest.mark.usefixtures("processes_share_the_cpu")
def test_right_answers_may_come_from_the_cpu(session: Runner) -> None:
    """The naive schedule of a program has no bound loops: the CPU runs it on the same inputs."""
    for number in (0, 1):
        answer = session.outputs_of(cpu_kernels.built(cpu_kernels.GOOD), number)
        assert answer == RIGHT.sets[number]
        assert session.outputs_of(kernels.built(kernels.GOOD), number) == answer


def test_a_device_that_is_not_there_ends_the_run_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loopwright.measure.workers.process._STARTS", 1)
    session = Runner(LocalRunner(), wait_any, device="opencl:97")
    try:
        with pytest.raises(RunError, match=r"cannot start a runner process: .*opencl\(97\) cannot"):
            session.load_and_race(kernels.built(kernels.GOOD), None)
    finally:
        session.worker.close()
