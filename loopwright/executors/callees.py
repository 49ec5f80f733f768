"""Callees of a program's steps: kernels whose constants are given, or functions in Python."""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from loopwright.errors import ArgumentError, RunError
from loopwright.executors.program import Array, Step
from loopwright.runtime import Arena, Device, InPlace, Kernel, Module, NDArray, device


class SharedArrays:
    """Arrays by their content. Nobody writes into shared ones."""

    def __init__(self) -> None:
        # Arrays that no model uses any more are not held.
        self._arrays = weakref.WeakValueDictionary[tuple[object, ...], Array]()

    def one_of(self, array: Array, copy: Callable[[Array], Array] | None = None) -> Array:
        """The first array that is equal to this one, bit by bit; else this one, or its `copy`."""
        if not array.flags.c_contiguous:
            return array
        digest = hashlib.blake2b(array.reshape(-1).view(np.uint8).data, digest_size=16).digest()
        key = array.dtype.name, array.shape, digest
        first = self._arrays.get(key)
        if first is None:
            first = self._arrays.setdefault(key, array if copy is None else copy(array))
        return first


@dataclass(frozen=True, eq=False)
class HostStep:
    """A step that runs in Python, on arrays of the host.

    Attributes:
        name: of the step, for messages.
        function: from the arrays that it reads, which it does not change, to its results, in order.
        outputs: number of results.
        by: library of the implementation, such as ``"PyTorch"``.

    Example:
        >>> from loopwright.executors import HostStep
        >>> step = HostStep("sorted", lambda x: [np.sort(x)], 1, "NumPy")
        >>> x, y = np.array([3, 1, 2]), np.empty(3, "int64")
        >>> step.bind(x, y)()
        >>> print(y)
        [1 2 3]
    """

    name: str
    function: Callable[..., Sequence[Array]]
    outputs: int
    by: str

    def bind(self, *arrays: Array | NDArray) -> HostCall:
        """A call on some arrays: its inputs, then its outputs."""
        first = len(arrays) - self.outputs
        return HostCall(self, arrays[:first], arrays[first:])


@dataclass(frozen=True, eq=False)
class HostCall:
    """A step with its arrays; those of a device are copied to the host and back."""

    step: HostStep
    inputs: tuple[Array | NDArray, ...]
    outputs: tuple[Array | NDArray, ...]

    def __call__(self) -> None:
        """Run it once; RunError where the function failed, or its results do not fit."""
        read = [a.numpy() if isinstance(a, NDArray) else a for a in self.inputs]
        try:
            results = self.step.function(*read)
        except Exception as exc:  # whatever the other library raises
            text = " ".join(str(exc).split())
            raise RunError(
                f"step {self.step.name!r}, which {self.step.by} computes, failed: "
                f"{type(exc).__name__}: {text:.300}"
            ) from exc
        wanted = [f"{a.dtype}{list(a.shape)}" for a in self.outputs]
        got = [f"{a.dtype}{list(a.shape)}" for a in results]
        if got != wanted:
            raise RunError(
                f"step {self.step.name!r}, which {self.step.by} computes, gave "
                f"{', '.join(got) or 'nothing'} where the program has {', '.join(wanted)}"
            )
        for out, array in zip(self.outputs, results, strict=True):
            copied(array, out)

    @property
    def device(self) -> Device:
        return device("cpu", 0)

    def time(self, number: int) -> float:
        return seconds_of(self, number)


def seconds_of(
    run: Callable[[], object], number: int, until: Callable[[], object] | None = None
) -> float:
    """Seconds of `number` calls of ``run``, and of one call of ``until`` behind them."""
    begin = time.perf_counter()
    for _ in range(number):
        run()
    if until is not None:
        until()
    return time.perf_counter() - begin


def copied(source: Array | NDArray, target: Array | NDArray) -> None:
    if isinstance(target, np.ndarray):
        target[...] = source.numpy() if isinstance(source, NDArray) else source
    elif isinstance(source, NDArray):
        source.copyto(target)
    else:
        target.copyfrom(source)


class Callee(NamedTuple):
    #: A kernel, with its constants given, or a Python function.
    function: Kernel | HostStep
    #: Numbers of the values that are its constants.
    given: tuple[int, ...]
    #: Numbers of the values that it is called with.
    rest: tuple[int, ...]


def callees(
    steps: Sequence[Step],
    kernels: Mapping[str, Module | HostStep],
    weights: Mapping[int, Any],
    before: Sequence[Callee] = (),
    changed: Collection[int] = (),
    shared: SharedArrays | None = None,
    in_place: Collection[int] = (),
) -> list[Callee]:
    """The callee of each step; steps with one kernel and the same constants share its results.

    Constants that kernels read lie side by side in huge pages. ``weights`` are the constants by
    number of the value. ``before`` are the callees for other weights (empty: prepare all), of which
    those in ``changed`` differ. Prepared arrays that equal one of ``shared`` are that array.
    Weights in ``in_place`` are not copied.
    """
    arena = Arena()
    kept = arena.copy_of if shared is None else partial(shared.one_of, copy=arena.copy_of)
    prepared: dict[tuple[object, ...], Any] = {}
    called = []
    for at, step in enumerate(steps):
        module, given, rest = split(step, kernels, weights)
        if before and not set(given) & set(changed):
            called.append(before[at])
            continue
        key = (step.kernel, *given)
        if key not in prepared:
            values = [InPlace(weights[n]) if n in in_place else weights[n] for n in given]
            prepared[key] = _with_constants(module, values, kept)
        called.append(Callee(prepared[key], given, rest))
    return called


def _with_constants(
    module: Module | HostStep, given: Sequence[Any], kept: Callable[[Any], Any]
) -> Kernel | HostStep:
    """A kernel with its constants; a Python function reads all its arguments in every call."""
    if isinstance(module, HostStep):
        return module
    if not given:
        return module[module.entry_name]
    kernel = module.with_constants(*given)
    kernel.exchange(kept)
    return kernel


def split(
    step: Step, kernels: Mapping[str, Module | HostStep], weights: Collection[int]
) -> tuple[Module | HostStep, tuple[int, ...], tuple[int, ...]]:
    """The kernel of a step, the values that are its constants, and the others.

    ArgumentError where the kernel is missing, or takes other values than the program gives.
    """
    if step.kernel not in kernels:
        raise ArgumentError(f"kernel {step.kernel!r} is missing")
    module = kernels[step.kernel]
    if isinstance(module, HostStep):
        return module, (), step.args
    args = module.artifact.contents.function(module.entry_name).args
    if len(args) != len(step.args):
        raise ArgumentError(
            f"kernel {step.kernel!r} has {len(args)} arguments, the program gives {len(step.args)}"
        )
    pairs = list(zip(args, step.args, strict=True))
    for arg, n in pairs:
        if arg.constant and n not in weights:
            raise ArgumentError(
                f"kernel {step.kernel!r} takes {arg.name!r} as a constant, the program gives value "
                f"{n}, which is none; build the kernel without it"
            )
    given = tuple(n for arg, n in pairs if arg.constant)
    return module, given, tuple(n for arg, n in pairs if not arg.constant)
