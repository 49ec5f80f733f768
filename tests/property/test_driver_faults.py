"""What the fuzz says of kernels that fail with an OpenCL driver's optimiser, and without it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fuzzing import fuzz
from fuzzing.differential import Case, Checker, ExecutionPath
from fuzzing.guarded import (
    COMPILER_DID_NOT_END,
    OPTIMISER_CRASHED,
    ProcessKilledError,
    ProcessTimedOutError,
)
from fuzzing.random.expr import Info
from loopwright import te
from loopwright.errors import RunError
from loopwright.runtime import Artifact
from loopwright.schedule import create_schedule
from loopwright.testing.numpy_eval import Array
from tests.pocl_kernels import needs_pocl
from tests.unit.measure import device_kernels
from tests.unit.measure.kernels import N

pytestmark = device_kernels.needs_opencl
ON_DEVICE = ExecutionPath("target", "opencl")
KILLED = ProcessKilledError("the function killed its process (exit status -11)")
OUTSIDE = RunError("the function wrote outside B")
RIGHT, WRONG = 1.0, 2.0
WITHOUT = r" \(without the driver's optimiser: "


class Runner:
    """In place of a process: it adds a number, or fails."""

    def __init__(self, outcome: float | RunError) -> None:
        self.outcome = outcome
        self.asked = 0

    def run(
        self, artifact: Artifact, arrays: list[Array], side: str, prepared: bool = False
    ) -> list[Array]:
        self.asked += 1
        if isinstance(self.outcome, RunError):
            raise self.outcome
        return [arrays[0], arrays[0] + np.float32(self.outcome)]

    def close(self) -> None:
        """It holds nothing."""


@pytest.fixture
def case() -> Case:
    """B = A + 1."""
    a = te.placeholder((N,), name="A")
    b = te.compute((N,), lambda i: a[i] + 1.0, name="B")
    s = create_schedule(b)
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    arrays = [np.arange(N, dtype="float32"), np.zeros(N, "float32")]
    exact = Info(True, 0.0, 1.0, 0.0)
    return Case(s.dag.to_json(), s.trace_json(), s.arg_ids([a, b]), arrays, [exact, exact])


@pytest.fixture
def checker() -> Iterator[Checker]:
    checker = Checker()
    yield checker
    checker.close()


def with_runners(
    checker: Checker, optimised: float | RunError, unoptimised: float | RunError
) -> tuple[Runner, Runner]:
    runners = Runner(optimised), Runner(unoptimised)
    checker.runner, checker.unoptimised = runners  # type: ignore[assignment]
    return runners


def test_a_crash_of_the_optimiser_alone_is_counted_apart(checker: Checker, case: Case) -> None:
    with_runners(checker, KILLED, RIGHT)
    checker.run(checker.prepare(case), ON_DEVICE)
    assert checker.runs == {OPTIMISER_CRASHED: 1}


@pytest.mark.parametrize(
    ("optimised", "unoptimised", "kind", "text"),
    [
        (KILLED, KILLED, ProcessKilledError, f"status -11\\){WITHOUT}the function killed its proc"),
        (KILLED, WRONG, ProcessKilledError, f"status -11\\){WITHOUT}opencl.*: {N} of {N} elements"),
        (
            KILLED,
            OUTSIDE,
            ProcessKilledError,
            f"status -11\\){WITHOUT}the function wrote outside B",
        ),
        (OUTSIDE, RIGHT, RunError, f"^the function wrote outside B{WITHOUT}right\\)$"),
        (WRONG, RIGHT, AssertionError, f"{N} of {N} elements differ.*{WITHOUT}right\\)\n"),
        (WRONG, WRONG, AssertionError, f"elements differ.*{WITHOUT}opencl.*elements differ"),
    ],
)
def test_other_failures_say_what_there_is_without_the_optimiser(
    checker: Checker,
    case: Case,
    optimised: float | RunError,
    unoptimised: float | RunError,
    kind: type[Exception],
    text: str,
) -> None:
    with_runners(checker, optimised, unoptimised)
    with pytest.raises(kind, match=text) as caught:
        checker.run(checker.prepare(case), ON_DEVICE)
    assert type(caught.value) is kind
    assert not checker.runs


def test_a_kernel_that_does_not_end_is_of_the_driver(checker: Checker, case: Case) -> None:
    """The interpreter has run it to its end; to run it again would take as long."""
    runners = with_runners(checker, ProcessTimedOutError("did not end in 120 s"), RIGHT)
    checker.run(checker.prepare(case), ON_DEVICE)
    assert [r.asked for r in runners] == [1, 0]
    assert checker.runs == {COMPILER_DID_NOT_END: 1}


def test_what_runs_well_runs_once(checker: Checker, case: Case) -> None:
    runners = with_runners(checker, RIGHT, KILLED)
    checker.run(checker.prepare(case), ON_DEVICE)
    assert [r.asked for r in runners] == [1, 0]
    assert checker.runs == {"opencl": 1}


def test_a_crash_of_code_for_a_cpu_is_a_failure(checker: Checker, case: Case) -> None:
    runners = with_runners(checker, KILLED, RIGHT)
    plain = Case(case.dag, [], case.arg_ids, case.arrays, case.infos)
    with pytest.raises(ProcessKilledError, match=r"^the function .*status -11\)$"):
        checker.run(checker.prepare(plain), ExecutionPath("target", "llvm -num-threads=1"))
    assert [r.asked for r in runners] == [1, 0]


def test_the_fuzz_prints_the_seed(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    run = fuzz.Fuzz(["opencl"], shrink_seconds=0)
    with_runners(run.checker, KILLED, RIGHT)
    schedule = fuzz.example(0)[2]
    assert run.check(7, "threads", ([case], [], schedule))
    assert f"seed 7 (threads), no failure: {OPTIMISER_CRASHED}" in capsys.readouterr().out
    assert f"1 {OPTIMISER_CRASHED}" in run.summary()
    assert not run.failures


@needs_pocl
def test_a_process_without_optimiser(
    checker: Checker, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the device: this kernel kills its process where the compiler has optimised it."""
    crash = f"#ifdef __OPTIMIZE__\n{device_kernels.CRASHES}\n#endif\n{device_kernels.GOOD}"
    monkeypatch.setattr(checker, "_artifact", lambda *_: device_kernels.built(crash))
    checker.run(checker.prepare(case), ON_DEVICE)
    assert checker.runs == {OPTIMISER_CRASHED: 1}
