"""SimplifyExpr: removes calls without effect, and merges calls that one call can do.

The rules are patterns (`loopwright.graph.dataflow_pattern`), as in TVM's pass of the name:
identities of arithmetic, constants that can be joined, and calls that move elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.graph.dataflow_pattern import (
    DFPattern,
    Match,
    Rule,
    is_constant,
    is_op,
    rewrite,
    wildcard,
)
from loopwright.graph.ir.expr import Call, Expr, TensorType, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.layout.rewriting import FLATTENING
from loopwright.graph.op.shapes import broadcast, pads_of
from loopwright.graph.passes import module_pass
from loopwright.graph.registry import get_op

_X, _Y = wildcard(), wildcard()
#: Floats that hold every number of a dtype, beside what NumPy says of whole numbers.
_WIDER = {"bfloat16": ("float32", "float64"), "float16": ("float32", "float64")}
#: Whole numbers of so many bits are not all floats of 64 bits.
_TOO_WIDE = ("int64", "uint64")


def _all(value: float) -> DFPattern:
    """A constant whose elements all have one value; of float zeros also its sign."""

    def holds(a: Any) -> bool:
        signs = np.signbit(a) == np.signbit(value) if dtypes.is_float(str(a.dtype)) else True
        return bool(((a == value) & signs).all())

    return is_constant(holds)


def _same_type(m: Match) -> Expr | None:
    """The operand of a call without effect; None where the call changes its type."""
    return m[_X] if m.type(m.root) == m.type(_X) else None


# ---------------------------------------------------------------- constants behind one another

_FIRST, _SECOND = is_constant(), is_constant()


def _joined(name: str, combine: Callable[[Any, Any], Any], floats: bool) -> Rule:
    """The rule of ``(x op a) op b``, which is ``x op (a op b)``, of floats or of integers."""

    def build(m: Match) -> Expr | None:
        a, b = m.constant(_FIRST), m.constant(_SECOND)
        if dtypes.is_float(str(a.dtype)) != floats:
            return None
        with np.errstate(all="ignore"):
            both = np.asarray(combine(a, b), dtype=a.dtype)
        if both.size > max(a.size, b.size):
            return None
        # A product of factors may overflow or underflow although they do not.
        lost = ~np.isfinite(both) | ((both == 0) & (a != 0) & (b != 0))
        if floats and name == "multiply" and lost.any():
            return None
        return get_op(name)(m[_X], const(both), span=m.root.span)

    op = is_op(name)
    return Rule(op(op(_X, _FIRST), _SECOND), build)


def _as_sum(m: Match) -> Expr | None:
    """x - a as x + -a."""
    if m.type(m.root).dtype == "bool":
        return None
    return get_op("add")(m[_X], const(np.negative(m.constant(_FIRST))), span=m.root.span)


def _as_product(m: Match) -> Expr | None:
    """x / a as x * (1 / a), where the reciprocals are exact: of powers of two."""
    divisor = m.constant(_FIRST)
    if str(divisor.dtype) not in ("float32", "float64"):
        return None
    mantissa, exponent = np.frexp(divisor)
    if not ((np.abs(mantissa) == 0.5) & (np.abs(exponent) < 100)).all():
        return None
    return get_op("multiply")(m[_X], const(1 / divisor), span=m.root.span)


def _squared(m: Match) -> Expr | None:
    if m.type(m.root) != m.type(_X):
        return None
    return get_op("multiply")(m[_X], m[_X], span=m.root.span)


# ---------------------------------------------------------------- casts and bounds

_INNER_CAST = is_op("cast")(_X)


def _one_cast(m: Match) -> Expr | None:
    """A cast of a cast that lost nothing."""
    first, between, last = m.type(_X).dtype, m.type(_INNER_CAST).dtype, m.attrs()["dtype"]
    if not _holds(between, first):
        return None
    # Floats are cut to the limits of integers, integers wrap.
    cut = dtypes.is_float(between) and dtypes.is_int(first) and dtypes.is_int(last)
    if cut and not _holds(last, first):
        return None
    return get_op("cast")(m[_X], dtype=last, span=m.root.span)


def _holds(wide: str, narrow: str) -> bool:
    """Whether a dtype has every number of another one."""
    if narrow in _WIDER:
        return wide in (narrow, *_WIDER[narrow])
    if narrow in _TOO_WIDE and dtypes.is_float(wide):
        return False
    if wide in dtypes.HALVES:
        return wide == narrow
    return bool(np.can_cast(narrow, wide, "safe"))


_RELU, _CLIP = is_op("nn.relu")(_X), is_op("clip")(_X)
_BOUNDED = _RELU | _CLIP


def _bounds(m: Match, part: DFPattern | None) -> tuple[float, float]:
    attrs = m.attrs(part)
    if "a_min" not in attrs:
        return 0.0, float("inf")
    low, high = attrs["a_min"], attrs["a_max"]
    return float("-inf") if low is None else low, float("inf") if high is None else high


def _one_bound(m: Match) -> Expr | None:
    """Nested bounds as one, where they have a number in common."""
    (a, b), (c, d) = _bounds(m, _BOUNDED), _bounds(m, None)
    low, high = max(a, c), min(b, d)
    if not (a <= b and c <= d and low <= high):
        return None
    if (low, high) == (0.0, float("inf")):
        return get_op("nn.relu")(m[_X], span=m.root.span)
    infinite = float("-inf"), float("inf")
    a_min, a_max = (None if x in infinite else x for x in (low, high))
    return get_op("clip")(m[_X], a_min=a_min, a_max=a_max, span=m.root.span)


_ADD, _SUB, _MUL, _DIV, _POWER = map(is_op, ("add", "subtract", "multiply", "divide", "power"))
_CAST = is_op("cast")
#: In the order in which they are tried.
_ARITHMETIC = (
    Rule(_ADD(_X, _all(-0.0)), _same_type),
    Rule(_SUB(_X, _all(0.0)), _same_type),
    Rule(_MUL(_X, _all(1)), _same_type),
    Rule(_DIV(_X, _all(1)), _same_type),
    Rule(_POWER(_X, _all(1)), _same_type),
    Rule(_POWER(_X, _all(2)), _squared),
    Rule(_SUB(_X, _FIRST), _as_sum),
    Rule(_DIV(_X, _FIRST), _as_product),
    _joined("add", np.add, floats=False),
    _joined("multiply", np.multiply, floats=False),
    Rule(_CAST(_X), lambda m: m[_X] if m.type(_X).dtype == m.attrs()["dtype"] else None),
    Rule(_CAST(_INNER_CAST), _one_cast),
    Rule(is_op("nn.relu")(_BOUNDED) | is_op("clip")(_BOUNDED), _one_bound),
    *(
        Rule(is_op(name)(is_op(name)(_X)), lambda m: m[_X])
        for name in ("negative", "logical_not", "bitwise_not")
    ),
    Rule(is_op("abs")(is_op("abs", "negative")(_X)), lambda m: get_op("abs")(m[_X])),
)
#: Rules that round once instead of twice.
REASSOCIATING = (_joined("add", np.add, floats=True), _joined("multiply", np.multiply, floats=True))


@module_pass(opt_level=2)
def ReassociateConstants(module: IRModule) -> IRModule:
    """Write ``(x * a) * b`` as ``x * (a * b)``, and so for sums.

    That rounds once in place of twice, and loses what the first rounding is for, as in
    ``(x + 12582912) - 12582912``, so that only targets with ``-fastmath`` ask for it.
    """
    return rewrite(REASSOCIATING, module)


# ---------------------------------------------------------------- calls that move elements

#: Operators of two inputs that are broadcast.
_BROADCASTING = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "mod", "fmod"),
)


def _unchanged(m: Match) -> Expr | None:
    """The operand, where the shape and so the elements stay, but for backward slices."""
    backwards = any(n < 0 for n in m.attrs().get("strides") or ())
    return m[_X] if m.type(_X) == m.type(m.root) and not backwards else None


def _reshape(m: Match, e: Expr, t: TensorType) -> Expr | None:
    """The elements in another shape; None where it is not known."""
    if m.type(e) == t:
        return e
    if not (t.static and m.type(e).static):
        return None
    return get_op("reshape")(e, newshape=t.shape, span=m.root.span)


# ---------------------------------------------------------------- transposes


def _axes(e: Expr, rank: int) -> tuple[int, ...]:
    assert isinstance(e, Call)
    axes = get_op("transpose").complete(e.attrs)["axes"]
    return tuple(range(rank))[::-1] if axes is None else tuple(a % rank for a in axes)


def _transpose(m: Match, e: Expr, axes: Sequence[int]) -> Expr:
    if tuple(axes) == tuple(range(len(axes))):
        return e
    return get_op("transpose")(e, axes=tuple(axes), span=m.root.span)


_INNER = is_op("transpose")(_X)
_BETWEEN = is_op(*FLATTENING)(_INNER)
_TURNED = is_op("transpose")(_Y)


def _one_transpose(m: Match) -> Expr | None:
    rank = len(m.type(m.root).shape)
    inner = _axes(m[_INNER], rank)
    return _transpose(m, m[_X], [inner[a] for a in _axes(m.root, rank)])


def _moves_ones(m: Match) -> Expr | None:
    """Replace a transpose that moves only dimensions of extent 1: elements keep their order."""
    shape = m.type(_X).shape
    moved = [a for a in _axes(m.root, len(shape)) if shape[a] != 1]
    return _reshape(m, m[_X], m.type(m.root)) if moved == sorted(moved) else None


def _around_reshape(m: Match) -> Expr | None:
    """Merge transposes around a reshape that joins neighbours: one transpose, then a reshape."""
    before, after, result = m.type(_INNER), m.type(_BETWEEN), m.type(m.root)
    groups = _groups(before.shape, after.shape)
    if groups is None or not result.static:
        return None
    inner = _axes(m[_INNER], len(before.shape))
    order = [inner[d] for a in _axes(m.root, len(after.shape)) for d in groups[a]]
    # One transpose for two; where it stays, a reshape behind it costs nothing more.
    return _reshape(m, _transpose(m, m[_X], order), result)


def _groups(old: Sequence[Any], new: Sequence[Any]) -> list[list[int]] | None:
    """The neighbouring dimensions that each new one joins; None where one is split."""
    if not all(isinstance(n, int) for n in (*old, *new)) or 0 in old:
        return None
    groups: list[list[int]] = []
    at = 0
    for n in new:
        first, size = at, 1
        while at < len(old) and (size < n or old[at] == 1):
            size *= old[at]
            at += 1
        if size != n:
            return None
        groups.append(list(range(first, at)))
    return groups if at == len(old) else None


def _as_dense(m: Match) -> Expr | None:
    if len(m.type(_Y).shape) != 2 or _axes(m[_TURNED], 2) != (1, 0):
        return None
    return get_op("nn.dense")(m[_X], m[_Y], span=m.root.span, out_dtype=m.attrs()["out_dtype"])


# ---------------------------------------------------------------- pads, slices, broadcasts

_PAD = is_op("nn.pad")(_X)
_REPEATED = is_op("broadcast_to")(_X)


def _one_pad(m: Match) -> Expr | None:
    inner, outer = m.attrs(_PAD), m.attrs()
    if inner["pad_value"] != outer["pad_value"]:
        return None
    pairs = zip(inner["pad_width"], outer["pad_width"], strict=True)
    width = [(a + c, b + d) for (a, b), (c, d) in pairs]
    return get_op("nn.pad")(m[_X], pad_width=width, pad_value=outer["pad_value"], span=m.root.span)


def _conv_pads(m: Match) -> Expr | None:
    """Fold zeros around the image of a convolution into its padding."""
    pad, attrs = m.attrs(_PAD), m.attrs()
    batch, channels, *image = pad["pad_width"]
    if pad["pad_value"] != 0 or any(n != 0 for n in (*batch, *channels)):
        return None
    if any(n < 0 for pair in image for n in pair):
        return None
    own = pads_of(attrs["padding"], len(image))
    both = [(a + c, b + d) for (a, b), (c, d) in zip(own, image, strict=True)]
    padding = [low for low, _ in both] + [high for _, high in both]
    return get_op("nn.conv")(m[_X], m[_Y], span=m.root.span, **{**attrs, "padding": padding})


def _broadcast_anyway(m: Match) -> Expr | None:
    """Remove a broadcast that the call itself would do."""
    if broadcast(m.type(_X).shape, m.type(_Y).shape) != m.type(m.root).shape:
        return None
    root = m.call()
    return root.with_children(tuple(m[_X] if c is m[_REPEATED] else c for c in root.children))


_ONE_SIDE = is_op(*_BROADCASTING)(_REPEATED, _Y) | is_op(*_BROADCASTING)(_Y, _REPEATED)
#: In the order in which they are tried, behind those of arithmetic.
_MOVES = (
    Rule(is_op(*FLATTENING, "broadcast_to", "strided_slice")(_X), _unchanged),
    Rule(_PAD, lambda m: m[_X] if all(p == (0, 0) for p in m.attrs()["pad_width"]) else None),
    Rule(is_op(*FLATTENING)(is_op(*FLATTENING)(_X)), lambda m: _reshape(m, m[_X], m.type(m.root))),
    Rule(is_op("transpose")(_INNER), _one_transpose),
    Rule(is_op("transpose")(_X), _moves_ones),
    Rule(is_op("transpose")(_BETWEEN), _around_reshape),
    Rule(is_op("concatenate")(_X), lambda m: m[_X]),
    Rule(is_op("matmul")(_X, _TURNED), _as_dense),
    Rule(is_op("nn.pad")(_PAD), _one_pad),
    Rule(is_op("nn.conv")(_PAD, _Y), _conv_pads),
    Rule(_ONE_SIDE, _broadcast_anyway),
)


@module_pass(opt_level=2)
def SimplifyExpr(module: IRModule) -> IRModule:
    """Simplify arithmetic with constants, casts, bounds, and what moves elements.

    * ``x - 0``, ``x * 1``, ``x / 1``, a cast to the own dtype, a reshape to the own shape: ``x``;
      ``x + 0`` of integers too, while that of floats turns -0 into 0.
    * ``(x * a) * b`` of integers is ``x * (a * b)``, and so for sums; ``x / 8`` is ``x * 0.125``,
      where the reciprocal is exact; ``power(x, 2)`` is ``x * x``.
    * A cast of a cast that loses nothing, bounds inside bounds, a pad around a pad, a reshape of a
      reshape, a transpose of a transpose are one; zeros around the image of a convolution are its
      padding; a product with a transposed matrix is ``nn.dense``.

    No value changes, but in the last place of ``power(x, 2)``. So
    ``reshape(transpose(x) * 2 / 4, shape of transpose(x)) - 0`` becomes
    ``transpose(x) * 2 * 0.25``.
    """
    return rewrite((*_ARITHMETIC, *_MOVES), module)
