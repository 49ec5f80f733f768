"""The simulated device: it does what the interface says, and notices what breaks it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

import numpy as np
import pytest

from loopwright.errors import ArgumentError, OutOfMemoryError, RunError, UsageError
from loopwright.runtime.devices.interface import HOST, Memory, Stream, device_api, find_device_api
from loopwright.testing.simulated_device import EXT_DEV, SimulatedDevice


def host(array: np.ndarray) -> Memory:
    return Memory(HOST, 0, array.ctypes.data, array.nbytes, owner=array)


def add_one(grid, block, arguments):
    arguments[0][: arguments[1]] += 1


@pytest.fixture
def device() -> SimulatedDevice:
    return SimulatedDevice(memory_limit=1 << 16, kernels={"add_one": add_one})


def test_it_is_registered_for_a_block() -> None:
    with SimulatedDevice() as device:
        assert device_api(EXT_DEV) is device
        with pytest.raises(UsageError, match="has a backend already"), SimulatedDevice():
            pass
    assert find_device_api(EXT_DEV) is None


def test_copies_arrive_when_their_stream_is_waited_for(device: SimulatedDevice) -> None:
    source, back = np.arange(100, dtype=np.uint8), np.zeros(60, np.uint8)
    memory = device.allocate(0, 100)
    device.copy(host(source), 0, memory, 0, 100)
    device.copy(memory, 30, host(back), 10, 50)
    assert not back.any()
    device.synchronize(0)
    np.testing.assert_array_equal(back[10:], source[30:80])
    assert not back[:10].any()
    device.free(memory)
    device.verify()


def test_memory_is_not_zero(device: SimulatedDevice) -> None:
    back = np.zeros(16, np.uint8)
    memory = device.allocate(0, 16)
    device.copy(memory, 0, host(back), 0, 16)
    device.synchronize(0)
    assert back.all()


@pytest.mark.parametrize("alignment", [1, 64, 256, 4096])
def test_alignment_is_what_was_asked_and_no_more(alignment: int, device: SimulatedDevice) -> None:
    for nbytes in (1, 300, 0, 7):
        address = device.allocate(1, nbytes, alignment).address
        assert address % alignment == 0
        assert address % (2 * alignment) != 0


def test_what_is_not_ordered_runs_in_the_wrong_order(device: SimulatedDevice) -> None:
    source, back = np.full(8, 3, np.uint8), np.zeros(8, np.uint8)
    memory = device.allocate(0, 8)
    first, then = device.create_stream(0), device.create_stream(0)
    device.copy(host(source), 0, memory, 0, 8, first)
    device.copy(memory, 0, host(back), 0, 8, then)
    device.synchronize(0)
    assert not (back == 3).any()


@pytest.mark.parametrize("wait", ["stream", "event", "host"])
def test_waits_order_streams(wait: str, device: SimulatedDevice) -> None:
    source, back = np.full(8, 3, np.uint8), np.zeros(8, np.uint8)
    memory = device.allocate(0, 8)
    first, then = device.create_stream(0), device.create_stream(0)
    device.copy(host(source), 0, memory, 0, 8, first)
    if wait == "stream":
        device.sync_stream_from_to(0, first, then)
    elif wait == "event":
        device.wait_event(device.record_event(0, first))
    else:
        device.synchronize(0, first)
    device.copy(memory, 0, host(back), 0, 8, then)
    device.synchronize(0, then)
    np.testing.assert_array_equal(back, source)


def test_long_chains_of_waits_run(device: SimulatedDevice) -> None:
    data = np.zeros(1, np.uint8)
    memory = device.allocate(0, 1)
    streams = [device.create_stream(0), device.create_stream(0)]
    device.copy(host(data), 0, memory, 0, 1, streams[0])
    program = device.load(0, b"add_one", ["add_one"])
    for i in range(3000):
        device.sync_stream_from_to(0, streams[i % 2], streams[1 - i % 2])
        program.launch("add_one", (1, 1, 1), (1, 1, 1), [memory, 1], stream=streams[1 - i % 2])
    device.copy(memory, 0, host(data), 0, 1, streams[0])
    device.synchronize(0, streams[0])
    assert data[0] == 3000 % 256
    assert device.queued(0) == 0


def test_an_event_is_a_point_in_a_stream(device: SimulatedDevice) -> None:
    data, memory = np.zeros(4000, np.uint8), device.allocate(0, 4000)
    first = device.record_event(0)
    device.copy(host(data), 0, memory, 0, 4000)
    then = device.record_event(0)
    device.copy(host(data), 0, memory, 0, 4000)
    assert device.elapsed(first, then) == pytest.approx(4000 / 1e9 + 1e-6)
    assert device.queued(0) == 1


def test_current_streams_belong_to_threads(device: SimulatedDevice) -> None:
    stream, seen = device.create_stream(0), []
    device.set_stream(0, stream)
    other = threading.Thread(target=lambda: seen.append(device.current_stream(0)))
    other.start()
    other.join()
    assert device.current_stream(0) is stream
    assert seen[0].handle == 0
    assert device.current_stream(1).handle == 0
    device.set_stream(0, None)
    assert device.current_stream(0) is seen[0]


def test_kernels_run_in_their_stream(device: SimulatedDevice) -> None:
    data = np.zeros(4, np.uint8)
    memory = device.allocate(1, 4)
    device.copy(host(data), 0, memory, 0, 4)
    program = device.load(1, b"add_one\nother", ["add_one"])
    program.launch("add_one", (1, 1, 1), (2, 1, 1), [memory, 3])
    device.copy(memory, 0, host(data), 0, 4)
    device.synchronize(1)
    assert data.tolist() == [1, 1, 1, 0]


def test_kernels_are_refused(device: SimulatedDevice) -> None:
    with pytest.raises(RunError, match="does not know the kernels other; pass them to"):
        device.load(0, b"add_one other", ["add_one", "other"])
    program = device.load(0, b"add_one", ["add_one"])
    with pytest.raises(RunError, match="asks 2048 threads a block, the device has 1024"):
        program.launch("add_one", (1, 1, 1), (1024, 2, 1), [])
    elsewhere = device.allocate(1, 4)
    with pytest.raises(ArgumentError, match="is not on device 0"):
        program.launch("add_one", (1, 1, 1), (1, 1, 1), [elsewhere, 1])


def test_a_kernel_that_fails_is_heard_of_when_it_is_waited_for(device: SimulatedDevice) -> None:
    program = device.load(0, b"add_one", ["add_one"])
    program.launch("add_one", (1, 1, 1), (1, 1, 1), [])
    with pytest.raises(RunError, match=r"add_one failed on simulated\(0\): list index"):
        device.synchronize(0)
    device.synchronize(0)


def test_memory_is_limited(device: SimulatedDevice) -> None:
    held = device.allocate(0, 60000)
    with pytest.raises(OutOfMemoryError, match="8000 bytes were asked, 5536 of 65536 are free"):
        device.allocate(0, 8000)
    device.allocate(1, 8000)
    assert device.attribute(0, "total_global_memory") == 1 << 16
    assert device.attribute(0, "available_global_memory") == 5536
    assert device.attribute(0, "color") is None
    device.free(held)
    assert device.used_bytes(0) == 0
    device.allocate(0, 65536)


def test_freed_memory_is_kept_for_queued_work_only(device: SimulatedDevice) -> None:
    source, back = np.full(60000, 9, np.uint8), np.zeros(60000, np.uint8)
    memory = device.allocate(0, 60000)
    device.copy(host(source), 0, memory, 0, 60000)
    device.copy(memory, 0, host(back), 0, 60000)
    device.free(memory)
    assert device.used_bytes(0) == 60000
    device.allocate(0, 60000)  # waits for what holds the freed memory
    np.testing.assert_array_equal(back, source)
    assert device.used_bytes(0) == 60000


def test_host_memory_must_outlive_its_copy(device: SimulatedDevice) -> None:
    memory = device.allocate(0, 8)
    device.copy(host(np.ones(8, np.uint8)).part(0, 8), 0, memory, 0, 8)
    gc.collect()
    with pytest.raises(ArgumentError, match="host memory of 8 bytes went before its copy ran"):
        device.synchronize(0)


def misuses() -> dict[str, tuple[str, object]]:
    """Every way of misusing a device: what is said of it, and how it is done."""

    def twice(d):
        memory = d.allocate(0, 8)
        d.free(memory)
        d.free(memory)

    def freed(d):
        memory, other = d.allocate(0, 8), d.allocate(0, 8)
        d.free(memory)
        d.copy(memory, 0, other, 0, 8)

    def dead_stream(d):
        stream = d.create_stream(0)
        d.free_stream(stream)
        d.synchronize(0, stream)

    foreign = Memory(EXT_DEV, 0, 12345, 8)
    return {
        "double free": ("was freed before", twice),
        "foreign": ("was not allocated here", lambda d: d.free(foreign)),
        "part": ("is a part of", lambda d: d.free(d.allocate(0, 8).part(0, 4))),
        "use after free": ("copy: .* was freed before", freed),
        "out of bounds": (
            "bytes 4 to 12 are not inside 8 bytes",
            lambda d: d.copy(d.allocate(0, 8), 4, d.allocate(0, 12), 0, 8),
        ),
        "negative": (
            "bytes -1 to 1 are not inside 8 bytes",
            lambda d: d.copy(d.allocate(0, 8), -1, d.allocate(0, 8), 0, 2),
        ),
        "two of the host": (
            "neither .* is on a device",
            lambda d: d.copy(host(np.ones(8)), 0, host(np.ones(8)), 0, 8),
        ),
        "wrong device": (
            "is memory of device 0",
            lambda d: d.free(Memory(EXT_DEV, 1, d.allocate(0, 8).handle, 8)),
        ),
        "stream of another device": (
            "is not of device 0",
            lambda d: d.synchronize(0, d.create_stream(1)),
        ),
        "stream of another kind": ("is not of", lambda d: d.set_stream(0, Stream(2, 0, 0))),
        "freed stream": ("was freed before", dead_stream),
        "default stream": ("is the default", lambda d: d.free_stream(d.current_stream(0))),
        "no such device": ("there is no device 2, only 2", lambda d: d.allocate(2, 8)),
    }


@pytest.mark.parametrize("name", misuses())
def test_misuse_is_noticed_and_remembered(name: str, device: SimulatedDevice) -> None:
    text, misuse = misuses()[name]
    with pytest.raises(ArgumentError, match=text):
        misuse(device)
    assert len(device.faults) == 1
    with pytest.raises(AssertionError, match=text):
        device.verify()


def test_arguments_are_checked(device: SimulatedDevice) -> None:
    with pytest.raises(ArgumentError, match="cannot allocate -1 bytes; the number is negative"):
        device.allocate(0, -1)
    with pytest.raises(ArgumentError, match="the alignment 3 is not a power of two"):
        device.allocate(0, 1, 3)
    with pytest.raises(ArgumentError, match="no memory of scope 'texture'"):
        device.allocate(0, 1, scope="texture")


@pytest.mark.parametrize(
    ("take", "text"),
    [
        (lambda device: device.allocate(0, 8), r"8 bytes at 0x\w+ were never freed"),
        (lambda device: device.create_stream(0), r"Stream.* was never freed"),
    ],
)
def test_leaks_are_found(take: Callable[[SimulatedDevice], object], text: str) -> None:
    with pytest.raises(AssertionError, match=text), SimulatedDevice() as device:
        take(device)


def test_devices_of_the_kind_copy_to_each_other() -> None:
    with SimulatedDevice(peers=[(1, 0)]) as device:
        assert device.can_access_peer(1, 0)
        assert not device.can_access_peer(0, 1)
        data, back = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
        first, other = device.allocate(0, 8), device.allocate(1, 8)
        device.copy(host(data), 0, first, 0, 8)
        device.synchronize(0)
        device.copy(first, 0, other, 0, 8)
        device.synchronize(0)
        device.copy(other, 0, host(back), 0, 8)
        device.synchronize(1)
        np.testing.assert_array_equal(back, data)
        device.free(first)
        device.free(other)


def test_a_device_is_lost_at_a_call(device: SimulatedDevice) -> None:
    device.lost_at = 3
    memory = device.allocate(0, 8)
    device.synchronize(0)
    for _ in range(2):
        with pytest.raises(RunError, match="the device is lost, free was not done"):
            device.free(memory)
    assert device.calls == {"allocate": 1, "synchronize": 1, "free": 2}
