"""Arrays on a device for timing and checks, on a device that is simulated and strict."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

from loopwright.errors import DeviceLostError, RunError
from loopwright.measure.workers.device_kernels import DeviceHost, DeviceMemory
from loopwright.measure.workers.kernel_host import KernelArrays
from loopwright.runtime import Arg, Device
from loopwright.runtime.devices.interface import HOST, Memory
from loopwright.testing.simulated_device import SimulatedDevice

ARGS = [
    Arg("A", (3,), np.dtype("int32"), False),
    Arg("B", (2, 2), np.dtype("float32"), True),
    Arg("C", (0,), np.dtype("float32"), True),
]


@pytest.fixture
def simulated() -> Iterator[SimulatedDevice]:
    with SimulatedDevice() as device:
        yield device
        gc.collect()  # what a failed test still holds is its own trouble


DEVICE = Device("ext_dev", 0)


def write(memory: DeviceMemory, number: int, offset: int) -> None:
    """A byte of 1 beside, or in, the array of an argument."""
    block, one = memory._blocks[number], np.ones(1, np.uint8)
    host = Memory(HOST, 0, int(one.ctypes.data), 1, owner=one)
    DEVICE.api.copy(host, 0, block, 4096 + offset, 1)
    DEVICE.sync()


def test_inputs_are_written_outputs_poisoned_and_both_judged(simulated: SimulatedDevice) -> None:
    memory = DeviceMemory(ARGS, DEVICE)
    data = KernelArrays(memory, 0)
    a, b, _ = (memory.read(n) for n in range(3))
    np.testing.assert_array_equal(a, data.inputs(0)[0])
    assert np.isnan(b).all()
    expected = [np.full((2, 2), 2.0, "float32"), np.zeros(0, "float32")]
    memory.write(1, expected[0])
    assert memory.judge(data.inputs(0), expected, 1) == (0.0, None)
    memory.set_element(0, 2, np.array([7, 8, 9], "int32"))
    assert memory.read(0).tolist() == [*a[:2], 9]
    assert "it changed its input A" in str(memory.judge(data.inputs(0), expected, 1).problem)
    data.restore(1)
    np.testing.assert_array_equal(memory.read(0), data.inputs(1)[0])
    del memory, data


@pytest.mark.parametrize("offset", [-1, 16, 4096 + 15])
def test_a_write_beside_an_array_is_found(simulated: SimulatedDevice, offset: int) -> None:
    memory = DeviceMemory(ARGS, DEVICE)
    assert memory.written_outside() is None
    write(memory, 1, 3)
    assert memory.written_outside() is None
    write(memory, 1, offset)
    assert memory.written_outside() == "it wrote outside the memory of B"
    del memory


def test_memory_is_given_back_as_soon_as_nobody_uses_it(simulated: SimulatedDevice) -> None:
    gc.disable()
    try:
        memory = DeviceMemory(ARGS, DEVICE)
        other = memory.beside()
        assert other.read(1).tobytes() == memory.read(1).tobytes()
        assert other.arrays[1] is memory.arrays[1]
        assert other.arrays[0] is not memory.arrays[0]
        assert other.written_outside() is None
        taken = simulated.used_bytes(0)
        assert taken >= 4 * 2 * 4096
        del other
        assert 0 < simulated.used_bytes(0) < taken
        del memory
        assert simulated.used_bytes(0) == 0
    finally:
        gc.enable()


def test_memory_of_checks_is_used_again_where_it_fits(simulated: SimulatedDevice) -> None:
    checks = DeviceHost(DEVICE).check_memory(ARGS, 0)
    assert checks.fits(ARGS, 0)
    assert not checks.fits(ARGS[:1], 0)
    del checks


def test_a_device_is_probed_when_it_is_opened(simulated: SimulatedDevice) -> None:
    host = DeviceHost(DEVICE)
    assert (host.device_type, simulated.used_bytes(0)) == ("ext_dev", 0)
    simulated.fill = lambda memory, value, stream=None: None  # type: ignore[method-assign]
    with pytest.raises(RunError, match="does not give back what was written to it"):
        host.probe()


def test_a_device_that_is_lost_says_so_when_it_is_probed() -> None:
    simulated = SimulatedDevice()
    simulated.__enter__()
    try:
        host = DeviceHost(DEVICE)
        simulated.lost_at = 0
        with pytest.raises((DeviceLostError, RunError), match="lost"):
            host.probe()
    finally:
        simulated.__exit__(RuntimeError)
