"""Is the answer right: input data, poisoned outputs, tolerance and comparison. The only such place.

Data comes from a seed, so the parent and a runner make the same without sending it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.runtime import Arg

if TYPE_CHECKING:
    from loopwright.te import Dag

Array = npt.NDArray[Any]

#: Byte that integer outputs are filled with before a checked run.
PATTERN = 0xA5
#: Outputs all smaller than this are judged as if one were so large: inputs are about 1.
_SMALLEST = 1e-3


class Comparison(NamedTuple):
    """Result of comparing one output.

    Attributes:
        max_error: largest absolute difference; infinite when one side is NaN or infinite and the
            other is not.
        problem: one line about the worst element, or None when all are within the tolerance.
    """

    max_error: float
    problem: str | None


def make_input(shape: Sequence[int], dtype: str, seed: int, index: int) -> Array:
    """Random data of argument number ``index``: the same for equal arguments, in any process.

    Floats are standard normal. Integers are small and never zero (nothing divides by zero):
    -4..4 for signed, 1..8 for unsigned types.

    Args:
        shape: extents.
        dtype: name of the element type.
        seed: at least 0.
        index: position among the arguments.
    """
    rng = np.random.default_rng([seed, index])
    size = tuple(shape)
    if dtypes.is_float(dtype):
        single = dtypes.bits(dtype) <= 32
        values = rng.standard_normal(size, dtype=np.float32 if single else np.float64)
        return values.astype(dtype, copy=False)
    if dtype == "bool":
        return rng.integers(0, 2, size, dtype=np.uint8).view(np.bool_)
    if dtypes.is_unsigned(dtype):
        return rng.integers(1, 9, size, dtype=dtype)
    values = rng.integers(1, 5, size, dtype=dtype)
    signs = rng.integers(0, 2, size, dtype=dtype) * 2 - 1
    return np.asarray(values * signs.astype(dtype), dtype=dtype)


def poison(array: Array) -> None:
    """Fill an output so that an element left unwritten cannot look right: NaN, or a pattern."""
    if dtypes.is_float(array.dtype.name):
        array.fill(np.nan)
    else:
        array.view(np.uint8).fill(PATTERN)


def reduction_length(dag: Dag) -> int:
    """How many terms are added up on the way to an output, over all stages of a DAG."""
    lengths = (math.prod(a.count for a in op.reduce_axes) for op in dag.ops if op.reduce_axes)
    return max(1, sum(lengths))


def tolerance(dtype: str, length: int) -> float:
    """Allowed error relative to the largest expected value.

    Rounding errors of a sum of n random terms grow like sqrt(n) relative to its typical size; the
    constant covers intrinsics and a reference that is itself rounded. A missing or doubled term
    is far above it.

    Args:
        dtype: of the output.
        length: see `reduction_length`.

    Returns:
        0 for integers and bool, which must be equal.
    """
    if not dtypes.is_float(dtype):
        return 0.0
    digits = {"bfloat16": 7, "float16": 10, "float32": 23, "float64": 52}
    eps = 2.0 ** -digits[dtype]
    return eps * (16.0 + 2.0 * math.sqrt(length))


def compare(name: str, got: Array, expected: Array, length: int) -> Comparison:
    """Compare one output with the reference.

    NaN matches NaN and an infinity itself. The absolute tolerance of every element is
    ``tolerance(dtype, length)`` times the largest finite expected value (at least 0.001).

    Args:
        name: of the output, for the text.
        got: what the kernel wrote.
        expected: same shape and dtype.
        length: see `reduction_length`.
    """
    if got.dtype.kind == "b":
        return _compare_exact(name, got.view(np.uint8), expected.view(np.uint8))
    if not dtypes.is_float(got.dtype.name):
        return _compare_exact(name, got, expected)
    if got.size == 0:
        return Comparison(0.0, None)
    with np.errstate(all="ignore"):
        error = np.asarray(np.abs(np.subtract(got, expected, dtype=np.float64)))
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        error[same] = 0.0
        error[np.isnan(error)] = np.inf
        finite = np.abs(expected[np.isfinite(expected)])
    scale = float(finite.max()) if finite.size else 0.0
    allowed = tolerance(got.dtype.name, length) * max(scale, _SMALLEST)
    worst = float(error.max())
    if worst <= allowed:
        return Comparison(worst, None)
    bad = int(np.count_nonzero(error > allowed))
    where = np.unravel_index(int(np.argmax(error)), got.shape)
    return Comparison(worst, _problem(name, got, expected, where, bad, worst, allowed))


def _compare_exact(name: str, got: Array, expected: Array) -> Comparison:
    wrong = got != expected
    bad = int(np.count_nonzero(wrong))
    if not bad:
        return Comparison(0.0, None)
    distance = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    error = np.where(wrong, np.maximum(distance, 1.0), 0.0)
    where = np.unravel_index(int(np.argmax(error)), got.shape)
    worst = float(error.max())
    return Comparison(worst, _problem(name, got, expected, where, bad, worst, 0.0))


def _problem(
    name: str,
    got: Array,
    expected: Array,
    where: tuple[np.intp, ...],
    bad: int,
    worst: float,
    allowed: float,
) -> str:
    place = ", ".join(str(int(i)) for i in where)
    return (
        f"{name}[{place}] is {got[where]}, expected {expected[where]} (error {worst:.3g}, "
        f"allowed {allowed:.3g}); {bad} of {got.size} elements are wrong"
    )


def reference_problem(outputs: Sequence[Arg], arrays: Sequence[Array]) -> str | None:
    """Why the result of a NumPy reference does not fit the outputs of a kernel, or None.

    Args:
        outputs: those arguments of the kernel that it writes.
        arrays: what the reference returned.
    """
    if len(arrays) != len(outputs):
        return f"it returned {len(arrays)} arrays for {len(outputs)} outputs"
    for arg, array in zip(outputs, arrays, strict=True):
        if array.shape != arg.shape:
            return f"{arg.name} has shape {list(arg.shape)}, it returned {array.shape}"
    return None
