"""Devices: parsing, text, attributes."""

from __future__ import annotations

import os

import pytest

from loopwright.errors import UsageError
from loopwright.runtime import DEVICE_TYPES, Device, cpu, device


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
    assert not device("cuda").exist
    with pytest.raises(UsageError, match=r"cuda\(0\) cannot be used"):
        _ = device("cuda").total_memory
