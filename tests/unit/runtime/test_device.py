"""Devices: parsing, text, attributes."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import loopwright
from loopwright.errors import UsageError
from loopwright.runtime import (
    DEVICE_TYPES,
    Device,
    DeviceType,
    cpu,
    device,
    enabled,
    register_device_api,
)
from loopwright.runtime.memory import device_allocator
from loopwright.testing.simulated_device import SimulatedDevice


@pytest.mark.parametrize("text", ["cpu", "cpu(0)", "cpu:0", " CPU ", "llvm"])
def test_names_of_the_cpu(text: str) -> None:
    assert device(text) == cpu(0)


def test_text_and_codes() -> None:
    assert str(cpu()) == repr(cpu(0)) == "cpu(0)"
    assert device("cuda", 2) == Device(2, 2)
    assert str(device("opencl:1")) == "opencl(1)"
    assert (DEVICE_TYPES["cpu"], DEVICE_TYPES["metal"], DEVICE_TYPES["rocm"]) == (1, 8, 10)
    assert device(cpu(0)) == cpu(0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cup", r"unknown device 'cup' \(did you mean 'cpu'\?\)"),
        ("cpu(1)", r"cpu\(1\) does not exist"),
        ("cpu[0]", "is not understood"),
        ("", "is not understood"),
    ],
)
def test_bad_names(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        device(text)


def test_bad_numbers() -> None:
    with pytest.raises(UsageError, match="device type 99 is unknown"):
        Device(99)
    with pytest.raises(UsageError, match="negative"):
        Device(2, -1)


def test_attributes() -> None:
    here = cpu(0)
    assert here.exist
    assert here.device_name
    assert 1 <= here.multi_processor_count <= (os.cpu_count() or 1)
    assert here.total_memory > 1 << 28
    sizes = here.cache_sizes
    assert all(size > 0 for size in sizes.values())
    if {"L1d", "L2"} <= sizes.keys():
        assert sizes["L1d"] < sizes["L2"]
    assert not device("metal").exist
    with pytest.raises(
        UsageError, match=r"metal\(0\) cannot be used: this version runs kernels on"
    ):
        _ = device("metal").total_memory


def test_types_by_name_and_by_code() -> None:
    assert Device("cpu", 0) == Device("llvm") == Device(DeviceType.kDLCPU) == cpu(0)
    assert type(Device("cuda", 1).device_type) is int
    assert (Device("cuda", 1).device_type, Device("cuda", 1).device_id) == (2, 1)
    with pytest.raises(UsageError, match=r"unknown device 'cup' \(did you mean 'cpu'"):
        Device("cup")
    with pytest.raises(UsageError, match="device number '0' is no integer"):
        Device("cpu", "0")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="device type True is unknown"):
        Device(True)


def test_codes_are_those_of_dlpack() -> None:
    codes = {"cpu": "CPU", "cuda": "CUDA", "opencl": "OpenCL", "vulkan": "Vulkan"}
    codes |= {"metal": "Metal", "vpi": "VPI", "rocm": "ROCM", "ext_dev": "ExtDev"}
    for name, label in codes.items():
        assert DEVICE_TYPES[name] == DeviceType[f"kDL{label}"]
    assert DeviceType(np.zeros(1).__dlpack_device__()[0]) is DeviceType.kDLCPU


def test_attributes_of_gpus_are_none_on_a_cpu() -> None:
    here = cpu(0)
    names = ("max_threads_per_block", "warp_size", "compute_version", "api_version")
    assert [getattr(here, name) for name in names] == [None] * 4
    for name in (*names, "max_clock_rate"):
        with pytest.raises(UsageError, match="cannot be used"):
            getattr(device("metal"), name)


def test_the_clock_is_what_the_system_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopwright.runtime.devices.cpu.CLOCK_FILE", tmp_path / "clock")
    assert cpu().max_clock_rate is None
    (tmp_path / "clock").write_text("3500000\n")
    assert cpu().max_clock_rate == 3_500_000


def test_devices_of_targets_by_tvm_s_names() -> None:
    assert loopwright.device("llvm", 0) == loopwright.context("cpu") == cpu(0)
    assert device("llvm -mcpu=native -num-threads=2", 0) == device(1, 0) == cpu(0)
    assert device(dev_type="cuda", dev_id=1) == Device("cuda", 1)
    with pytest.raises(UsageError, match="device type 99 is unknown"):
        device(99)


def test_a_target_is_enabled_where_its_kernels_run() -> None:
    assert all(map(enabled, ("llvm", "c", "cpu", "interp", "llvm -mcpu=x86-64-v3")))
    assert not any(map(enabled, ("metal", "nothing", "")))


def test_sync_waits_for_devices_that_can_be_used_only() -> None:
    cpu().sync()
    with pytest.raises(
        UsageError, match=r"metal\(0\) cannot be used: this version runs kernels on"
    ):
        Device("metal").sync()


def test_names_of_tvm_before_it_took_those_of_dlpack() -> None:
    assert (DeviceType.kCPU, DeviceType.kGPU, DeviceType.kCuda) == (1, 2, 2)
    assert DeviceType.kROCM is DeviceType.kDLROCM
    assert (DeviceType.kExtDev, DeviceType.kMicroDev) == (12, 13)


def test_a_kind_of_devices_that_dlpack_does_not_name() -> None:
    class Npu(SimulatedDevice):
        name = "npu"

    with pytest.raises(UsageError, match="device type 77 is unknown"):
        Device(77)
    with pytest.raises(UsageError, match="unknown device 'npu:1'"):
        device("npu:1")
    with Npu(device_type=77):
        found = device("npu:1")
        assert (found, str(found), found.exist) == (Device(77, 1), "npu(1)", True)
        assert Device("npu", 0).name == "npu"
        assert enabled("npu")
        assert loopwright.nd.array([1.0, 2.0], "float32", "npu:0").numpy().tolist() == [1, 2]
        with pytest.raises(UsageError, match=r"npu\(5\) cannot be used: .*npu\(0\) to npu\(1\)"):
            device("npu:5").require()
        with pytest.raises(UsageError, match=r"77 \(npu\)"):
            Device(78)
        gc.collect()
        device_allocator(Device(77)).release_cached()
    assert not found.exist
    assert str(found) == "unregistered(1)"
    for code in (0, -1, True, "npu"):
        with pytest.raises(UsageError, match="is no whole number from 1"):
            register_device_api(code, Npu)  # type: ignore[arg-type]


def test_what_is_no_device_is_refused_in_words() -> None:
    for wrong in ([1], 2.0, None, (2, 0)):
        with pytest.raises(UsageError, match=r"device type .* is unknown; the codes are 1 \(cpu\)"):
            device(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'cuda:1' and the number 2 are two devices"):
        device("cuda:1", 2)
    assert device("cuda:1", 1) == device("cuda:1") == device("cuda", 1)
    with pytest.raises(UsageError, match="expected the text of a target or device, got None"):
        enabled(None)  # type: ignore[arg-type]
