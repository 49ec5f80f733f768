"""Trials of programs with constants: times are those of what is left to do in a call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopwright import runtime, te
from loopwright.driver import build
from loopwright.errors import UsageError
from loopwright.measure import ErrorKind, LocalRunner, Measurer
from loopwright.measure.inputs import arguments
from loopwright.measure.workers.kernel_host import CpuKernel, GuardedHostMemory
from loopwright.measure.workers.protocol import (
    CheckReply,
    CheckRequest,
    DataRequest,
    Done,
    OutputsReply,
    OutputsRequest,
    RaceReply,
    RaceRequest,
)
from loopwright.measure.workers.run_role import RunRole
from loopwright.records import Checked
from loopwright.schedule import create_schedule
from tests.unit.measure.programs import MatmulTask, under

N, TERMS = 512, 4096


def sums(constant: bool) -> tuple[Any, list[Any]]:
    """``B[i] = A[i] + sum over k of W[i] / (k + 1)``: all the work is in what W determines."""
    a = te.placeholder((N,), name="A")
    w = te.placeholder((N,), name="W", constant=constant)
    k = te.reduce_axis(TERMS, name="k")
    v = te.compute((N,), lambda i: te.sum(w[i] / (k + 1).astype("float32"), axis=k), name="V")
    b = te.compute((N,), lambda i: a[i] + v[i], name="B")
    return create_schedule(b.op), [a, w, b]


def right(a: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(a + w.astype("float64") * (1 / np.arange(1, TERMS + 1)).sum())


class SumTask(MatmulTask):
    """Configuration 0: W is a constant; 1: it is an input as any other."""

    name = key = "test/sums"

    def instantiate(self, config: int) -> tuple[Any, list[Any]]:
        return sums(config == 0)


def test_a_trial_times_the_rest_and_checks_the_whole(measurer: Measurer) -> None:
    task = SumTask(reference=right)
    with Measurer(task, measurer.option, beside=measurer) as m:
        constant, plain = m.measure(task.inputs(0, 1))
    assert (constant.error, plain.error) == (None, None)
    assert constant.checked is Checked.YES
    assert constant.median is not None
    assert plain.median is not None
    assert plain.prepare_s == 0
    # The sums take thousands of times what the rest takes: ratios of one run, with room.
    assert constant.median < plain.median / 20
    assert constant.prepare_s > constant.median * 20


def test_a_wrong_preparation_is_found(measurer: Measurer) -> None:
    task = SumTask(reference=lambda a, w: right(a, w) + 0.5 * w)
    with Measurer(task, measurer.option, beside=measurer) as m:
        (result,) = m.measure(task.inputs(0))
    assert result.error is not None
    assert result.error.kind == ErrorKind.WRONG_ANSWER


@pytest.mark.parametrize("target", ["llvm -num-threads=1", "interp"])
def test_a_suspected_kernel_is_timed_again_on_what_was_prepared_for_the_new_inputs(
    target: str,
) -> None:
    n = 1 << (18 if "llvm" in target else 8)
    a, w = te.placeholder((n,), name="A"), te.placeholder((n,), name="W", constant=True)
    v = te.compute((n,), lambda i: w[i] * 2, name="V")
    b = te.compute((n,), lambda i: a[i] + v[i], name="B")
    module = build(create_schedule(b.op), [a, w, b], target)
    artifact = module.artifact
    assert module.parts() is not None
    role = RunRole()
    assert role.answer(DataRequest(manifest=artifact.manifest, seed=0)) == Done()
    known = {"manifest": artifact.manifest, "payload": artifact.objects}
    right_answers = b""
    for number in (0, 1):
        reply = role.answer(OutputsRequest(number=number, **known))
        assert isinstance(reply, OutputsReply)
        right_answers += reply.payload
    raced = role.answer(RaceRequest(slot=0, drop=None, flush=False, **known))
    assert isinstance(raced, RaceReply)
    assert raced.prepare > 0
    # It claims to take a nanosecond, so that it is timed again, on inputs that alternate.
    checked = role.answer(
        CheckRequest(
            slot=0,
            key="k",
            length=2,
            computed="float32",
            exact=False,
            rounding=(),
            seconds=1e-9,
            flush=False,
            windows=2,
            window_s=1e-3,
            payload=right_answers,
        )
    )
    assert isinstance(checked, CheckReply)
    assert checked.problem is None
    assert len(checked.times) == 2


@pytest.mark.parametrize("target", ["llvm -num-threads=1", "llvm -num-threads=2", "interp"])
@pytest.mark.parametrize("packed", [True, False])
def test_calls_take_turns_on_copies_of_constants(target: str, packed: bool) -> None:
    """What calls read of constants is other memory from call to call, and says the same."""
    n = 300
    a, w = te.placeholder((n,), name="A"), te.placeholder((n,), name="W", constant=True)
    v = te.compute((n,), lambda i: w[i] * 2, name="V") if packed else w
    b = te.compute((n,), lambda i: a[i] + v[i], name="B")
    artifact = build(create_schedule(b.op), [a, w, b], target).artifact
    memory = GuardedHostMemory(arguments(artifact))
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(n).astype("float32") for _ in range(2)]
    memory.fill(given)
    kernel = CpuKernel(artifact, memory)
    wanted = given[0] + given[1] * (2 if packed else 1)
    for nbytes, count in ((0, 1), (4 * n, 1), (12 * n + 7, 3), (1 << 30, 64)):
        kernel = CpuKernel(artifact, memory)
        kernel.take_turns(nbytes)
        for _ in range(count + 1):
            memory.poison_outputs()
            assert kernel.run() >= 0
            np.testing.assert_array_equal(memory.read(2), wanted)
        if count == 1:
            assert kernel._turns is None
            continue
        assert kernel._turns is not None
        read = [{id(x) for x in call.arrays} for call in kernel._turns._calls]
        assert len(read) == count
        assert all(len(one & read[0]) == 2 for one in read[1:])  # the input and the output
    assert memory.written_outside() is None


@pytest.mark.parametrize(("parallel", "threads"), [(True, 2), (False, 1)])
def test_a_kernel_is_pinned_with_the_threads_that_it_uses(
    parallel: bool, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    s = create_schedule(b.op)
    if parallel:
        s[b].parallel(b.op.axis[0])
    artifact = build(s, [a, b], "llvm -num-threads=2").artifact
    kernel = CpuKernel(artifact, GuardedHostMemory(arguments(artifact)))
    asked: list[int | None] = []
    monkeypatch.setattr("loopwright.runtime.pinned", asked.append)
    kernel.pinned()
    assert asked == [threads]


def test_without_constants_there_is_nothing_to_take_turns_on() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="B")
    artifact = build(create_schedule(b.op), [a, b], "llvm").artifact
    kernel = CpuKernel(artifact, GuardedHostMemory(arguments(artifact)))
    kernel.take_turns(1 << 20)
    assert kernel._turns is None


def test_a_runner_is_told_of_other_constants(measurer: Measurer) -> None:
    task = SumTask(reference=right)
    option = replace(measurer.option, runner=LocalRunner(other_constants=100 * 4 * N))
    with under(option, Measurer(task, measurer.option, beside=measurer)) as m:
        (result,) = m.measure(task.inputs(0))
    assert result.error is None
    assert result.checked is Checked.YES
    with pytest.raises(UsageError, match="other_constants must be a number"):
        LocalRunner(other_constants=-1)


def test_kernels_are_timed_without_what_they_prepare() -> None:
    s, args = sums(True)
    module = build(s, args, "llvm -num-threads=1")
    arrays = [np.ones(N, "float32"), np.ones(N, "float32"), np.empty(N, "float32")]
    call = module.timed_call(*arrays)
    call.run()
    whole = min(runtime.time_call(module["main"].bind(*arrays), 1) for _ in range(5))
    rest = min(runtime.time_call(call, 100) / 100 for _ in range(5))
    assert rest < whole / 20
