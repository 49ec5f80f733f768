"""The backend for CUDA against a stand-in for the driver: what it asks for, and what it refuses."""

from __future__ import annotations

import ctypes
import gc
import threading

import numpy as np
import numpy.typing as npt
import pytest

from loopwright.errors import (
    ArgumentError,
    DeviceLostError,
    OutOfMemoryError,
    RunError,
    TargetError,
)
from loopwright.runtime.devices.cuda import CudaAPI
from loopwright.runtime.devices.interface import HOST, Memory
from tests.unit.runtime.devices.fake_cuda import FakeDriver, Status


def host(a: npt.NDArray[np.float32]) -> Memory:
    return Memory(HOST, 0, int(a.ctypes.data), a.nbytes, owner=a)


def floats(address: int, count: int) -> npt.NDArray[np.float32]:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def twice(a: int, b: int, n: int) -> None:
    floats(b, n)[:] = 2 * floats(a, n)


@pytest.fixture
def driver() -> FakeDriver:
    made = FakeDriver(devices=2)
    made.kernels["twice"] = twice
    return made


@pytest.fixture
def api(driver: FakeDriver) -> CudaAPI:
    return CudaAPI(driver, devices=2)


def test_attributes_are_those_of_the_driver(api: CudaAPI) -> None:
    assert api.count() == 2
    assert not api.why_absent()
    assert api.attribute(0, "device_name") == "Fake H200"
    assert (api.attribute(1, "compute_version"), api.attribute(1, "arch")) == ("9.0", "sm_90")
    assert api.attribute(0, "max_thread_dimensions") == (1024, 1024, 64)
    assert api.attribute(0, "max_shared_memory_per_block") == 232_448
    assert api.attribute(0, "total_global_memory") == 1 << 24
    assert api.attribute(0, "available_global_memory") == 1 << 24
    assert (api.attribute(0, "api_version"), api.attribute(0, "driver_version")) == (13000, "13.0")
    assert api.attribute(0, "no_such_thing") is None
    assert api.uuid(0) != api.uuid(1)


def test_a_kernel_runs_on_copies(api: CudaAPI, driver: FakeDriver) -> None:
    a, b = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    there, result = api.allocate(0, a.nbytes), api.allocate(0, a.nbytes)
    program = api.load(0, b"cubin", ["twice"])
    api.copy(host(a), 0, there, 0, a.nbytes)
    program.launch("twice", (4, 1, 1), (32, 2, 1), [there, result, 100])
    api.copy(result, 0, host(b), 0, b.nbytes)
    api.synchronize(0)
    np.testing.assert_array_equal(b, 2 * a)
    assert driver.launches == [("twice", (4, 1, 1), (32, 2, 1), 0, 0)]


def test_parts_of_memory_and_offsets_of_copies(api: CudaAPI) -> None:
    a, b = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    there = api.allocate(0, 64)
    api.copy(host(a), 8, there, 16, 16)
    api.copy(there.part(16, 16), 4, host(b), 0, 12)
    assert b.tolist() == [3, 4, 5, 0, 0, 0, 0, 0]
    api.fill(there.part(16, 4), 0xFF)
    api.copy(there, 16, host(b), 0, 8)
    assert np.isnan(b[0])
    assert b[1] == 3
    with pytest.raises(ArgumentError, match="bytes 60 to 68 are outside the target"):
        api.copy(host(a), 0, there, 60, 8)


def test_alignment_and_giving_back(api: CudaAPI, driver: FakeDriver) -> None:
    memory = api.allocate(0, 100, alignment=4096)
    assert memory.address % 4096 == 0
    api.free(memory)
    assert not driver.blocks
    with pytest.raises(ArgumentError, match="freed already"):
        api.free(memory)
    whole = api.allocate(0, 64)
    with pytest.raises(ArgumentError, match="a part of other memory"):
        api.free(whole.part(0, 8))
    with pytest.raises(ArgumentError, match="not a power of two"):
        api.allocate(0, 64, alignment=100)
    with pytest.raises(ArgumentError, match="no memory of scope 'texture'"):
        api.allocate(0, 64, scope="texture")


def test_copies_between_devices_reach_the_peer_once(api: CudaAPI, driver: FakeDriver) -> None:
    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    first, second = api.allocate(0, 16), api.allocate(1, 16)
    api.copy(host(a), 0, first, 0, 16)
    for _ in range(2):
        api.copy(first, 0, second, 0, 16)
    api.copy(second, 0, host(b), 0, 16)
    assert b.tolist() == a.tolist()
    assert driver.calls.count("cuCtxEnablePeerAccess") == 1
    assert driver.calls.count("cuMemcpyPeerAsync") == 2


