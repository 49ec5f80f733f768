"""Common subexpressions and loop-invariant code: what moves, and what guards keep in place."""

from __future__ import annotations

import pytest

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Call, Expr, IfThenElse, Var, binary
from loopwright.ir.printer import print_stmt
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Seq, Stmt, Store
from loopwright.ir.verify import verify
from loopwright.lowering.passes.redundancy import common_subexpr_elim, loop_invariant_code_motion

A, B = Buffer("A", (8,), "float32"), Buffer("B", (8, 8), "float32")
P, T = Buffer("P", (8,), "int32"), Buffer("T", (8,), "float32")
i, j, k = Var("i"), Var("j"), Var("k")
a, b = Load(A, (i,), "float32"), Load(B, (i, j), "float32")


def exp(e: Expr) -> Expr:
    return Call("exp", (e,), "float32")


def put(e: Expr, *indices: Expr, to: Buffer = B) -> Store:
    return Store(to, indices or (i, j), e)


def nest(*body: Stmt, kind: str = "serial") -> Stmt:
    inner = body[0] if len(body) == 1 else Seq(body)
    return For(i, 8, "serial", For(j, 8, kind, inner))


def func(s: Stmt) -> Func:
    f = Func("f", (A, B, P, T), (True, True, True, True), s)
    verify(f)
    return f


def cse(*body: Stmt) -> list[str]:
    """Lines inside both loops after the pass."""
    f = common_subexpr_elim(func(nest(*body)))
    verify(f)
    return [line.strip() for line in print_stmt(f.body).splitlines()[2:]]


def licm(s: Stmt) -> str:
    f = loop_invariant_code_motion(func(s))
    verify(f)
    return print_stmt(f.body)


def choice(cond: Expr, x: Expr, y: Expr) -> Expr:
    return IfThenElse(cond, x, y, "float32")


# ---------------------------------------------------------------- common subexpressions


def test_twice_in_one_store() -> None:
    assert cse(put(exp(a) + 1.0 / exp(a))) == ["cse = exp(A[i])", "B[i, j] = cse + 1.0 / cse"]


def test_larger_ones_use_smaller_ones() -> None:
    e = exp(a * b)
    assert cse(put(e + e * a)) == [
        "cse = A[i]",
        "cse_1 = exp(cse * B[i, j])",
        "B[i, j] = cse_1 + cse_1 * cse",
    ]


def test_in_a_run_of_stores() -> None:
    two = [put(exp(a)), put(exp(a), i, to=T)]
    assert cse(*two) == ["cse = exp(A[i])", "B[i, j] = cse", "T[i] = cse"]


def test_an_index_that_is_looked_up() -> None:
    p = Load(P, (j,), "int32")
    s = put(Load(A, (p,), "float32"), i, p)
    assert cse(s) == ["cse = P[j]", "B[i, cse] = A[cse]"]


def test_what_a_store_between_may_change_is_read_again() -> None:
    lines = cse(put(exp(a)), put(b, i, to=A), put(exp(a), i, to=T))
    assert lines == ["B[i, j] = exp(A[i])", "A[i] = B[i, j]", "T[i] = exp(A[i])"]


def test_a_store_reads_before_it_writes() -> None:
    assert cse(put(b + b)) == ["cse = B[i, j]", "B[i, j] = cse + cse"]


def test_what_only_guarded_branches_compute_stays_there() -> None:
    cond = binary("<", binary("+", i, j), 8)
    s = put(choice(cond, exp(a) + exp(a), b))
    assert cse(s) == [f"B[i, j] = {_shown(s)}"]
    s = put(choice(cond, exp(a), b) + choice(cond, exp(a), b))
    assert cse(s)[0].startswith("cse = (exp(A[i]) if i + j < 8 else B[i, j])")


def test_what_is_computed_anyway_may_serve_a_branch() -> None:
    s = put(exp(a) + choice(binary("<", j, 4), exp(a), b))
    assert cse(s) == ["cse = exp(A[i])", "B[i, j] = cse + (cse if j < 4 else B[i, j])"]


def test_addresses_are_left_alone() -> None:
    t = Load(T, (binary("+", i, j),), "float32")
    u = Load(A, (binary("+", i, j),), "float32")
    assert cse(put(t + u)) == ["B[i, j] = T[i + j] + A[i + j]"]


def _shown(s: Store) -> str:
    return print_stmt(s).partition(" = ")[2]


# ---------------------------------------------------------------- loop-invariant code


@pytest.mark.parametrize("kind", ["serial", "vectorized", "unrolled", "parallel"])
def test_as_far_out_as_it_can_go(kind: str) -> None:
    t = Load(T, (k,), "float32")
    s = Let(k, binary("-", 7, 4), nest(put(exp(t) * exp(a) + b), kind=kind))
    head = "range" if kind == "serial" else kind
    assert licm(s).splitlines() == [
        "k = 3",
        "inv = exp(T[k])",
        "for i in range(8):",
        "  inv_1 = inv * exp(A[i])",
        f"  for j in {head}(8):",
        "    B[i, j] = inv_1 + B[i, j]",
    ]


def test_what_the_loop_writes_is_read_in_it() -> None:
    s = nest(put(exp(a)), put(b, i, to=A))
    assert licm(s) == print_stmt(s)


def test_a_buffer_of_the_loop_stays_in_it() -> None:
    own = Buffer("own", (8,), "float32", "local")
    zero = binary("-", 1, 1)
    body = Seq((put(b, zero, to=own), put(exp(Load(own, (zero,), "float32")))))
    s = For(i, 8, "serial", For(j, 8, "serial", Allocate(own, body)))
    assert licm(s) == print_stmt(s)


def test_guards_keep_what_they_guard() -> None:
    cond = binary("<", j, 4)
    s = nest(If(cond, put(exp(a))))
    assert licm(s) == print_stmt(s)
    s = nest(put(choice(cond, exp(a), b)))
    assert licm(s) == print_stmt(s)


def test_inside_a_guard_code_moves_up_to_it() -> None:
    s = For(i, 8, "serial", If(binary("<", i, 4), For(j, 8, "serial", put(exp(a) + b))))
    assert licm(s).splitlines() == [
        "for i in range(8):",
        "  if i < 4:",
        "    inv = exp(A[i])",
        "    for j in range(8):",
        "      B[i, j] = inv + B[i, j]",
    ]


def test_a_condition_is_computed_in_every_iteration() -> None:
    cond = binary("<", Load(P, (i,), "int32"), 3)
    assert licm(nest(put(choice(cond, b, b * b)))).splitlines()[1:3] == [
        "  inv = P[i] < 3",
        "  for j in range(8):",
    ]


def test_names_of_the_loop_stay_in_it() -> None:
    s = nest(Let(k, binary("//", j, 2), put(exp(Load(A, (k,), "float32")))))
    assert licm(s) == print_stmt(s)


def test_threads_share_nothing_through_a_name() -> None:
    s = For(i, 8, "thread", put(exp(Load(T, (binary("-", 1, 1),), "float32")), i, i), (), "x")
    assert licm(s) == print_stmt(s)
