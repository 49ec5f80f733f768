"""Arguments of kernels and their data: five sets, made alike in the parent and in a runner.

Set 0 is random. Set 1 reveals errors that random data hide: where an expression allows it, its
floats are small integers, whose sums are exact, so that the answers must be equal and not only
close. Sets 2 to 4 are at the edges of their types, since a kernel that is right on ordinary numbers
alone is wrong: zeros, limits, equal and mixed sizes; infinities and NaN; only large numbers of one
sign. There each line of an input, the elements that share an index of an output, has data of one
kind, so that no kind hides another in all of a sum. Right answers to these sets are known at some
elements, each with an error of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from loopwright import dtypes
from loopwright.measure.comparison import Array
from loopwright.runtime import Arg, Artifact

if TYPE_CHECKING:
    from loopwright.te import Span


Edge = Literal["mixed", "special", "one sign"]
#: Fewer lines than this cannot show all kinds: then each element has a kind of its own.
_LINES = 8
#: Exponents of mixed, and of large, sizes, and those of float16: half of the range of a type is not
#: left in a product.
_MIXED, _LARGE = (12, 4), (40, 7)


def make_input(
    shape: Sequence[int],
    dtype: str,
    seed: int,
    index: int,
    *,
    span: Span | None = None,
    largest: int = 0,
) -> Array:
    """Random data of argument number ``index``: the same for equal arguments, in any process.

    Floats are standard normal, or nonzero integers of at most ``largest`` if that is above 0.
    Integers are small and never zero (nothing divides by zero): -4..4 for signed, 1..8 for unsigned
    types; or in ``span``, for an argument that is used as an index.
    """
    rng = np.random.default_rng([seed, index])
    size, dtype = tuple(shape), dtypes.check(dtype)
    if span is not None:
        return np.asarray(rng.integers(span[0], span[1] + 1, size, dtype=np.int64)).astype(dtype)
    if dtypes.is_float(dtype) and largest:
        sizes = rng.integers(1, largest + 1, size, dtype=np.int8)
        signs = rng.integers(0, 2, size, dtype=np.int8) * np.int8(2) - np.int8(1)
        return np.asarray(signs * sizes).astype(dtype)
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


def edge_input(
    shape: Sequence[int],
    dtype: str,
    seed: Sequence[int],
    *,
    line: int | None = None,
    span: Span | None = None,
    kind: Edge = "mixed",
) -> Array:
    """Data of one argument; the kind changes along dimension ``line``, or from element to element.

    An index, marked by its ``span``, is often one of its ends. Of the kinds, ``"mixed"`` is another
    one for each line; ``"special"`` ordinary floats and zeros, a few of which are infinite, NaN or
    at the limits of the type, and integers at their limits or zero; ``"one sign"`` lines of large
    negative and of large positive floats, and integers near the lowest.
    """
    rng, size = np.random.default_rng(seed), tuple(shape)
    is_float = dtypes.is_float(dtype)
    if span is not None:
        inside = rng.integers(span[0], span[1] + 1, size, dtype=np.int64)
        which = rng.integers(0, 4, size)
        return np.asarray(np.choose(which, [span[0], span[1], inside, inside])).astype(dtype)
    if kind == "one sign":
        return _of_one_sign(rng, size, dtype, line)
    if is_float and kind == "special":
        return _with_specials(rng, size, dtype, line)
    draw = _draw_floats if is_float else _draw_integers
    kinds = _FLOATS if is_float else _LIMITS if kind == "special" else _INTEGERS
    out = np.empty(size, np.dtype(dtype))
    lines = _lines(out, line)
    which = rng.permutation(np.arange(len(lines)) % len(kinds))
    for number, name in enumerate(kinds):
        numbers = np.flatnonzero(which == number)
        lines[numbers] = draw(name, rng, (numbers.size, *lines.shape[1:]), dtype)
    return out


def _lines(array: Array, line: int | None) -> Array:
    """A view of an array whose first dimension is that of its lines."""
    if line is None or array.shape[line] < _LINES:
        return array.reshape(-1)
    return np.moveaxis(array, line, 0)


def _with_specials(
    rng: np.random.Generator, size: tuple[int, ...], dtype: str, line: int | None
) -> Array:
    """Ordinary numbers and zeros; special values in a quarter of lines, or 1 of 4096 elements."""
    import ml_dtypes

    values, info = _draw_floats("some zeros", rng, size, dtype), ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    largest = float(info.max)
    some = [np.nan, np.inf, -np.inf, largest, -largest, float(info.smallest_normal)]
    lines = _lines(values, line)
    count, usual, most = len(lines), values.size >> 12, values.size // 8
    if lines.ndim > 1:
        usual, most = count // 4, count
    chosen = rng.permutation(count)[: min(most, max(len(some), usual))]
    inner = tuple(rng.integers(0, n, chosen.size) for n in lines.shape[1:])
    lines[(chosen, *inner)] = np.resize(np.array(some), chosen.size).astype(dtype)
    return values


def _of_one_sign(
    rng: np.random.Generator, size: tuple[int, ...], dtype: str, line: int | None
) -> Array:
    """Lines of one sign: a wrong start of a maximum, or a truncated sum, shows."""
    if dtype == "bool":
        return np.zeros(size, dtype)
    if not dtypes.is_float(dtype):
        lowest = np.full(size, int(dtypes.limits(dtype)[0]), dtype)
        return np.asarray(lowest + rng.integers(0, 4, size, np.dtype(dtype)))
    normal = rng.standard_normal(size, dtype=np.float32)
    values = -np.ldexp(1.0 + np.abs(normal), _LARGE[dtype == "float16"])
    if line is not None:
        np.moveaxis(values, line, 0)[1::2] *= -1.0
    return values.astype(dtype)


def _draw_floats(kind: str, rng: np.random.Generator, size: tuple[int, ...], dtype: str) -> Array:
    """Floats of one kind; the first dimension is that of lines."""
    one_each = (*size[:1], *[1] * (len(size) - 1))
    if kind == "halves":  # few numbers, so that many are equal; half of them are rounded to even
        return np.asarray(rng.integers(-8, 9, size, dtype=np.int8) * np.float32(0.5)).astype(dtype)
    if kind == "equal":
        small = rng.integers(0, 2, one_each) == 0
        ordinary, large = (_draw_floats(k, rng, one_each, dtype) for k in ("ordinary", "large"))
        return np.asarray(np.broadcast_to(np.where(small, ordinary, large), size))
    mixed, largest = (powers[dtype == "float16"] for powers in (_MIXED, _LARGE))
    if kind == "mixed":
        powers = rng.integers(-mixed, mixed + 1, size, dtype=np.int8)
        normal = rng.standard_normal(size, dtype=np.float32)
        return np.asarray(np.ldexp(normal, powers)).astype(dtype)
    values = rng.standard_normal(size, dtype=np.float32)
    if kind == "some zeros":
        values[rng.integers(0, 4, size, dtype=np.int8) == 0] *= 0.0  # which keeps the sign
    elif kind in ("large", "small"):
        # One exponent for each line: the sizes that mixed lines leave out, up to the largest.
        exponents = rng.integers(mixed, largest + 1, one_each).astype(np.float32)
        values = values * np.exp2(exponents if kind == "large" else -exponents)
    else:
        values = values * np.float32(0.0 if kind == "zeros" else 4.0)
    return values.astype(dtype)


def _draw_integers(kind: str, rng: np.random.Generator, size: tuple[int, ...], dtype: str) -> Array:
    """Integers or bool of one kind; the first dimension is that of lines."""
    if kind == "zeros" or (kind == "lowest" and dtype == "bool"):
        return np.zeros(size, dtype)
    if kind == "equal":
        one_each = (size[0], *[1] * (len(size) - 1))
        return np.asarray(np.broadcast_to(_draw_integers("full", rng, one_each, dtype), size))
    if dtype == "bool":
        if kind in ("few", "highest"):
            return np.ones(size, np.bool_)
        return rng.integers(0, 2, size, dtype=np.uint8).view(np.bool_)
    if kind == "few":
        return rng.integers(0 if dtypes.is_unsigned(dtype) else -4, 5, size).astype(dtype)
    low, high = map(int, dtypes.limits(dtype))
    if kind in ("lowest", "highest"):
        return np.full(size, low if kind == "lowest" else high, dtype)
    if kind == "limits":
        some = np.array([low, high, low + 1, high - 1, 0, 1, 0 if low == 0 else -1], dtype)
        return some[rng.integers(0, len(some), size)]
    return rng.integers(low, high, size, np.dtype(dtype), endpoint=True)


_FLOATS = ("some zeros", "ordinary", "mixed", "zeros", "equal", "large", "small", "halves")
_INTEGERS = ("full", "few", "zeros", "equal", "limits", "full")
_LIMITS = ("limits", "lowest", "highest", "zeros")


#: The sets of inputs for which whole answers are computed, and those at the edges of their types.
SETS = (0, 1)
EDGES: dict[int, Edge] = {2: "mixed", 3: "special", 4: "one sign"}


@dataclass(frozen=True)
class DataPlan:
    """Plan of the data of some arguments."""

    #: For each argument, the values it may take as an index; None where it is not used as one.
    #: Empty: no argument is.
    spans: tuple[Span | None, ...] = ()
    largest: int = 0  #: floats of set 1 are integers of at most this size; 0: random as in set 0
    #: For each argument the dimension that moves with one of an output, or None; empty: none is
    #: known.
    lines: tuple[int | None, ...] = ()

    def merge(self, other: DataPlan) -> DataPlan:
        if not other.spans or not self.spans:
            spans = self.spans or other.spans
        else:
            spans = tuple(
                a or b if a is None or b is None else (max(a[0], b[0]), min(a[1], b[1]))
                for a, b in zip(self.spans, other.spans, strict=True)
            )
        return DataPlan(spans, min(self.largest, other.largest), self.lines or other.lines)

    def span(self, index: int) -> Span | None:
        return self.spans[index] if self.spans else None

    def made(self, arg: Arg, index: int, seed: int, number: int) -> Array:
        """The data of one argument in a set; ``seed`` is that of set 0."""
        largest = self.largest if number else 0
        span, shift = self.span(index), number * _NEXT_SEED
        if number in EDGES:
            line = self.lines[index] if self.lines else None
            return edge_input(
                arg.shape,
                arg.dtype.name,
                [seed + shift, index],
                line=line,
                span=span,
                kind=EDGES[number],
            )
        return make_input(
            arg.shape, arg.dtype.name, seed + shift, index, span=span, largest=largest
        )

    def varied(self, elements: Array, index: int) -> Array:
        """Set 1 from set 0: in the opposite order; an index, whose order may matter, unchanged."""
        if self.span(index) is not None:
            return elements
        return np.ascontiguousarray(elements.reshape(-1)[::-1]).reshape(elements.shape)


#: Step of the seeds of the sets; any number that users do not choose as a step of seeds.
_NEXT_SEED = 0x5E7


def input_set(
    plan: DataPlan, args: Sequence[Arg], seed: int, arrays: Sequence[Array] | None, number: int
) -> list[Array]:
    """One set of inputs, in order.

    Args:
        plan: plan of the data.
        args: all arguments of a kernel.
        seed: seed of random data.
        arrays: set 0, where the template makes it; None: random data.
        number: number of the set; a template's arrays have only set 0 and its `DataPlan.varied`.

    Example:
        >>> with lw.Target("llvm"):
        ...     s, args = lw.ops.matmul(8, 4, 2)
        ...
        >>> f = lw.build(s, args, name="matmul")
        >>> plan = lw.inspection.DataPlan()
        >>> a, b = lw.inspection.input_set(plan, f[f.entry_name].args, 0, None, 0)
        >>> print(a.shape, b.shape, a.dtype)
        (8, 2) (2, 4) float32
    """
    inputs = [(i, arg) for i, arg in enumerate(args) if not arg.output]
    if arrays is None:
        return [plan.made(arg, i, seed, number) for i, arg in inputs]
    if number == 0:
        return list(arrays)
    return [plan.varied(array, i) for (i, _), array in zip(inputs, arrays, strict=True)]


def arguments(artifact: Artifact) -> list[Arg]:
    entry = artifact.contents.function(artifact.entry)
    return [Arg.of(spec) for spec in entry.args]
