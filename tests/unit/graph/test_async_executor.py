"""Steps side by side: random programs with random delays give what one step after another gives."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph, te
from loopwright.errors import RunError, UsageError
from loopwright.executors import (
    AsyncGraphExecutor,
    GraphExecutor,
    Program,
    Step,
    Value,
    graph_executor,
)
from loopwright.executors.callees import dependencies, independent_runs
from loopwright.executors.program import share_out
from loopwright.graph import op
from loopwright.runtime import Module

Array = np.ndarray[Any, Any]
N = 8


@pytest.fixture(scope="module")
def subtract() -> Module:
    """``C = A - 2 B`` modulo 2^32, which notices the order of its operands."""
    A, B = (te.placeholder((N,), "int32", name=n) for n in "AB")
    return lw.build([A, B, te.compute((N,), lambda i: A[i] - B[i] * 2, name="C")], "llvm")


def _random_program(rng: np.random.Generator, steps: int) -> Program:
    """Each step reads two of the values before it; the last five that nobody reads are outputs."""
    reads = [rng.integers(0, 2 + n, 2) for n in range(steps)]
    outputs = tuple(range(2 + steps - 5, 2 + steps))
    lives = {2 + n: (n, n) for n in range(steps)}
    for at, pair in enumerate(reads):
        for n in pair:
            if n >= 2:
                lives[int(n)] = (int(n) - 2, at)
    lives |= {n: (n - 2, steps) for n in outputs}
    offsets, size = share_out(dict.fromkeys(lives, 4 * N), lives)
    values = [Value(name, (N,), "int32", "input") for name in "xy"]
    values += [Value(f"v{n}", (N,), "int32", "stored", offsets[2 + n]) for n in range(steps)]
    calls = [Step("f", (int(a), int(b), 2 + n)) for n, (a, b) in enumerate(reads)]
    return Program(tuple(values), tuple(calls), (0, 1), outputs, size)


def _by_numpy(program: Program, x: Array, y: Array) -> list[Array]:
    values = {0: x, 1: y}
    for step in program.steps:
        a, b, c = step.args
        values[c] = values[a] - values[b] * 2
    return [values[n] for n in program.outputs]


def _delayed(call: Callable[[], object], seconds: float) -> Callable[[], object]:
    def run() -> object:
        time.sleep(seconds)
        return call()

    return run


@pytest.mark.parametrize("share_memory", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_random_programs_with_delays(subtract: Module, seed: int, share_memory: bool) -> None:
    rng = np.random.default_rng(seed)
    program = _random_program(rng, 30)
    workers = int(rng.integers(1, 9))
    executor = AsyncGraphExecutor(program, {"f": subtract}, {}, workers, share_memory)
    executor._calls = [
        _delayed(c, s) for c, s in zip(executor._calls, rng.random(30) / 2e3, strict=True)
    ]
    for _ in range(4):
        x, y = (rng.integers(-99, 99, N, "int32") for _ in range(2))
        executor.run(x=x, y=y)
        for n, wanted in enumerate(_by_numpy(program, x, y)):
            np.testing.assert_array_equal(executor.get_output(n).numpy(), wanted)


def test_a_step_waits_for_what_it_reads_and_for_those_whose_memory_it_takes() -> None:
    a, b, c, d = (
        Value(n, (16,), "float32", "stored", at)
        for n, at in zip("abcd", (0, 64, 0, 128), strict=True)
    )
    x = Value("x", (16,), "float32", "input")
    values = (x, a, b, c, d)
    steps = (Step("f", (0, 1)), Step("f", (1, 2)), Step("f", (0, 3)), Step("f", (2, 3, 4)))
    program = Program(values, steps, (0,), (4,), 192)
    own = dependencies(program.steps)
    assert own.waits == (0, 1, 0, 2)
    assert own.after == ((1,), (3,), (3,), ())
    shared = dependencies(program.steps, program.values)
    assert shared.after == ((1, 2, 3), (2, 3), (3,), ())


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_steps_on_the_pool_give_what_numpy_gives(subtract: Module, seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = _random_program(rng, 30)
    executor = GraphExecutor(program, {"f": subtract}, {})
    executor._groups = tuple(independent_runs(program.steps, program.values))
    assert executor._groups
    for _ in range(50):
        x, y = (rng.integers(-99, 99, N, "int32") for _ in range(2))
        executor.run(x=x, y=y)
        for n, wanted in enumerate(_by_numpy(program, x, y)):
            np.testing.assert_array_equal(executor.get_output(n).numpy(), wanted)


def test_groups_are_of_steps_that_do_not_wait_for_each_other() -> None:
    program = _random_program(np.random.default_rng(9), 40)
    order = dependencies(program.steps, program.values)
    groups = independent_runs(program.steps, program.values)
    assert groups
    for group in groups:
        assert not any(set(order.after[n]) & set(group) for n in group)
        if group.stop < len(program.steps):  # the next step waits for one of the group
            assert any(group.stop in order.after[n] for n in group)


def test_groups_are_chosen_by_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    x = graph.var("x", (4, 4))
    y = op.add(op.nn.softmax(x, axis=0), op.nn.softmax(x, axis=1))
    executor = graph.compile(graph.IRModule.from_expr(y), "llvm").executor()
    wanted = (tuple(step.kernel for step in executor.program.steps[:2]),)
    for faster in (True, False):
        monkeypatch.setattr(graph_executor, "_faster_together", lambda *_, f=faster: f)
        assert executor.run_side_by_side() == (wanted if faster else ())
        executor.run(x=np.zeros((4, 4), "float32"))
        np.testing.assert_array_equal(executor.get_output(0).numpy(), 0.5)


def test_calls_share_a_workspace_and_those_of_a_group_have_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = 4096
    a = te.placeholder((size,), name="A")
    b = te.compute((size,), lambda i: a[i] + 1, name="B")
    c = te.compute((size,), lambda i: b[i] * b[size - 1 - i], name="C")
    kernel = lw.build(te.create_schedule(c.op), [a, c], "llvm")
    values = [Value("x", (size,), "float32", "input")]
    values += [Value(f"v{n}", (size,), "float32", "stored", 4 * size * n) for n in range(3)]
    steps = (Step("f", (0, 1)), Step("f", (0, 2)), Step("f", (1, 3)))
    program = Program(tuple(values), steps, (0,), (2, 3), 12 * size)
    executor = GraphExecutor(program, {"f": kernel}, {})
    assert len({call.workspace for call in executor._calls}) == 1
    monkeypatch.setattr(graph_executor, "_faster_together", lambda *_: True)
    assert executor.run_side_by_side() == (("f", "f"),)
    x = np.random.default_rng(0).standard_normal(size).astype("float32")
    once = (x + 1) * (x + 1)[::-1]
    for _ in range(2):
        assert len({call.workspace for call in executor._calls}) == 3
        executor.run(x=x)
        np.testing.assert_array_equal(executor.get_output(0).numpy(), once)
        np.testing.assert_array_equal(executor.get_output(1).numpy(), (once + 1) * (once + 1)[::-1])
        executor.set_input_zero_copy("x", x.copy())  # binds the first two steps again
    beside = AsyncGraphExecutor(program, {"f": kernel}, {}, 2)
    assert len({call.workspace for call in beside._calls}) == 3


def test_steps_run_beside_each_other(subtract: Module) -> None:
    values = [Value(name, (N,), "int32", "input") for name in "xy"]
    values += [Value("v", (N,), "int32", "stored", 64 * n) for n in range(2)]
    steps = (Step("f", (0, 1, 2)), Step("f", (1, 0, 3)))
    program = Program(tuple(values), steps, (0, 1), (2, 3), 128)
    executor = AsyncGraphExecutor(program, {"f": subtract}, {}, 2)
    both = threading.Barrier(2, timeout=20)
    executor._calls = [both.wait, both.wait]  # each ends when the other one has begun
    executor.run()


def test_a_failure_ends_the_run_and_is_raised_when_all_has_ended(subtract: Module) -> None:
    program = _random_program(np.random.default_rng(0), 12)
    executor = AsyncGraphExecutor(program, {"f": subtract}, {}, 3)
    ended: list[int] = []

    def fail() -> None:
        raise RunError("the third step failed")

    calls: list[Callable[[], object]] = [lambda n=n: ended.append(n) for n in range(12)]
    calls[2] = fail
    executor._calls = calls
    with pytest.raises(RunError, match="the third step failed"):
        executor.run()
    count = len(ended)
    time.sleep(0.01)
    assert len(ended) == count < 12


def test_one_run_at_a_time(subtract: Module) -> None:
    program = _random_program(np.random.default_rng(1), 6)
    executor = AsyncGraphExecutor(program, {"f": subtract}, {}, 2)
    gate = threading.Event()
    executor._calls = [lambda: gate.wait(20)] * 6
    future = executor.run_async()
    with pytest.raises(RunError, match="the last run has not ended"):
        executor.run()
    gate.set()
    future.result(timeout=20)
    with pytest.raises(UsageError):
        AsyncGraphExecutor(program, {"f": subtract}, {}, 0)


def test_an_executor_that_nobody_has_leaves_no_threads(subtract: Module) -> None:
    program = _random_program(np.random.default_rng(1), 6)
    before = set(threading.enumerate())
    futures = [
        AsyncGraphExecutor(program, {"f": subtract}, {}, 2).run_async()  # dropped while it runs
        for _ in range(5)
    ]
    for future in futures:
        future.result(timeout=20)
    del futures, future
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("loopwright-step"):
            thread.join(20)
            assert not thread.is_alive()


def test_a_model_with_branches_gives_what_the_graph_executor_gives() -> None:
    rng = np.random.default_rng(2)
    x = graph.var("x", (1, 4, 6, 6))
    branches = [op.nn.softmax(x, axis=axis) for axis in (1, 2, 3)]
    model = graph.compile(graph.IRModule.from_expr(op.concatenate(*branches, axis=1)), "llvm")
    one, many = model.executor(), model.async_executor(num_workers=3)
    for executor in (many, many.another()):
        image = rng.standard_normal((1, 4, 6, 6)).astype("float32")
        one.run(x=image)
        executor.run(x=image)
        np.testing.assert_array_equal(executor.get_output(0).numpy(), one.get_output(0).numpy())
