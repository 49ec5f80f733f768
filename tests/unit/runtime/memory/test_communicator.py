"""Copies between devices, on two kinds of simulated ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from loopwright.errors import ArgumentError, RunError, UsageError
from loopwright.runtime.devices.interface import HOST, Memory
from loopwright.runtime.memory import DeviceCommunicator
from loopwright.testing.simulated_device import EXT_DEV, SimulatedDevice

OTHER_KIND = 13
DEVICES = [(EXT_DEV, 0), (EXT_DEV, 1), (EXT_DEV, 2), (OTHER_KIND, 0), (HOST, 0)]
N = 1000


def host(array: np.ndarray) -> Memory:
    return Memory(HOST, 0, array.ctypes.data, array.nbytes, owner=array)


@pytest.fixture
def apis() -> Iterator[dict[int, SimulatedDevice]]:
    first = SimulatedDevice(devices=3, peers=[(1, 0)])
    with first, SimulatedDevice(devices=1, device_type=OTHER_KIND) as second:
        yield {EXT_DEV: first, OTHER_KIND: second}


def place(apis: dict[int, SimulatedDevice], device: tuple[int, int]) -> Memory:
    if device[0] == HOST:
        return host(np.zeros(N, np.uint8))
    return apis[device[0]].allocate(device[1], N)


def fill(apis: dict[int, SimulatedDevice], memory: Memory, data: np.ndarray) -> None:
    """Put data somewhere; on a device it is queued and not waited for."""
    if memory.device_type == HOST:
        memory.owner[:] = data
    else:
        apis[memory.device_type].copy(host(data), 0, memory, 0, N)


def read(apis: dict[int, SimulatedDevice], memory: Memory) -> np.ndarray:
    if memory.device_type == HOST:
        return memory.owner
    back = np.zeros(N, np.uint8)
    api = apis[memory.device_type]
    api.copy(memory, 0, host(back), 0, N)
    api.synchronize(memory.device_id, api.current_stream(memory.device_id))
    return back


def expected_route(source: tuple[int, int], target: tuple[int, int]) -> str:
    if HOST in (source[0], target[0]) and source != target:
        return "host"
    reads = source == target or (source, target) == ((EXT_DEV, 0), (EXT_DEV, 1))
    return "direct" if reads else "staged"


@pytest.mark.parametrize("chunk_bytes", [1 << 20, 100, 1])
@pytest.mark.parametrize("target", DEVICES)
@pytest.mark.parametrize("source", DEVICES)
def test_data_arrives(
    source: tuple[int, int],
    target: tuple[int, int],
    chunk_bytes: int,
    apis: dict[int, SimulatedDevice],
) -> None:
    data = np.random.default_rng(0).integers(0, 256, N, np.uint8)
    old = np.full(N, 9, np.uint8)
    first, last = place(apis, source), place(apis, target)
    fill(apis, first, data)
    fill(apis, last, old)
    with DeviceCommunicator(DEVICES, chunk_bytes) as communicator:
        route = communicator.copy(first, last, 600, source_offset=30, target_offset=200)
        found = read(apis, last).copy()
    assert route == expected_route(source, target)
    wanted = old.copy()
    wanted[200:800] = data[30:630]
    np.testing.assert_array_equal(found, wanted)
    for memory in (first, last):
        if memory.device_type != HOST:
            apis[memory.device_type].free(memory)


def test_staging_fills_one_buffer_while_the_other_is_written(
    apis: dict[int, SimulatedDevice],
) -> None:
    first, last = place(apis, (EXT_DEV, 0)), place(apis, (OTHER_KIND, 0))
    in_flight = []
    reader, writer = apis[EXT_DEV], apis[OTHER_KIND]
    copy = reader.copy

    def watched(*args: object) -> None:
        in_flight.append(writer.queued(0))
        copy(*args)

    reader.copy = watched
    with DeviceCommunicator(DEVICES, 100) as communicator:
        communicator.copy(first, last)
    assert len(in_flight) == 10
    assert min(in_flight[1:]) > 0  # nothing waits for the write before
    reader.free(first)
    writer.free(last)


@pytest.mark.parametrize("source", [0, 1])
def test_devices_copy_directly_only_with_peer_access(
    source: int, apis: dict[int, SimulatedDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    api = apis[EXT_DEV]
    first, last = place(apis, (EXT_DEV, source)), place(apis, (EXT_DEV, 1 - source))
    copy, sides = api.copy, []

    def watched(*args) -> None:
        sides.append((args[0].device_type, args[2].device_type))
        copy(*args)

    monkeypatch.setattr(api, "copy", watched)
    with DeviceCommunicator(DEVICES) as communicator:
        communicator.copy(first, last)
    reaches = source == 0  # device 1 reads the memory of device 0
    ways = [(EXT_DEV, EXT_DEV)] if reaches else [(EXT_DEV, HOST), (HOST, EXT_DEV)]
    assert sides == ways
    api.free(first)
    api.free(last)


def test_peer_access_is_a_matrix(apis: dict[int, SimulatedDevice]) -> None:
    access = DeviceCommunicator(DEVICES).peer_access()
    wanted = np.eye(5, dtype=bool)
    wanted[1, 0] = True
    np.testing.assert_array_equal(access, wanted)


def test_copies_that_make_no_sense_are_refused(apis: dict[int, SimulatedDevice]) -> None:
    memory, stranger = place(apis, (EXT_DEV, 0)), place(apis, (EXT_DEV, 2))
    with DeviceCommunicator(DEVICES[:2]) as communicator:
        with pytest.raises(UsageError, match=r"device \(12, 2\) cannot be copied; this commun"):
            communicator.copy(memory, stranger)
        with pytest.raises(ArgumentError, match="bytes 990 to 1010 are not inside memory of 1000"):
            communicator.copy(memory, memory, 20, target_offset=990)
        with pytest.raises(ArgumentError, match="a copy of 1000 bytes into 32; say how many"):
            communicator.copy(memory, np.zeros(4))
    with pytest.raises(ArgumentError, match="chunks of 0 bytes move nothing"):
        DeviceCommunicator(DEVICES, 0)
    with pytest.raises(UsageError, match="no backend drives devices of type 99"):
        DeviceCommunicator([(99, 0)])
    apis[EXT_DEV].free(memory)
    apis[EXT_DEV].free(stranger)


def test_a_device_that_is_lost_in_the_middle_is_told(apis: dict[int, SimulatedDevice]) -> None:
    first, last = place(apis, (EXT_DEV, 0)), place(apis, (OTHER_KIND, 0))
    writer = apis[OTHER_KIND]
    with DeviceCommunicator(DEVICES, 100) as communicator:
        writer.lost_at = writer.calls.total() + 12
        with pytest.raises(RunError, match="the device is lost"):
            communicator.copy(first, last)
        writer.lost_at = None
        assert communicator.copy(first, last) == "staged"
    apis[EXT_DEV].free(first)
    writer.free(last)
