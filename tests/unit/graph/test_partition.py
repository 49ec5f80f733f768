"""Programs that are cut for several devices, and run over them."""

from __future__ import annotations

import gc
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph, te
from loopwright.errors import ArgumentError, UsageError
from loopwright.executors import (
    Edge,
    Partition,
    PartitionedExecutor,
    Program,
    Step,
    Value,
    partition,
)
from loopwright.graph import op
from loopwright.runtime import Device, Module
from loopwright.runtime.memory import device_allocator
from loopwright.testing.simulated_device import SimulatedDevice

Array = np.ndarray[Any, Any]
N = 8


def _program(rng: np.random.Generator, steps: int, extents: list[int] | None = None) -> Program:
    """Each step reads two of the last values before it; the last value is the output."""
    sizes = extents or [N] * steps
    values = [Value("x", (N,), "int32", "input"), Value("w", (N,), "int32", "constant")]
    values += [Value(f"v{n}", (s,), "int32", "stored", 256 * n) for n, s in enumerate(sizes)]
    pairs = [rng.integers(max(0, n - 2), n + 2, 2) for n in range(steps)]
    calls = tuple(Step("f", (int(a), int(b), 2 + n)) for n, (a, b) in enumerate(pairs))
    return Program(tuple(values), calls, (0,), (1 + steps,), 256 * steps)


def _by_numpy(program: Program, x: Array, w: Array) -> Array:
    values = {0: x, 1: w}
    for step in program.steps:
        a, b, c = step.args
        values[c] = values[a] - values[b] * 2
    return values[program.outputs[0]]


@pytest.fixture(scope="module")
def subtract() -> Module:
    A, B = (te.placeholder((N,), "int32", name=n) for n in "AB")
    return lw.build([A, B, te.compute((N,), lambda i: A[i] - B[i] * 2, name="C")], "llvm")


