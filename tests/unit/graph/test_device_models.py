"""Whole models on devices: what is copied when, streams, graphs, and what is refused."""

from __future__ import annotations

import ctypes
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import loopwright as lw
from loopwright import graph
from loopwright.errors import ArgumentError, OutOfMemoryError, TargetError, UsageError
from loopwright.executors import HostStep, Model, Program, Step, Value
from loopwright.executors.places import DevicePlace
from loopwright.runtime import Artifact, Module
from loopwright.runtime.artifacts.device_code import DeviceCode, LaunchSpec
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec, Manifest
from loopwright.runtime.devices import interface as registry
from loopwright.runtime.devices.cuda import CUDA, CudaAPI
from loopwright.runtime.profiling import counted_copies
from tests.pocl_kernels import needs_pocl
from tests.unit.runtime.devices.fake_cuda import FakeDriver
from tests.unit.runtime.devices.test_constants import scaled

N = 16
ONE = (1, 1, 1)
W = np.arange(N, dtype="float32")


def floats(address: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_float * N).from_address(address))


def add(a: int, w: int, b: int) -> None:
    floats(b)[:] = floats(a) + floats(w)


def kernel(arch: str = "sm_90") -> Module:
    """``f(A, W, B)``: B = A + W, and W is constant."""
    args = tuple(ArgSpec(n, (N,), "float32", n == "B", constant=n == "W") for n in "AWB")
    sources = tuple(("parameter", n) for n in range(3))
    code = DeviceCode(b"cubin", (LaunchSpec("add", ONE, (N, 1, 1), sources),), (), arch=arch)
    function = FunctionSpec("f", args, 0, 0, False, (), None)
    manifest = Manifest("cuda-cubin", "f", "", "", "", 1, (function,), 1)
    return Module(Artifact(manifest.to_json(), code.to_bytes()))


def model(arch: str = "sm_90", host: bool = False) -> Model:
    """x + 2 w, or with a step in Python between the additions -(x + w) + w."""
    kinds = {"x": "input", "w": "constant"}
    names = ["x", "w", "y", "z", "v"][: 5 if host else 4]
    values = tuple(
        Value(n, (N,), "float32", kinds.get(n, "stored"), 64 * max(at - 2, 0))  # type: ignore[arg-type]
        for at, n in enumerate(names)
    )
    steps = [Step("f", (0, 1, 2)), Step("f", (2, 1, 3))]
    if host:
        steps = [Step("f", (0, 1, 2)), Step("minus", (2, 4)), Step("f", (4, 1, 3))]
    program = Program(values, tuple(steps), (0,), (3,), 192)
    hosts = {"minus": HostStep("minus", lambda a: [-a], 1, "NumPy")} if host else {}
    return Model(program, {"f": kernel(arch)}, {"w": W}, hosts)


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    driver = FakeDriver(memory=1 << 28, devices=2)
    driver.kernels["add"] = add
    made = CudaAPI(driver, devices=2)
    monkeypatch.setattr(registry, "_makers", {**registry._makers, CUDA: lambda: made})
    monkeypatch.setattr(registry, "_made", {k: v for k, v in registry._made.items() if k != CUDA})
    return driver


@pytest.mark.parametrize("graphed", [False, True])
def test_a_run_copies_nothing_and_waits_for_nothing(gpus: FakeDriver, graphed: bool) -> None:
    built = model()
    with counted_copies() as copied:
        executor = built.executor("cuda:1", graph=graphed)
    assert copied.to_device == W.nbytes  # both steps read one copy of the weight
    x = lw.nd.array(np.ones(N, "float32"), device="cuda:1")
    consumer = lw.cuda(1).create_raw_stream().handle
    for turn in range(3):
        gpus.calls.clear()
        with counted_copies() as copied:
            executor.set_input("x", x)
            executor.run()
            found = executor.get_output(0)
            capsule = found.__dlpack__(stream=consumer)
        assert (copied.to_device, copied.to_host, copied.on_devices) == (0, 0, 2 * x.nbytes)
        waits = {"cuCtxSynchronize", "cuStreamSynchronize"} & set(gpus.calls)
        assert not waits or (graphed and not turn)  # a graph is recorded in the first run
        assert ("cuGraphLaunch" in gpus.calls) == (graphed and turn > 0)
        del capsule
        np.testing.assert_array_equal(found.numpy(), 1 + 2 * W)
    with counted_copies() as copied:
        built.executor("cuda:1")
    assert copied.to_device == 0  # weights are there


def test_memory_of_the_caller_is_used_as_it_is(gpus: FakeDriver) -> None:
    executor = model().executor(graph=True)
    executor.run(x=W)
    x, y = (lw.nd.array(np.zeros(N, "float32"), device="cuda") for _ in range(2))
    executor.set_input_zero_copy("x", x)
    executor.set_output_zero_copy(0, y)
    for factor in (1, 2):
        x.copyfrom(factor * W)
        with counted_copies() as copied:
            executor.run()
        assert copied.copies == 0
        np.testing.assert_array_equal(y.numpy(), (factor + 2) * W)
    executor.load_params({"w": 3 * W})
    executor.run()
    np.testing.assert_array_equal(y.numpy(), 8 * W)


def test_the_model_is_called_with_arrays_of_host_or_device(gpus: FakeDriver) -> None:
    built = model()
    (found,) = built(W)
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, 3 * W)
    (there,) = built(lw.nd.array(W, device="cuda:1"))
    assert there.device == lw.cuda(1)
    np.testing.assert_array_equal(there.numpy(), 3 * W)


