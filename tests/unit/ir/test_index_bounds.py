"""Bounds of arithmetic on loop variables, against all values that the variables take."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from loopwright.ir.index_bounds import IndexBounds

BITS = 8
X, Y = Var("i"), Var("j")
RANGES = {X: (0, 6), Y: (-3, 4)}


def value(e: Expr, env: dict[Var, int]) -> int:
    """The value of an expression on whole numbers."""
    match e:
        case Var():
            return env[e]
        case Const(value=v):
            return int(v)
        case Cast(value=v):
            return value(v, env)
        case Unary(a=a):
            return -value(a, env)
        case Select(cond=c, a=a, b=b):
            return value(a if value(c, env) else b, env)
        case Binary(op=op, a=a, b=b):
            x, y = value(a, env), value(b, env)
            quotient = abs(x) // abs(y or 1) * (1 if (x < 0) == (y < 0) else -1)
            return {
                "+": x + y,
                "-": x - y,
                "*": x * y,
                "//": x // (y or 1),
                "%": x % (y or 1),
                "tdiv": quotient,
                "tmod": x - quotient * y,
                "min": min(x, y),
                "max": max(x, y),
                "<": int(x < y),
            }[op]
    raise AssertionError(e)


def parts(e: Expr) -> list[Expr]:
    """An expression and all integer expressions in it."""
    below = [p for c in e.children() if isinstance(c, Expr) for p in parts(c)]
    return ([e] if e.dtype == "int32" else []) + below


def operations(e: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    """One more operation on such expressions."""
    ops = st.sampled_from(["+", "-", "*", "min", "max"])
    divisions = st.sampled_from(["//", "%", "tdiv", "tmod"])
    divisors = st.integers(1, 9).map(lambda k: Const(k, "int32"))
    return st.one_of(
        st.builds(lambda op, a, b: Binary(op, a, b, "int32"), ops, e, e),
        st.builds(lambda op, a, b: Binary(op, a, b, "int32"), divisions, e, divisors),
        st.builds(lambda a: Unary("-", a, "int32"), e),
        st.builds(lambda a, b, c, d: Select(Binary("<", a, b, "bool"), c, d, "int32"), e, e, e, e),
    )


LEAVES = st.one_of(st.sampled_from([X, Y]), st.integers(-40, 40).map(lambda k: Const(k, "int32")))


@given(st.recursive(LEAVES, operations, max_leaves=8))
def test_bounds_hold_for_all_values(e: Expr) -> None:
    bounds = IndexBounds(BITS)
    for v, interval in RANGES.items():
        bounds.bind(v, interval)
    reach = bounds.reach(e)
    assert reach is not None
    domains = [range(lo, hi + 1) for lo, hi in RANGES.values()]
    for point in product(*domains):
        env = dict(zip(RANGES, point, strict=True))
        assert reach.bounds[0] <= value(e, env) <= reach.bounds[1]
        if not reach.leaves:
            assert all(-128 <= value(p, env) <= 127 for p in parts(e) if not in_condition(p, e))


def in_condition(p: Expr, e: Expr) -> bool:
    """Whether a part stands in a condition, whose comparison is looked at on its own."""
    return any(
        isinstance(q, Select) and any(p is c for c in parts(q.cond)) for q in parts(e)
    ) or isinstance(p, Const)


def test_a_variable_that_is_not_bound_holds_data() -> None:
    bounds = IndexBounds()
    assert bounds.reach(X + 1) is None
    bounds.bind(X, (0, 9))
    assert bounds.reach(X + 1) is not None
    bounds.bind(X, None)
    assert bounds.reach(X + 1) is None


def test_sizes_are_bounded_by_what_callers_check() -> None:
    n, m = Var("n"), Var("m")
    bounds = IndexBounds(sizes=[n])
    assert bounds.last(n) == (1 << 30) - 1
    assert bounds.bind_size(m, n // 16)
    assert bounds.last(m) == (1 << 26) - 1
    assert not bounds.bind_size(X, Y + 1)