@pytest.mark.parametrize("seed", range(8))
def test_cuts_are_close_to_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = _program(rng, 9, [int(n) for n in rng.integers(1, 50, 9)])
    loads = [int(n) for n in rng.integers(1, 5, 9)]
    found = partition(program, loads, [1, 1], tolerance=0.2)
    due, slack = sum(loads) / 2, 0.2 * sum(loads)
    assert abs(found.loads[0] - due) <= slack
    assert sum(found.loads) == sum(loads)
    moved = []
    for devices in itertools.product((0, 1), repeat=9):
        first = sum(load for load, d in zip(loads, devices, strict=True) if d == 0)
        if abs(first - due) <= slack:
            moved.append(Partition(program, devices, ()).bytes_moved)
    assert min(moved) <= found.bytes_moved <= sorted(moved)[len(moved) // 10]


def test_a_chain_is_cut_where_little_goes_over() -> None:
    sizes = [40, 40, 2, 40, 40, 40]
    values = [Value("x", (40,), "float32", "input")]
    values += [Value(f"v{n}", (s,), "float32", "stored", 256 * n) for n, s in enumerate(sizes)]
    steps = tuple(Step("f", (n, n + 1)) for n in range(6))
    program = Program(tuple(values), steps, (0,), (6,), 256 * 6)
    found = partition(program, [1] * 6, [1, 1])
    assert found.devices == (0, 0, 0, 1, 1, 1)
    assert found.communication_edges == (Edge(3, 0, 1),)
    assert found.bytes_moved == 8
    thirds = partition(program, [1] * 6, [1, 1, 1])
    assert thirds.loads == (2, 2, 2)
    assert partition(program, [1] * 6, [1]).devices == (0,) * 6
    assert partition(program, [1] * 6, [2, 1]).loads == (4, 2)


def test_a_value_that_two_steps_read_goes_over_once() -> None:
    values = [Value("x", (4,), "float32", "input")]
    values += [Value(f"v{n}", (4,), "float32", "stored", 64 * n) for n in range(3)]
    steps = (Step("f", (0, 1)), Step("f", (1, 2)), Step("g", (1, 2, 3)))
    program = Program(tuple(values), steps, (0,), (3,), 192)
    assert Partition(program, (0, 1, 1), (1, 2)).bytes_moved == 16


def test_what_makes_no_cut_is_refused(subtract: Module) -> None:
    program = _program(np.random.default_rng(0), 3)
    with pytest.raises(UsageError, match="a load of 0 or more for each of 3 steps"):
        partition(program, [1, 1], [1, 1])
    with pytest.raises(UsageError, match="capacities are above zero"):
        partition(program, [1, 1, 1], [1, 0])
    with pytest.raises(UsageError, match="tolerance is 1"):
        partition(program, [1, 1, 1], [1, 1], tolerance=1)
    cut = partition(program, [1, 1, 1], [1, 1])
    with pytest.raises(UsageError, match="is cut for 2 devices; there are 1"):
        PartitionedExecutor(cut, [{"f": subtract}], [lw.cpu(0)], {})


@pytest.mark.parametrize("seed", range(4))
def test_parts_of_the_host_give_what_numpy_gives(subtract: Module, seed: int) -> None:
    rng = np.random.default_rng(seed)
    program, count = _program(rng, 12), 2 + seed % 2
    cut = partition(program, [1] * 12, [1] * count)
    w = rng.integers(-9, 9, N, "int32")
    executor = PartitionedExecutor(cut, [{"f": subtract}] * count, [lw.cpu(0)] * count, {"w": w})
    assert not executor.get_output(0).numpy().any()  # until it runs
    for _ in range(3):
        x = rng.integers(-9, 9, N, "int32")
        executor.run(x=x)
        np.testing.assert_array_equal(executor.get_output(0).numpy(), _by_numpy(program, x, w))
    given, out = np.zeros(N, "int32"), np.empty(N, "int32")
    executor.set_input_zero_copy("x", given)
    executor.set_output_zero_copy(0, out)
    given[...] = x
    executor.run()
    np.testing.assert_array_equal(out, _by_numpy(program, x, w))


class _Simulated(SimpleNamespace):
    """A module of one function, which is itself."""

    def __getitem__(self, name: str) -> _Simulated:
        return self


def _on_a_device(kernel: Module) -> Any:
    """A kernel of simulated devices: it reads its arrays, and writes the last one."""

    def bind(a: Any, b: Any, c: Any) -> Any:
        assert a.device == b.device == c.device
        return lambda: c.copyfrom(a.numpy() - b.numpy() * 2)

    return _Simulated(artifact=kernel.artifact, entry_name=kernel.entry_name, bind=bind)


@pytest.mark.parametrize("types", [(12, 12), ("cpu", 12), (12, "cpu")])
def test_two_devices_with_memory_of_their_own(subtract: Module, types: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(5)
    program = _program(rng, 10)
    cut = partition(program, [1] * 10, [1, 1])
    assert set(cut.devices) == {0, 1}
    w, x = (rng.integers(-9, 9, N, "int32") for _ in range(2))
    with SimulatedDevice() as api:
        devices = [Device(t, n if t == 12 else 0) for n, t in enumerate(types)]
        kernels = [{"f": subtract if t == "cpu" else _on_a_device(subtract)} for t in types]
        executor = PartitionedExecutor(cut, kernels, devices, {"w": w})
        for _ in range(2):
            executor.run(x=x)
            np.testing.assert_array_equal(executor.get_output(0).numpy(), _by_numpy(program, x, w))
            x += 1
        assert api.calls["copy"] > 0
        del executor, kernels
        gc.collect()
        for n in range(2):
            device_allocator((12, n)).release_cached()


def test_a_model_is_cut_and_built_for_two_targets() -> None:
    rng = np.random.default_rng(6)
    x = graph.var("x", (4, 8))
    w = [rng.standard_normal((8, 8)).astype("float32") for _ in range(3)]
    y: Any = x
    for n, each in enumerate(w):
        y = op.nn.relu(op.nn.dense(y, graph.const(each, name=f"w{n}")))
    module = graph.IRModule.from_expr(y)
    targets = ["llvm -num-threads=1", "llvm -num-threads=2"]
    executor = graph.compile_partitioned(module, targets, capacities=[2, 1])
    assert executor.cut.devices == (0, 0, 1)
    data = rng.standard_normal((4, 8)).astype("float32")
    executor.run(x=data)
    wanted = data
    for each in w:
        wanted = np.maximum(wanted @ each.T, 0)
    np.testing.assert_allclose(executor.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="there are 2 targets and 1 capacities"):
        graph.compile_partitioned(module, targets, capacities=[1])
    with pytest.raises(ArgumentError, match="no output 'z'"):
        executor.get_output("z")
