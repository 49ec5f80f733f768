"""Parameters in safetensors files, against the format as it is written down, and damage to them."""

from __future__ import annotations

import gc
import json
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loopwright as lw
from loopwright import dtypes
from loopwright.errors import ArgumentError, RunError, UsageError
from loopwright.runtime import NDArray, load_params, save_params
from loopwright.runtime.memory import device_allocator
from loopwright.testing.simulated_device import SimulatedDevice

CODES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}


def file_of(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_file_made_by_hand_is_read(tmp_path: Path) -> None:
    """Names in another order than the bytes, an unaligned array, one without elements."""
    floats = struct.pack("<3f", 1.5, -2.0, 0.25)
    header = {
        "__metadata__": {"made": "by hand"},
        "z": entry("F32", [3], 1, 13),
        "a": entry("I8", [1], 0, 1),
        "none": entry("F32", [0, 4], 13, 13),
        "scalar": entry("BF16", [], 13, 15),
    }
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of(header, b"\xfb" + floats + b"\x80\x3f"))
    for mmap in (False, True):
        got = load_params(path, mmap=mmap)
        assert list(got) == ["a", "none", "scalar", "z"]
        np.testing.assert_array_equal(got["z"].numpy(), np.array([1.5, -2, 0.25], "float32"))
        np.testing.assert_array_equal(got["a"].numpy(), np.array([-5], "int8"))
        assert (got["none"].shape, got["none"].dtype) == ((0, 4), "float32")
        assert (got["scalar"].shape, got["scalar"].dtype) == ((), "bfloat16")
        assert float(got["scalar"].numpy()) == 1.0


@pytest.mark.parametrize("dtype", CODES)
def test_what_is_written_is_what_the_format_says(dtype: str, tmp_path: Path) -> None:
    dtypes.check(dtype)
    a = np.arange(6).reshape(2, 3).astype(dtype)
    path = save_params(tmp_path / "x.safetensors", {"byte": np.ones(3, "int8"), "a": a})
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    assert set(header) == {"__metadata__", "a", "byte"}
    assert header["__metadata__"] == {"made_by": "loopwright"}
    assert header["a"]["dtype"] == CODES[dtype]
    assert header["a"]["shape"] == [2, 3]
    begin, end = header["a"]["data_offsets"]
    assert raw[8 + length :][begin:end] == a.tobytes()
    assert length % 8 == 0
    assert begin % a.itemsize == 0


def values(dtype: str) -> st.SearchStrategy[bytes]:
    most = 1 if dtype == "bool" else 255
    size = dtypes.nbytes(dtype)
    return st.lists(st.integers(0, most), min_size=6 * size, max_size=6 * size).map(bytes)


PARAMS = st.dictionaries(
    st.text(max_size=8).filter(lambda s: s != "__metadata__"),
    st.sampled_from(sorted(CODES)).flatmap(lambda d: st.tuples(st.just(d), values(d))),
    max_size=5,
)


