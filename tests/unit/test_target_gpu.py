"""Targets of GPUs: limits from the device that is here, else from tables; TVM's spellings."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from loopwright.errors import TargetError
from loopwright.target import Target, gpu


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "cuda_device", lambda: None)
    monkeypatch.setattr(gpu, "opencl_device", lambda: None)


def test_tables_where_there_is_no_device(no_device: None) -> None:
    cuda, opencl = Target("cuda").options, Target("opencl").options
    assert (cuda["arch"], cuda["max_shared_memory_per_block"]) == ("sm_90", 232448)
    assert (cuda["registers_per_block"], cuda["thread_warp_size"]) == (65536, 32)
    assert (opencl["max_threads_per_block"], opencl["max_shared_memory_per_block"]) == (256, 32768)
    assert Target("cuda -arch=sm_75").options["max_shared_memory_per_block"] == 65536


def test_the_device_that_is_here_says_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"arch": "sm_89", "multi_processor_count": 77, "max_shared_memory_per_block": 101376}
    monkeypatch.setattr(gpu, "cuda_device", lambda: here)
    options = Target("cuda").options
    assert (options["arch"], options["multi_processor_count"]) == ("sm_89", 77)
    assert Target("cuda -multi_processor_count=9").options["multi_processor_count"] == 9
    other = Target("cuda -arch=sm_80").options
    assert (other["multi_processor_count"], other["max_shared_memory_per_block"]) == (108, 166912)
    monkeypatch.setattr(gpu, "opencl_device", lambda: {"max_threads_per_block": 512})
    options = Target("opencl").options
    assert (options["max_threads_per_block"], options["thread_warp_size"]) == (512, 1)


def test_a_target_from_a_record_asks_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [Target("cuda -arch=sm_80").canonical, Target("opencl").canonical]

    def never() -> None:
        raise AssertionError("a device was asked")

    monkeypatch.setattr(gpu, "cuda_device", never)
    monkeypatch.setattr(gpu, "opencl_device", never)
    assert [Target.from_canonical(c).canonical for c in made] == made


def test_strings_of_tvm(no_device: None) -> None:
    target = Target(
        "cuda -keys=cuda,gpu -arch=sm_86 -max_num_threads=512 -libs=cudnn,cublas -device=rtx "
        "-mtriple=nvptx64-nvidia-cuda -thread_warp_size=32"
    )
    assert target == Target("cuda -arch=sm_86 -max_threads_per_block=512")
    assert not {"libs", "device", "mtriple"} & set(target.canonical)
    assert Target("opencl -device=mali -max_function_args=128") == Target("opencl")


def test_an_architecture_that_is_not_known_is_refused() -> None:
    with pytest.raises(TargetError, match="unknown CUDA architecture 'sm_70'; known: sm_75, "):
        Target("cuda -arch=sm_70")


# ------------------------------------------------------------------ the drivers' libraries


@pytest.fixture
def fresh() -> Iterator[None]:
    gpu.cuda_device.cache_clear()
    gpu.opencl_device.cache_clear()
    yield
    gpu.cuda_device.cache_clear()
    gpu.opencl_device.cache_clear()


def no_library(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


def test_without_a_library_there_is_no_device(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", no_library)
    assert gpu.cuda_device() is None
    assert gpu.opencl_device() is None


class Driver:
    """A driver for CUDA with some devices of capability 8.6."""

    def __init__(self, devices: int, broken: bool = False) -> None:
        self.devices, self.broken = devices, broken

    def cuInit(self, flags: int) -> int:
        return 100 if self.broken else 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.devices
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:
        device._obj.value = number
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:
        known = {1: 1024, 10: 32, 12: 65536, 16: 84, 75: 8, 76: 6}
        value._obj.value = known.get(attribute, 0)
        return 0 if attribute in known else 1


@pytest.mark.parametrize("driver", [Driver(0), Driver(1, broken=True)])
def test_a_driver_without_a_device(
    driver: Driver, fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    assert gpu.cuda_device() is None


def test_what_a_driver_tells(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute that it refuses is left to the tables."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(1))
    assert gpu.cuda_device() == {
        "max_threads_per_block": 1024,
        "thread_warp_size": 32,
        "registers_per_block": 65536,
        "multi_processor_count": 84,
        "arch": "sm_86",
    }


def test_the_opencl_device_here_says_what_pyopencl_says(fresh: None) -> None:
    cl = pytest.importorskip("pyopencl", reason="needs pyopencl: pip install pyopencl")
    found = gpu.opencl_device()
    if found is None:
        pytest.skip("no OpenCL device: apt-get install pocl-opencl-icd ocl-icd-libopencl1")
    devices = [d for p in cl.get_platforms() for d in p.get_devices()]
    told = [(d.max_work_group_size, d.local_mem_size, d.max_compute_units) for d in devices]
    names = ("max_threads_per_block", "max_shared_memory_per_block", "multi_processor_count")
    assert tuple(found[n] for n in names) in told
