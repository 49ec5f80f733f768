"""Arithmetic on extents, and bounds that know size variables; compared with brute force."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from loopwright.ir.affine import Affine
from loopwright.ir.expr import Expr, Var, binary
from loopwright.ir.sizes import MAX_EXTENT, Sizes, SizeVar, evaluate, size_vars

N, M = SizeVar("n"), SizeVar("m")


def value(sizes: Sizes, x: int | Affine, n: int, m: int) -> int:
    """A form for given sizes, its own variables computed from their definitions."""
    env: dict[Any, int] = {N: n, M: m}
    for v, e in sizes.lets:
        env[v] = evaluate(e, env)
        lo, hi = sizes.ranges[v]
        assert lo <= env[v] <= hi
    return evaluate(sizes.dim(x), env)


@pytest.mark.parametrize(
    "e",
    [
        N + 1,
        N * 2 - M,
        N // 3,
        (N * 4 + 2) // 2,
        (N + 7) // 8 * 8,
        N % 5 + M % 2,
        N * M,
        (N + 1) * (M + 2) - M * N,
        N * N * M,
        (N * M) // 4 + (M * N) // 4,
    ],
    ids=str,
)
def test_forms_have_the_value_of_the_expression(e: Expr) -> None:
    sizes = Sizes()
    form = sizes.of(e)
    for n, m in product((1, 2, 5, 8, 13), (1, 3, 10)):
        want = evaluate(e, {N: n, M: m})
        if want < 1:
            continue  # no extent
        assert value(sizes, form, n, m) == want
        assert evaluate(sizes.definition(sizes.dim(form)), {N: n, M: m}) == want


def test_equal_products_and_quotients_are_one_variable() -> None:
    sizes = Sizes()
    assert sizes.of(N * M) == sizes.of(M * N)
    assert sizes.of((N + 7) // 8) == sizes.ceil_div(Affine.of(N), 8)
    assert len(sizes.lets) == 2


def test_exact_quotients_need_no_variable() -> None:
    sizes = Sizes()
    assert sizes.ceil_div(sizes.of(N * 8), 8) == Affine.of(N)
    assert sizes.floor_div(sizes.of(N * 8 + 5), 8) == Affine.of(N)
    assert sizes.ceil_div(17, 8) == 3
    assert sizes.lets == []


def test_extents_are_one_to_the_limit() -> None:
    sizes = Sizes([N * 2 - 5, M])
    assert sizes.ranges[N] == (3, (MAX_EXTENT + 5) // 2)
    assert sizes.ranges[M] == (1, MAX_EXTENT)


def test_a_loop_is_below_its_extent() -> None:
    sizes = Sizes([N, M])
    i, j = Var("i"), Var("j")
    sizes.ranges.enter(i, sizes.of(N))
    sizes.ranges.enter(j, sizes.of(M + 2))
    a, b = Affine.of(i), Affine.of(j)
    n, m = Affine.of(N), Affine.of(M)
    assert (a - n).bounds(sizes.ranges)[1] == -1
    assert (n - a).bounds(sizes.ranges)[0] == 1
    assert (a * 3 + b - n * 3 - m).bounds(sizes.ranges)[1] == -2
    assert (a - m).bounds(sizes.ranges)[1] > 0
    assert (a - b).bounds(sizes.ranges)[1] == MAX_EXTENT - 1


def test_the_larger_of_two() -> None:
    sizes = Sizes([N, M])
    n, m = sizes.of(N), sizes.of(M)
    assert sizes.most(n + 1, n) == n + 1
    assert sizes.least(n + 1, n) == n
    assert sizes.least(n, 1) == 1
    assert sizes.most(n, m) is None


def test_large_sums_are_wide() -> None:
    sizes = Sizes([N, M])
    assert sizes.dim(sizes.of(N + 1)).dtype == "int32"
    assert sizes.dim(sizes.of(N * 4)).dtype == "int32"
    both = Sizes()
    both.declare(N)
    assert both.dim(Affine(1, {N: 1})).dtype == "int64"


def test_size_vars_in_the_order_of_use() -> None:
    assert size_vars([3, binary("+", M, N), N]) == [M, N]
