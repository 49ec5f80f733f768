"""Functions whose constant operands are given, and the two parts of such a function.

The code of a function with constants has three entries: ``name`` does everything in each call,
``name_prepare`` computes what the constants determine (a packed copy of weights, say), and
``name_prepared`` the rest. Where a function serves every size, only the last depends on sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import ArgumentError, did_you_mean
from loopwright.runtime.arrays.device import DeviceArray
from loopwright.runtime.arrays.host import aligned_bytes
from loopwright.runtime.artifacts.manifest import FunctionSpec, PartsSpec
from loopwright.runtime.devices.device import Device
from loopwright.runtime.devices.interface import HOST, Memory
from loopwright.runtime.kernels.argument import Arg
from loopwright.runtime.kernels.device_function import DeviceFunction
from loopwright.runtime.kernels.function import Function
from loopwright.runtime.kernels.kernel import Kernel, KernelCall
from loopwright.runtime.kernels.symbolic import SymbolicArg
from loopwright.runtime.kernels.timing import Evaluator
from loopwright.runtime.ndarray import array, empty, host_array

#: Alignment in bytes of buffers in a workspace.
_ALIGNMENT = 64


class PreparedCall(KernelCall):
    """A function with checked arguments whose two parts run one by one.

    `run` runs both. `loopwright.runtime.time_call` times ``main`` alone, on the results of the last
    run of ``prepare``.

    ``prepare`` computes the stages that constants determine, ``main`` the rest.

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

    __slots__ = ("function", "main", "prepare")
    main: KernelCall
    prepare: KernelCall

    def __init__(self, prepare: KernelCall, main: KernelCall) -> None:
        self.prepare, self.main, self.function = prepare, main, main.function

    @property
    def device(self) -> Device:
        return self.main.device

    def __call__(self) -> None:
        self.prepare()
        self.main()

    def run(self) -> None:
        """Run both parts once, and wait for them."""
        self.prepare.run()
        self.main.run()

    def time(self, number: int) -> float:
        """Seconds of `number` calls of the second part, on the results of the last first one."""
        return self.main.time(number)


