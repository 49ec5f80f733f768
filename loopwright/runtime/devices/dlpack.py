"""DLPack capsules, read and made: how libraries hand each other arrays without a copy.

NumPy does this for memory of the host. Here it is done for memory of any device, and for capsules
that come alone, as in DLPack's first version: a capsule named ``dltensor`` can be consumed once, is
then named ``used_dltensor``, and whoever consumed it calls its deleter once.
"""

from __future__ import annotations

import ctypes
import itertools
from math import prod
from typing import Any, NamedTuple

from loopwright.errors import ArgumentError

_FRESH, _USED = b"dltensor", b"used_dltensor"
#: DLPack's codes of kinds of elements.
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}
_KINDS = {code: kind for kind, code in _CODES.items()}
# Functions of `ctypes.pythonapi` itself are shared: other packages declare other types for them.
_api = ctypes.PyDLL(None, handle=ctypes.pythonapi._handle)
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_api.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_api.PyCapsule_SetName.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


class _Tensor(ctypes.Structure):
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

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Exchanged(NamedTuple):
    """What a capsule says of its memory.

    Attributes:
        address: of the first byte, or the handle of a device that has no addresses.
        offset: bytes from there to the first element.
        shape: extents.
        contiguous: whether it is row-major without gaps.
        dtype: name of the element type.
        device_type, device_id: of the device that holds it.
        owner: keeps the memory alive; the capsule's deleter is called when it goes.
    """

    address: int
    offset: int
    shape: tuple[int, ...]
    contiguous: bool
    dtype: str
    device_type: int
    device_id: int
    owner: object


class _Consumed:
    """Calls the deleter of a capsule that was consumed, once."""

    def __init__(self, managed: int) -> None:
        self._managed = managed

    def __del__(self) -> None:
        deleter = _Managed.from_address(self._managed).deleter
        if deleter:
            _Deleter(deleter)(self._managed)


def is_capsule(source: object) -> bool:
    """Whether an object is a capsule of DLPack's first version, consumed or not."""
    return type(source).__name__ == "PyCapsule" and any(
        _api.PyCapsule_IsValid(id(source), name) for name in (_FRESH, _USED)
    )


def consume(capsule: object) -> Exchanged:
    """Read a capsule and mark it as used.

    Raises:
        ArgumentError: it was consumed before, or its elements are of a type without a name here.
    """
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


# What capsules of ours hold, by the number in their context, until they are deleted.
_held: dict[int, tuple[object, ...]] = {}
_numbers = itertools.count(1)


def export(
    address: int, shape: tuple[int, ...], dtype: str, device: tuple[int, int], owner: object
) -> Any:
    """A capsule for memory that ``owner`` keeps alive.

    Args:
        address: of the first element, or the handle of a device that has no addresses.
        shape: extents; row-major without gaps.
        dtype: name of the element type.
        device: DLPack's code and number of the device.
        owner: held until the capsule's deleter is called.
    """
    kind = dtype.rstrip("0123456789")
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    bits = 8 if kind == "bool" else int(dtype.removeprefix(kind))
    pointer = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    tensor = _Tensor(address, *device, len(shape), _CODES[kind], bits, 1, pointer, None, 0)
    number = next(_numbers)
    managed = _Managed(tensor, number, ctypes.cast(_deleter, ctypes.c_void_p).value)
    _held[number] = (owner, extents, managed)
    destructor = ctypes.cast(_destructor, ctypes.c_void_p).value
    return _api.PyCapsule_New(ctypes.addressof(managed), _FRESH, destructor)


def _delete(managed: int) -> None:
    _held.pop(_Managed.from_address(managed).context, None)


def _destroy(capsule: int) -> None:
    """A capsule goes; if nobody consumed it, its memory is let go here."""
    if _api.PyCapsule_IsValid(capsule, _FRESH):
        _delete(_api.PyCapsule_GetPointer(capsule, _FRESH))


_deleter, _destructor = _Deleter(_delete), _Deleter(_destroy)
