"""`Yardstick`: a kernel that measures a limit of a device, sampled where the device is open.

It needs the runtime alone, no compiler. Memory is taken for each sample and given back after it, so
that a device which is full of the arrays of others is not filled any further in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np

from loopwright.errors import InternalError, OutOfMemoryError
from loopwright.runtime import (
    Artifact,
    Device,
    DeviceArray,
    KernelCall,
    Module,
    SymbolicArg,
    SymbolicFunction,
)

#: A launch takes at least so many seconds, where there is memory for it: what a launch costs by
#: itself is little beside that.
_WINDOW_S = 1e-3
#: Launches of a sample, of which the best counts: other work of the device is no part of its limit.
_LAUNCHES = 5
#: Largest growth of the number of units from one attempt to the next.
_GROWTH = 16
#: Arrays that are to go through memory have so many times the bytes of the last cache, between
#: these bounds; the cache of a device that reports none is assumed to have the last of these sizes.
_CACHES = 4
_SMALLEST, _LARGEST = 32 << 20, 512 << 20
_CACHE = 4 << 20
#: Share of the free memory that is taken at most, and bytes where it is not known.
_SHARE = 0.5
_UNKNOWN = 64 << 20
#: The shortest reported time: clocks of devices tick, and a time must be above 0.
TICK_S = 1e-9


class Yardstick:
    """One kernel of `loopwright.measure.device_limit` on a device of this process.

    ``through_memory``: its arrays must not fit into the caches of the device.
    """

    def __init__(self, artifact: Artifact, device: Device, through_memory: bool) -> None:
        function = Module(artifact).get_function(artifact.entry)
        if not isinstance(function, SymbolicFunction):
            raise InternalError(f"{function.name} is no yardstick: its sizes are fixed")
        self._function, self._device = function, device
        self._through_memory = through_memory
        self._units = 0

    def rate(self) -> float:
        """Units of work per second, measured now; the first call finds how many fill a window.

        Raises an OutOfMemoryError where the device has no room for arrays that its caches cannot
        hold, and a RunError where it refuses the kernel, or is lost.
        """
        if not self._units:
            self._units = self._enough()
        with self._call(self._units) as call:
            return self._units / min(_seconds(call) for _ in range(_LAUNCHES))

    def _enough(self) -> int:
        most = self._most()
        units = min(self._first(most), most)
        while units < most:
            with self._call(units) as call:
                seconds = _seconds(call)
            if seconds >= _WINDOW_S:
                break
            units = min(most, units * min(_GROWTH, math.ceil(_WINDOW_S / seconds)))
        return units

    def _most(self) -> int:
        free = self._device.available_global_memory or self._device.total_memory
        room = int(free * _SHARE) or _UNKNOWN
        buffer = self._device.attribute("max_mem_alloc_size")
        largest = min(room, buffer) if isinstance(buffer, int) and buffer > 0 else room
        sizes = [_unit_bytes(arg) for arg in self._function.args]
        return max(1, min(room // sum(sizes), largest // max(sizes)))

    def _first(self, most: int) -> int:
        if not self._through_memory:
            return self._device.multi_processor_count
        cache = max(self._device.cache_sizes.values(), default=0)
        size = max(map(_unit_bytes, self._function.args))
        if cache and most * size <= cache:
            raise OutOfMemoryError(
                f"{self._device} has room for arrays of {most * size} bytes, which its cache of "
                f"{cache} bytes holds: they would not tell how fast memory is; free some memory"
            )
        wanted = min(max(_CACHES * (cache or _CACHE), _SMALLEST), _LARGEST)
        return max(1, wanted // size)

    @contextmanager
    def _call(self, units: int) -> Iterator[KernelCall]:
        """The kernel bound to new arrays; it has run once, so that all their pages are there."""
        api, device = self._device.api, self._device
        with ExitStack() as stack:
            arrays = []
            for arg in self._function.args:
                shape = tuple(n if isinstance(n, int) else units for n in arg.shape)
                nbytes = math.prod(shape) * arg.dtype.itemsize
                block = api.allocate(device.device_id, nbytes)
                stack.callback(api.free, block)
                arrays.append(DeviceArray(block, shape, arg.dtype.name, device, None))
                if not arg.output:
                    _fill(arrays[-1])
            call = self._function.bind(*arrays)
            call.run()
            yield call


def _unit_bytes(arg: SymbolicArg) -> int:
    """Bytes of an array for each unit; 0 where all units share it."""
    if all(isinstance(n, int) for n in arg.shape):
        return 0
    return math.prod(n for n in arg.shape if isinstance(n, int)) * arg.dtype.itemsize


def _fill(array: DeviceArray) -> None:
    """Fill an input: a small one with 1, 2, ...; a large one with nonzero bytes, since many pages
    of zeros may be one physical page.
    """
    if array.ndim == 1:
        array.copyfrom(np.arange(1, array.size + 1).astype(array.dtype))
    else:
        array.api.fill(array.memory, 1)


def _seconds(call: KernelCall) -> float:
    """Time of one launch. Another one goes before it, so that it is queued while that runs and the
    time between the events is the device's alone.
    """
    call()
    return max(call.time(1), TICK_S)
