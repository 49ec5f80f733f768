"""Builds of several kernels: the code of `build`, errors in order, and an end on Ctrl-C."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph, te
from loopwright.codegen import build as building
from loopwright.codegen import build_queue
from loopwright.codegen.build_queue import BuildQueue
from loopwright.codegen.kernel_cache import KernelCache
from loopwright.codegen.llvm import compiler
from loopwright.errors import CodegenError, InternalError
from loopwright.graph import building as model_building
from loopwright.graph.building import ModelBuilder
from loopwright.graph.kernels import kernel_tasks
from loopwright.graph.plan import plan
from loopwright.schedule import Schedule, create_schedule

TARGET = lw.Target("llvm")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    cache = KernelCache(tmp_path / "kernels")
    monkeypatch.setattr(building, "kernel_cache", lambda: cache)
    return cache


def times(factor: int) -> tuple[Schedule, list[te.Tensor]]:
    a = te.placeholder((8,), "float32", name="a")
    b = te.compute((8,), lambda i: a[i] * te.const(factor, "float32"), name="b")
    return create_schedule(b.op), [a, b]


def refuse(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let LLVM fail for functions of these names."""
    optimise = compiler._optimise

    def failing(text: str, *args: object) -> object:
        for name in names:
            if f"@{name}(" in text:
                raise InternalError(f"LLVM refused {name}")
        return optimise(text, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(compiler, "_optimise", failing)


def is_quiet() -> bool:
    """Whether no thread of a queue is left, and threads take turns as usual."""
    left = [t for t in threading.enumerate() if t.name.startswith("loopwright-build")]
    return not left and sys.getswitchinterval() == pytest.approx(0.005)


@pytest.mark.parametrize("waiting", [0, 16])
def test_code_is_that_of_build(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    monkeypatch.setattr(build_queue, "_WAITING", waiting)
    with BuildQueue() as queue:
        futures = [queue.build(*times(n), TARGET, f"f{n}") for n in range(3)]
    assert is_quiet()
    assert cache.misses == len(list(cache.folder.iterdir())) == 3
    for n, future in enumerate(futures):
        alone = lw.driver.build(*times(n), TARGET, name=f"f{n}", cache=False)
        assert future.result().artifact == alone.artifact
        out = np.zeros(8, "float32")
        future.result()(np.arange(8, dtype="float32"), out)
        assert list(out) == [float(n * i) for i in range(8)]


@pytest.mark.parametrize("waiting", [0, 16])
def test_the_error_of_the_first_kernel_that_failed_is_raised(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    monkeypatch.setattr(build_queue, "_WAITING", waiting)
    refuse(monkeypatch, "second", "third")
    s, args = times(4)
    bound = s[args[1]]
    bound.bind(bound.op.axis[0], te.thread_axis("threadIdx.x"))  # lowering refuses it at once

    def build_all() -> None:
        with BuildQueue() as queue:
            for n, name in enumerate(("first", "second", "third")):
                queue.build(*times(n), TARGET, name)
            queue.build(s, args, TARGET, "fourth")

    with pytest.raises(InternalError, match="LLVM refused second") as raised:
        build_all()
    fourth = isinstance(raised.value.__context__, CodegenError)
    assert fourth == bool(waiting), "it is not lowered where the error is known before"
    assert is_quiet()
    assert len(list(cache.folder.iterdir())) == 1, "what failed is not kept"


def test_an_interrupt_drops_what_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    optimise = compiler._optimise

    def slow(*args: object) -> object:
        begun.set()
        assert go_on.wait(60)
        return optimise(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(compiler, "_optimise", slow)
    futures = []

    def interrupted() -> None:
        with BuildQueue() as queue:
            futures.extend(queue.build(*times(n), TARGET, f"f{n}") for n in range(3))
            assert begun.wait(60)
            threading.Timer(0.05, go_on.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [f.cancelled() for f in futures] == [False, True, True]
    assert is_quiet()


def test_two_queues_at_once_restore_the_turns_of_threads() -> None:
    usual = sys.getswitchinterval()
    with BuildQueue():
        with BuildQueue():
            assert sys.getswitchinterval() < usual
        assert sys.getswitchinterval() < usual
    assert sys.getswitchinterval() == usual


def test_kernels_of_models_come_from_the_disk_and_failed_ones_are_built_again(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = graph.var("x", (4, 8))
    y = graph.op.nn.softmax(graph.op.matmul(x, np.eye(8, dtype="float32")))
    planned = plan(graph.transform.FuseOps(graph.IRModule.from_expr(y)))
    tasks = kernel_tasks(planned, TARGET)
    assert len(tasks) > 1
    monkeypatch.setattr(model_building, "schedule_of", lambda task: task.expression())
    builder = ModelBuilder(TARGET)
    with monkeypatch.context() as patch:
        refuse(patch, list(tasks)[-1])
        with pytest.raises(InternalError, match="LLVM refused"):
            builder.program(planned, tasks)
    assert len(builder.kernels) == len(tasks) - 1
    failed: Future[lw.runtime.Module] = Future()
    failed.set_exception(InternalError("at once"))
    queue = cast(BuildQueue, SimpleNamespace(build=lambda *args: failed))
    assert ModelBuilder(TARGET).kernel(next(iter(tasks.values()))[0], "f", queue) is failed
    data = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    first = builder.program(planned, tasks)(data)[0]
    monkeypatch.setattr(building, "_build", None)
    again = ModelBuilder(TARGET).program(planned, tasks)(data)[0]
    np.testing.assert_array_equal(again, first)
    expected = np.exp(data) / np.exp(data).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(first, expected, rtol=1e-5)
