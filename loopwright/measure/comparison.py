"""Comparison of outputs with the reference, poisoned outputs, tolerance; arrays as bytes."""

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
#: Another one, and another float, for a kernel that knows the first.
OTHER_PATTERN, _OTHER_FLOAT = 0x3C, -3.0e4
#: Outputs all smaller than this are compared as if one were so large: inputs are about 1.
_SMALLEST = 1e-3
#: An answer may differ from the better of two right ones by so many times their difference: of the
#: elements of an answer the worst one counts.
_ROUNDINGS = 4.0


class Comparison(NamedTuple):
    """Result of comparing one output.

    Example:
        >>> from loopwright.inspection import compare
        >>> one = np.ones(4, "float32")
        >>> print(compare("C", one, one, 1))
        Comparison(max_error=0.0, problem=None)
    """

    #: Largest absolute difference; infinite when one side is NaN or infinite and the other is not.
    max_error: float
    problem: str | None  #: a line about the worst element; None: all are within the tolerance


def poison(array: Array, pattern: int = PATTERN) -> None:
    """Fill an output with NaN or a pattern, so that an unwritten element cannot look right.

    ``pattern`` is the byte for types without NaN; with another than the default, floats get a
    number too.

    Example:
        >>> from loopwright.inspection import poison
        >>> out = np.zeros(2, "float32")
        >>> poison(out)
        >>> print(out)
        [nan nan]
    """
    if dtypes.is_float(array.dtype.name):
        array.fill(np.nan if pattern == PATTERN else _OTHER_FLOAT)
    else:
        array.reshape(-1).view(np.uint8).fill(pattern)


def reduction_length(dag: Dag) -> int:
    """Number of terms that are added up on the way to an output, over all stages of a DAG."""
    lengths = (math.prod(a.count for a in op.reduce_axes) for op in dag.ops if op.reduce_axes)
    return max(1, sum(lengths))


def computed_in(dag: Dag) -> str:
    """Shortest float type of a DAG's arithmetic, conversions left out; empty for none. A float16
    matmul that accumulates in float32 computes in float32.
    """
    from loopwright.ir.expr import Binary, Call, Unary  # not at the top: runners import no compiler
    from loopwright.ir.visitor import nodes

    floats = {
        e.dtype
        for op in dag.ops
        for e in (() if op.body is None else nodes(op.body))
        if isinstance(e, Binary | Call | Unary) and dtypes.is_float(e.dtype)
        if not (isinstance(e, Binary) and e.op in ("max", "min"))
    }
    return min(floats, key=_DIGITS.__getitem__, default="")


_DIGITS = {"bfloat16": 7, "float16": 10, "float32": 23, "float64": 52}


def tolerance(dtype: str, length: int, computed: str = "") -> float:
    """Allowed error relative to the largest expected value; 0 for integers and bool.

    Rounding errors of a sum of n random terms grow like sqrt(n) relative to its typical size; the
    constant covers intrinsics and a rounded reference. A missing or doubled term is far above it. A
    result stored in a shorter type than it was computed in may be rounded either way at last.
    """
    if not dtypes.is_float(dtype):
        return 0.0
    eps = 2.0 ** -_DIGITS[dtype]
    inner = 2.0 ** -_DIGITS[computed or dtype]
    stored = eps if eps > inner else 0.0
    return inner * (16.0 + 2.0 * math.sqrt(length)) + stored


class KnownElements(NamedTuple):
    """Right values of some elements of an output."""

    places: Array  # row-major, int64
    values: Array  # floats as float64, all others as int64
    errors: Array  # largest error of a right kernel; infinite where nothing is known


class Closeness(NamedTuple):
    """Required accuracy of an answer.

    Example:
        >>> from loopwright.inspection import Closeness
        >>> print(Closeness(length=64, exact=False).length)
        64
    """

    length: int  #: see `reduction_length`
    computed: str = ""  #: see `computed_in`
    exact: bool = False  #: it must be equal: any right schedule gives the same bits
    #: For each output the difference of two right answers that add up the same terms in different
    #: ways; empty where not known.
    rounding: tuple[float, ...] = ()

    def allowed(self, dtype: str, scale: float, output: int) -> float:
        """Largest allowed difference in an output of this dtype, with finite elements to ``scale``.

        Where a sum goes into a function whose result is much smaller, the rounding of the sum
        decides; ``rounding``, from two right answers, shows how much of that is left.
        """
        relative = tolerance(dtype, self.length, self.computed) * max(scale, _SMALLEST)
        if not self.rounding:
            return relative
        return max(relative, _ROUNDINGS * self.rounding[output])


