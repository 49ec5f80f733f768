"""Kernels as CPython's built-in functions: their calls check arguments and run in compiled code.

A call through ``ctypes`` and checks in Python cost some microseconds. Here a small piece of LLVM IR
(fastcall.ll) reads type, dtype, shape, flags and address of each array where NumPy keeps them, and
is called by CPython as it calls its own functions (PEP 590, ``METH_FASTCALL``). It has no error
messages: calls that it does not accept take the ordinary path, which explains the error.

Where arrays or objects do not lie in memory as expected (`available`), as on interpreters without a
global lock, all calls take the ordinary path.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loopwright.runtime import linker
from loopwright.runtime.arrays.host import NDArray
from loopwright.runtime.devices.device import cpu
from loopwright.runtime.kernels.argument import Arg

#: A kernel for Python. None: it ran; False: nothing ran, take the ordinary path; else its failure.
FastCall = Callable[..., int | Literal[False] | None]

#: The symbols; their number rises when the record that they read changes.
CHECKED, BOUND = SYMBOLS = ("lw_call_1", "lw_call_bound_1")
_FASTCALL, _NOARGS = 0x80, 0x4
#: Flags of NumPy that an input needs, row-major and aligned, and an output, also writable.
_FLAGS = {False: 0x101, True: 0x501}
# Offsets of the type in CPython's objects, and of the fields in NumPy's arrays.
_TYPE, _DATA, _NDIM, _EXTENTS, _DTYPE, _FLAGS_AT = 8, 16, 24, 32, 56, 64
_WORD = 8


class _ArrayRecord(ctypes.Structure):
    """Requirements of an argument, as fastcall.ll reads them."""

    _fields_ = (
        ("dtype", ctypes.c_uint64),
        ("ndim", ctypes.c_int64),
        ("flags", ctypes.c_int64),
        ("nbytes", ctypes.c_int64),
        ("extents", ctypes.c_uint64),
    )


_WORDS = (
    *("kernel", "workspace", "needs_workspace"),
    *("save_thread", "restore_thread", "hold", "number", "array_type", "none", "false"),
    *("count", "total", "pairs", "arrays", "pair_list", "pointers"),
    *("wrapper_type", "wrapped_at"),
)


class _CallRecord(ctypes.Structure):
    """Data of a call, as fastcall.ll reads it."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in _WORDS)