def test_a_peer_that_another_library_reached_before(api: CudaAPI, driver: FakeDriver) -> None:
    driver.failing["cuCtxEnablePeerAccess"] = Status.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
    api.copy(api.allocate(0, 16), 0, api.allocate(1, 16), 0, 16)
    driver.failing["cuCtxEnablePeerAccess"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceLostError):
        api.copy(api.allocate(1, 16), 0, api.allocate(0, 16), 0, 16)


def test_a_context_that_another_library_left_is_entered_again(
    api: CudaAPI, driver: FakeDriver
) -> None:
    api.allocate(0, 16)
    driver.cuCtxSetCurrent("context of another library")
    api.allocate(0, 16)
    assert driver._current.context == "context 0"


def test_every_thread_enters_the_context(api: CudaAPI) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            api.free(api.allocate(0, 16))
            api.free(api.allocate(1, 16))
        except BaseException as error:
            errors.append(error)

    api.allocate(0, 16)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not errors


def test_streams_are_current_by_thread(api: CudaAPI, driver: FakeDriver) -> None:
    stream = api.create_stream(0)
    api.set_stream(0, stream)
    assert api.current_stream(0) is stream
    other: list[object] = []
    thread = threading.Thread(target=lambda: other.append(api.current_stream(0)))
    thread.start()
    thread.join()
    assert other[0] is not stream
    api.sync_stream_from_to(0, stream, api.create_stream(0))
    api.free_stream(stream)
    assert api.current_stream(0).handle == 0
    assert driver.calls.count("cuEventDestroy") == 1


def test_events_tell_seconds_and_are_given_back(api: CudaAPI, driver: FakeDriver) -> None:
    memory = api.allocate(0, 16)
    first = api.record_event(0)
    for _ in range(3):
        api.fill(memory, 1)
    then = api.record_event(0)
    assert api.elapsed(first, then) == pytest.approx(3e-3)
    del first, then
    gc.collect()
    assert driver.calls.count("cuEventDestroy") == 2


def test_a_graph_repeats_what_was_recorded(api: CudaAPI, driver: FakeDriver) -> None:
    a = np.ones(4, np.float32)
    memory = api.allocate(0, 16)
    api.copy(host(a), 0, memory, 0, 16)
    program = api.load(0, b"cubin", ["twice"])
    graph = api.record_graph(
        0, lambda s: program.launch("twice", (1, 1, 1), (4, 1, 1), [memory, memory, 4], 0, s)
    )
    for _ in range(3):
        graph(None)
    api.copy(memory, 0, host(a), 0, 16)
    assert a.tolist() == [8, 8, 8, 8]
    del graph
    gc.collect()
    assert "cuGraphExecDestroy" in driver.calls


def test_shared_memory_beyond_48_kb_is_asked_for_once(api: CudaAPI, driver: FakeDriver) -> None:
    memory = api.allocate(0, 16)
    program = api.load(0, b"cubin", ["twice"])
    for nbytes in (1000, 60_000, 50_000, 100_000):
        program.launch("twice", (1, 1, 1), (4, 1, 1), [memory, memory, 4], nbytes)
    assert driver.shared == {"twice": 100_000}
    assert driver.calls.count("cuFuncSetAttribute") == 2


def test_modules_are_unloaded_with_the_program(api: CudaAPI, driver: FakeDriver) -> None:
    api.load(0, b"cubin", ["twice"])
    gc.collect()
    assert driver.calls.count("cuModuleUnload") == 1


def test_what_the_driver_refuses(api: CudaAPI, driver: FakeDriver) -> None:
    memory = api.allocate(0, 16)
    program = api.load(0, b"cubin", ["twice"])
    with pytest.raises(OutOfMemoryError, match=r"cuda\(1\): allocating 1073741824 bytes failed"):
        api.allocate(1, 1 << 30)
    with pytest.raises(TargetError, match=r"NO_BINARY_FOR_GPU.*-arch"):
        api.load(0, b"other", ["twice"])
    with pytest.raises(RunError, match="finding thrice failed: NOT_FOUND"):
        api.load(0, b"cubin", ["thrice"])
    with pytest.raises(RunError, match=r"launching twice on .* blocks of \(64, 32, 1\) threads"):
        program.launch("twice", (1, 1, 1), (64, 32, 1), [memory, memory, 4])
    driver.failing["cuCtxSynchronize"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceLostError, match=r"ILLEGAL_ADDRESS.*has lost the device"):
        api.synchronize(0)
