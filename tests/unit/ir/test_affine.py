"""Affine arithmetic against brute force over small domains."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.ir.affine import (
    Affine,
    Interval,
    div_mod,
    interval,
    shorter_division,
    to_affine,
)
from loopwright.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Select,
    Unary,
    Var,
    binary,
    cast,
    const,
)
from loopwright.ir.printer import print_expr

VARS = [Var(n) for n in "xyz"]

ranges_of_vars = st.tuples(
    *[st.tuples(st.integers(-3, 3), st.integers(0, 3)).map(lambda t: (t[0], t[0] + t[1]))] * 3
).map(lambda rs: dict(zip(VARS, rs, strict=True)))

small = st.integers(-6, 6)
affines = st.builds(
    lambda c, cs: Affine(c, {v: k for v, k in zip(VARS, cs, strict=True) if k}),
    small,
    st.tuples(small, small, small),
)


def raw(op: str, a: Expr, b: Expr) -> Expr:
    """A binary node without folding, so that `to_affine` sees all of it."""
    return Binary(op, a, b, "int32")


leaves = st.one_of(st.sampled_from(VARS), small.map(lambda v: const(v, "int32")))
divisors = st.integers(1, 7).map(lambda v: const(v, "int32"))


def extend(inner: Any) -> Any:
    return st.one_of(
        st.builds(raw, st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
        st.builds(raw, st.sampled_from(["//", "%"]), inner, divisors),
        inner.map(lambda e: Unary("-", e, "int32")),
        inner.map(lambda e: Cast(e, "int64")),
        st.builds(lambda c, a, b: Select(raw("<", c, a), a, b, "int32"), inner, inner, inner),
    )


exprs = st.recursive(leaves, extend, max_leaves=8)


def evaluate(e: Expr, point: dict[Var, int]) -> int:
    """Exact integers: the independent truth."""
    match e:
        case Const(value=v):
            return int(v)
        case Var():
            return point[e]
        case Cast(value=v):
            return evaluate(v, point)
        case Unary(a=a):
            return -evaluate(a, point)
        case Select(cond=c, a=a, b=b):
            return evaluate(a if evaluate(c, point) else b, point)
        case Binary(op=op, a=a, b=b):
            x, y = evaluate(a, point), evaluate(b, point)
            return int(
                {
                    "+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y,
                    "//": lambda: x // y, "%": lambda: x % y, "<": lambda: x < y,
                    "min": lambda: min(x, y), "max": lambda: max(x, y),
                }[op]()
            )  # fmt: skip
    raise AssertionError(e)


def value(a: Affine, point: dict[Var, int]) -> int:
    return a.const + sum(c * point[v] for v, c in a.terms.items())


def points(ranges: dict[Var, Interval]) -> list[dict[Var, int]]:
    axes = [range(lo, hi + 1) for lo, hi in ranges.values()]
    return [dict(zip(ranges, p, strict=True)) for p in itertools.product(*axes)]


# ------------------------------------------------------------------ the ring


@given(affines, affines, small, ranges_of_vars)
def test_arithmetic(a: Affine, b: Affine, k: int, ranges: dict[Var, Interval]) -> None:
    for p in points(ranges):
        x, y = value(a, p), value(b, p)
        assert value(a + b, p) == x + y
        assert value(a - b, p) == x - y
        assert value(a * k, p) == x * k
        assert value(a + k, p) == x + k
        assert value(a - k, p) == x - k


@given(affines, affines)
def test_equal_forms_are_equal_objects(a: Affine, b: Affine) -> None:
    assert (a + b) - b == a
    assert hash((a + b) - b) == hash(a)
    assert all((a - a).terms.values()), "zero coefficients are never stored"
    assert (a - a) == Affine(0)


@given(affines, ranges_of_vars)
def test_bounds_are_exact(a: Affine, ranges: dict[Var, Interval]) -> None:
    values = [value(a, p) for p in points(ranges)]
    assert a.bounds(ranges) == (min(values), max(values))


@given(affines, affines, ranges_of_vars)
def test_substitute(a: Affine, b: Affine, ranges: dict[Var, Interval]) -> None:
    x = VARS[0]
    for p in points(ranges):
        assert value(a.substitute({x: b}), p) == value(a, p | {x: value(b, p)})


@given(affines, st.sets(st.sampled_from(VARS)))
def test_split_takes_a_form_apart(a: Affine, keep: set[Var]) -> None:
    inside, rest = a.split(keep)
    assert inside + rest == a
    assert inside.const == 0
    assert set(inside.terms) <= keep
    assert not set(rest.terms) & keep


@given(affines, ranges_of_vars)
def test_to_expr_and_back(a: Affine, ranges: dict[Var, Interval]) -> None:
    e = a.to_expr()
    assert to_affine(e, {}, ranges) == a
    for p in points(ranges):
        assert evaluate(e, p) == value(a, p)


def test_to_expr_reads_outer_to_inner() -> None:
    x, y, z = VARS
    a = Affine(-1, {z: 1, x: 64, y: 8})
    assert a.to_expr() == binary("-", binary("+", binary("+", x * 64, y * 8), z), 1)


def test_constants_beyond_int32_are_kept() -> None:
    e = Affine(1 << 40).to_expr()
    assert e == const(1 << 40, "int64")


@given(
    affines, ranges_of_vars, st.sampled_from(["//", "%"]), st.sampled_from([1, 2, 3, 4, 6, 8, 12])
)
def test_shorter_divisions_are_the_same(
    a: Affine, ranges: dict[Var, Interval], op: str, m: int
) -> None:
    whole = raw(op, a.to_expr("int32"), const(m, "int32"))
    short = shorter_division(whole, {}, ranges)
    for p in points(ranges):
        assert short is None or evaluate(short, p) == evaluate(whole, p)


def test_what_a_division_does_not_need_goes() -> None:
    x, y = VARS[:2]
    ranges = {x: (0, 63), y: (0, 15)}

    def shorter(op: str, e: Expr, m: int) -> str:
        found = shorter_division(raw(op, e, const(m, "int32")), {}, ranges)
        return "as it is" if found is None else print_expr(found)

    assert shorter("//", x * 16 + y, 32) == "x // 2"
    assert shorter("%", x * 16 + y, 32) == "x % 2 * 16 + y"
    assert shorter("//", x * 16 + y, 8) == "y // 8 + x * 2"
    assert shorter("%", x * 16 + y, 8) == "y % 8"
    assert shorter("//", x * 16 + y, 24) == "as it is", "a lane may lie on either side"
    assert shorter("//", x + y, 32) == "as it is"


# ------------------------------------------------------------------ from expressions


@given(exprs, ranges_of_vars)
def test_to_affine_is_exact_or_none(e: Expr, ranges: dict[Var, Interval]) -> None:
    a = to_affine(e, {}, ranges)
    if a is None:
        return
    for p in points(ranges):
        assert value(a, p) == evaluate(e, p)


@given(exprs, affines, ranges_of_vars)
def test_to_affine_replaces_variables(e: Expr, b: Affine, ranges: dict[Var, Interval]) -> None:
    x = VARS[0]
    a = to_affine(e, {x: b}, ranges)  # bounds of what remains: b may name x again
    if a is None:
        return
    for p in points(ranges):
        assert value(a, p) == evaluate(e, p | {x: value(b, p)})


@given(affines, affines, ranges_of_vars)
def test_sums_are_always_affine(a: Affine, b: Affine, ranges: dict[Var, Interval]) -> None:
    made = to_affine(raw("-", a.to_expr(), b.to_expr()), {}, ranges)
    assert made == a - b


def test_division_that_splits_into_digits_is_affine() -> None:
    x, y, z = VARS
    ranges = {x: (0, 9), y: (0, 7), z: (0, 3)}
    e = x * 32 + y * 4 + z
    assert to_affine(e // 32, {}, ranges) == Affine.of(x)
    assert to_affine(e % 32, {}, ranges) == Affine(0, {y: 4, z: 1})
    assert to_affine(e // 4 % 8, {}, ranges) == Affine.of(y)
    assert to_affine(e // 16, {}, ranges) is None


@pytest.mark.parametrize(
    "e",
    [
        VARS[0] * VARS[1],
        Binary("//", VARS[0], VARS[1], "int32"),
        Binary("//", VARS[0], const(-2, "int32"), "int32"),
        Binary("tdiv", VARS[0], const(2, "int32"), "int32"),
        cast(VARS[0] * 100, "int8"),
        cast(VARS[0], "float32"),
        Select(VARS[0] < 1, VARS[0], VARS[1], "int32"),
    ],
)
def test_what_is_not_affine(e: Expr) -> None:
    assert to_affine(e, {}, {v: (-9, 9) for v in VARS}) is None


def test_division_of_an_unknown_variable_is_not_affine() -> None:
    assert to_affine(VARS[0] // 2, {}, {}) is None
    assert to_affine(cast(VARS[0], "int64"), {}, {}) is None


# ------------------------------------------------------------------ exact division


@given(affines, st.integers(1, 12), ranges_of_vars)
def test_div_mod_is_exact(a: Affine, m: int, ranges: dict[Var, Interval]) -> None:
    known = dict(ranges)
    lets: list[tuple[Var, Expr]] = []
    q, r = div_mod(a, m, known, lets, "f")
    for p in points(ranges):
        full = dict(p)
        for var, e in lets:
            full[var] = evaluate(e, full)
            lo, hi = known[var]
            assert lo <= full[var] <= hi
        assert value(q, full) == value(a, p) // m
        assert value(r, full) == value(a, p) % m


def test_div_mod_keeps_lanes_affine() -> None:
    """The low digit of a fused and split loop stays a term: a vector lane must not be divided."""
    x, lane = VARS[0], VARS[1]
    known = {x: (0, 23), lane: (0, 7)}
    lets: list[tuple[Var, Expr]] = []
    _, r = div_mod(Affine(0, {x: 8, lane: 1}), 32, known, lets, "f")
    assert r.terms[lane] == 1
    assert all(lane not in (to_affine(e.a, {}, known) or r).terms for _, e in lets)  # type: ignore[attr-defined]
    assert len(lets) == 2


def test_div_mod_needs_no_variable_when_it_divides() -> None:
    x, y, _ = VARS
    lets: list[tuple[Var, Expr]] = []
    q, r = div_mod(Affine(0, {x: 8, y: 1}), 8, {x: (0, 3), y: (0, 7)}, lets, "f")
    assert (q, r, lets) == (Affine.of(x), Affine.of(y), [])


# ------------------------------------------------------------------ intervals


@given(exprs, ranges_of_vars)
def test_interval_holds_every_value(e: Expr, ranges: dict[Var, Interval]) -> None:
    bounds = interval(e, {}, ranges)
    if bounds is None:
        return
    for p in points(ranges):
        assert bounds[0] <= evaluate(e, p) <= bounds[1]


@given(leaves, leaves, st.sampled_from(["+", "-", "*", "min", "max"]), ranges_of_vars)
def test_interval_of_one_operation_is_exact(
    a: Expr, b: Expr, op: str, ranges: dict[Var, Interval]
) -> None:
    if a is b:
        return
    values = [evaluate(raw(op, a, b), p) for p in points(ranges)]
    assert interval(raw(op, a, b), {}, ranges) == (min(values), max(values))


def test_interval_of_a_choice_covers_both_sides() -> None:
    x, y, _ = VARS
    ranges = {x: (0, 3), y: (10, 12)}
    assert interval(Select(x < 1, x, y, "int32"), {}, ranges) == (0, 12)


def test_interval_of_something_unknown_is_none() -> None:
    x, y, _ = VARS
    assert interval(x + y, {}, {x: (0, 3)}) is None
    assert interval(IfThenElse(x < 1, x, x, "int32"), {}, {}) is None
    assert interval(raw("%", y, const(4, "int32")), {}, {}) == (0, 3)