def compare(
    name: str, got: Array, expected: Array, close: Closeness | int, output: int = 0
) -> Comparison:
    """Compare one output with the reference.

    NaN matches NaN and an infinity itself. The absolute tolerance of every element is
    ``tolerance(dtype, length)`` times the largest finite expected value (at least 0.001), or the
    effect of rounding on this program, where that is known and larger.

    Args:
        name: name of the output, for the text.
        got: result of the kernel.
        expected: same shape and dtype.
        close: required accuracy; a number stands for ``Closeness(number)``.
        output: number of the output.

    Example:
        >>> from loopwright.inspection import compare
        >>> right, got = np.ones(4, "float32"), np.array([1, 1, 2, 1], "float32")
        >>> print(compare("C", right, right, 1).problem, compare("C", got, right, 1).max_error)
        None 1.0
    """
    close = Closeness(close) if isinstance(close, int) else close
    dtype = got.dtype.name
    if got.dtype.kind == "b":
        got, expected = got.view(np.uint8), expected.view(np.uint8)
    elif dtypes.is_float(dtype) and dtypes.bits(dtype) < 32:
        got, expected = got.astype(np.float32), expected.astype(np.float32)
    if close.exact or got.dtype.kind != "f":
        if bool((got == expected).all()):
            return Comparison(0.0, None)
        allowed = 0.0
    elif got.size == 0:
        return Comparison(0.0, None)
    else:
        with np.errstate(all="ignore"):
            # Without NaN and infinities, as nearly always, this decides; a NaN makes both fail.
            worst, scale = float(np.abs(got - expected).max()), float(np.abs(expected).max())
        if math.isfinite(scale) and worst <= close.allowed(dtype, scale, output):
            return Comparison(worst, None)
        finite = np.abs(expected[np.isfinite(expected)])
        allowed = close.allowed(dtype, float(finite.max(initial=0.0)), output)
    error = _distances(got, expected)
    worst = float(error.max())
    if worst <= allowed:
        return Comparison(worst, None)
    where = np.unravel_index(int(np.argmax(error)), got.shape)
    text = (
        f"{name}[{', '.join(str(int(i)) for i in where)}] is {got[where]}, expected "
        f"{expected[where]} (error {worst:.3g}, allowed {allowed:.3g}); "
        f"{int(np.count_nonzero(error > allowed))} of {got.size} elements are wrong"
    )
    return Comparison(worst, text)


def compare_known(name: str, got: Array, expected: KnownElements) -> Comparison:
    """Compare the known elements of an output."""
    actual = got.reshape(-1)[expected.places].astype(expected.values.dtype)
    distance = _distances(actual, expected.values)
    distance[np.isinf(expected.errors)] = 0.0
    wrong = distance > expected.errors
    bad = int(np.count_nonzero(wrong))
    if not bad:
        return Comparison(0.0, None)
    worst = int(np.argmax(np.where(wrong, distance - expected.errors, -1.0)))
    place = np.unravel_index(int(expected.places[worst]), got.shape)
    text = (
        f"{name}[{', '.join(map(str, place))}] is {actual[worst]}, expected "
        f"{expected.values[worst]} (error {distance[worst]:.3g}, allowed "
        f"{expected.errors[worst]:.3g}); {bad} of {actual.size} elements that were looked at are "
        "wrong"
    )
    return Comparison(float(distance[worst]), text)


def _distances(got: Array, expected: Array) -> Array:
    """Absolute differences as float64: 0 where both are equal or NaN, infinite where one is."""
    with np.errstate(all="ignore"):
        distance = np.asarray(np.abs(np.subtract(got, expected, dtype=np.float64)))
        same = np.asarray(got == expected)
    if got.dtype.kind == "f":
        same |= np.isnan(got) & np.isnan(expected)
        distance[np.isnan(distance)] = np.inf
    else:
        # A float64 cannot tell large integers apart.
        distance = np.asarray(np.maximum(distance, 1.0))
    distance[same] = 0.0
    return distance


def reference_problem(outputs: Sequence[Arg], arrays: Sequence[Array]) -> str | None:
    """Reason why the result of a NumPy reference does not fit the outputs of a kernel, or None."""
    if len(arrays) != len(outputs):
        return f"it returned {len(arrays)} arrays for {len(outputs)} outputs"
    for arg, array in zip(outputs, arrays, strict=True):
        if array.shape != arg.shape:
            return f"{arg.name} has shape {list(arg.shape)}, it returned {array.shape}"
    return None


def split(data: bytes, args: Sequence[Arg]) -> list[Array]:
    """Read-only arrays over bytes that lie one after the other."""
    arrays, at = [], 0
    for arg in args:
        size = arg.nbytes // arg.dtype.itemsize
        arrays.append(np.frombuffer(data, arg.dtype, size, at).reshape(arg.shape))
        at += arg.nbytes
    return arrays


def known_bytes(sets: Sequence[Sequence[KnownElements]]) -> bytes:
    """Expected outputs, set after set, output after output, for `known_from`."""
    parts = [
        part
        for outputs in sets
        for expected in outputs
        for part in (np.array([expected.places.size, expected.values.dtype.kind == "f"]), *expected)
    ]
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def known_from(data: bytes, outputs: int) -> list[list[KnownElements]]:
    """Decode `known_bytes`, of sets of so many outputs."""
    words, at, known_elements = np.frombuffer(data, np.int64), 0, []
    while at < words.size:
        count, is_float = int(words[at]), bool(words[at + 1])
        places, values, errors = words[at + 2 : at + 2 + 3 * count].reshape(3, count)
        values = values.view(np.float64) if is_float else values
        known_elements.append(KnownElements(places, values, errors.view(np.float64)))
        at += 2 + 3 * count
    return [known_elements[i : i + outputs] for i in range(0, len(known_elements), outputs)]
