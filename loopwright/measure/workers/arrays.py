"""The arrays that a runner times kernels on: seeded inputs, poisoned outputs, guarded edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.measure.checking.check import Array, Closeness, Comparison, compare, poison
from loopwright.measure.data.plan import DataPlan, input_set
from loopwright.runtime import Arg

_ALIGN = 64
_GUARD = 4096  # bytes before and after every array that no kernel may write
#: Inputs of set 1 that are larger than this together are made anew for each check.
_KEPT_BYTES = 1 << 28


class GuardedArray:
    """The array of one argument, with a guard zone on both sides.

    The pattern differs from array to array: a kernel that runs past the end of all of them copies
    the guards of one into those of another.
    """

    def __init__(self, arg: Arg, number: int) -> None:
        self.name = arg.name
        self._pattern = (0x5A + 29 * number) % 256
        nbytes = arg.nbytes
        block = np.empty(nbytes + 2 * _GUARD + _ALIGN, dtype=np.uint8)
        start = -(block.ctypes.data + _GUARD) % _ALIGN
        self._before = block[start : start + _GUARD]
        self._after = block[start + _GUARD + nbytes : start + 2 * _GUARD + nbytes]
        self._before.fill(self._pattern)
        self._after.fill(self._pattern)
        body = block[start + _GUARD : start + _GUARD + nbytes]
        self.array: Array = body.view(arg.dtype).reshape(arg.shape)

    def intact(self) -> bool:
        """True while nobody has written the guard zones."""
        return bool((self._before == self._pattern).all() and (self._after == self._pattern).all())


class KernelArrays:
    """The arrays of all arguments of one kind of kernel, and the data that they get.

    Inputs keep a pristine copy, so that a kernel that writes an input is found out and cannot
    spoil the data of the next one.

    Args:
        args: the arguments.
        seed: of the input data.
        data: set 0 of the inputs one after the other, row-major; empty: random ones from the seed.
        plan: how the inputs are made.

    Attributes:
        args: the arguments.
    """

    def __init__(
        self, args: Sequence[Arg], seed: int, data: bytes = b"", plan: DataPlan | None = None
    ) -> None:
        self.args = tuple(args)
        self._guarded = [GuardedArray(arg, i) for i, arg in enumerate(args)]
        self._seed, self._plan = seed, plan or DataPlan()
        self._given = _split(data, [a for a in args if not a.output]) if data else None
        self._pristine = input_set(self._plan, self.args, seed, self._given, 0)
        self._other: list[Array] = []
        self.restore()

    @property
    def arrays(self) -> list[Array]:
        """All arguments, in order."""
        return [g.array for g in self._guarded]

    @property
    def outputs(self) -> list[Array]:
        """Those that kernels write."""
        return outputs_of(self.args, self.arrays)

    def inputs(self, number: int) -> list[Array]:
        """The inputs of a set, which nobody may write."""
        if number == 0:
            return self._pristine
        if self._other:
            return self._other
        made = input_set(self._plan, self.args, self._seed, self._given, number)
        if sum(a.nbytes for a in made) <= _KEPT_BYTES:
            self._other = made
        return made

    def restore(self, number: int = 0) -> None:
        """Fresh inputs, poisoned outputs."""
        fill(self.args, self.arrays, self.inputs(number))

    def output_bytes(self) -> bytes:
        """The outputs one after the other, row-major."""
        return b"".join(a.tobytes() for a in self.outputs)

    def split(self, data: bytes) -> list[Array]:
        """Inverse of `output_bytes`: read-only arrays over the bytes."""
        return _split(data, [arg for arg in self.args if arg.output])

    def written_outside(self) -> str | None:
        """One line about a write outside an array, or None."""
        names = [g.name for g in self._guarded if not g.intact()]
        if not names:
            return None
        return f"it wrote outside the memory of {', '.join(names)}"


def outputs_of(args: Sequence[Arg], arrays: Sequence[Array]) -> list[Array]:
    """The arrays of those arguments that kernels write."""
    return [array for arg, array in zip(args, arrays, strict=True) if arg.output]


def fill(args: Sequence[Arg], arrays: Sequence[Array], inputs: Sequence[Array]) -> None:
    """Give arrays these inputs, and poison their outputs."""
    fill_inputs(args, arrays, inputs)
    for output in outputs_of(args, arrays):
        poison(output)


def fill_inputs(args: Sequence[Arg], arrays: Sequence[Array], inputs: Sequence[Array]) -> None:
    """Give arrays these inputs; their outputs stay."""
    places = [array for arg, array in zip(args, arrays, strict=True) if not arg.output]
    for array, data in zip(places, inputs, strict=True):
        np.copyto(array, data)


def judge(
    args: Sequence[Arg],
    arrays: Sequence[Array],
    inputs: Sequence[Array],
    expected: Sequence[Array],
    close: Closeness | int,
) -> Comparison:
    """Compare what a kernel left behind with the reference.

    Args:
        args: its arguments.
        arrays: as it left them.
        inputs: what it was given.
        expected: the outputs as they should be.
        close: how close they must be.
    """
    named = [(arg.name, array) for arg, array in zip(args, arrays, strict=True) if arg.output]
    results = [compare(n, a, e, close) for (n, a), e in zip(named, expected, strict=True)]
    problems = [r.problem for r in results if r.problem is not None]
    kept = [(arg.name, a) for arg, a in zip(args, arrays, strict=True) if not arg.output]
    for (name, array), data in zip(kept, inputs, strict=True):
        if not same_bytes(array, data):
            problems.append(f"it changed its input {name}")
    worst = max((r.max_error for r in results), default=0.0)
    return Comparison(worst, "; ".join(problems) or None)


def same_bytes(a: Array, b: Array) -> bool:
    """Whether two arrays of one type hold the same bits; a NaN equals itself."""
    return bool(np.array_equal(_bits(a), _bits(b)))


def _bits(a: Array) -> Array:
    return np.ascontiguousarray(a).reshape(-1).view(np.uint8)


def _split(data: bytes, args: Sequence[Arg]) -> list[Array]:
    """Read-only arrays over bytes that lie one after the other."""
    arrays, at = [], 0
    for arg in args:
        size = arg.nbytes // arg.dtype.itemsize
        arrays.append(np.frombuffer(data, arg.dtype, size, at).reshape(arg.shape))
        at += arg.nbytes
    return arrays
