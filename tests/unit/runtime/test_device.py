"""Devices: parsing, text, attributes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import loopwright
from loopwright.errors import UsageError
from loopwright.runtime import DEVICE_TYPES, Device, DeviceType, cpu, device, enabled


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