class _Method(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class _Owner(np.ndarray[Any, np.dtype[Any]]):
    """The record of a call as an array, which is the ``self`` of the built-in function."""

    owners: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class NativeCode:
    """Code and memory that both paths need."""

    name: str
    #: Of ``int32_t f(void **pointers, void *workspace)``.
    address: int
    #: Address of the workspace, for one call at a time; None: it needs none.
    workspace: int | None
    #: Objects that must live as long as calls are made.
    owners: tuple[object, ...]
    #: Addresses of `SYMBOLS` that a library brought; None: those of `linked_code`.
    code: Mapping[str, int] | None = None


def refuse(*args: object) -> Literal[False]:
    """A `FastCall` that leaves everything to the ordinary path."""
    return False


def checked_call(
    kernel: NativeCode, args: Sequence[Arg], pairs: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> FastCall | None:
    """A built-in function that takes the arrays, checks them and runs; None where that cannot be.

    Every argument has elements. The positions in ``pairs`` may not share memory; ``sizes`` are
    passed behind the arrays.
    """
    extents = [(ctypes.c_int64 * len(arg.shape))(*arg.shape) for arg in args]
    records = (_ArrayRecord * len(args))()
    for k, (arg, lengths) in enumerate(zip(args, extents, strict=True)):
        at = ctypes.addressof(lengths)
        records[k] = _ArrayRecord(id(arg.dtype), len(arg.shape), _FLAGS[arg.output], arg.nbytes, at)
    flat = (ctypes.c_int64 * (2 * len(pairs)))(*(k for pair in pairs for k in pair))
    pointers = (ctypes.c_int64 * (len(args) + len(sizes)))(*[0] * len(args), *sizes)
    record = _CallRecord(
        count=len(args),
        total=len(args) + len(sizes),
        pairs=len(pairs),
        arrays=ctypes.addressof(records),
        pair_list=ctypes.addressof(flat),
        pointers=ctypes.addressof(pointers),
    )
    return _builtin(CHECKED, kernel, record, (extents, records, flat, pointers, args))


def bound_call(kernel: NativeCode, pointers: ctypes.Array[Any]) -> FastCall | None:
    """A built-in function without arguments that runs the kernel on these addresses, or None."""
    return _builtin(BOUND, kernel, _CallRecord(pointers=ctypes.addressof(pointers)), (pointers,))


def _builtin(
    symbol: str, kernel: NativeCode, record: _CallRecord, owners: tuple[object, ...]
) -> FastCall | None:
    """A function of CPython whose code is that of a symbol, and whose ``self`` is the record."""
    offset = available()
    code = kernel.code or linked_code()
    if offset is None or code is None:
        return None
    for name, value in _python().items():
        setattr(record, name, value)
    record.kernel, record.workspace = kernel.address, kernel.workspace or 0
    record.needs_workspace, record.wrapped_at = kernel.workspace is not None, offset
    flags = _FASTCALL if symbol == CHECKED else _NOARGS
    method = _Method(kernel.name.encode(), code[symbol], flags, None)
    owner = np.frombuffer(memoryview(record), np.uint64).view(_Owner)
    owner.owners = (record, method, kernel, owners, code)
    builtin: FastCall = _new()(ctypes.byref(method), owner, None)
    return builtin


@lru_cache(maxsize=1)
def _new() -> Callable[..., Any]:
    signature = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
    )
    return signature(("PyCFunction_NewEx", ctypes.pythonapi))


@lru_cache(maxsize=1)
def _python() -> Mapping[str, int]:
    """Addresses in CPython and NumPy that the code uses, by the names of the record."""
    functions = {
        "save_thread": ctypes.pythonapi.PyEval_SaveThread,
        "restore_thread": ctypes.pythonapi.PyEval_RestoreThread,
        "hold": ctypes.pythonapi.Py_IncRef,
        "number": ctypes.pythonapi.PyLong_FromLong,
    }
    objects = {"array_type": np.ndarray, "wrapper_type": NDArray, "none": None, "false": False}
    addresses = {k: ctypes.cast(f, ctypes.c_void_p).value or 0 for k, f in functions.items()}
    return {**addresses, **{k: id(v) for k, v in objects.items()}}


def fastcall_text() -> str:
    """The code as LLVM IR text, for any machine."""
    return Path(__file__).with_name("fastcall.ll").read_text()


def linked_code() -> Mapping[str, int] | None:
    """Addresses of `SYMBOLS` where LLVM is in this process; it is not loaded for them."""
    return _linked().addresses if linker.is_loaded() else None


@lru_cache(maxsize=1)
def _linked() -> linker.Linked:
    return linker.link(linker.compile_text(fastcall_text()), SYMBOLS).keep_forever()


@lru_cache(maxsize=1)
def available() -> int | None:
    """Offset of the NumPy array in an NDArray; None: nothing may be read behind Python's back.

    Some arrays are read as the code will read them, and compared with NumPy's own values.
    """
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not locked or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    if object.__basicsize__ != 2 * _WORD or np.ndarray.__basicsize__ < _FLAGS_AT + _WORD:
        return None
    plain = np.zeros((2, 3), np.float32)
    frozen = np.zeros((4, 5, 6), np.int8)
    frozen.flags.writeable = False
    skewed = np.zeros(25, np.uint8)[1:].view(np.float32)
    # Arrays of all kinds that flags tell apart.
    samples = (plain, plain.T, plain[:, ::2], plain.view(_Owner), frozen, skewed, np.zeros(()))
    if not all(map(_reads_well, samples)):
        return None
    inner = np.zeros(3)
    wrapper = NDArray(inner, cpu(0))
    places = range(2 * _WORD, NDArray.__basicsize__, _WORD)
    return next((at for at in places if _word(wrapper, at) == id(inner)), None)


def _reads_well(a: npt.NDArray[Any]) -> bool:
    ndim = _word(a, _NDIM) & 0xFFFFFFFF
    if _word(a, _TYPE) != id(type(a)) or ndim != a.ndim or _word(a, _DTYPE) != id(a.dtype):
        return False
    extents = (ctypes.c_int64 * ndim).from_address(_word(a, _EXTENTS)) if ndim else ()
    flags = a.flags
    expected = flags.c_contiguous * 0x1 + flags.aligned * 0x100 + flags.writeable * 0x400
    return (
        tuple(extents) == a.shape
        and _word(a, _DATA) == a.ctypes.data
        and _word(a, _FLAGS_AT) & _FLAGS[True] == expected
    )


def _word(of: object, offset: int) -> int:
    return ctypes.c_uint64.from_address(id(of) + offset).value
