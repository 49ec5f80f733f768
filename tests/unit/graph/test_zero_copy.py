"""Arrays of the caller that executors use without a copy: what may overlap, what is kept alive."""

from __future__ import annotations

import gc
import mmap
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph, te
from loopwright.errors import ArgumentError, RunError
from loopwright.executors import (
    AotExecutor,
    AsyncGraphExecutor,
    Executor,
    HostStep,
    Model,
    PartitionedExecutor,
    Program,
    Step,
    Value,
    partition,
)
from tests.unit.graph.test_device_models import gpus as gpus
from tests.unit.graph.test_device_models import model as device_model
from tests.unit.runtime.devices.fake_cuda import FakeDriver

Array = np.ndarray[Any, Any]
N = 16
W = np.arange(N, dtype="int32")
KINDS = (
    *("executor", "another", "debug", "async", "async_shared", "aot", "another_aot", "saved"),
    *("partitioned", "host_steps"),
)


def _program() -> Program:
    """Both outputs are made of two steps, and the second one reads inputs after the first."""
    values = [Value(n, (N,), "int32", "input") for n in "xy"]
    values += [Value("w", (N,), "int32", "constant")]
    values += [Value(f"v{n}", (N,), "int32", "stored", 64 * n) for n in range(4)]
    steps = (Step("f", (0, 2, 3)), Step("f", (3, 1, 4)), Step("f", (1, 0, 5)), Step("f", (5, 2, 6)))
    return Program(tuple(values), steps, (0, 1), (4, 6), 256, ("first", "second"))


