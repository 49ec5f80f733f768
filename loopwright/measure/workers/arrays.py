"""The arrays that a runner runs kernels on: seeded inputs, poisoned outputs, guarded edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loopwright.measure.check import Array, Comparison, compare, make_input, poison
from loopwright.runtime import Arg

_ALIGN = 64
_GUARD = 4096  # bytes before and after every array that no kernel may write


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
    """The arrays of all arguments of one kind of kernel.

    Inputs keep a pristine copy, so that a kernel that writes an input is found out and cannot
    spoil the data of the next one.

    Args:
        args: the arguments.
        seed: of the input data.
        data: the inputs one after the other, row-major; empty: random ones from the seed.
    """

    def __init__(self, args: Sequence[Arg], seed: int, data: bytes = b"") -> None:
        self._guarded = [GuardedArray(arg, i) for i, arg in enumerate(args)]
        self._output = [arg.output for arg in args]
        self._pristine: list[Array | None] = []
        at = 0
        for i, arg in enumerate(args):
            if arg.output:
                self._pristine.append(None)
            elif data:
                flat = np.frombuffer(data, arg.dtype, self._guarded[i].array.size, at)
                self._pristine.append(flat.reshape(arg.shape))
                at += arg.nbytes
            else:
                self._pristine.append(make_input(arg.shape, arg.dtype.name, seed, i))
        self.restore()

    @property
    def arrays(self) -> list[Array]:
        """All arguments, in order."""
        return [g.array for g in self._guarded]

    @property
    def outputs(self) -> list[GuardedArray]:
        """Those that kernels write."""
        return [g for g, out in zip(self._guarded, self._output, strict=True) if out]

    def restore(self) -> None:
        """Fresh inputs, poisoned outputs."""
        for guarded, pristine in zip(self._guarded, self._pristine, strict=True):
            if pristine is None:
                poison(guarded.array)
            else:
                np.copyto(guarded.array, pristine)

    def output_bytes(self) -> bytes:
        """The outputs one after the other, row-major."""
        return b"".join(g.array.tobytes() for g in self.outputs)

    def split(self, data: bytes) -> list[Array]:
        """Inverse of `output_bytes`: read-only arrays over the bytes."""
        arrays, at = [], 0
        for g in self.outputs:
            part = np.frombuffer(data, g.array.dtype, g.array.size, at)
            arrays.append(part.reshape(g.array.shape))
            at += g.array.nbytes
        return arrays

    def written_outside(self) -> str | None:
        """One line about a write outside an array, or None."""
        names = [g.name for g in self._guarded if not g.intact()]
        if not names:
            return None
        return f"it wrote outside the memory of {', '.join(names)}"

    def judge(self, expected: Sequence[Array], length: int) -> Comparison:
        """Compare what a kernel left behind with the reference.

        Args:
            expected: the outputs as they should be.
            length: scales the tolerance, see `loopwright.measure.check.reduction_length`.
        """
        results = [
            compare(g.name, g.array, e, length) for g, e in zip(self.outputs, expected, strict=True)
        ]
        problems = [r.problem for r in results if r.problem is not None]
        problems += filter(None, [self._changed_input()])
        worst = max((r.max_error for r in results), default=0.0)
        return Comparison(worst, "; ".join(problems) or None)

    def _changed_input(self) -> str | None:
        for guarded, pristine in zip(self._guarded, self._pristine, strict=True):
            if pristine is not None and not np.array_equal(guarded.array, pristine):
                return f"it changed its input {guarded.name}"
        return None
