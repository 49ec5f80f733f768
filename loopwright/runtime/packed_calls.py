"""Calls of packed functions from generated code, and handling of exceptions that they raise.

Generated code calls ``lw_call_packed(name, values, kinds, count)``. Values are words of 8 bytes,
``kinds`` says what each is: an integer, a double, a text, or a pointer to DLPack's ``DLTensor``.
The word behind the last value is the status: it is `INTERRUPTED` before the call, and 0 when the
function has run. Anything else is the code with which the kernel fails; all are below zero. It is
no result of the call, since Ctrl-C may arrive before a callback has begun, and ctypes then returns
a result that nobody has set.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.errors import InternalError, RunError
from loopwright.runtime.devices.dlpack import TYPE_CODES, DLTensor
from loopwright.runtime.packed import get_global_func, view_of

#: The symbol that generated code calls.
CALL = "lw_call_packed"
#: In exported libraries: sets the address that `CALL` calls there.
CONFIGURE = "lw_packed_configure"
#: Code of a kernel whose callback was interrupted before it began.
INTERRUPTED = -1
#: Code of a kernel where `CALL` is not bound.
UNBOUND = -2
#: The first code of exceptions that wait for the kernel's caller; further ones are below it.
_FIRST = -3

# Kinds of values in generated code; those of TVM's type codes where it has them.
INT, UINT, FLOAT, TENSOR, TEXT, BOOL, INPUT = 0, 1, 2, 7, 11, 15, 107
#: Maximum number of exceptions kept for callers; the latest stay.
_KEPT = 256
_COUNT = 1 << 30

_CALLBACK = ctypes.CFUNCTYPE(
    None,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_int32),
    ctypes.c_int32,
)

_lock = threading.Lock()
_numbers = itertools.count()
_raised: dict[int, BaseException] = {}


def type_code(dtype: str) -> int:
    """DLPack's code of an element type."""
    return TYPE_CODES[dtype.rstrip("0123456789")]


def type_bits(dtype: str) -> int:
    """Bits of an element in memory."""
    return 8 * dtypes.nbytes(dtype)


@lru_cache(maxsize=1)
def call_address() -> int:
    """Address of ``lw_call_packed`` in this process."""
    address = ctypes.cast(_native, ctypes.c_void_p).value
    assert address is not None
    return address


def failure(code: int) -> BaseException | None:
    """The error of a kernel that failed with this code; None where no callback failed.

    An exception that a callback raised is given once, with its traceback.
    """
    if code >= 0:
        return None
    if code == INTERRUPTED:
        return KeyboardInterrupt("while a kernel called a packed function")
    if code == UNBOUND:
        return RunError(
            "the kernel calls packed functions, and nobody has told the library where they are; "
            f"load it with loopwright.runtime.load_module, or call its {CONFIGURE}"
        )
    with _lock:
        error = _raised.pop(_FIRST - code, None)
    return error or RunError(f"a packed function failed in several calls at once (code {code})")


def keep(error: BaseException) -> int:
    """Keep an exception for the caller of the kernel; returns the code with which that fails."""
    with _lock:
        number = next(_numbers) % _COUNT
        _raised[number] = error
        while len(_raised) > _KEPT:
            del _raised[next(iter(_raised))]
    return _FIRST - number


def _run(name: bytes, values: Any, kinds: Any, count: int) -> None:
    try:
        get_global_func(name.decode())(*(_value(values, k, kinds[k]) for k in range(count)))
        values[count] = 0
    except BaseException as error:  # the caller of the kernel raises it again
        values[count] = keep(error)


#: Callback of generated code in this process.
_native = _CALLBACK(_run)


def _value(values: Any, k: int, kind: int) -> object:
    if kind == INT:
        return int(values[k])
    if kind == UINT:
        return ctypes.c_uint64(values[k]).value
    if kind == BOOL:
        return bool(values[k])
    at = ctypes.addressof(values.contents) + 8 * k
    if kind == FLOAT:
        return ctypes.c_double.from_address(at).value
    if kind == TEXT:
        return (ctypes.c_char_p.from_address(at).value or b"").decode()
    if kind in (TENSOR, INPUT):
        t = ctypes.cast(values[k], ctypes.POINTER(DLTensor)).contents
        shape = tuple(t.shape[d] for d in range(t.ndim))
        name = _type_name(t.code, t.bits)
        data = np.empty(shape, name)
        if data.size:
            raw = (ctypes.c_char * (prod(shape) * dtypes.nbytes(name))).from_address(t.data)
            data = np.frombuffer(memoryview(raw), name).reshape(shape)
        data.flags.writeable = kind != INPUT
        return view_of(data)
    raise InternalError(f"generated code passes a value of the unknown kind {kind}")


@lru_cache(maxsize=64)
def _type_name(code: int, bits: int) -> str:
    word = next(w for w, c in TYPE_CODES.items() if c == code)
    return dtypes.check(word if word == "bool" else f"{word}{bits}")
