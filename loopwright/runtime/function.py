"""`Function`: one compiled function as a Python callable, with all its checks before it runs.

A call checks every argument first (count, type, dtype, shape, layout, writability, overlap), then
runs the machine code with the interpreter's lock released. Calls from several threads are safe:
each has a workspace of its own.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes, env
from loopwright.errors import ArgumentError, OutOfMemoryError, RunError
from loopwright.runtime import pool
from loopwright.runtime.arrays.host import NDArray, aligned_bytes
from loopwright.runtime.artifacts.kinds import Timer
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec
from loopwright.runtime.artifacts.size_formulas import evaluate
from loopwright.runtime.devices.device import Device
from loopwright.runtime.image import Image
from loopwright.runtime.ndarray import host_array

_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
# Workspaces that are kept for the next call; more threads than this allocate each time.
_KEEP = 4
_NO_MEMORY = 1
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
        """The argument that a manifest describes, whose extents are numbers."""
        dtype = np.dtype(dtypes.check(spec.dtype))
        return cls(spec.name, tuple(evaluate(n, {}) for n in spec.shape), dtype, spec.output)

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}{list(self.shape)}"


class BoundCall:
    """A function with checked arguments and a workspace, ready to run any number of times.

    It keeps the arrays and the code alive. One thread at a time may run it.

    Attributes:
        function: what runs.
        entry: address of the machine code, ``int32_t f(void **args, void *workspace)``.
        pointers: the array of argument addresses.
        workspace: address of the workspace, None where the function needs none.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, B], name="add_one")
        >>> kernel = f.get_function("add_one")
        >>> a, b = np.zeros(4, "float32"), np.empty(4, "float32")
        >>> call = kernel.bind(a, b)
        >>> call.run()
        >>> print(b)
        [1. 1. 1. 1.]
    """

    __slots__ = ("_held", "entry", "function", "pointers", "workspace")

    def __init__(
        self,
        function: Function,
        held: Sequence[npt.NDArray[Any]],
        addresses: Sequence[int],
        space: npt.NDArray[np.uint8] | None,
    ) -> None:
        self.function = function
        self._held = (held, space)
        self.entry = function.address
        self.pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self.workspace = None if space is None else int(space.ctypes.data)

    def run(self) -> None:
        """Run the function once.

        Raises:
            RunError: it reported a failure.
        """
        self.function._run(self.pointers, self.workspace)


class Function:
    """A compiled function; call it with one array per argument, outputs included, in order.

    Arrays may be NumPy arrays, `NDArray`, or anything with ``__dlpack__`` in host memory; outputs
    are written in place. Nothing runs unless every argument is right. Where no output has elements
    (a size is 0) there is nothing to compute: the arguments are checked, and nothing runs.

    Attributes:
        name: the function's name.
        args: its arguments, in order.
        workspace_bytes: workspace of one call.
        parallel_workspace_bytes: workspace of each further thread of its parallel loops.
        values: sizes that the code takes after the arrays (see `loopwright.runtime.symbolic`).

    Args:
        image: the code.
        spec: what the manifest says of the function, with numbers for all sizes.
        values: the sizes.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, B], name="add_one")
        >>> kernel = f.get_function("add_one")
        >>> b = np.empty(4, "float32")
        >>> kernel(np.zeros(4, "float32"), b)
        >>> print(b)
        [1. 1. 1. 1.]
        >>> print([(x.name, x.shape, x.output) for x in kernel.args])
        [('A', (4,), False), ('B', (4,), True)]
    """

    def __init__(self, image: Image, spec: FunctionSpec, values: Sequence[int] = ()) -> None:
        self.name = spec.name
        self.values = list(values)
        self.args = tuple(map(Arg.of, spec.args))
        self.workspace_bytes = evaluate(spec.workspace_bytes, {})
        self.parallel_workspace_bytes = evaluate(spec.parallel_workspace_bytes, {})
        self._image = image
        self._free: list[tuple[npt.NDArray[np.uint8], int]] = []
        self._native: ctypes._CFunctionType | None = None
        self._address = 0
        self._array_type = ctypes.c_void_p * (len(self.args) + len(self.values))
        self._sizes = tuple(arg.nbytes for arg in self.args)
        outputs = [arg.nbytes for arg in self.args if arg.output]
        self._idle = bool(outputs) and not any(outputs)
        self._pairs = tuple(
            (i, j)
            for i, arg in enumerate(self.args)
            if arg.output
            for j, other in enumerate(self.args)
            if j != i and not (other.output and j < i)
        )

    @property
    def address(self) -> int:
        """Address of the machine code; links it first if need be."""
        if self._native is None:
            self._address = self._image.address(self.name)
            self._native = _SIGNATURE(self._address)
        return self._address

    @property
    def device(self) -> Device:
        """The device that runs it."""
        return Device(self._image.kind.device)

    @property
    def timer(self) -> Timer | None:
        """What times it, where that is not the loop in compiled code (`time_call`)."""
        return self._image.kind.timer

    def complaint(self, code: int) -> Exception | None:
        """What the code itself says about a failure that it reported in this thread, if it can.

        Example:
            >>> A = te.placeholder((4,), name="A")
            >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
            >>> f = lw.build(te.create_schedule(B.op), [A, B], name="add_one")
            >>> kernel = f.get_function("add_one")
            >>> print(kernel.complaint(0))
            None
        """
        return self._image.complaint(code)

    def __call__(self, *args: object) -> None:
        """Check the arguments, then run.

        Raises:
            ArgumentError: an argument is not acceptable; names the function, the argument's
                position and name, what was expected and what came. Nothing ran.
            RunError: the workspace is over the limit (nothing ran), or the function failed.
        """
        held, addresses = self._check(args)
        if self._idle:
            return
        if self._native is None:
            _ = self.address
        if not self.workspace_bytes and not self.parallel_workspace_bytes:
            self._run(self._array_type(*addresses), None)
            return
        self._check_limit()
        space = self._take_workspace()
        try:
            self._run(self._array_type(*addresses), space[1] if space else None)
        finally:
            if space and len(self._free) < _KEEP:
                self._free.append(space)
        del held  # views of arrays from DLPack had to live until here

    def bind(self, *args: object) -> BoundCall:
        """Check the arguments now and return a `BoundCall` that runs without checking again.

        Raises:
            ArgumentError: as when called, or no output has elements.
            RunError: the workspace is over the limit.

        Example:
            >>> A = te.placeholder((4,), name="A")
            >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
            >>> f = lw.build(te.create_schedule(B.op), [A, B], name="add_one")
            >>> kernel = f.get_function("add_one")
            >>> a, b = np.zeros(4, "float32"), np.empty(4, "float32")
            >>> call = kernel.bind(a, b)
            >>> call.run()
            >>> a[:] = 10
            >>> call.run()
            >>> print(b)
            [11. 11. 11. 11.]
        """
        held, addresses = self._check(args)
        if self._idle:
            raise ArgumentError(f"{self.name}: no output has elements; there is nothing to run")
        self._check_limit()
        space = _allocate(self) if self.workspace_bytes else None
        return BoundCall(self, held, addresses, space)

    def _run(self, pointers: ctypes.Array[ctypes.c_void_p], workspace: int | None) -> None:
        assert self._native is not None
        code = self._native(pointers, workspace)
        if code:
            raise failure(self, code)

    def _take_workspace(self) -> tuple[npt.NDArray[np.uint8], int] | None:
        if not self.workspace_bytes:
            return None
        try:
            return self._free.pop()
        except IndexError:
            space = _allocate(self)
            return space, int(space.ctypes.data)

    def _check_limit(self) -> None:
        threads = self._image.num_threads or pool.get_num_threads()
        total = self.workspace_bytes + (threads - 1) * self.parallel_workspace_bytes
        if total > workspace_limit():
            raise OutOfMemoryError(
                f"{self.name} needs {total} bytes of workspace on {threads} threads, over the "
                f"limit of {workspace_limit()}; use smaller tiles, fewer threads, or raise "
                "LOOPWRIGHT_WORKSPACE_LIMIT"
            )

    def _check(self, args: Sequence[object]) -> tuple[list[npt.NDArray[Any]], list[int]]:
        if len(args) != len(self.args):
            takes = ", ".join(str(arg) for arg in self.args)
            raise ArgumentError(
                f"{self.name} takes {len(self.args)} arguments ({takes}), got {len(args)}"
            )
        held: list[npt.NDArray[Any]] = []
        addresses: list[int] = []
        for spec, arg in zip(self.args, args, strict=True):
            if type(arg) is np.ndarray:
                data = arg
            else:
                data = arg._data if type(arg) is NDArray else self._host(len(held), arg)
            flags = data.flags
            if (
                data.shape != spec.shape
                or data.dtype != spec.dtype
                or not (flags.carray if spec.output else flags.c_contiguous and flags.aligned)
                or not (data.size or self._idle)
            ):
                raise ArgumentError(self._prefix(len(held)) + _fault(spec, data))
            held.append(data)
            # The buffer protocol tells the address four times faster, but only of writable arrays.
            # bfloat16 has no buffer protocol, and what has no elements no first byte.
            quick = flags.writeable and spec.dtype.kind != "V" and data.size
            at = _addressof(_view(data)) if quick else int(data.ctypes.data)  # type: ignore[arg-type]
            addresses.append(at)
        for i, j in self._pairs:
            a, b = addresses[i], addresses[j]
            if a < b + self._sizes[j] and b < a + self._sizes[i]:
                raise ArgumentError(
                    f"{self._prefix(i)}output overlaps the memory of argument {j} "
                    f"({self.args[j].name!r}); pass arrays that share no bytes"
                )
        return held, addresses + self.values

    def _host(self, index: int, arg: object) -> npt.NDArray[Any]:
        if isinstance(arg, np.ma.MaskedArray):
            raise ArgumentError(
                f"{self._prefix(index)}is a masked array, and kernels know no masks; pass "
                "a.filled(value), or a.data to use what the mask hides"
            )
        if isinstance(arg, np.ndarray):
            return arg
        if arg is None:
            raise ArgumentError(f"{self._prefix(index)}expected {self.args[index]}, got None")
        try:
            return host_array(arg)
        except ArgumentError as error:
            raise ArgumentError(f"{self._prefix(index)}{error}") from None

    def _prefix(self, index: int) -> str:
        return f"{self.name}: argument {index} ({self.args[index].name!r}): "

    def __repr__(self) -> str:
        return f"<Function {self.name}({', '.join(str(arg) for arg in self.args)})>"


def _fault(spec: Arg, data: npt.NDArray[Any]) -> str:
    """Why an array was refused; of several reasons, the one that a person would mend first."""
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


def _allocate(function: Function) -> npt.NDArray[np.uint8]:
    try:
        return aligned_bytes(function.workspace_bytes)
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{function.name}: no memory for a workspace of {function.workspace_bytes} bytes"
        ) from error


@lru_cache(maxsize=1)
def workspace_limit() -> int:
    """Bytes of workspace that one call may need, all threads together: the setting, or half of the
    memory."""
    limit = env.settings().workspace_limit
    return env.total_memory() // 2 if limit is None else limit


def failure(function: Function, code: int) -> Exception:
    """The error of a function that returned `code` in this thread."""
    complaint = function.complaint(code)
    if complaint is not None:
        return complaint
    if code == _NO_MEMORY:
        return OutOfMemoryError(
            f"{function.name}: a thread got no memory for its workspace of "
            f"{function.parallel_workspace_bytes} bytes; use smaller tiles or fewer threads"
        )
    return RunError(f"{function.name} failed with code {code}")
