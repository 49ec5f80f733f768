"""The kinds of values of packed functions, and conversion of other values to them.

Python's own containers serve: a tuple is an array and a shape, a dict a map, a str a string, None
a missing value. They pass by reference, as any other object does.
"""

from __future__ import annotations

import ctypes

import numpy as np

from loopwright import dtypes
from loopwright.errors import ArgumentError, TensorError
from loopwright.runtime.arrays.host import NDArray
from loopwright.runtime.devices.device import Device, cpu
from loopwright.runtime.ndarray import from_dlpack

#: Every kind, and the Python value that a function gets.
KINDS = {
    "none": "None",
    "bool": "a bool",
    "int": "an int of 64 bits",
    "float": "a float",
    "str": "a str",
    "bytes": "bytes",
    "handle": "an address, as ctypes.c_void_p",
    "dtype": "a numpy.dtype",
    "device": "a Device",
    "array": "an NDArray",
    "module": "a Module",
    "function": "a PackedFunc",
    "object": "any other object, by reference",
}
#: Classes by kind; subclasses are of the kind of their nearest base.
_CLASSES: dict[type, str] = {
    type(None): "none",
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    bytes: "bytes",
    ctypes.c_void_p: "handle",
    np.dtype: "dtype",
    Device: "device",
    NDArray: "array",
    object: "object",
}


def enter_kind(cls: type, kind: str) -> None:
    """Let values of a class, and of classes derived from it, be of a kind."""
    _CLASSES[cls] = kind


def kind_of(value: object) -> str:
    """The kind of a value, one of `KINDS`, after conversion by `packed`.

    Example:
        >>> kind = lw.runtime.kind_of
        >>> print(kind(3), kind(2.5), kind("x"), kind(np.zeros(2)), kind(print), kind([1]))
        int float str array function object
    """
    if isinstance(value, np.bool_):
        return "bool"
    if isinstance(value, np.integer):
        return "int"
    if isinstance(value, np.floating):
        return "float"
    if isinstance(value, bytearray | memoryview):
        return "bytes"
    found = next(_CLASSES[c] for c in type(value).__mro__ if c in _CLASSES)
    if found != "object" or isinstance(value, type):
        return found
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return "array"
    return "function" if callable(value) else "object"


def packed(value: object, who: str) -> object:
    """A value as functions get it; functions are left to the caller.

    Numbers of NumPy become Python's, arrays an `NDArray` over the same memory. ArgumentError, with
    `who` as in ``"f: argument 0"``, for an integer of more than 64 bits (unsigned ones too), or an
    array that is not row-major or cannot be shared.
    """
    match kind_of(value):
        case "bool":
            return bool(value)
        case "int":
            return _integer(int(value), who)  # type: ignore[call-overload]
        case "float":
            return float(value)  # type: ignore[arg-type]
        case "str":
            return str(value)
        case "bytes":
            return bytes(value)  # type: ignore[call-overload]
        case "array":
            return _array(value, who)
    return value


def _integer(value: int, who: str) -> int:
    if not -(1 << 63) <= value < 1 << 64:
        raise ArgumentError(
            f"{who}: {value} does not fit into 64 bits; pass it as a str, or as a float"
        )
    return value


def _array(value: object, who: str) -> NDArray:
    if isinstance(value, NDArray):
        return value
    try:
        return view_of(value) if isinstance(value, np.ndarray) else from_dlpack(value)
    except (ArgumentError, TensorError) as error:
        raise ArgumentError(f"{who}: {error}") from None


def view_of(data: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> NDArray:
    """An NDArray over a row-major NumPy array, which may be read-only, without a copy."""
    dtypes.check(data.dtype)
    if isinstance(data, np.ma.MaskedArray):
        raise ArgumentError("a masked array, and functions know no masks; pass a.filled(value)")
    if not data.flags.c_contiguous or not data.flags.aligned:
        raise ArgumentError(
            f"an array of shape {data.shape} and strides {data.strides} is not row-major without "
            "gaps; pass np.ascontiguousarray of it"
        )
    return NDArray(data, cpu(0))
