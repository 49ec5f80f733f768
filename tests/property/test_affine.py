"""Affine forms, intervals and exactness against brute force over small domains.

Expressions mix small and huge literals and narrow dtypes, so that some of them wrap: what the index
arithmetic claims must hold for integers that wrap.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loopwright import dtypes
from loopwright.ir.affine import Affine, div_mod, exact, fits, interval, to_affine
from loopwright.ir.expr import Binary, Cast, Const, Expr, Unary, Var, const

X, Y, Z = Var("x"), Var("y"), Var("z")
RANGES = {X: (0, 3), Y: (0, 4), Z: (-2, 1)}
POINTS = [
    dict(zip(RANGES, p, strict=True))
    for p in product(*(range(a, b + 1) for a, b in RANGES.values()))
]
OPS = ("+", "-", "*", "//", "%", "tdiv", "tmod", "min", "max")


@st.composite
def expressions(draw: Any, depth: int = 3, dtype: str = "int32") -> Expr:
    kind = draw(st.integers(0, 9)) if depth else draw(st.integers(0, 3))
    if kind < 3:
        v = draw(st.sampled_from((X, Y, Z)))
        return v if dtype == "int32" else Cast(v, dtype)
    if kind == 3:
        return const(draw(st.sampled_from((1, 2, 3, 5, 7, -1, -4, 100, 2**28, 2**30 + 1))), dtype)
    if kind == 4:
        frm = draw(st.sampled_from(("int8", "uint8", "int32", "int64")))
        inner = draw(expressions(depth - 1, frm))
        return inner if frm == dtype else Cast(inner, dtype)
    if kind == 5:
        return Unary("-", draw(expressions(depth - 1, dtype)), dtype)
    op = draw(st.sampled_from(OPS))
    return Binary(
        op, draw(expressions(depth - 1, dtype)), draw(expressions(depth - 1, dtype)), dtype
    )


def cut(v: int, dtype: str) -> int:
    lo, hi = (int(x) for x in dtypes.limits(dtype))
    return (v - lo) % (hi - lo + 1) + lo


def value(e: Expr, env: dict[Var, int], wrap: bool = True) -> int:
    """The value at a point; each operation wraps to its dtype, or (for comparison) none does."""
    match e:
        case Var():
            out = env[e]
        case Const(value=v):
            out = v
        case Cast(value=x):
            out = value(x, env, wrap)
        case Unary(a=a):
            out = -value(a, env, wrap)
        case Binary(op=op, a=a, b=b):
            out = operation(op, value(a, env, wrap), value(b, env, wrap))
    return cut(out, e.dtype) if wrap else out


def operation(op: str, a: int, b: int) -> int:
    if op in ("+", "-", "*"):
        return {"+": a + b, "-": a - b, "*": a * b}[op]
    if op in ("min", "max"):
        return min(a, b) if op == "min" else max(a, b)
    if b == 0:
        return 0
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return {"//": a // b, "%": a % b, "tdiv": quotient, "tmod": a - b * quotient}[op]


def at(a: Affine, env: dict[Var, int]) -> int:
    return a.const + sum(c * env[v] for v, c in a.terms.items())


@given(e=expressions())
def test_affine_forms_are_exact_where_they_fit(e: Expr) -> None:
    a = to_affine(e, {}, RANGES)
    if a is None:
        return
    lo, hi = a.bounds(RANGES)
    values = [at(a, p) for p in POINTS]
    assert (min(values), max(values)) == (lo, hi)
    for p, v in zip(POINTS, values, strict=True):
        assert cut(v, e.dtype) == value(e, p)


@given(e=expressions())
def test_intervals_contain_every_value(e: Expr) -> None:
    b = interval(e, {}, RANGES)
    if b is None or not fits(e, {}, RANGES):
        return
    for p in POINTS:
        assert b[0] <= value(e, p) <= b[1]


@given(e=expressions())
def test_exact_expressions_may_be_cut_at_the_end(e: Expr) -> None:
    if exact(e, {}, RANGES):
        for p in POINTS:
            assert cut(value(e, p, wrap=False), e.dtype) == value(e, p)


@given(
    terms=st.lists(st.tuples(st.sampled_from((X, Y, Z)), st.integers(-20, 60)), max_size=3),
    offset=st.integers(-5, 40),
    m=st.integers(1, 24),
)
def test_quotient_and_remainder(terms: list[tuple[Var, int]], offset: int, m: int) -> None:
    a = Affine(offset)
    for v, c in terms:
        a = a + Affine(0, {v: c} if c else {})
    ranges = dict(RANGES)
    lets: list[tuple[Var, Expr]] = []
    q, r = div_mod(a, m, ranges, lets, "f")
    for p in POINTS:
        env = dict(p)
        for v, e in lets:
            env[v] = value(e, env)
            assert ranges[v][0] <= env[v] <= ranges[v][1]
        assert (at(q, env), at(r, env)) == divmod(at(a, p), m)