def _by_numpy(x: Array, y: Array, w: Array = W) -> list[Array]:
    return [(x - w * 2) - y * 2, (y - x * 2) - w * 2]


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> Iterator[None]:
    """Collections look at what this file makes: the objects of PyTorch are many."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def model() -> Model:
    A, B = (te.placeholder((N,), "int32", name=n) for n in "AB")
    f = lw.build([A, B, te.compute((N,), lambda i: A[i] - B[i] * 2, name="C")], "llvm")
    return Model(_program(), {"f": f}, {"w": W.copy()})


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, model: Model, tmp_path: Path) -> Executor:
    """An executor of each class."""
    kind, kernels = request.param, dict(model.kernels)
    cut = partition(model.program, [1] * 4, [1, 1])
    makers: dict[str, Callable[[], Executor]] = {
        "executor": model.executor,
        "another": lambda: model.executor().another(),
        "debug": model.debug_executor,
        "async": lambda: model.async_executor(2),
        "async_shared": lambda: model.async_executor(2, share_memory=True),
        "aot": model.aot_executor,
        "another_aot": lambda: model.aot_executor().another(),
        "saved": lambda: graph.load(model.save(tmp_path / "m.lw")).executor(),  # type: ignore[union-attr]
        "partitioned": lambda: PartitionedExecutor(
            cut, [kernels] * 2, [lw.cpu(0)] * 2, model.constants
        ),
        "host_steps": lambda: Model(
            model.program,
            {},
            model.constants,
            {"f": HostStep("f", lambda a, b: [a - b * 2], 1, "NumPy")},
        ).executor(),
    }
    return makers[kind]()


def _memory() -> Array:
    return np.zeros(4 * N, "int32")


def _check_runs(executor: Executor) -> None:
    """It still gives what NumPy gives, by copies as well."""
    x, y = np.arange(N, dtype="int32") * 3, np.arange(N, dtype="int32")[::-1].copy()
    executor.run(x=x, y=y)
    for n, wanted in enumerate(_by_numpy(x, y)):
        np.testing.assert_array_equal(np.asarray(executor.get_output(n)), wanted)


def test_memory_that_a_step_reads_or_another_output_has_is_refused(made: Executor) -> None:
    memory = _memory()
    place, shifted, apart = memory[:N], memory[N // 2 : N // 2 + N], memory[2 * N : 3 * N]
    reversed_view = memory[: 2 * N].reshape(2, N)[::-1][1]  # the same bytes by another way
    made.set_input_zero_copy("x", place)
    made.set_input_zero_copy("y", shifted)  # what is read may overlap
    for written in (place, shifted, reversed_view, memory[N - 1 : 2 * N - 1]):
        with pytest.raises(ArgumentError, match=r"output '(first|second)' overlaps input '[xy]'"):
            made.set_output_zero_copy("first", written)
        with pytest.raises(ArgumentError, match="output 'second' overlaps input"):
            made.set_output_zero_copy(1, written)
    made.set_output_zero_copy("first", apart)
    made.set_output_zero_copy("first", apart)  # its own memory
    for written in (apart, memory[2 * N + 1 : 3 * N + 1]):
        with pytest.raises(ArgumentError, match="output 'second' overlaps output 'first'"):
            made.set_output_zero_copy("second", written)
        with pytest.raises(ArgumentError, match="input 'y' overlaps output 'first'"):
            made.set_input_zero_copy("y", written)
    memory[:] = np.arange(4 * N)
    x, y = place.copy(), shifted.copy()
    made.run()
    np.testing.assert_array_equal(apart, _by_numpy(x, y)[0])
    np.testing.assert_array_equal(np.asarray(made.get_output(1)), _by_numpy(x, y)[1])
    made.set_output_zero_copy("second", memory[3 * N :])  # neighbours that share no byte
    made.run()
    np.testing.assert_array_equal(memory[3 * N :], _by_numpy(x, y)[1])
    np.testing.assert_array_equal(place, x)


@pytest.mark.parametrize("made", [k for k in KINDS if k != "saved"], indirect=True)
def test_constants_are_not_written(made: Executor, model: Model) -> None:
    with pytest.raises(ArgumentError, match="output 'first' overlaps constant 'w'"):
        made.set_output_zero_copy(0, model.constants["w"])
    made.set_input_zero_copy("x", model.constants["w"])  # may be read
    y = np.full(N, 5, "int32")
    made.run(y=y)
    np.testing.assert_array_equal(np.asarray(made.get_output(0)), _by_numpy(W, y)[0])
    np.testing.assert_array_equal(model.constants["w"], W)


def test_weights_that_are_shared_later_are_not_written(model: Model) -> None:
    kernels, weight = dict(model.kernels), np.ones(N, "int32")
    other = Model(model.program, kernels, {"w": weight}).executor()
    one = model.executor()
    one.set_output_zero_copy(0, weight)
    with pytest.raises(ArgumentError, match="output 'first' overlaps constant 'w'"):
        one.share_params(other)
    _check_runs(one)
    one.load_params({"w": weight})  # copied
    one.run()
    one.set_output_zero_copy(0, np.zeros(N, "int32"))
    one.share_params(other)
    with pytest.raises(ArgumentError, match="overlaps constant 'w'"):
        one.set_output_zero_copy(0, weight)


def test_copies_in_and_out_leave_the_memory_of_others(made: Executor) -> None:
    x, y = np.arange(N, dtype="int32"), np.ones(N, "int32")
    x.flags.writeable = False
    made.set_input_zero_copy("x", x)
    made.set_input_zero_copy("y", y)
    made.set_input(None, None, x=y, y=x)  # each from what the other one was
    made.run()
    np.testing.assert_array_equal(np.asarray(made.get_output(0)), _by_numpy(y, x)[0])
    assert y.tolist() == [1] * N
    assert x.tolist() == [*range(N)]
    copies = [np.asarray(made.get_output(n)) for n in (0, 1)]
    copies += [np.asarray(made.get_input(n)) for n in (0, 1)]
    made.set_input_zero_copy("x", copies[0])  # the caller's own, so that nothing is written there
    kept = copies[0].copy()
    made.run(y=y)
    np.testing.assert_array_equal(copies[0], kept)
    np.testing.assert_array_equal(np.asarray(made.get_output(1)), _by_numpy(kept, y)[1])


def test_arrays_live_as_long_as_they_are_bound(made: Executor) -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 16)
        mapped = mmap.mmap(file.fileno(), 1 << 16)
    given = np.ndarray((N,), "int32", mapped)
    given[:] = range(N)
    made.set_input_zero_copy("x", given)
    made.set_input_zero_copy("y", np.full(N, 7, "int32"))
    out = np.zeros((4, N), "int32")
    made.set_output_zero_copy(0, out[2])
    wanted = _by_numpy(given.copy(), np.full(N, 7))[0]
    del given
    with pytest.raises(BufferError):
        mapped.close()
    gc.collect()
    litter = [np.full(N, -1, "int32") for _ in range(200)]  # takes memory that is free
    made.run()
    np.testing.assert_array_equal(out[2], wanted)
    assert not out[[0, 1, 3]].any()
    made.set_input("x", litter[0])
    gc.collect()
    mapped.close()  # nobody reads it any more
    _check_runs(made)


def test_arrays_of_a_bound_call_live_as_long(model: Model) -> None:
    mapped = mmap.mmap(-1, 1 << 16)
    a, b = (np.ndarray((N,), "int32", mapped, offset) for offset in (0, 4096))
    a[:], b[:] = W, 1
    out = np.zeros(N, "int32")
    call = model.kernels["f"].bind(a, b, out)
    del a, b
    with pytest.raises(BufferError):
        mapped.close()
    for _ in range(50):  # as well where it runs in compiled code
        call()
    np.testing.assert_array_equal(out, W - 2)
    del call
    gc.collect()
    mapped.close()


def test_tensors_of_pytorch_live_as_long_as_they_are_bound(made: Executor) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.arange(N, dtype=torch.int32), torch.full((N,), 3, dtype=torch.int32)
    out = torch.zeros(N, dtype=torch.int32)
    made.set_input_zero_copy("x", x)
    made.set_input_zero_copy("y", y)
    made.set_output_zero_copy(0, out)
    with pytest.raises(ArgumentError, match="output 'second' overlaps input 'x'"):
        made.set_output_zero_copy(1, x)
    wanted = _by_numpy(x.numpy().copy(), y.numpy().copy())[0]
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(4096)
    x.data = torch.zeros(1, dtype=torch.int32)  # its memory is another one now
    del y
    litter = [torch.full((N,), -1, dtype=torch.int32) for _ in range(200)]
    made.run()
    np.testing.assert_array_equal(out.numpy(), wanted)
    assert len(litter) == 200


def test_what_makes_no_array_is_refused_in_our_words(model: Model) -> None:
    torch = pytest.importorskip("torch")
    executor = model.executor()
    for given in (torch.ones(N, requires_grad=True), [[1], [2, 3]]):
        with pytest.raises(ArgumentError, match="'x': "):
            executor.set_input("x", given)


def test_runs_that_go_on_at_once_share_nothing_that_is_written(model: Model) -> None:
    shared, apart = np.zeros(N, "int32"), np.zeros(N, "int32")
    first, second, third = (model.async_executor(2) for _ in range(3))
    gate = threading.Event()

    def held(executor: AsyncGraphExecutor) -> None:
        calls = list(executor._calls)
        executor._calls = [lambda call=call: gate.wait(20) and call() for call in calls]

    first.set_output_zero_copy(0, shared)
    second.set_output_zero_copy(0, shared)
    third.set_input_zero_copy("x", shared)
    held(first)
    running = first.run_async(x=W, y=W)
    with pytest.raises(RunError, match="'first' overlaps output 'first' of another executor"):
        second.run_async(x=W, y=W)
    with pytest.raises(RunError, match="input 'x' overlaps output 'first' of another executor"):
        third.run_async(y=W)
    for touch in (
        lambda: first.set_input("x", W),
        lambda: first.set_input_zero_copy("x", W),
        lambda: first.set_output_zero_copy(0, apart),
        lambda: first.get_output(1),
        lambda: first.share_params(second),
    ):
        with pytest.raises(RunError, match="the last run has not ended"):
            touch()
    second.set_output_zero_copy(0, apart)
    second.run_async(x=W, y=W).result(timeout=20)
    gate.set()
    running.result(timeout=20)
    np.testing.assert_array_equal(shared, _by_numpy(W, W)[0])
    np.testing.assert_array_equal(apart, shared)
    x = shared.copy()
    third.run_async(y=W).result(timeout=20)
    np.testing.assert_array_equal(np.asarray(third.get_output(1)), _by_numpy(x, W)[1])
    two = [model.async_executor(2) for _ in range(2)]
    for one in two:
        one.set_input_zero_copy("x", x)  # both read
    for future in [one.run_async(y=W) for one in two]:
        future.result(timeout=20)


def test_batches_have_executors_of_their_own() -> None:
    x = graph.var("x", (te.size_var("batch"), 4))
    y = graph.op.nn.softmax(graph.op.nn.softmax(x, axis=1), axis=1)
    model = graph.compile(graph.IRModule.from_expr(y), "llvm", batches=(2,))
    for batch in (2, 3):
        executor, memory = model.executor(batch), np.ones((batch + 1, 4), "float32")
        executor.set_input_zero_copy("x", memory[:batch])
        with pytest.raises(ArgumentError, match="overlaps input 'x'"):
            executor.set_output_zero_copy(0, memory[1:])
        out = np.zeros((batch, 4), "float32")
        executor.set_output_zero_copy(0, out)
        executor.run()
        np.testing.assert_allclose(out, 0.25, rtol=1e-6)


def test_two_executors_feed_each_other(model: Model) -> None:
    a, b, y = (np.arange(N, dtype="int32") + n for n in (0, 5, 9))
    one, other = model.executor(), model.executor()
    for executor, read, written in ((one, a, b), (other, b, a)):
        executor.set_input_zero_copy("x", read)
        executor.set_input_zero_copy("y", y)
        executor.set_output_zero_copy(0, written)
    wanted = a.copy()
    for executor in (one, other, one):
        executor.run()
        wanted = _by_numpy(wanted, y)[0]
    np.testing.assert_array_equal(b, wanted)


@pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler here links libraries"
)
def test_a_library_refuses_what_overlaps(model: Model, tmp_path: Path) -> None:
    module = lw.load_module(model.export_library(tmp_path / "net.so"))
    executor, memory = AotExecutor(module), _memory()
    executor.set_input_zero_copy("x", memory[:N])
    with pytest.raises(ArgumentError, match="output 'first' overlaps input 'x'"):
        executor.set_output_zero_copy("first", memory[1 : N + 1])
    _check_runs(executor)
    x, first = memory[:N], memory[N : 2 * N]
    for call in (module, module.bind):
        for second in (first, x, memory[N // 2 : N // 2 + N]):
            with pytest.raises(ArgumentError, match="overlap"):
                call(x, x, first, second)
        call(x, x, first, memory[2 * N : 3 * N])


def test_memory_of_a_device_overlaps_wherever_its_handle_begins(gpus: FakeDriver) -> None:
    executor = device_model().executor()
    whole = lw.nd.empty((64,), "float32", "cuda")
    address = whole.memory.address

    def at(first: int) -> Any:
        """The elements as another library hands them over: with an address of their own."""
        api, nbytes = lw.cuda().api, 4 * N
        memory = api.adopt(0, address + 4 * first, 0, nbytes, whole)
        return lw.runtime.DeviceArray(memory, (N,), "float32", lw.cuda(), whole)

    executor.set_input_zero_copy("x", at(0))
    for first in (0, 4, 12):
        with pytest.raises(ArgumentError, match=r"output 'output_0' overlaps input 'x'"):
            executor.set_output_zero_copy(0, at(first))
    there = executor._placed.weights
    with pytest.raises(ArgumentError, match="overlaps constant 'w'"):
        executor.set_output_zero_copy(0, there[1])
    with pytest.raises(ArgumentError, match="overlaps the memory of argument"):
        device_model().kernels["f"].with_constants(np.ones(N, "float32")).bind(at(0), at(4))
    out = at(16)
    executor.set_output_zero_copy(0, out)
    executor.run(x=np.ones(N, "float32"))  # into memory of its own
    np.testing.assert_array_equal(out.numpy(), 1 + 2 * np.arange(N, dtype="float32"))


def test_what_a_compiled_function_gave_is_its_next_input() -> None:
    torch = pytest.importorskip("torch")
    f = torch.compile(lambda h: torch.relu(h) * 0.5 + 1, backend="loopwright")
    h = torch.linspace(-1, 1, 1 << 16)
    for _ in range(4):
        wanted, h = torch.relu(h) * 0.5 + 1, f(h)
        torch.testing.assert_close(h, wanted)
