"""Instantiating: whatever a template raises costs one trial."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import InstantiationError, LowerError
from loopwright.lowering.context import PassContext
from loopwright.measure.building import Build, BuildPool
from loopwright.measure.candidate import Candidate, instantiate
from loopwright.measure.options import LocalBuilder
from loopwright.measure.result import ErrorKind, MeasureError
from loopwright.measure.workers.build_role import BuildRole
from loopwright.measure.workers.process import FailureCause, WorkerFailure
from loopwright.measure.workers.protocol import CompileRequest, LowerRequest
from loopwright.measure.workers.worker import describe
from loopwright.records import next_step
from loopwright.runtime import Artifact
from loopwright.target import Target
from tests.unit.measure.programs import MatmulTask


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def instantiate(self, config: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (SystemExit(5), "SystemExit: 5"),
        (SystemExit("enough"), "SystemExit: enough"),
        (KeyError("k"), "KeyError: 'k'"),
        (GeneratorExit(), "GeneratorExit: "),
        (InstantiationError("too large"), "too large"),
    ],
)
def test_what_a_template_raises_is_an_instantiation_error(error: BaseException, text: str) -> None:
    assert instantiate(Raising(error), {}) == MeasureError(ErrorKind.INSTANTIATION, text)


def test_an_interrupt_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        instantiate(Raising(KeyboardInterrupt()), {})


def recursing(depth: int = 0) -> int:
    return recursing(depth + 1) + 1


@pytest.mark.parametrize(
    ("function", "words"),
    [(recursing, "RecursionError: "), (lambda: bytearray(1 << 62), "MemoryError: ")],
)
def test_what_exhausts_the_process_costs_its_own_trial(function: Any, words: str) -> None:
    class Exhausting:
        def instantiate(self, config: Any) -> Any:
            return function()

    found = instantiate(Exhausting(), {})  # type: ignore[arg-type]
    assert isinstance(found, MeasureError)
    assert found.kind == ErrorKind.INSTANTIATION
    assert found.text.startswith(words)


def test_a_template_that_never_returns_costs_its_own_trial() -> None:
    class Endless(MatmulTask):
        def instantiate(self, config: int) -> Any:
            while config == 3:
                with contextlib.suppress(Exception):
                    time.sleep(60)
            return super().instantiate(config)

    found = instantiate(Endless(), 3, seconds=0.1)
    assert found == MeasureError(ErrorKind.INSTANTIATION, "the template took longer than 0.1 s")
    assert isinstance(instantiate(Endless(), 4, seconds=60), Candidate)


@pytest.fixture(scope="module")
def pool() -> Iterator[BuildPool]:
    made = BuildPool(LocalBuilder(n_parallel=1, timeout=60), Target("llvm").canonical)
    yield made
    made.close()


def matmul(tile: int) -> Candidate:
    made = instantiate(MatmulTask(), tile)
    assert isinstance(made, Candidate)
    return made


def test_a_builder_that_is_killed_from_outside_blames_nobody(pool: BuildPool) -> None:
    pool.wait([pool.add(matmul(4))])
    (worker,) = pool.workers
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    before = worker.launched
    build = pool.add(matmul(8))
    os.kill(worker.pid, signal.SIGKILL)
    pool.wait([build])
    assert isinstance(build.outcome, Artifact), build.outcome
    assert worker.launched == before + 1


def test_a_builder_that_is_stopped_from_outside_blames_nobody(pool: BuildPool) -> None:
    pool.wait([pool.add(matmul(4))])
    (worker,) = pool.workers
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    before = worker.launched
    build = pool.add(matmul(8), seconds=2.0)
    pool.wait([build])
    assert build.killed
    assert isinstance(build.outcome, Artifact), build.outcome
    assert worker.launched == before + 1


def test_a_build_that_takes_too_long_is_not_begun_again(pool: BuildPool) -> None:
    n = 36
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    s = te.create_schedule(c.op)
    s[c].pragma(c.op.axis[0], "auto_unroll_max_step", n**3)  # LLVM needs seconds for that
    pool.wait([pool.add(matmul(4))])
    slow = Candidate(s.dag, s.trace_json(), tuple(s.arg_ids([a, b, c])), "main")
    build = pool.add(slow, seconds=0.3)
    pool.wait([build])
    assert not build.killed
    assert isinstance(build.outcome, MeasureError)
    assert build.outcome.kind == ErrorKind.BUILD_TIMEOUT


def test_a_builder_that_is_killed_again_is_a_crash() -> None:
    build = Build(matmul(4), 1.0)
    killed = WorkerFailure(FailureCause.KILLED, "by somebody")
    assert build.begins_again(killed)
    assert not build.begins_again(killed)
    build.finish(killed, 0.1)
    assert build.outcome == MeasureError(ErrorKind.BUILD_CRASH, "by somebody")
    stopped = WorkerFailure(FailureCause.STOPPED, "by somebody")
    build = Build(matmul(4), 1.0)
    assert build.begins_again(stopped)
    assert not build.begins_again(stopped)
    build.finish(stopped, 0.1)
    assert build.outcome == MeasureError(ErrorKind.BUILD_TIMEOUT, "by somebody")
    assert not Build(matmul(4), 1.0).begins_again(WorkerFailure(FailureCause.CRASH, "segfault"))


def test_a_kernel_beyond_the_limits_of_its_target_is_a_failed_trial() -> None:
    """It is lowered, and refused before it is compiled: no package of the target is needed."""
    a = te.placeholder((4096,), name="A")
    b = te.compute((4096,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].bind(s[b].split(b.op.axis[0], factor=512)[1], te.thread_axis("threadIdx.x"))
    role = BuildRole()
    role.answer(
        LowerRequest(
            dag=s.dag.hash,
            payload=json.dumps(s.dag.to_json()).encode(),
            trace=s.trace_json(),
            arg_ids=s.arg_ids([a, b]),
            target=Target("cuda -max_threads_per_block=256").canonical,
            name="main",
            passes=PassContext().to_json(),
        )
    )
    with pytest.raises(LowerError) as refused:
        role.answer(CompileRequest())
    failed = describe(refused.value, ErrorKind.COMPILE)
    assert failed.kind == ErrorKind.COMPILE
    assert "a block has 512 threads" in failed.text
    assert "max_threads_per_block is 256" in failed.text
    assert "no time on the device" in next_step(failed.kind, failed.text)
