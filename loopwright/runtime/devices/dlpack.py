"""DLPack capsules, read and made: exchange of arrays between libraries without a copy.

NumPy does this for memory of the host. Here it is done for memory of any device, and for capsules
that come alone, as in DLPack's first version: a capsule named ``dltensor`` can be consumed once, is
then named ``used_dltensor``, and the consumer calls its deleter once.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any, NamedTuple

import numpy as np

from loopwright.errors import ArgumentError

_FRESH, _USED = b"dltensor", b"used_dltensor"
_VERSIONED = b"dltensor_versioned"
#: DLPack's codes of kinds of elements.
TYPE_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}
_KINDS = {code: kind for kind, code in TYPE_CODES.items()}
# Functions of `ctypes.pythonapi` itself are shared: other packages declare other types for them.
_api = ctypes.PyDLL(None, handle=ctypes.pythonapi._handle)
_api.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_api.PyCapsule_SetName.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


class DLTensor(ctypes.Structure):
    """``DLTensor`` of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    """``DLManagedTensor`` of dlpack.h."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Exchanged(NamedTuple):
    """Memory that a capsule describes."""

    #: Of the first byte, or the handle of a device that has no addresses.
    address: int
    #: Bytes from there to the first element.
    offset: int
    shape: tuple[int, ...]
    #: Whether it is row-major without gaps.
    contiguous: bool
    dtype: str
    device_type: int
    device_id: int
    #: Keeps the memory alive; the capsule's deleter is called when it goes.
    owner: object


class _Consumed:
    """Calls the deleter of a consumed capsule, once."""

    def __init__(self, managed: int) -> None:
        self._managed = managed

    def __del__(self) -> None:
        deleter = _Managed.from_address(self._managed).deleter
        if deleter:
            _Deleter(deleter)(self._managed)


def is_capsule(source: object) -> bool:
    """Whether an object is a capsule, consumed or not."""
    return type(source).__name__ == "PyCapsule"


def consume(capsule: object) -> Exchanged:
    """Read a capsule and mark it as used; ArgumentError where it is used already or unsupported."""
    if _api.PyCapsule_IsValid(id(capsule), _VERSIONED):
        raise ArgumentError(
            "from_dlpack: a capsule of DLPack's later version; pass the array itself, or ask it "
            "for __dlpack__() without max_version"
        )
    if not _api.PyCapsule_IsValid(id(capsule), _FRESH):
        raise ArgumentError("from_dlpack: the capsule was consumed before; ask for a new one")
    managed = int(_api.PyCapsule_GetPointer(id(capsule), _FRESH))
    tensor = _Managed.from_address(managed).tensor
    kind = _KINDS.get(tensor.code)
    if kind is None or tensor.lanes != 1:
        raise ArgumentError(
            f"from_dlpack: elements of DLPack's type {tensor.code} with {tensor.lanes} lanes have "
            "no dtype here"
        )
    shape = tuple(tensor.shape[d] for d in range(tensor.ndim))
    strides = tuple(tensor.strides[d] for d in range(tensor.ndim)) if tensor.strides else None
    _api.PyCapsule_SetName(id(capsule), _USED)
    return Exchanged(
        int(tensor.data or 0),
        int(tensor.byte_offset),
        shape,
        strides is None or _is_row_major(shape, strides),
        kind if kind == "bool" else f"{kind}{tensor.bits}",
        int(tensor.device_type),
        int(tensor.device_id),
        _Consumed(managed),
    )


def _is_row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    wanted = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
    return 0 in shape or all(
        n == 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True)
    )


def export(
    address: int,
    offset: int,
    shape: tuple[int, ...],
    dtype: str,
    device: tuple[int, int],
    owner: object,
) -> Any:
    """A capsule for row-major memory that ``owner`` keeps alive until the deleter is called.

    NumPy makes it, for an array of that shape whose bytes nobody reads; then it is told the real
    address. So capsule and deleter are NumPy's, which are written in C: a destructor in Python
    could not run where a consumer has raised. ``address`` may be the handle of a device that has no
    addresses; ``offset`` is the bytes from there to the first element.
    """
    # NumPy has no code for foreign types; a type of the same width stands in until the code is set.
    stand_in = np.dtype("uint16" if dtype == "bfloat16" else dtype)
    raw = (ctypes.c_uint8 * (prod(shape) * stand_in.itemsize)).from_address(address)
    vars(raw)["owner"] = owner
    capsule = np.frombuffer(raw, stand_in).reshape(shape).__dlpack__()  # type: ignore[call-overload]
    tensor = _Managed.from_address(_api.PyCapsule_GetPointer(id(capsule), _FRESH)).tensor
    tensor.data, tensor.byte_offset = address, offset
    tensor.device_type, tensor.device_id = device
    tensor.code = TYPE_CODES[dtype.rstrip("0123456789")]
    return capsule