class Parts:
    """The two parts of a function, to be called one after the other.

    ``read_first`` and ``read_later`` are numbers of the arguments that each part takes, ``kept``
    results of the first, which the second reads.
    """

    def __init__(self, whole: Kernel, first: Kernel, second: Kernel, spec: PartsSpec) -> None:
        self.whole, self.first, self.second, self._spec = whole, first, second, spec
        self.read_first, self.read_later = spec.prepare_args, spec.main_args
        self.kept: tuple[Arg, ...] = first.args[len(spec.prepare_args) :]

    def prepare(self, arrays: Mapping[int, Any], kept: Sequence[Any]) -> None:
        """Compute `kept` from constants, given by number of the argument, and wait for that."""
        self.first.bind(*(arrays[n] for n in self.read_first), *kept).run()

    def main(self, arrays: Mapping[int, Any] | Sequence[Any], kept: Sequence[Any]) -> list[Any]:
        """Arguments of the second part, from those of the whole by number and the arrays `kept`."""
        return [*(arrays[n] for n in self.read_later), *kept]

    def room(self, device: Device) -> list[Any]:
        """New arrays for the results of the first part."""
        if device.device_type == HOST:
            return [_placed(aligned_bytes(arg.nbytes), arg) for arg in self.kept]
        return [empty(arg.shape, arg.dtype.name, device) for arg in self.kept]

    def of_sizes(self, arrays: Sequence[Any]) -> Parts:
        """The parts for the sizes of these arguments; itself where the function has no sizes."""
        whole, _ = self.whole.resolve(arrays)
        if whole is self.whole:
            return self
        kept = [np.broadcast_to(np.zeros((), arg.dtype), arg.shape) for arg in self.kept]
        second, _ = self.second.resolve(self.main(arrays, kept))
        return Parts(whole, self.first, second, self._spec)

    def bind(
        self,
        arrays: Sequence[Any],
        workspace: npt.NDArray[np.uint8] | None = None,
        buffers: Sequence[Memory] | None = None,
    ) -> PreparedCall:
        """Check the arguments of the whole and return a call whose parts run one by one.

        ``workspace`` is that of the whole, for a function of the host, and then holds the results
        of the first part as well; ``buffers`` are the temporary buffers of the whole, for a
        function of a device. None: memory of its own. Errors are those of `Function.bind`.
        """
        parts = self.of_sizes(arrays)
        if parts is not self:
            return parts.bind(arrays, workspace, buffers)
        self.whole.bind(*arrays)
        first = [arrays[n] for n in self.read_first]
        prepare, main = self.first, self.second
        if buffers is not None:
            assert isinstance(prepare, DeviceFunction)
            assert isinstance(main, DeviceFunction)
            home, count = first[0].device, len(self.kept)
            kept: list[Any] = [
                DeviceArray(memory, arg.shape, arg.dtype.name, home, None)
                for memory, arg in zip(buffers[:count], self.kept, strict=True)
            ]
            until = count + len(prepare.buffer_bytes)
            return PreparedCall(
                prepare.bind(*first, *kept, buffers=buffers[count:until]),
                main.bind(*self.main(arrays, kept), buffers=buffers[until:]),
            )
        sizes = [-(-arg.nbytes // _ALIGNMENT) * _ALIGNMENT for arg in self.kept]
        if workspace is None or workspace.nbytes < sum(sizes):
            on_host = self.whole.device.device_type == HOST
            kept = self.room(self.whole.device if on_host else first[0].device)
            second = self.main(arrays, kept)
            return PreparedCall(prepare.bind(*first, *kept), main.bind(*second))
        assert isinstance(prepare, Function)
        assert isinstance(main, Function)
        ends = [*accumulate(sizes, initial=0)]
        kept = [
            _placed(workspace[at : at + arg.nbytes], arg)
            for at, arg in zip(ends, self.kept, strict=False)
        ]
        rest, second = workspace[ends[-1] :], self.main(arrays, kept)
        return PreparedCall(prepare.bound([*first, *kept], rest), main.bound(second, rest))


def parts_of(spec: FunctionSpec, functions: Mapping[str, Kernel]) -> Parts | None:
    """The parts of a function by its manifest entry; None where it has only one."""
    if spec.parts is None:
        return None
    whole, prepare, main = (
        functions[name] for name in (spec.name, spec.parts.prepare, spec.parts.main)
    )
    return Parts(whole, prepare, main, spec.parts)


def _placed(memory: npt.NDArray[np.uint8], arg: Arg) -> npt.NDArray[Any]:
    """A view of memory as the array of an argument."""
    return memory.view(arg.dtype).reshape(arg.shape)


@dataclass(frozen=True)
class InPlace:
    """A constant, contiguous and on the kernel's device, that calls read without a copy.

    A change of it counts in the next call; arrays computed from it stay as they were.
    """

    array: Any


class FunctionWithConstants(Kernel):
    """A function whose constants are given: call it with its other arguments, in order.

    Several threads may call it at once. The values were taken over when it was made: a change of
    the arrays that were given then changes nothing, but for those that are `InPlace`.

    ``values`` are all its constants by number of the argument; ArgumentError where one is not
    acceptable. ``parts`` is None where it has none.

    Attributes:
        args, constants: the arguments that a call takes, and names of those that are given.
        nbytes: bytes that it holds: arrays computed from the constants, and copies of those that
            calls read themselves.
        prepare_seconds: time of the computation from the constants.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> W = te.placeholder((4,), name="W", constant=True)
        >>> V = te.compute((4,), lambda i: W[i] * 2, name="V")
        >>> B = te.compute((4,), lambda i: A[i] + V[i], name="B")
        >>> f = lw.build(te.create_schedule(B.op), [A, W, B])
        >>> w, b = np.ones(4, "float32"), np.empty(4, "float32")
        >>> g = f.with_constants(w)
        >>> w[:] = 100
        >>> g(np.zeros(4, "float32"), b)
        >>> print(b, g.constants, g.nbytes)
        [2. 2. 2. 2.] ('W',) 16
    """

    def __init__(
        self, whole: Kernel, spec: FunctionSpec, parts: Parts | None, values: Mapping[int, Any]
    ) -> None:
        self.name = spec.name
        self.constants = tuple(spec.args[n].name for n in values)
        args = whole.args
        self.args = tuple(arg for n, arg in enumerate(args) if n not in values)
        self.prepare_seconds = 0.0
        # The device of the first constant on one, else the first of its kind.
        arrays = [x.array if isinstance(x, InPlace) else x for x in values.values()]
        places = (x.device for x in arrays if isinstance(x, DeviceArray))
        kind = whole.device.device_type
        home = next((p for p in places if p.device_type == kind), whole.device)
        self._function, held = whole, list[Any]()
        order = whole.order if parts is None else parts.read_later
        owned = {
            n: _taken_over(spec.name, n, args[n], x, home, copy=n in order)
            for n, x in values.items()
        }
        if parts is not None:
            held = parts.room(home)
            begin = time.perf_counter()
            parts.prepare(owned, held)
            self.prepare_seconds = time.perf_counter() - begin
            self._function = parts.second
        #: The arguments of the function that is called, with None where a call gives one.
        self._given = [owned.get(n) if isinstance(n, int) else None for n in order] + held
        self._in_place = {id(owned[n]) for n, x in values.items() if isinstance(x, InPlace)}
        self.nbytes = sum(int(x.nbytes) for x in self._given if x is not None)

    @property
    def device(self) -> Device:
        return self._function.device

    @property
    def function(self) -> Kernel:
        return self._function

    @property
    def given(self) -> tuple[Any, ...]:
        return tuple(self._given)

    def exchange(self, equal: Callable[[Any], Any]) -> None:
        """Replace the `given` arrays by ``equal(array)`` of each, save those that are `InPlace`."""
        kept = [not isinstance(x, np.ndarray) or id(x) in self._in_place for x in self._given]
        self._given = [x if stays else equal(x) for x, stays in zip(self._given, kept, strict=True)]

    def __call__(self, *args: object) -> None:
        """Check the arguments, then run; errors as of `Function`."""
        self._function(*self._all(args))

    def bind(self, *args: object, **memory: Any) -> KernelCall:
        """Check the arguments now and return a call that runs without checking again.

        ``memory`` are further options of the function's own ``bind``.
        """
        return self._function.bind(*self._all(args), **memory)

    def time_evaluator(self, number: int = 10, repeat: int = 1, **options: Any) -> Evaluator:
        """A `loopwright.runtime.Evaluator` of calls, without the computation from constants."""
        return Evaluator(self, number=number, repeat=repeat, **options)

    def _all(self, args: Sequence[object]) -> list[object]:
        """The arguments of the function, with the constants."""
        rest = iter(args)
        missing = sum(x is None for x in self._given)
        if len(args) != missing:
            takes = ", ".join(map(str, self.args))
            raise ArgumentError(
                f"{self.name} with its constants {', '.join(self.constants)} takes {missing} "
                f"arguments ({takes}), got {len(args)}"
            )
        return [next(rest) if x is None else x for x in self._given]

    def __repr__(self) -> str:
        args = ", ".join(map(str, self.args))
        return f"<FunctionWithConstants {self.name}({args}); {', '.join(self.constants)} given>"


def with_constants(
    whole: Kernel,
    spec: FunctionSpec,
    parts: Parts | None,
    values: Sequence[object],
    named: Mapping[str, object],
) -> FunctionWithConstants:
    """A function with its constants; see `loopwright.runtime.Module.with_constants`."""
    numbers = [n for n, arg in enumerate(spec.args) if arg.constant]
    names = [spec.args[n].name for n in numbers]
    if not numbers:
        raise ArgumentError(
            f"with_constants: {spec.name} has no constant arguments; declare them by "
            "te.placeholder(..., constant=True)"
        )
    for name in named:
        if names.count(name) != 1:
            why = "is the name of several" if name in names else "is none"
            raise ArgumentError(
                f"with_constants: {name!r} {why} of the constants of {spec.name}"
                f"{did_you_mean(name, names)}; they are {', '.join(names)}"
            )
    by_number = dict(zip(numbers, values, strict=False))
    twice = [n for n in by_number if spec.args[n].name in named]
    if len(values) > len(numbers) or twice:
        what = f"{spec.args[twice[0]].name!r} twice" if twice else f"{len(values)} values"
        raise ArgumentError(
            f"with_constants: {spec.name} has the constants {', '.join(names)}, got {what}"
        )
    by_number |= {numbers[names.index(name)]: value for name, value in named.items()}
    missing = [spec.args[n].name for n in numbers if n not in by_number]
    if missing:
        raise ArgumentError(
            f"with_constants: {spec.name} has the constants {', '.join(names)}; give "
            f"{', '.join(missing)} as well"
        )
    return FunctionWithConstants(whole, spec, parts, {n: by_number[n] for n in numbers})


def _taken_over(
    name: str, number: int, arg: Arg | SymbolicArg, value: Any, home: Device, copy: bool
) -> Any:
    """A constant on the function's device: a copy, if calls will read it; else ArgumentError."""
    in_place = isinstance(value, InPlace)
    if in_place:
        value, copy = value.array, False
    try:
        data = value if isinstance(value, np.ndarray | DeviceArray) else host_array(value)
        if isinstance(data, DeviceArray) and home.device_type == HOST:
            host_array(data)  # says where it lies
    except ArgumentError as error:
        raise ArgumentError(f"{name}: argument {number} ({arg.name!r}): {error}") from None
    has_extents = isinstance(arg, Arg)
    if np.dtype(data.dtype) != arg.dtype or (has_extents and tuple(data.shape) != arg.shape):
        got = f"{data.dtype}{list(data.shape)}"
        raise ArgumentError(f"{name}: argument {number} ({arg.name!r}): expected {arg}, got {got}")
    if home.device_type == HOST:
        return np.array(data, order="C", copy=copy or None)
    return data if in_place and isinstance(data, DeviceArray) else array(data, device=home)
