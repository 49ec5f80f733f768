"""Runs functions of kernels on arrays of a device inside larger pieces of memory, whose edges must
be unchanged afterwards: a device has no pages that fault.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from loopwright.runtime.arrays.device import DeviceArray
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import HOST, Memory
from loopwright.runtime.kernels.constants import Parts
from loopwright.runtime.kernels.device_function import DeviceFunction

#: Bytes on each side of an array; devices begin parts of memory at multiples of this.
_EDGE = 4096
_PATTERN = 0xA5


class EdgedArray:
    """An array of a device inside a larger piece of memory."""

    def __init__(self, device: Device, data: npt.NDArray[np.generic]) -> None:
        self._device, self._like = device, data
        self._all = device.api.allocate(device.device_id, data.nbytes + 2 * _EDGE)
        image = np.full(self._all.nbytes, _PATTERN, np.uint8)
        image[_EDGE : _EDGE + data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)
        self._exchange(image, into_host=False)
        part = self._all.part(_EDGE, data.nbytes)
        self.array = DeviceArray(part, data.shape, data.dtype.name, device, self)

    def take(self) -> tuple[npt.NDArray[np.generic], bool]:
        """The elements now, and whether the edges are unchanged; frees the memory."""
        image = np.empty(self._all.nbytes, np.uint8)
        self._exchange(image, into_host=True)
        self._device.api.free(self._all)
        end = _EDGE + self._like.nbytes
        intact = bool((image[:_EDGE] == _PATTERN).all() and (image[end:] == _PATTERN).all())
        inside = image[_EDGE:end].copy()
        return inside.view(self._like.dtype).reshape(self._like.shape), intact

    def _exchange(self, image: npt.NDArray[np.uint8], into_host: bool) -> None:
        api, device_id = self._device.api, self._device.device_id
        host = Memory(HOST, 0, int(image.ctypes.data), image.nbytes, owner=image)
        source, target = (self._all, host) if into_host else (host, self._all)
        api.copy(source, 0, target, 0, image.nbytes)
        api.synchronize(device_id, api.current_stream(device_id))


def run_on_device(
    function: DeviceFunction,
    arrays: Sequence[npt.NDArray[np.generic]],
    parts: Parts | None = None,
) -> tuple[list[npt.NDArray[np.generic]], str]:
    """Run a function, or its parts one after the other, on copies of some arrays, on the first
    device of its kind; returns their contents afterwards, and the text of an error, or ''.
    """
    placed = [EdgedArray(function.device, a) for a in arrays]
    kept = () if parts is None else parts.kept
    between = [EdgedArray(function.device, np.zeros(arg.shape, arg.dtype)) for arg in kept]
    if parts is not None:
        given = {n: x.array for n, x in enumerate(placed)}
        shared = [x.array for x in between]
        parts.prepare(given, shared)
        parts.second.bind(*parts.main(given, shared)).run()
    elif any(arg.output and arg.nbytes for arg in function.args):
        function.bind(*(x.array for x in placed)).run()
    taken = [x.take() for x in placed]
    all_taken = zip((*function.args, *kept), (*taken, *(x.take() for x in between)), strict=True)
    wrong = [arg.name for arg, (_, intact) in all_taken if not intact]
    error = f"the function wrote outside {', '.join(wrong)}" if wrong else ""
    return [a for a, _ in taken], error
