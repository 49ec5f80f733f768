"""The two parts of a function: the one that its constants determine, and the rest.

The code of such a function has three entries: ``name`` does everything in each call,
``name_prepare`` computes what the constants determine (a packed copy of weights, say), and
``name_prepared`` the rest. Where a function serves every size, only the last depends on sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.runtime.arrays.device import DeviceArray
from loopwright.runtime.arrays.host import aligned_bytes
from loopwright.runtime.artifacts.manifest import FunctionSpec, PartsSpec
from loopwright.runtime.calling.argument import Arg
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.function import DeviceCall, DeviceFunction
from loopwright.runtime.devices.interface import HOST, Memory
from loopwright.runtime.function import BoundCall, Function
from loopwright.runtime.ndarray import empty
from loopwright.runtime.symbolic import SymbolicFunction

#: A function of an artifact.
AnyFunction = Function | DeviceFunction | SymbolicFunction
#: Alignment in bytes of buffers in a workspace.
_ALIGNMENT = 64


class PreparedCall:
    """A function with checked arguments whose two parts run one by one.

    `run` runs both. `loopwright.runtime.time_call` times ``main`` alone, on the results of the last
    run of ``prepare``.

    Attributes:
        prepare: computes the stages that constants determine.
        main: computes the rest from that and the other arguments.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> W = te.placeholder((4,), name="W", constant=True)
        >>> V = te.compute((4,), lambda i: W[i] * 2, name="V")
        >>> B = te.compute((4,), lambda i: A[i] + V[i], name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, W, B])
        >>> a, w, b = np.zeros(4, "float32"), np.ones(4, "float32"), np.empty(4, "float32")
        >>> call = f.parts().bind([a, w, b])
        >>> call.run()
        >>> print(b, lw.runtime.time_call(call, 10) > 0)
        [2. 2. 2. 2.] True
    """

    __slots__ = ("main", "prepare")

    def __init__(self, prepare: BoundCall | DeviceCall, main: BoundCall | DeviceCall) -> None:
        self.prepare, self.main = prepare, main

    @property
    def device(self) -> Device:
        """The device that runs it."""
        return self.main.device if isinstance(self.main, DeviceCall) else self.main.function.device

    def run(self) -> None:
        """Run both parts once.

        Raises:
            RunError: one reported a failure.
        """
        self.prepare.run()
        self.main.run()


class Parts:
    """The two parts of a function, to be called one after the other.

    Attributes:
        whole: the function.
        kept: results of the first part, which the second one reads.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> W = te.placeholder((4,), name="W", constant=True)
        >>> V = te.compute((4,), lambda i: W[i] * 2, name="V")
        >>> B = te.compute((4,), lambda i: A[i] + V[i], name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, W, B])
        >>> print([str(kept) for kept in f.parts().kept])
        ['V: float32[4]']
    """

    def __init__(
        self,
        whole: AnyFunction,
        prepare: Function | DeviceFunction,
        main: AnyFunction,
        spec: PartsSpec,
    ) -> None:
        self.whole, self._prepare, self._main, self._spec = whole, prepare, main, spec
        self.kept: tuple[Arg, ...] = prepare.args[len(spec.prepare_args) :]

    @property
    def first(self) -> Function | DeviceFunction:
        """The first part."""
        return self._prepare

    @property
    def read_first(self) -> tuple[int, ...]:
        """Numbers of the arguments that the first part takes."""
        return self._spec.prepare_args

    @property
    def second(self) -> AnyFunction:
        """The second part."""
        return self._main

    @property
    def read_later(self) -> tuple[int, ...]:
        """Numbers of the arguments that the second part takes."""
        return self._spec.main_args

    def prepare(self, arrays: Mapping[int, Any], kept: Sequence[Any]) -> None:
        """Compute `kept` from constants, given by number of the argument, and wait for that."""
        self._prepare.bind(*(arrays[n] for n in self._spec.prepare_args), *kept).run()

    def main(self, arrays: Mapping[int, Any], kept: Sequence[Any]) -> list[Any]:
        """Arguments of the second part, from those of the whole by number and the arrays `kept`."""
        return [*(arrays[n] for n in self._spec.main_args), *kept]

    def room(self, device: Device) -> list[Any]:
        """New arrays for the results of the first part."""
        if device.device_type == HOST:
            return [_placed(aligned_bytes(arg.nbytes), arg) for arg in self.kept]
        return [empty(arg.shape, arg.dtype.name, device) for arg in self.kept]

    def of_sizes(self, arrays: Sequence[Any]) -> Parts:
        """The parts for the sizes of these arguments; themselves where the function has no sizes.

        Raises:
            ArgumentError: their shapes disagree.
        """
        if not isinstance(self.whole, SymbolicFunction):
            return self
        assert isinstance(self._main, SymbolicFunction)
        whole, _ = self.whole.resolve(arrays)
        shapes = [*(arrays[n] for n in self._spec.main_args), *map(_shape_only, self.kept)]
        main, _ = self._main.resolve(shapes)
        return Parts(whole, self._prepare, main, self._spec)

    def bind(
        self,
        arrays: Sequence[Any],
        workspace: npt.NDArray[np.uint8] | None = None,
        buffers: Sequence[Memory] | None = None,
    ) -> PreparedCall:
        """Check the arguments of the whole and return a call whose parts run one by one.

        Args:
            arrays: one for each argument of the whole, as `Function.bind` takes them.
            workspace: of the whole, for a function of the host, which then holds the results of the
                first part as well; None: memory of its own.
            buffers: temporary buffers of the whole, for a function of a device; None: of its own.

        Raises:
            ArgumentError: an argument is not acceptable.
            RunError: the workspace is over the limit.
        """
        if isinstance(self.whole, SymbolicFunction):
            return self.of_sizes(arrays).bind(arrays, workspace, buffers)
        self.whole.bind(*arrays)
        given = dict(enumerate(arrays))
        if isinstance(self._prepare, DeviceFunction) and isinstance(self._main, DeviceFunction):
            return self._bound_on_device(self._prepare, self._main, given, buffers)
        assert isinstance(self._prepare, Function)
        assert isinstance(self._main, Function)
        if workspace is not None and workspace.nbytes >= self._kept_bytes:
            return self._bound_in(workspace, self._prepare, self._main, given)
        kept = self.room(self.whole.device)
        first = self._prepare.bind(*(given[n] for n in self._spec.prepare_args), *kept)
        return PreparedCall(first, self._main.bind(*self.main(given, kept)))

    @property
    def _kept_bytes(self) -> int:
        return sum(_whole_lines(arg.nbytes) for arg in self.kept)

    def _bound_in(
        self,
        workspace: npt.NDArray[np.uint8],
        prepare: Function,
        main: Function,
        given: Mapping[int, Any],
    ) -> PreparedCall:
        """A call whose kept buffers lie in a workspace, as in a call of the whole."""
        kept, at = [], 0
        for arg in self.kept:
            kept.append(_placed(workspace[at : at + arg.nbytes], arg))
            at += _whole_lines(arg.nbytes)
        rest = workspace[at:]
        first = [*(given[n] for n in self._spec.prepare_args), *kept]
        second = self.main(given, kept)
        return PreparedCall(_bound(prepare, first, rest), _bound(main, second, rest))

    def _bound_on_device(
        self,
        prepare: DeviceFunction,
        main: DeviceFunction,
        given: Mapping[int, Any],
        buffers: Sequence[Memory] | None,
    ) -> PreparedCall:
        first = [given[n] for n in self._spec.prepare_args]
        home = first[0].device
        if buffers is None:
            kept: list[Any] = self.room(home)
            bound = prepare.bind(*first, *kept), main.bind(*self.main(given, kept))
            return PreparedCall(*bound)
        count = len(self.kept)
        kept = [
            DeviceArray(memory, arg.shape, arg.dtype.name, home, None)
            for memory, arg in zip(buffers[:count], self.kept, strict=True)
        ]
        until = count + len(prepare.buffer_bytes)
        return PreparedCall(
            prepare.bind(*first, *kept, buffers=buffers[count:until]),
            main.bind(*self.main(given, kept), buffers=buffers[until:]),
        )


def parts_of(spec: FunctionSpec, functions: Mapping[str, AnyFunction]) -> Parts | None:
    """The parts of a function by its manifest entry; None where it has only one."""
    if spec.parts is None:
        return None
    whole, prepare, main = (
        functions[name] for name in (spec.name, spec.parts.prepare, spec.parts.main)
    )
    assert not isinstance(prepare, SymbolicFunction)  # as manifests are checked
    return Parts(whole, prepare, main, spec.parts)


def _bound(function: Function, held: list[Any], space: npt.NDArray[np.uint8]) -> BoundCall:
    """A call on checked arrays, in a workspace that is large enough."""
    addresses = [int(x.ctypes.data) for x in held]
    return BoundCall(function, held, addresses, space if function.workspace_bytes else None)


def _shape_only(arg: Arg) -> npt.NDArray[Any]:
    """An array of an argument's shape that takes no memory."""
    return np.broadcast_to(np.zeros((), arg.dtype), arg.shape)


def _placed(memory: npt.NDArray[np.uint8], arg: Arg) -> npt.NDArray[Any]:
    """A view of memory as the array of an argument."""
    return memory.view(arg.dtype).reshape(arg.shape)


def _whole_lines(nbytes: int) -> int:
    """Bytes rounded up to the next possible offset of a buffer in a workspace."""
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
