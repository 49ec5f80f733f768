"""Time of a kernel that is called as users call it, beside its time as tuning measures it.

Tuning times kernels on arrays that begin at a cache line, with pinned threads, from compiled code.
A user calls from Python, not pinned, with arrays as NumPy allocates them: those begin at a multiple
of 16 bytes only, so that vector loads cross cache lines (see docs/performance.md). Each of the two
differences is timed by itself, in turns, so that a report can name the one that costs.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import BuildError
from loopwright.presenting import duration
from loopwright.runtime import (
    ALIGNMENT,
    Arg,
    DeviceFunction,
    Function,
    KernelCall,
    Module,
    aligned_bytes,
    get_num_threads,
    measure_windows,
    pinned,
    time_call,
)
from loopwright.te import Span

Array = npt.NDArray[Any]
#: Alignment in bytes that NumPy promises of an array.
_NUMPY_ALIGNMENT = 16
#: Samples of each way of calling, and seconds of one. The second lowest and second highest of nine
#: ratios hold their median with 96 % (order statistics of a binomial with p = 1/2).
ROUNDS = 9
_WINDOW_S = 0.02
#: A gap is reported when the interval of its ratio lies above this.
_LARGE = 1.1


@dataclass(frozen=True)
class TurnRatio:
    """Ratio of times taken in turns: median over the rounds, and its interval of 96 %."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, slow: Sequence[float], fast: Sequence[float]) -> TurnRatio:
        ratios = sorted(a / b for a, b in zip(slow, fast, strict=True))
        edge = min(1, (len(ratios) - 1) // 2)
        return cls(statistics.median(ratios), ratios[edge], ratios[-1 - edge])

    def __str__(self) -> str:
        return f"{self.middle:.2f} x ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class AsCalled:
    """Times of a kernel that is called as users call it.

    Attributes:
        seconds: median seconds of a call from Python on arrays as NumPy allocates them.
        tuned_way: median seconds in the same minutes, timed as in tuning.
        expected: seconds that the record promises; None without one.
        calls: calls from Python without pinning, on aligned arrays, by the way of tuning.
        arrays: NumPy's arrays by aligned ones, both called from Python.
    """

    seconds: float
    tuned_way: float
    expected: float | None
    calls: TurnRatio
    arrays: TurnRatio

    @property
    def causes(self) -> tuple[str, ...]:
        """Reasons why it takes longer than expected, with remedies; empty where it does not."""
        remarks = []
        if self.arrays.low > _LARGE:
            remarks.append(
                f"NumPy's arrays begin at a multiple of {_NUMPY_ALIGNMENT} bytes and this kernel "
                f"wants {ALIGNMENT}, which costs {self.arrays}: allocate them with "
                "loopwright.nd.empty or nd.array (np.from_dlpack gives a view for NumPy)"
            )
        if self.calls.low > _LARGE:
            remarks.append(
                f"calling it from Python, not pinned, costs {self.calls}: bind the arguments once "
                "(module[name].bind(...).run()), call within loopwright.runtime.pinned(), or "
                "tune with as many threads as there are free cores"
            )
        if self.expected is not None and self.tuned_way > _LARGE * self.expected:
            remarks.append(
                f"timed as in tuning it takes {self.tuned_way / self.expected:.2f} x what the "
                "record says: the machine is busy or slower than then; try again when it is "
                "idle, or tune again"
            )
        return tuple(remarks)

    def __str__(self) -> str:
        text = f"called on NumPy arrays it takes {duration(self.seconds)}"
        if self.expected is not None:
            ratio = self.seconds / self.expected
            text += f", expected {duration(self.expected)} ({ratio:.2f} x)"
        return "; ".join([text, *self.causes])


def time_as_called(
    module: Module,
    expected: float | None,
    inputs: Sequence[npt.ArrayLike] | None = None,
    spans: Sequence[Span | None] = (),
) -> AsCalled:
    """Time a module's entry function as users call it, and as tuning does, in turns.

    Without inputs, floats are random and integers 1, but for arguments with a span, which are used
    as indices and drawn from it. Constant arguments are given once, by `Module.with_constants`.
    """
    function = module[module.entry_name]
    if isinstance(function, DeviceFunction):
        raise BuildError(
            f"verify: {function.name} runs on {function.device}, where a call from Python only "
            "begins the work; time it with time_evaluator on arrays there, or by `loopwright bench`"
        )
    if not isinstance(function, Function):
        raise BuildError(f"verify: {function.name} takes any size; time it on arrays of your own")
    values = _values(function.args, inputs, spans)
    aligned = [_placed(value, 0) for value in values]
    apart = [_placed(value, _NUMPY_ALIGNMENT) for value in values]
    call = module.timed_call(*aligned)
    call.run()
    # Constants are given once; the others are the arguments of the function that users call.
    specs = module.artifact.contents.function(function.name).args
    constants = [array for array, arg in zip(aligned, specs, strict=True) if arg.constant]
    called = module.with_constants(*constants) if constants else function
    numbers = [n for n, arg in enumerate(specs) if not arg.constant]
    aligned, apart = [aligned[n] for n in numbers], [apart[n] for n in numbers]
    estimate = time_call(call, 1)
    once = min(_from_python(called, apart, 1) for _ in range(3))
    number = max(1, round(_WINDOW_S / max(once, 1e-7)))
    ways: list[tuple[Callable[[], float], list[float]]] = [
        (lambda: _in_tuning(module, call, estimate), []),
        (lambda: _from_python(called, aligned, number), []),
        (lambda: _from_python(called, apart, number), []),
    ]
    rng = random.Random(0)
    for _ in range(ROUNDS):
        # In an order drawn anew: nobody always follows the same neighbour.
        for sample, times in rng.sample(ways, len(ways)):
            times.append(sample())
    tuned, plain, numpys = (times for _, times in ways)
    return AsCalled(
        statistics.median(numpys),
        statistics.median(tuned),
        expected,
        TurnRatio.of(plain, tuned),
        TurnRatio.of(numpys, plain),
    )


def _in_tuning(module: Module, call: KernelCall, estimate: float) -> float:
    threads = module.artifact.contents.num_threads or get_num_threads()
    with pinned(threads) if module.is_binary else nullcontext():
        return measure_windows(call, 1, _WINDOW_S * 1e3, estimate)[0]


def _from_python(function: Callable[..., None], arrays: Sequence[Array], number: int) -> float:
    start = time.perf_counter()
    for _ in range(number):
        function(*arrays)
    return (time.perf_counter() - start) / number


def _values(
    args: Sequence[Arg], inputs: Sequence[npt.ArrayLike] | None, spans: Sequence[Span | None]
) -> list[Array]:
    if inputs is not None:
        arrays = iter(inputs)
        return [
            np.ones(arg.shape, arg.dtype)
            if arg.output
            else np.asarray(next(arrays)).astype(arg.dtype).reshape(arg.shape)
            for arg in args
        ]
    rng = np.random.default_rng(0)
    ranges = spans or [None] * len(args)
    return [_drawn(rng, arg, span) for arg, span in zip(args, ranges, strict=True)]


def _drawn(rng: np.random.Generator, arg: Arg, span: Span | None) -> Array:
    if span is not None:
        return np.asarray(rng.integers(span[0], span[1] + 1, arg.shape)).astype(arg.dtype)
    if arg.output or not dtypes.is_float(arg.dtype.name):
        return np.ones(arg.shape, arg.dtype)  # nothing that cannot be divided by
    return rng.standard_normal(arg.shape, np.float32).astype(arg.dtype)


def _placed(value: Array, offset: int) -> Array:
    """A copy whose first byte lies `offset` bytes behind a multiple of `ALIGNMENT`."""
    raw = aligned_bytes(value.nbytes + ALIGNMENT)[offset : offset + value.nbytes]
    copy: Array = raw.view(value.dtype).reshape(value.shape)
    np.copyto(copy, value)
    return copy
