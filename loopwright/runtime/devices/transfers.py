"""Counts of copies between the host and devices, to see whether a model runs without any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from loopwright.runtime.devices.interface import HOST, Memory


@dataclass(slots=True)
class CopiedBytes:
    """Bytes of one thread's copies.

    Attributes:
        to_device: from the host to devices.
        to_host: from devices to the host.
        on_devices: between pieces of memory of devices.
        copies: number of copies, all together.

    Example:
        >>> from loopwright.runtime.profiling import counted_copies
        >>> with counted_copies() as copied:
        ...     a = lw.nd.array(np.zeros(4, "float32"))
        ...
        >>> print(copied)
        CopiedBytes(to_device=0, to_host=0, on_devices=0, copies=0)
    """

    to_device: int = 0
    to_host: int = 0
    on_devices: int = 0
    copies: int = 0


_counting: ContextVar[CopiedBytes | None] = ContextVar("copied bytes", default=None)


@contextmanager
def counted_copies() -> Iterator[CopiedBytes]:
    """Count the bytes that this thread has copied from, to and on devices inside the block.

    Example:
        >>> from loopwright.runtime.profiling import counted_copies
        >>> if lw.opencl().exist:
        ...     with counted_copies() as copied:
        ...         a = lw.nd.array(np.zeros(4, "float32"), device="opencl")
        ...     assert (copied.to_device, copied.to_host) == (16, 0)
        ...
    """
    found = CopiedBytes()
    token = _counting.set(found)
    try:
        yield found
    finally:
        _counting.reset(token)


def note_copy(source: Memory, target: Memory, nbytes: int) -> None:
    """Count a copy, where this thread counts them; backends call it for each that they queue."""
    found = _counting.get()
    if found is None:
        return
    found.copies += 1
    if source.device_type == HOST:
        found.to_device += nbytes
    elif target.device_type == HOST:
        found.to_host += nbytes
    else:
        found.on_devices += nbytes
