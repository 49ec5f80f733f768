"""Data types: their names, widths, NumPy counterparts, and the promotion rule of expressions.

float16 and bfloat16 are formats of storage: an operation on them is done in float32 and rounded.
NumPy knows bfloat16 through the package ml_dtypes, loaded at the first use of the name.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module

import numpy as np

from loopwright.errors import TensorError, did_you_mean

#: The types for which expressions can be built, interpreted and compiled, with their bits.
_BITS = {
    "float32": 32, "float64": 64, "int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8,
    "uint16": 16, "uint32": 32, "uint64": 64, "bool": 1, "float16": 16, "bfloat16": 16,
}  # fmt: skip
SUPPORTED = tuple(_BITS)
#: Formats of 16 bits, computed with in float32.
HALVES = ("float16", "bfloat16")


def check(dtype: object) -> str:
    """The canonical name of a dtype (a name, or anything NumPy understands)."""
    name = dtype
    if not isinstance(dtype, str) and dtype is not None:
        try:
            name = np.dtype(dtype).name  # type: ignore[call-overload]
        except (TypeError, ValueError):
            name = repr(dtype)
    if name == "bfloat16":
        _load_bfloat16()
    if isinstance(name, str) and name in SUPPORTED:
        return name
    raise TensorError(
        f"unknown dtype {dtype!r}{did_you_mean(str(name), SUPPORTED)}; "
        f"use one of {', '.join(SUPPORTED)}"
    )


@lru_cache(maxsize=1)
def _load_bfloat16() -> None:
    try:
        import_module("ml_dtypes")
    except ImportError as e:
        raise TensorError("bfloat16 needs the package ml_dtypes: pip install ml-dtypes") from e


def bits(dtype: str) -> int:
    """Width in bits; ``bool`` counts 1 though it is stored in a byte."""
    return _BITS[dtype]


def nbytes(dtype: str) -> int:
    """Bytes of one element in memory."""
    return max(1, _BITS[dtype] // 8)


def is_float(dtype: str) -> bool:
    """Whether a type is a floating point type."""
    return dtype.startswith(("float", "bfloat"))


def is_int(dtype: str) -> bool:
    """Whether a type is a signed or unsigned integer, not ``bool``."""
    return dtype.startswith(("int", "uint"))


def is_unsigned(dtype: str) -> bool:
    """Whether a type is an unsigned integer."""
    return dtype.startswith("uint")


def promote(a: str, b: str) -> str:
    """The type in which two operands meet, as in TE.

    A float beats any integer; of two of a kind the wider wins; of signed and unsigned of one width
    the unsigned wins; ``bool`` gives way to everything. float16 and bfloat16 meet in float32.
    """
    if a == b:
        return a
    if a in HALVES and b in HALVES:
        return "float32"
    if is_float(a) != is_float(b):
        return a if is_float(a) else b
    if "bool" in (a, b):
        return b if a == "bool" else a
    if bits(a) != bits(b):
        return a if bits(a) > bits(b) else b
    return a if is_unsigned(a) else b


@lru_cache(maxsize=32)
def limits(dtype: str) -> tuple[float | int, float | int]:
    """Smallest and largest value; infinities for floats."""
    if is_float(dtype):
        return (float("-inf"), float("inf"))
    if dtype == "bool":
        return (0, 1)
    info = np.iinfo(dtype)
    return (int(info.min), int(info.max))


def truncate(value: float, dtype: str) -> int:
    """A float rounded towards zero and cut to the limits of an integer dtype; NaN becomes 0."""
    if value != value:
        return 0
    lo, hi = limits(dtype)
    return int(max(lo, min(hi, value)))
