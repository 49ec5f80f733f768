"""SimplifyExpr: removes calls without effect, and merges calls that one call can do.

The rules are patterns (`loopwright.graph.dataflow_pattern`), as in TVM's pass of the name: those of
`simplify_arithmetic`, and here those of calls that move elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loopwright.graph.dataflow_pattern import Match, Rule, is_op, rewrite, wildcard
from loopwright.graph.ir.expr import Call, Expr, TensorType
from loopwright.graph.ir.module import IRModule
from loopwright.graph.op.shapes import broadcast, pads_of
from loopwright.graph.passes import module_pass
from loopwright.graph.registry import get_op
from loopwright.graph.transform import simplify_arithmetic

_X, _Y = wildcard(), wildcard()
#: Calls that keep the order of elements in memory.
_RESHAPES = ("reshape", "squeeze", "expand_dims", "nn.batch_flatten")
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


def _no_pad(m: Match) -> Expr | None:
    return m[_X] if all(pair == (0, 0) for pair in m.attrs()["pad_width"]) else None


def _reshape(m: Match, e: Expr, t: TensorType) -> Expr | None:
    """The elements in another shape; None where it is not known."""
    if m.type(e) == t:
        return e
    if not (t.static and m.type(e).static):
        return None
    return get_op("reshape")(e, newshape=t.shape, span=m.root.span)


def _one_reshape(m: Match) -> Expr | None:
    return _reshape(m, m[_X], m.type(m.root))


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
_BETWEEN = is_op(*_RESHAPES)(_INNER)
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
    turned = _transpose(m, m[_X], order)
    # One transpose for two; where it stays, a reshape behind it costs nothing more.
    return _reshape(m, turned, result)


def _groups(old: Sequence[Any], new: Sequence[Any]) -> list[list[int]] | None:
    """The neighbouring dimensions that each new one joins; None where one is split."""
    if not all(isinstance(n, int) for n in (*old, *new)) or 0 in old:
        return None
    found: list[list[int]] = []
    at = 0
    for n in new:
        first, size = at, 1
        while at < len(old) and (size < n or old[at] == 1):
            size *= old[at]
            at += 1
        if size != n:
            return None
        found.append(list(range(first, at)))
    return found if at == len(old) else None


def _as_dense(m: Match) -> Expr | None:
    """Write a product with a transposed matrix as `nn.dense`."""
    if len(m.type(_Y).shape) != 2 or _axes(m[_TURNED], 2) != (1, 0):
        return None
    op = get_op("nn.dense")
    return op(m[_X], m[_Y], span=m.root.span, out_dtype=m.attrs()["out_dtype"])


# ---------------------------------------------------------------- pads, slices, broadcasts

_PAD = is_op("nn.pad")(_X)
_REPEATED = is_op("broadcast_to")(_X)


def _one_pad(m: Match) -> Expr | None:
    """Merge a pad around a pad of the same value."""
    inner, outer = m.attrs(_PAD), m.attrs()
    if inner["pad_value"] != outer["pad_value"]:
        return None
    pairs = zip(inner["pad_width"], outer["pad_width"], strict=True)
    width = [(a + c, b + d) for (a, b), (c, d) in pairs]
    op = get_op("nn.pad")
    return op(m[_X], pad_width=width, pad_value=outer["pad_value"], span=m.root.span)


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
    root = m.root
    assert isinstance(root, Call)
    return root.with_children(tuple(m[_X] if c is m[_REPEATED] else c for c in root.children))


_ONE_SIDE = is_op(*_BROADCASTING)(_REPEATED, _Y) | is_op(*_BROADCASTING)(_Y, _REPEATED)
#: In the order in which they are tried.
RULES = (
    Rule(is_op(*_RESHAPES, "broadcast_to", "strided_slice")(_X), _unchanged),
    Rule(_PAD, _no_pad),
    Rule(is_op(*_RESHAPES)(is_op(*_RESHAPES)(_X)), _one_reshape),
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

    No value changes, but in the last place of ``power(x, 2)``.

    Before::

        def @main(%x: float32[2, 3]) {
          %0 = transpose(%x, axes=[1, 0]);
          %1 = multiply(%0, 2.0);
          %2 = divide(%1, 4.0);
          %3 = reshape(%2, newshape=[3, 2]);
          subtract(%3, 0.0)
        }

    After::

        def @main(%x: float32[2, 3]) {
          %0 = transpose(%x, axes=[1, 0]);
          %1 = multiply(%0, 2.0);
          multiply(%1, 0.25)
        }
    """
    return rewrite((*simplify_arithmetic.RULES, *RULES), module)
