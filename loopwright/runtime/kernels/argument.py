"""Arguments of a compiled function of the host, and all checks of values passed to it."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import ArgumentError
from loopwright.runtime.arrays.host import NDArray
from loopwright.runtime.artifacts.manifest import ArgSpec, evaluate
from loopwright.runtime.ndarray import host_array

_addressof = ctypes.addressof
_view = ctypes.c_char.from_buffer


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of a compiled function."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    output: bool

    @classmethod
    def of(cls, spec: ArgSpec) -> Arg:
        """The argument of a manifest entry whose extents are numbers."""
        dtype = np.dtype(dtypes.check(spec.dtype))
        return cls(spec.name, tuple(evaluate(n, {}) for n in spec.shape), dtype, spec.output)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}{list(self.shape)}"


def output_pairs(args: Sequence[Arg]) -> tuple[tuple[int, int], ...]:
    """Positions of arguments that may not share memory, since the first is an output."""
    return tuple(
        (i, j)
        for i, arg in enumerate(args)
        if arg.output
        for j, other in enumerate(args)
        if j != i and not (other.output and j < i)
    )


def is_idle(args: Sequence[Arg]) -> bool:
    """Whether no output has elements: there is nothing to compute, and extents may be 0."""
    outputs = [arg.nbytes for arg in args if arg.output]
    return bool(outputs) and not any(outputs)


def check_count(name: str, args: Sequence[Arg], values: Sequence[object]) -> None:
    """Raise ArgumentError where a function gets more or fewer values than it takes."""
    if len(values) != len(args):
        takes = ", ".join(map(str, args))
        raise ArgumentError(f"{name} takes {len(args)} arguments ({takes}), got {len(values)}")


class ArgumentChecks:
    """Checks the arguments of a function.

    ``idle`` is `is_idle`.
    ``pairs`` are positions of arguments that may not share memory, since the first is an output.
    """

    def __init__(self, name: str, args: Sequence[Arg]) -> None:
        self._name, self._args = name, args
        self._sizes = tuple(arg.nbytes for arg in args)
        self.idle = is_idle(args)
        self.pairs = output_pairs(args)

    def check(self, args: Sequence[object]) -> tuple[list[npt.NDArray[Any]], list[int]]:
        """The arrays, and the addresses of their first bytes."""
        if len(args) != len(self._args):  # a call of `check_count` costs every call
            check_count(self._name, self._args, args)
        held: list[npt.NDArray[Any]] = []
        addresses: list[int] = []
        for spec, arg in zip(self._args, args, strict=True):
            if type(arg) is np.ndarray:
                data = arg
            else:
                data = arg._data if type(arg) is NDArray else self._host(len(held), arg)
            flags = data.flags
            if (
                data.shape != spec.shape
                or data.dtype != spec.dtype
                or not (flags.carray if spec.output else flags.c_contiguous and flags.aligned)
                or not (data.size or self.idle)
            ):
                raise ArgumentError(self._prefix(len(held)) + fault(spec, data))
            held.append(data)
            # The buffer protocol tells the address four times faster, but only of writable arrays.
            # bfloat16 has no buffer protocol, and an empty array no first byte.
            quick = flags.writeable and spec.dtype.kind != "V" and data.size
            at = _addressof(_view(data)) if quick else int(data.ctypes.data)  # type: ignore[arg-type]
            addresses.append(at)
        for i, j in self.pairs:
            a, b = addresses[i], addresses[j]
            if a < b + self._sizes[j] and b < a + self._sizes[i]:
                raise ArgumentError(
                    f"{self._prefix(i)}output overlaps the memory of argument {j} "
                    f"({self._args[j].name!r}); pass arrays that share no bytes"
                )
        return held, addresses

    def _host(self, index: int, arg: object) -> npt.NDArray[Any]:
        if isinstance(arg, np.ma.MaskedArray):
            raise ArgumentError(
                f"{self._prefix(index)}is a masked array, and kernels know no masks; pass "
                "a.filled(value), or a.data to use what the mask hides"
            )
        if isinstance(arg, np.ndarray):
            return arg
        if arg is None:
            raise ArgumentError(f"{self._prefix(index)}expected {self._args[index]}, got None")
        try:
            return host_array(arg)
        except ArgumentError as error:
            raise ArgumentError(f"{self._prefix(index)}{error}") from None

    def _prefix(self, index: int) -> str:
        return f"{self._name}: argument {index} ({self._args[index].name!r}): "


def fault(spec: Arg, data: npt.NDArray[Any]) -> str:
    """The reason to refuse an array; of several, the one that a person would mend first."""
    if data.dtype != spec.dtype:
        if data.dtype.newbyteorder("=") == spec.dtype:
            return f"expected {spec.dtype.name} in native byte order, got {data.dtype.str!r}"
        return f"expected dtype {spec.dtype.name}, got {data.dtype}; convert it with astype"
    if data.shape != spec.shape:
        return f"expected shape {spec.shape}, got {data.shape}"
    if not data.size:
        return f"shape {data.shape} has no elements; there is nothing to compute"
    if not data.flags.c_contiguous:
        return (
            f"expected row-major contiguous memory, got strides {data.strides} for shape "
            f"{data.shape}; use np.ascontiguousarray"
        )
    if not data.flags.aligned:
        return f"expected memory aligned to {spec.dtype.itemsize} bytes; copy the array first"
    return "is an output and not writable; pass an array that may be written"