def test_steps_in_python_copy_to_the_host_and_back(gpus: FakeDriver) -> None:
    built = model(host=True)
    executor = built.executor()
    executor.run(x=W)
    with counted_copies() as copied:
        executor.run()
    assert (copied.to_host, copied.to_device) == (W.nbytes, W.nbytes)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), -W)
    with pytest.raises(UsageError, match="step 'minus' runs in Python and cannot be recorded"):
        built.executor(graph=True)


def test_a_weight_that_no_step_reads_is_an_output_on_the_device(gpus: FakeDriver) -> None:
    values = (*model().program.values, Value("c", (N,), "float32", "constant"))
    program = Program(values, model().program.steps, (0,), (3, 4), 192)
    executor = Model(program, {"f": kernel()}, {"w": W, "c": W}).executor()
    executor.load_params({"c": 3 * W})
    with pytest.raises(ArgumentError, match="'output_1' is an input, a constant, or another"):
        executor.set_output_zero_copy(1, W)
    found: Any = executor.get_output(1)
    assert found.device == lw.cuda(0)
    np.testing.assert_array_equal(found.numpy(), 3 * W)


def test_weights_are_shared_on_one_device_alone(gpus: FakeDriver) -> None:
    built = model()
    first, second = built.executor(), built.executor()
    second.load_params({"w": 2 * W})
    workspace = first._buffers
    first.share_params(second)
    assert first._buffers is workspace
    first.run(x=W)
    np.testing.assert_array_equal(first.get_output(0).numpy(), 5 * W)
    with pytest.raises(ArgumentError, match=r"the other executor does not run on cuda\(0\)"):
        first.share_params(built.executor("cuda:1"))


def test_weights_change_nothing_where_there_is_no_workspace(
    gpus: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = model().executor()
    with monkeypatch.context() as patch:
        patch.setattr(DevicePlace, "workspace", Mock(side_effect=OutOfMemoryError))
        executor.load_params({"x": W})
        with pytest.raises(OutOfMemoryError):
            executor.load_params({"w": 2 * W})
    for one in (executor, executor.another()):
        one.run(x=W)
        np.testing.assert_array_equal(one.get_output(0).numpy(), 3 * W)


def test_what_does_not_fit_is_refused(gpus: FakeDriver) -> None:
    built = model()
    executor = built.executor()
    with pytest.raises(UsageError, match=r"cuda\(5\) cannot be used"):
        built.executor("cuda:5")
    with pytest.raises(UsageError, match=r"built for cuda, and cannot run on cpu\(0\)"):
        built.executor("cpu")
    with pytest.raises(TargetError, match="the kernels are for sm_80"):
        model("sm_80").executor()
    with pytest.raises(ArgumentError, match=r"lies on cuda\(1\), and the model runs on cuda\(0\)"):
        executor.set_input("x", lw.nd.array(W, device="cuda:1"))
    with pytest.raises(ArgumentError, match="lies on the host, and the model runs on"):
        executor.set_input_zero_copy("x", W)
    for other in (built.aot_executor, built.debug_executor):
        with pytest.raises(UsageError, match="built for cuda, where executor"):
            other()


def test_too_little_memory_says_how_much_and_what_for(gpus: FakeDriver) -> None:
    gpus._left = 0
    with pytest.raises(OutOfMemoryError, match=r"no room for buffers \(1 bytes, 0 are free"):
        DevicePlace(lw.cuda()).memory(model().program, "buffers", 0)
    with pytest.raises(OutOfMemoryError, match=r"no room for .* the model takes 64 bytes of weig"):
        model().executor()


def test_options_for_cpus_are_refused() -> None:
    x = graph.var("x", (2,))
    module = graph.IRModule.from_expr(graph.op.add(x, x))
    with pytest.raises(UsageError, match="finalists= is supported only for CPU targets"):
        graph.compile(module, "cuda -arch=sm_90", finalists=2)


@pytest.mark.skipif(not lw.opencl().exist, reason="no OpenCL device")
def test_a_model_for_opencl_is_that_of_the_cpu(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    x, w = graph.var("x", (4, 8)), rng.standard_normal((6, 8)).astype("float32")
    module = graph.IRModule.from_expr(graph.op.nn.relu(graph.op.nn.dense(x, w)))
    given = rng.standard_normal((4, 8)).astype("float32")
    path = graph.compile(module, "opencl").save(tmp_path / "model.lw")
    loaded = graph.load(path)
    np.testing.assert_allclose(loaded(given)[0], np.maximum(given @ w.T, 0), rtol=1e-4, atol=1e-5)
    with pytest.raises(UsageError, match="records no graphs"):
        loaded.executor(graph=True)


@needs_pocl
def test_a_weight_that_is_packed_stays_on_the_host_for_steps_in_python() -> None:
    kinds = {"x": "input", "w": "constant", "y": "stored", "z": "stored"}
    values = tuple(
        Value(n, (64,), "float32", kind, 256 * (n == "z"))  # type: ignore[arg-type]
        for n, kind in kinds.items()
    )
    program = Program(values, (Step("f", (0, 1, 2)), Step("minus", (2, 1, 3))), (0,), (3,), 512)
    minus = HostStep("minus", lambda a, b: [a - b], 1, "NumPy")
    built = Model(program, {"f": scaled("opencl")}, {"w": np.ones(64, "float32")}, {"minus": minus})
    executor = built.executor()
    assert not executor._placed.weights
    executor.run(x=np.ones(64, "float32"))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), np.full(64, 2))


def test_a_step_may_give_a_number_of_numpy_on_a_device(gpus: FakeDriver) -> None:
    x = lw.nd.array(np.arange(N, dtype="float32"), device="cuda:0")
    total = lw.nd.empty((), "float32", device="cuda:0")
    HostStep("sum", lambda a: [a.sum()], 1, "NumPy").bind(x, total)()
    assert total.numpy() == N * (N - 1) / 2
