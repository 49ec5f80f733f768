"""What is refused before it is used, and in which words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from loopwright.errors import ArgumentError, LoopwrightError, TensorError, UsageError
from loopwright.runtime import Device, RuntimeChecker, checker, cpu, empty
from loopwright.runtime.devices.interface import Memory, register_device_api, unregister_device_api

EXT = 12
CHECK = RuntimeChecker()


@pytest.fixture
def two_devices() -> Iterator[SimpleNamespace]:
    api = SimpleNamespace(count=lambda: 2, why_absent=lambda: "")
    register_device_api(EXT, lambda: api)  # type: ignore[arg-type, return-value]
    yield api
    unregister_device_api(EXT)


def test_devices_that_are_there(two_devices: SimpleNamespace) -> None:
    CHECK.check_device("cpu")
    CHECK.check_device(1, 0)
    CHECK.check_device(cpu(0))
    for number in (0, 1):
        CHECK.check_device("ext_dev", number)
        CHECK.check_device(Device("ext_dev", number))


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (("cpu", -1), "device number -1 is no whole number from 0"),
        (("cpu", 1.0), "device number 1.0 is no whole number"),
        (("cpu", True), "device number True"),
        (("cpu", 1), r"cpu\(1\) does not exist: all processors together are cpu\(0\)"),
        (("ext_dev", 2), r"ext_dev\(2\) cannot be used: .* there is ext_dev\(0\) to ext_dev\(1\)"),
        (("vpi", 0), r"vpi\(0\) cannot be used: this version runs kernels on .*, not on vpi"),
        (("cudo", 0), "did you mean 'cuda'"),
        ((77, 0), "device type 77 is unknown"),
    ],
)
def test_devices_that_are_not(
    two_devices: SimpleNamespace, device: tuple[Any, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        CHECK.check_device(*device)


def test_a_driver_that_is_missing_is_named(two_devices: SimpleNamespace) -> None:
    two_devices.count = lambda: 0
    two_devices.why_absent = lambda: "its driver is missing; apt-get install it"
    with pytest.raises(
        UsageError, match=r"ext_dev\(0\) cannot be used: its driver is missing; apt"
    ):
        CHECK.check_device("ext_dev")


def piece(handle: int = 4096, nbytes: int = 100, device_id: int = 0) -> Memory:
    return Memory(2, device_id, handle, nbytes)


def test_memory_that_may_be_touched() -> None:
    check, memory = RuntimeChecker(), piece()
    check.allocated(memory)
    check.check_memory(memory)
    check.check_memory(memory, 100)
    check.check_memory(memory, 1, 99, Device("cuda", 0))
    check.check_memory(memory, 0, 100)
    check.check_memory(memory.part(10, 50).part(40, 10), 10)
    nothing = piece(0, 0)
    check.allocated(nothing)
    check.check_memory(nothing, 0)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda c, m: c.check_memory(None), "the memory is None"),
        (lambda c, m: c.check_memory(piece(0)), r"memory at 0 of cuda\(0\) is a null pointer"),
        (lambda c, m: c.check_memory(piece()), r"at 4096 of cuda\(0\) is not known here"),
        (lambda c, m: c.check_memory(piece(4096, 100, 1)), r"of cuda\(1\) is not known here"),
        (lambda c, m: c.check_memory(m, 101), "bytes 0 to 101 are not inside .* which has 100"),
        (lambda c, m: c.check_memory(m, 1, 100), "bytes 100 to 101 are not inside"),
        (lambda c, m: c.check_memory(m, 1, -1), "bytes -1 to 0 are not inside"),
        (lambda c, m: c.check_memory(m, -1, 5), "bytes 5 to 4 are not inside"),
        (lambda c, m: c.check_memory(m.part(0, 10), 11), "bytes 0 to 11 .* which has 10"),
        (lambda c, m: c.check_memory(m, 1, 0, cpu(0)), r"of cuda\(0\) is not of cpu\(0\); copy"),
        (lambda c, m: c.check_memory(m, 1, 0, Device("cuda", 1)), r"is not of cuda\(1\); copy"),
        (lambda c, m: c.freed(m.part(0, 10)), "is a part of a piece; free the whole"),
        (lambda c, m: c.freed(piece()), "is not known here"),
    ],
)
def test_memory_that_must_not(use: Callable[[RuntimeChecker, Memory], None], message: str) -> None:
    check, memory = RuntimeChecker(), piece()
    check.allocated(memory)
    with pytest.raises(ArgumentError, match=message):
        use(check, memory)
    check.check_memory(memory, 100)


def test_freed_memory_and_its_parts_are_gone_and_its_place_can_be_used_again() -> None:
    check, memory = RuntimeChecker(), piece()
    check.allocated(memory)
    part = memory.part(50, 10)
    check.freed(memory)
    uses: list[Callable[[], None]] = [
        lambda: check.check_memory(memory),
        lambda: check.check_memory(part),
        lambda: check.freed(memory),
        lambda: check.freed(part),
    ]
    for use in uses:
        with pytest.raises(ArgumentError, match="was freed; allocate it again"):
            use()
    again = piece()
    check.allocated(again)
    check.check_memory(again, 100)
    for use in uses:  # it is another piece, though at the same place
        with pytest.raises(ArgumentError, match="is not known here"):
            use()


def test_only_the_latest_of_freed_pieces_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "_REMEMBERED", 2)
    check = RuntimeChecker()
    pieces = [piece(4096 * n) for n in (1, 2, 3)]
    for memory in pieces:
        check.allocated(memory)
        check.freed(memory)
    words = []
    for memory in pieces:
        with pytest.raises(ArgumentError) as caught:
            check.check_memory(memory)
        words.append("was freed" in str(caught.value))
    assert words == [False, True, True]


def like_tensor(**other: Any) -> SimpleNamespace:
    fields = {"shape": (2, 3), "dtype": "float32", "device": Device("cuda", 0), "data": 4096}
    return SimpleNamespace(**{**fields, **other})


def test_tensors_that_can_be_used() -> None:
    CHECK.check_tensor(np.zeros((2, 3), "int8"), cpu(0), "int8")
    CHECK.check_tensor(np.zeros((2, 3), "int8")[:, ::2])
    CHECK.check_tensor(np.zeros((0, 3)))
    CHECK.check_tensor(empty((2, 3)), cpu(0), "float32")
    CHECK.check_tensor(like_tensor(), Device("cuda", 0), "float32")
    CHECK.check_tensor(like_tensor(shape=()))
    CHECK.check_tensor(like_tensor(shape=(0, 3), data=None))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (None, "the tensor is a NoneType and no array"),
        ([1, 2], "the tensor is a list and no array"),
        (like_tensor(data=0), "has no memory: its address is null"),
        (like_tensor(data=None), "has no memory"),
        (like_tensor(shape=(2, -3)), r"has the shape \(2, -3\), with a negative extent"),
        (like_tensor(shape=(2, 1.5)), "extents are whole numbers"),
        (like_tensor(dtype="float16"), "holds float16, expected float32; convert it with astype"),
        (like_tensor(device=cpu(0)), r"is on cpu\(0\), expected cuda\(0\); copy it there first"),
    ],
)
def test_tensors_that_cannot(tensor: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        CHECK.check_tensor(tensor, Device("cuda", 0), "float32")


def test_a_type_that_there_is_not() -> None:
    for call in (
        lambda: CHECK.check_tensor(like_tensor(dtype="float33")),
        lambda: CHECK.check_tensor(like_tensor(), dtype="float33"),
    ):
        with pytest.raises(TensorError, match="float33"):
            call()
    with pytest.raises(LoopwrightError, match=r"^argument 1 is a str"):
        CHECK.check_tensor("text", name="argument 1")