@settings(max_examples=40)
@given(PARAMS, st.booleans())
def test_round_trip(params: Mapping[str, tuple[str, bytes]], mmap: bool) -> None:
    """To the bit, NaN included, under any names."""
    dtypes.check("bfloat16")
    arrays = {n: np.frombuffer(raw, d).reshape(2, 3) for n, (d, raw) in params.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = save_params(Path(folder) / "x", arrays)
        got = load_params(path, mmap=mmap)
        assert {n: (a.dtype, a.numpy().tobytes()) for n, a in got.items()} == params


def test_arrays_of_the_runtime_are_saved_and_kernels_take_them(tmp_path: Path) -> None:
    a = lw.nd.array(np.arange(4, dtype="float32"))
    got = load_params(save_params(tmp_path / "x", {"a": a}))["a"]
    assert isinstance(got, NDArray)
    np.testing.assert_array_equal(got.numpy(), a.numpy())
    got[0] = 9  # it is the caller's own
    mapped = load_params(tmp_path / "x", mmap=True)["a"]
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 9


def test_arrays_of_devices_are_saved_by_their_elements(tmp_path: Path) -> None:
    with SimulatedDevice() as device:
        a = lw.nd.array(np.arange(4, dtype="float32"), device="ext_dev:0")
        got = load_params(save_params(tmp_path / "x", {"a": a}))["a"]
        assert (str(got.device), got.numpy().tolist()) == ("cpu(0)", [0, 1, 2, 3])
        del a
        gc.collect()
        device_allocator((device.device_type, 0)).release_cached()


GOOD = {"a": entry("F32", [2], 0, 8), "b": entry("I8", [4], 8, 12)}
DATA = bytes(range(12))


def edited(**changes: Any) -> dict[str, object]:
    return {**GOOD, **changes}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it has 0 bytes"),
        (b"1234567", "it has 7 bytes"),
        (struct.pack("<Q", 1 << 40) + b"{}", "its header would have 1099511627776 bytes"),
        (struct.pack("<Q", (1 << 64) - 1) + b"{}", "its header would have"),
        (struct.pack("<Q", 3) + b"{}", "its header would have 3 bytes"),
        (struct.pack("<Q", 2) + b"{]", "no JSON"),
        (struct.pack("<Q", 2) + b"\xff\xff", "no JSON"),
        (struct.pack("<Q", 9) + b'{"a":1,  ', "no JSON"),
        (struct.pack("<Q", 13) + b'{"a":1,"a":2}', "a name occurs twice"),
        (struct.pack("<Q", 60000) + b"[" * 60000, "no JSON"),
        (file_of([], b""), "no JSON object"),
        (file_of({"a": 3}, b""), "its array 'a' is 3"),
        (file_of(edited(a=entry("F33", [2], 0, 8)), DATA), "its array 'a'"),
        (file_of(edited(a=entry("F32", [3], 0, 8)), DATA), "its array 'a'"),
        (file_of(edited(a=entry("F32", [-2], 0, -8)), DATA), "its array 'a'"),
        (file_of(edited(a=entry("F32", [True], 0, 4)), DATA), "its array 'a'"),
        (file_of(edited(a=entry("F32", [2.0], 0, 8)), DATA), "its array 'a'"),  # type: ignore[list-item]
        (file_of(edited(a=entry("F32", [1 << 62, 4], 0, 8)), DATA), "its array 'a'"),
        (file_of(edited(a=entry("F32", [0] * 40, 0, 0)), DATA), "its array 'a'"),
        (file_of(edited(b=entry("I8", [4], 4, 8)), DATA), "'b' begins at byte 4, expected 8"),
        (file_of(edited(b=entry("I8", [4], 9, 13)), DATA + b"x"), "'b' begins at byte 9"),
        (file_of(GOOD, DATA[:-1]), "its arrays take 12 bytes, the file has 11"),
        (file_of(GOOD, DATA + b"x"), "its arrays take 12 bytes, the file has 13"),
        (file_of({"a": entry("BOOL", [1], 0, 1)}, b"\x02"), "a bool that is neither 0 nor 1"),
    ],
)
@pytest.mark.parametrize("mmap", [False, True])
def test_damaged_files_are_refused(content: bytes, why: str, mmap: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=why):
        load_params(path, mmap=mmap)


def test_the_file_that_the_damaged_ones_come_from_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of(GOOD, DATA))
    assert set(load_params(path)) == {"a", "b"}


def test_files_that_are_not_there_or_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        load_params(tmp_path / "none")
    with pytest.raises(RunError, match="cannot read"):
        load_params(tmp_path)
    with pytest.raises(RunError, match="cannot write"):
        save_params(tmp_path / "no" / "folder", {})


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ([np.zeros(1)], "expected a dict of arrays"),
        ({3: np.zeros(1)}, "3 cannot be the name"),
        ({"__metadata__": np.zeros(1)}, "cannot be the name"),
        ({"a": [1, 2]}, r"'a' is \[1, 2\] \(a list\), no array"),
        ({"a": np.zeros((4, 4)).T[:, :2]}, "save_params: 'a': .*not row-major"),
        ({"a": np.zeros(2, "complex64")}, "save_params: 'a': .*complex64"),
    ],
)
def test_what_cannot_be_saved(params: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=why):
        save_params(tmp_path / "x", params)
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    path = save_params(tmp_path / "x", {"a": np.zeros(1)})
    with pytest.raises(ArgumentError):
        save_params(path, {"a": np.ones(1), "b": "text"})
    assert list(load_params(path)) == ["a"]
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
