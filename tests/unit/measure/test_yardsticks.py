"""What devices can do at most: the kernels do their work, and their rates are what they should be.

On a simulated device a kernel takes as long as moving its arrays, so that rates are known there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from loopwright import build, lower, runtime, te
from loopwright.codegen import Code
from loopwright.codegen.backends import unregister_backend
from loopwright.codegen.gpu.split import split_host_device
from loopwright.codegen.manifests import device_code
from loopwright.driver import Backend, register_backend
from loopwright.errors import BuildError, OutOfMemoryError, RunError, UsageError
from loopwright.history.call_overhead import time_as_called
from loopwright.lowering.gpu_limits import limits_of
from loopwright.measure import ErrorKind, MeasureError, PlayoffPlan, device_limit
from loopwright.measure.device_limit import YardstickProgram
from loopwright.measure.playoff import Playoff
from loopwright.measure.workers.device_kernels import Yardstick
from loopwright.runtime import (
    ArtifactKind,
    Device,
    register_artifact_kind,
    unregister_artifact_kind,
)
from loopwright.target import Kind, Option, Target
from loopwright.testing.simulated_device import BANDWIDTH, SimulatedDevice
from tests.unit.measure.device_kernels import needs_opencl

THREADS = 16
DEVICE = Device("ext_dev", 0)
_OPTIONS = {"max_threads_per_block": Option(int, "threads of a block")}
KIND = Kind("yardsim", ("yardsim", "gpu"), _OPTIONS, {"max_threads_per_block": THREADS})
ARTIFACTS = ArtifactKind("yardsim-names", "yardsim", "sim", "program", device="ext_dev")


def _compile(program: Any, target: Target) -> Code:
    split = split_host_device(program.func, "yardsim")
    names = "\n".join(kernel.name for kernel in split.kernels)
    return Code(device_code(split, names.encode()).to_bytes(), {})


@pytest.fixture(autouse=True)
def _target() -> Iterator[None]:
    """A target whose code is the names of its kernels."""
    register_artifact_kind(ARTIFACTS)
    register_backend(Backend(KIND, ARTIFACTS.name, _compile, lambda t: limits_of(t.options)))
    yield
    unregister_backend("yardsim")
    unregister_artifact_kind(ARTIFACTS.name)


class Launched:
    """The kernels of a simulated device; notes with how many blocks they are launched."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.wrong: list[str] = []

    def copy(self, grid: Any, block: Any, values: Any) -> None:
        self.blocks.append(grid[0])
        values[1][:] = values[0]
        if not values[0].all() or block[0] != THREADS:
            self.wrong.append(f"a copy of zeros, or with {block} threads")

    def multiply_adds(self, grid: Any, block: Any, values: Any) -> None:
        self.blocks.append(grid[0])
        given = values[0].view(np.float32)
        if (given != np.arange(1, given.size + 1)).any():
            self.wrong.append(f"operands {given}")


@contextmanager
def simulated(memory_limit: int, **attributes: int) -> Iterator[tuple[SimulatedDevice, Launched]]:
    done = Launched()
    kernels = {"copy_kernel0": done.copy, "multiply_adds_kernel0": done.multiply_adds}
    with SimulatedDevice(1, memory_limit, kernels=kernels, attributes=attributes) as device:
        yield device, done
        assert device.used_bytes(0) == 0
        assert not done.wrong


def rate_of(program: YardstickProgram) -> float:
    yardstick = Yardstick(program.artifact, DEVICE, program.through_memory)
    return yardstick.rate() * program.work


def test_multiply_adds_run_every_turn_and_copies_copy() -> None:
    """By the interpreter: x / 2 + y converges to 2 y, and only many turns get there."""
    for dtype, turns in (("float32", 40), ("float64", 70)):
        s, tensors = device_limit._multiply_adds(2, 3, turns, dtype)
        f = build(s, tensors, "interp")
        out = np.zeros((4, 2), dtype)
        f(np.array([1, 2, 5], dtype), out)
        assert (out == 16).all()
    s, tensors = device_limit._multiply_adds(2, 3, 2, "float32")
    out = np.zeros((1, 2), np.float32)
    build(s, tensors, "interp")(np.array([1, 2, 5], np.float32), out)
    assert (out == 12).all()  # 1.5 times the operands: the work is that of two turns
    s, tensors = device_limit._copy(4)
    a = np.arange(2 * 8 * 4).reshape(2, 8, 4)
    b = np.zeros_like(a)
    build(s, tensors, "interp")(a, b)
    assert (a == b).all()


