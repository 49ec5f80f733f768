"""Rules of SimplifyExpr for arithmetic: identities, and constants that can be joined."""

from __future__ import annotations

from collections.abc import Callable
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
from loopwright.graph.ir.expr import Expr, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.passes import module_pass
from loopwright.graph.registry import get_op

_X = wildcard()
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


def _own_dtype(m: Match) -> Expr | None:
    return m[_X] if m.type(_X).dtype == m.attrs()["dtype"] else None


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
        lost = floats and name == "multiply" and _is_lost(a, b, both)
        if both.size > max(a.size, b.size) or lost:
            return None
        return get_op(name)(m[_X], const(both), span=m.root.span)

    op = is_op(name)
    return Rule(op(op(_X, _FIRST), _SECOND), build)


def _is_lost(a: Any, b: Any, both: Any) -> bool:
    """Whether a product of factors overflows or underflows although they do not."""
    return bool((~np.isfinite(both) | ((both == 0) & (a != 0) & (b != 0))).any())


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
RULES = (
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
    Rule(_CAST(_X), _own_dtype),
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

    Before::

        def @main(%x: float32[4]) {
          %0 = multiply(%x, 2.0);
          multiply(%0, 3.0)
        }

    After::

        def @main(%x: float32[4]) {
          multiply(%x, 6.0)
        }
    """
    return rewrite(REASSOCIATING, module)
