"""`RuntimeChecker`: refuses devices, memory and tensors that cannot be used, before their use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator

import numpy as np

from loopwright import dtypes
from loopwright.errors import ArgumentError, UsageError, shown
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import Memory

#: Pieces of memory that were freed and are still called that, and not unknown.
_REMEMBERED = 4096
#: Where a piece lies: type and number of its device, handle and offset.
_Place = tuple[int, int, int, int]


class RuntimeChecker:
    """Checks devices, memory and tensors before their use; an error says in one line what is wrong.

    It knows memory by calls of `allocated` and `freed`. Several threads may use it.

    Example:
        >>> checker = lw.runtime.RuntimeChecker()
        >>> checker.check_device("cpu", 0)
        >>> checker.check_tensor(np.zeros(3, "float32"), dtype="float32")
        >>> memory = lw.runtime.Memory(2, 0, 4096, 100)
        >>> checker.allocated(memory)
        >>> checker.check_memory(memory.part(40, 60), nbytes=60)
        >>> checker.freed(memory)
        >>> try:
        ...     checker.check_memory(memory)
        ... except lw.LoopwrightError as error:
        ...     print(error)
        ...
        the memory at 4096 of cuda(0) was freed; allocate it again
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By the identity of a piece, which is kept alive so that no other gets it.
        self._live: dict[int, Memory] = {}
        self._freed: OrderedDict[_Place, None] = OrderedDict()

    def check_device(self, device_type: str | int | Device, device_id: int = 0) -> None:
        """Refuse, by a UsageError, a device that is not there; its message names what is missing.

        ``device_type`` is a name or DLPack code of a type, or a device, whose number then counts.
        """
        if isinstance(device_type, Device):
            device_id, device_type = device_type.device_id, device_type.device_type
        if isinstance(device_id, bool) or not isinstance(device_id, int) or device_id < 0:
            raise UsageError(
                f"device number {shown(device_id)} is no whole number from 0; devices count from 0"
            )
        Device(device_type, device_id).require()

    def allocated(self, memory: Memory) -> None:
        """Note a piece of memory that may be used from now on."""
        with self._lock:
            self._live[id(memory)] = memory
            self._freed.pop(_place(memory), None)

    def freed(self, memory: Memory) -> None:
        """Note that a piece of memory is given back.

        ArgumentError where it was freed before, is a part of a piece, or was never noted.
        """
        with self._lock:
            if self._live.pop(id(memory), None) is None:
                is_part = any(id(piece) in self._live for piece in _chain(memory))
                what = "is a part of a piece; free the whole" if is_part else self._why_gone(memory)
                raise ArgumentError(f"{_named(memory)} {what}")
            self._freed[_place(memory)] = None
            if len(self._freed) > _REMEMBERED:
                self._freed.popitem(last=False)

    def check_memory(
        self, memory: Memory | None, nbytes: int = 0, offset: int = 0, device: Device | None = None
    ) -> None:
        """Refuse memory of which ``nbytes`` bytes behind ``offset`` must not be touched.

        ArgumentError where it is null, freed, unknown to `allocated`, shorter, or not of `device`.
        """
        if memory is None:
            raise ArgumentError("the memory is None; allocate it first")
        if not memory.handle and memory.nbytes:
            raise ArgumentError(f"{_named(memory)} is a null pointer; allocate it first")
        if device is not None and Device(memory.device_type, memory.device_id) != device:
            raise ArgumentError(f"{_named(memory)} is not of {device}; copy it there first")
        with self._lock:
            if not any(id(piece) in self._live for piece in _chain(memory)):
                raise ArgumentError(f"{_named(memory)} {self._why_gone(memory)}")
        if min(offset, nbytes) < 0 or offset + nbytes > memory.nbytes:
            raise ArgumentError(
                f"bytes {offset} to {offset + nbytes} are not inside {_named(memory)}, which has "
                f"{memory.nbytes}"
            )

    def check_tensor(
        self,
        tensor: object,
        device: Device | None = None,
        dtype: str | None = None,
        name: str = "the tensor",
    ) -> None:
        """Refuse a tensor that a kernel cannot take.

        It is a NumPy array, an `NDArray`, or an object with its ``shape``, ``dtype``, ``device``
        and ``data`` (an address). ArgumentError where it is none, has no memory or a negative
        extent, or is not of ``device`` and ``dtype``; TensorError for an unknown type.
        """
        if not all(hasattr(tensor, field) for field in ("shape", "dtype", "data")):
            raise ArgumentError(f"{name} is a {type(tensor).__name__} and no array; pass an array")
        shape = tuple(getattr(tensor, "shape"))  # noqa: B009
        if not all(isinstance(n, int) for n in shape):
            raise ArgumentError(f"{name} has the shape {shown(shape)}; extents are whole numbers")
        if any(n < 0 for n in shape):
            raise ArgumentError(f"{name} has the shape {shape}, with a negative extent")
        holds = dtypes.check(getattr(tensor, "dtype"))  # noqa: B009
        if dtype is not None and holds != dtypes.check(dtype):
            raise ArgumentError(f"{name} holds {holds}, expected {dtype}; convert it with astype")
        home = getattr(tensor, "device", None)
        if device is not None and isinstance(home, Device) and home != device:
            raise ArgumentError(f"{name} is on {home}, expected {device}; copy it there first")
        data = getattr(tensor, "data")  # noqa: B009
        address = tensor.ctypes.data if isinstance(tensor, np.ndarray) else data
        if 0 not in shape and not (isinstance(address, int) and address):
            raise ArgumentError(f"{name} has no memory: its address is null")

    def _why_gone(self, memory: Memory) -> str:
        """Reason why memory is not alive."""
        if any(_place(piece) in self._freed for piece in _chain(memory)):
            return "was freed; allocate it again"
        return "is not known here: another device or library gave it"


def _place(memory: Memory) -> _Place:
    return memory.device_type, memory.device_id, memory.handle, memory.offset


def _chain(memory: Memory) -> Iterator[Memory]:
    """A piece, the piece that it is a part of, and so on."""
    piece: object = memory
    while isinstance(piece, Memory):
        yield piece
        piece = piece.owner


def _named(memory: Memory) -> str:
    where = Device(memory.device_type, 0).name
    return f"the memory at {memory.handle} of {where}({memory.device_id})"