def test_multiply_adds_are_as_many_as_are_counted() -> None:
    s, tensors = device_limit._multiply_adds(THREADS, 16, 8, "float32")
    text = str(lower(s, tensors))
    assert "thread(16)" in text
    program = device_limit.arithmetic(Target("yardsim"), turns=8)
    assert program.work == 2 * THREADS * 16 * 8
    assert device_limit.arithmetic(Target("yardsim"), turns=8) is program  # kept in this process
    assert device_limit.memory(Target("yardsim")).work == 2 * 8 * 8 * THREADS


def test_the_bandwidth_of_a_simulated_device() -> None:
    with simulated(8 << 20) as (device, done):
        assert rate_of(device_limit.memory(Target("yardsim"))) == pytest.approx(BANDWIDTH, rel=0.01)
        # Two arrays in half of the memory, in as many blocks as there is room for.
        assert set(done.blocks) == {(4 << 20) // (2 * 8 * 8 * THREADS)}
        assert device.calls["allocate"] == device.calls["free"] > 0


def test_free_memory_is_respected() -> None:
    with simulated(8 << 20) as (device, done):
        other = device.allocate(0, 6 << 20)
        assert rate_of(device_limit.memory(Target("yardsim"))) == pytest.approx(BANDWIDTH, rel=0.01)
        assert max(done.blocks) * 2 * 8 * 8 * THREADS <= 1 << 20
        device.free(other)


def test_arithmetic_gets_blocks_until_a_launch_is_long_enough() -> None:
    program = device_limit.arithmetic(Target("yardsim"))
    with simulated(64 << 20, multi_processor_count=3) as (_, done):
        yardstick = Yardstick(program.artifact, DEVICE, program.through_memory)
        rate = yardstick.rate()
        moved = 4 * THREADS * done.blocks[-1] + 4 * 16  # its results and operands
        assert rate == pytest.approx(done.blocks[-1] / (moved / BANDWIDTH), rel=0.01)
        assert moved / BANDWIDTH >= 0.99e-3
        assert done.blocks[0] == 3  # one for each processor
        before = len(done.blocks)
        assert yardstick.rate() == pytest.approx(rate, rel=0.01)
        assert set(done.blocks[before:]) == {done.blocks[before - 1]}  # no search any more


def test_a_cache_that_cannot_be_passed_by_is_said() -> None:
    said = r"has room for arrays of \d+ bytes, which its cache of 8388608 bytes holds"
    with (
        simulated(8 << 20, l2_cache_size_bytes=8 << 20),
        pytest.raises(OutOfMemoryError, match=said),
    ):
        rate_of(device_limit.memory(Target("yardsim")))
    with simulated(64 << 20, l2_cache_size_bytes=8 << 20) as (_, done):
        rate_of(device_limit.memory(Target("yardsim")))
        assert min(done.blocks) * 8 * 8 * THREADS > 8 << 20


def test_a_device_that_is_lost_and_a_target_without_blocks_are_said() -> None:
    with pytest.raises(UsageError, match="the target llvm launches no blocks and threads"):
        device_limit.memory(Target("llvm"))
    program = device_limit.memory(Target("yardsim"))
    device = SimulatedDevice(1, 1 << 20, kernels={"copy_kernel0": Launched().copy})
    runtime.register_device_api(device.device_type, lambda: device)
    try:
        device.lost_at = 8
        with pytest.raises(RunError, match="the device is lost"):
            rate_of(program)
    finally:
        runtime.unregister_device_api(device.device_type)


def test_a_call_that_only_begins_the_work_is_not_timed_as_users_call_it() -> None:
    a = te.placeholder((THREADS,), name="A")
    b = te.compute((THREADS,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b.op)
    s[b].bind(s[b].op.axis[0], te.thread_axis("threadIdx.x"))
    module = build(s, [a, b], "yardsim")
    said = r"main runs on ext_dev\(0\), where a call from Python only begins the work; time it with"
    with simulated(1 << 20), pytest.raises(BuildError, match=said):
        time_as_called(module, None)


# Which limit bounds a kernel.


def a_product(n: int, dtype: str) -> Any:
    a, b = (te.placeholder((n, n), dtype, name=name) for name in "AB")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    return build(s, [a, b, c], "interp").artifact, s.dag


def found_limit(n: int, rates: dict[str, float], dtype: str = "float32", **more: Any) -> Any:
    """The limit of a product on a device that does so many operations and bytes a second."""
    artifact, dag = a_product(n, dtype)

    def rate(program: YardstickProgram) -> float:
        return rates[program.name] / program.work

    with simulated(64 << 20, l2_cache_size_bytes=8192):
        target = Target("yardsim")
        return device_limit.device_limit(artifact, dag, 2 * n**3, target, DEVICE, rate, **more)


def test_the_limit_is_the_one_at_which_a_call_takes_longer() -> None:
    both = {"FMA peak (float32)": 1e9, "memory bandwidth": 1e9}
    slow = found_limit(64, both)  # 524288 operations, 49152 bytes
    assert (slow.name, slow.sample()) == ("FMA peak (float32)", pytest.approx(524288e-9))
    slow = found_limit(64, {**both, "memory bandwidth": 1e7})
    assert (slow.name, slow.sample()) == ("memory bandwidth", pytest.approx(49152e-7))
    assert not slow.each_round
    # What stays in the cache is not held up by memory, whose bandwidth is not measured then.
    assert found_limit(16, {"FMA peak (float32)": 1e9}).name == "FMA peak (float32)"
    assert found_limit(16, {"FMA peak (float64)": 1e9}, "float64").name == "FMA peak (float64)"


def test_multiply_adds_are_no_limit_for_tensor_cores() -> None:
    only = {"memory bandwidth": 1e9}
    assert found_limit(64, only, on_tensor_cores=True).name == "memory bandwidth"
    assert found_limit(16, only, on_tensor_cores=True) is None
    mma = ["tensorize", "s4", "23.1", {"name": "mma_m16n8k16_float16"}]
    assert device_limit.uses_tensor_cores([["split", "s1", "i", 4], mma])
    assert not device_limit.uses_tensor_cores([["tensorize", "s2", "1", {"name": "ldmatrix_x4"}]])


class StubSession:
    """A runner that answers every request for a limit alike."""

    def __init__(self, answer: float | MeasureError) -> None:
        self.answer = answer

    def undisturbed(self, measure: Any) -> Any:
        return measure()

    def yardstick(self, name: str, artifact: Any, through_memory: bool) -> Any:
        return self.answer


def held(session: StubSession, trace: Any = ()) -> Playoff:
    """A playoff on a device whose kernels have been measured, and that looks for its limit."""
    artifact, dag = a_product(16, "float32")
    task = SimpleNamespace(target=Target("yardsim"))
    measuring = SimpleNamespace(on_cpu=False, task=task, devices=(DEVICE,), runner=session)
    playoff = Playoff(measuring, PlayoffPlan(flop=2 * 16**3))  # type: ignore[arg-type]
    candidate = SimpleNamespace(dag=dag, trace=list(trace))
    best: Any = SimpleNamespace(built=SimpleNamespace(artifact=artifact, candidate=candidate))
    with simulated(1 << 20):
        playoff._judge(best)
        playoff._judge(best)  # once more, where the first is in doubt
    return playoff


UNKNOWN = "how near the best is to the limit of its device is not known: "


def test_a_playoff_goes_on_without_a_limit_that_is_refused_and_says_why_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    playoff = held(StubSession(1e6))
    assert (playoff.notes, playoff.limit is not None) == ([], True)
    assert len(playoff.at_peak) == 20  # those of one judging, one for each round
    full = MeasureError(ErrorKind.MEMORY, "the runner is out of memory: 9 bytes were asked")
    playoff = held(StubSession(full))
    assert playoff.notes == [f"{UNKNOWN}the runner is out of memory: 9 bytes were asked"]
    assert (playoff.limit, playoff.at_peak) == (None, [])
    mma = ["tensorize", "s4", "23.1", {"name": "mma_m16n8k16_float16"}]
    playoff = held(StubSession(1e6), [mma])
    assert playoff.notes == [
        f"{UNKNOWN}its products are made by tensor cores, whose peak is not measured"
    ]

    def refuse(*_: Any) -> Any:
        raise BuildError("its compiler refused the code")

    monkeypatch.setattr(device_limit, "arithmetic", refuse)
    assert held(StubSession(1e6)).notes == [f"{UNKNOWN}its compiler refused the code"]


@needs_opencl
@pytest.mark.slow
def test_an_opencl_device_that_the_cpu_plays_is_no_other_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two kernels. It has the same cores and memory: its figures are those of the CPU within what
    two compilers and other work make of them."""
    device, target = Device("opencl", 0), Target("opencl")
    if not device.attribute("is_host_processor"):
        pytest.skip("the OpenCL device here is no CPU")
    nbytes = 64 << 20
    monkeypatch.setattr("loopwright.measure.workers.device_kernels._LARGEST", nbytes)
    rate = device_limit.in_this_process(device)
    program, copy = device_limit.arithmetic(target), device_limit.memory(target)
    assert 0.02 < rate(program) * program.work / runtime.fma_peak() < 10
    assert 0.02 < rate(copy) * copy.work / runtime.bandwidth(seconds=0.02, nbytes=nbytes) < 10
