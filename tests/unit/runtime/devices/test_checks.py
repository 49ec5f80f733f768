"""What every backend refuses before its driver sees it: a driver would crash, or go on wrongly."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import loopwright as lw
from loopwright.errors import ArgumentError, LoopwrightError, OutOfMemoryError, UsageError
from loopwright.runtime.devices import interface as registry
from loopwright.runtime.devices.cpu import CpuAPI
from loopwright.runtime.devices.cuda import CudaAPI
from loopwright.runtime.devices.interface import HOST, DeviceAPI, Memory
from loopwright.runtime.devices.opencl import OpenCLAPI
from loopwright.runtime.memory import PooledAllocator
from loopwright.testing.simulated_device import SimulatedDevice
from tests.unit.runtime.devices.fake_cuda import FakeDriver

KERNEL = b"__kernel void set(__global int *a, long n) { a[get_global_id(0)] = n; }"
FOREIGN = Memory(12, 0, 4096, 64)


def _opencl() -> DeviceAPI:
    if not lw.opencl().exist:
        pytest.skip(lw.opencl().why_absent())
    return OpenCLAPI()


def _cuda() -> DeviceAPI:
    driver = FakeDriver(devices=2)
    driver.kernels["set"] = lambda a, n: None
    return CudaAPI(driver, devices=2)


@pytest.fixture(params=[CpuAPI, _opencl, _cuda], ids=["cpu", "opencl", "cuda"])
def api(request: pytest.FixtureRequest) -> DeviceAPI:
    made: DeviceAPI = request.param()
    return made


def host(nbytes: int) -> Memory:
    data = np.zeros(nbytes, np.uint8)
    return Memory(HOST, 0, int(data.ctypes.data), nbytes, owner=data)


def test_memory_that_was_freed(api: DeviceAPI) -> None:
    memory, other = api.allocate(0, 64), api.allocate(0, 64)
    part = memory.part(8, 8)
    with pytest.raises(ArgumentError, match="a part of other memory"):
        api.free(part)
    api.free(memory)
    uses: list[Callable[[], object]] = [
        lambda: api.free(memory),
        lambda: api.fill(memory, 0),
        lambda: api.copy(memory, 0, other, 0, 8),
        lambda: api.copy(other, 0, memory, 0, 8),
        lambda: api.copy(part, 0, other, 0, 8),
    ]
    for use in uses:
        with pytest.raises(ArgumentError, match="freed already"):
            use()
    api.free(other)


def test_memory_of_another_kind_of_devices(api: DeviceAPI) -> None:
    memory = api.allocate(0, 64)
    wrong: list[Callable[[], object]] = [
        lambda: api.free(FOREIGN),
        lambda: api.fill(FOREIGN, 0),
        lambda: api.copy(FOREIGN, 0, memory, 0, 8),
        lambda: api.copy(memory, 0, FOREIGN, 0, 8),
    ]
    for use in wrong:
        with pytest.raises(ArgumentError, match=f"is not of a device of {api.name}"):
            use()
    with pytest.raises(ArgumentError, match="the source is a NoneType, expected Memory"):
        api.copy(None, 0, memory, 0, 8)  # type: ignore[arg-type]
    if api.device_type != HOST:
        with pytest.raises(ArgumentError, match="neither side is on a device"):
            api.copy(host(8), 0, host(8), 0, 8)
        with pytest.raises(ArgumentError, match="is not of a device"):
            api.free(host(8))


@pytest.mark.parametrize("number", [-1, 7, "0", None])
def test_a_device_that_is_not_there(api: DeviceAPI, number: int) -> None:
    for use in (lambda: api.allocate(number, 8), lambda: api.create_stream(number)):
        with pytest.raises(UsageError, match=r"cannot be used: there is no such device; there is"):
            use()


def test_sizes_that_are_none(api: DeviceAPI) -> None:
    for nbytes in (1.5, "8", None):
        with pytest.raises(ArgumentError, match="pass a whole number for each"):
            api.allocate(0, nbytes)  # type: ignore[arg-type]
    with pytest.raises(OutOfMemoryError):
        api.allocate(0, 1 << 70)
    memory = api.allocate(0, 64)
    with pytest.raises(ArgumentError, match="offsets and sizes are whole numbers"):
        api.copy(memory, 0, memory, 8, 1.5)  # type: ignore[arg-type]
    for value in (300, -1, 1.5):
        with pytest.raises(ArgumentError, match="is no byte"):
            api.fill(memory, value)  # type: ignore[arg-type]


def test_the_default_stream_stays(api: DeviceAPI) -> None:
    with pytest.raises(ArgumentError, match="is the default stream"):
        api.free_stream(api.current_stream(0))
    back = np.zeros(1 << 20, np.uint8)
    memory = api.allocate(0, back.nbytes)
    api.fill(memory, 7)
    if api.device_type == HOST:
        return
    target = Memory(HOST, 0, int(back.ctypes.data), back.nbytes, owner=back)
    api.copy(memory, 0, target, 0, back.nbytes)
    api.synchronize(0)  # all streams, the default one too
    assert (back == 7).all()


def test_streams_and_events_of_another_device(api: DeviceAPI) -> None:
    with SimulatedDevice(device_type=13) as other:
        foreign, mine = other.create_stream(0), api.current_stream(0)
        memory, event = api.allocate(0, 64), other.record_event(0)
        wrong: list[Callable[[], object]] = [
            lambda: api.set_stream(0, foreign),
            lambda: api.synchronize(0, foreign),
            lambda: api.sync_stream_from_to(0, foreign, mine),
            lambda: api.sync_stream_from_to(0, mine, foreign),
            lambda: api.free_stream(foreign),
            lambda: api.set_stream(0, 3),  # type: ignore[arg-type]
        ]
        if api.device_type != HOST:
            wrong += [
                lambda: api.fill(memory, 0, foreign),
                lambda: api.copy(memory, 0, memory, 32, 8, foreign),
                lambda: api.record_event(0, foreign),
            ]
        for use in wrong:
            with pytest.raises(ArgumentError, match=r"the stream is of device 0|expected a stream"):
                use()
        with pytest.raises(ArgumentError, match="expected an event of"):
            api.wait_event(event)
        with pytest.raises(ArgumentError, match="expected an event of"):
            api.elapsed(api.record_event(0), event)
        other.free_stream(foreign)


def test_a_stream_that_is_freed_is_current_no_more(api: DeviceAPI) -> None:
    stream, default = api.create_stream(0), api.current_stream(0)
    api.set_stream(0, stream)
    api.free_stream(stream)
    assert api.current_stream(0) is default
    uses: list[Callable[[], object]] = [
        lambda: api.free_stream(stream),
        lambda: api.set_stream(0, stream),
        lambda: api.synchronize(0, stream),
        lambda: api.sync_stream_from_to(0, stream, default),
    ]
    for use in uses:
        with pytest.raises(ArgumentError, match=r"the stream of .* is freed already; make another"):
            use()
    other = api.create_stream(0)  # perhaps of the same number
    api.synchronize(0, other)
    api.free_stream(other)


def test_a_stream_that_is_freed_elsewhere_is_refused_where_it_is_current(api: DeviceAPI) -> None:
    stream, memory = api.create_stream(0), api.allocate(0, 64)
    api.set_stream(0, stream)
    thread = threading.Thread(target=api.free_stream, args=(stream,))
    thread.start()
    thread.join()
    if api.device_type != HOST:
        with pytest.raises(ArgumentError, match=r"the stream of .* is freed already"):
            api.fill(memory, 0)
    api.set_stream(0, None)
    api.fill(memory, 0)


def test_a_pool_waits_for_no_stream_that_is_freed(
    api: DeviceAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_made", {**registry._made, api.device_type: api})
    pool = PooledAllocator((api.device_type, 0), first_chunk=4096)
    stream = api.create_stream(0)
    memory = pool.alloc(4096, stream=stream)
    pool.free(memory, stream)
    api.free_stream(stream)
    again = pool.alloc(4096)
    assert (again.handle, pool.statistics().device_allocations) == (memory.handle, 1)
    pool.free(again)
    pool.release_cached()


def test_parts_are_inside(api: DeviceAPI) -> None:
    memory = api.allocate(0, 64)
    for offset, nbytes in ((-1, 4), (0, 65), (60, 5), (0, -1)):
        with pytest.raises(ArgumentError, match="are not inside memory of 64 bytes"):
            memory.part(offset, nbytes)


def test_streams_that_threads_make_and_free_are_all_waited_for(api: DeviceAPI) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                api.free_stream(api.create_stream(0))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    api.synchronize(0)
    if isinstance(api, OpenCLAPI):
        assert api._context(0).queues == [api._context(0).default.owner]


def test_launches_that_make_no_sense(api: DeviceAPI) -> None:
    if api.device_type == HOST:
        with pytest.raises(UsageError, match="no kernels"):
            api.load(0, KERNEL, ["set"])
        return
    image = b"cubin" if api.name == "cuda" else KERNEL
    program, memory, freed = api.load(0, image, ["set"]), api.allocate(0, 64), api.allocate(0, 64)
    api.free(freed)
    one = (1, 1, 1)
    for kernel, grid, block, arguments, text in (
        ("sets", one, one, [memory, 1], r"no kernel 'sets' \(did you mean 'set'\?\)"),
        ("set", (0, 1, 1), one, [memory, 1], "every extent is at least 1"),
        ("set", one, (1, -1, 1), [memory, 1], "every extent is at least 1"),
        ("set", one, one, [memory, 1.5], "expected memory of .*, got a float"),
        ("set", one, one, [np.zeros(4), 1], "expected memory of .*, got a ndarray"),
        ("set", one, one, [host(8), 1], "is not of a device of"),
        ("set", one, one, [freed, 1], "freed already"),
        ("set", one, one, [memory, 1 << 63], "does not fit into 64 bits"),
    ):
        with pytest.raises(ArgumentError, match=text):
            program.launch(kernel, grid, block, arguments)  # type: ignore[arg-type]
    if isinstance(api, OpenCLAPI):
        with pytest.raises(ArgumentError, match="set takes 2 arguments, got 1"):
            program.launch("set", one, one, [memory])
    stream = CpuAPI().create_stream(0)
    with pytest.raises(ArgumentError, match="the stream is of device 0 of type 1"):
        program.launch("set", one, one, [memory, 1], stream=stream)


def test_devices_without_a_driver_are_refused_at_once() -> None:
    if lw.cuda().exist:
        pytest.skip("there is a driver")
    for use in (
        lambda: CudaAPI().allocate(0, 8),
        lambda: CudaAPI().create_stream(0),
        lambda: CudaAPI().attribute(0, "warp_size"),
        lambda: CudaAPI(FakeDriver(), devices=0).allocate(0, 8),
    ):
        with pytest.raises(LoopwrightError, match=r"cuda\(0\) cannot be used: \w"):
            use()


def test_a_device_is_refused_without_a_reason_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaAPI, "why_absent", lambda self: "")
    with pytest.raises(UsageError, match=r"cuda\(0\) cannot be used"):
        CudaAPI(FakeDriver(), devices=0).allocate(0, 8)
