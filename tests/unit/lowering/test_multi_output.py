"""Statements that write several outputs at once."""

from __future__ import annotations

import numpy as np

from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Select, Var, const
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.printer import print_stmt
from loopwright.ir.reduction import Combiner
from loopwright.ir.stmt import For, Func, Store
from loopwright.lowering.nest.reductions import combine_into, write_all

ZERO = const(0, "int32")
#: Fibonacci's step (x, y) -> (x + y + right x, x + right y): each output reads the other.
(X, Y), (P, Q) = (Var("x"), Var("y")), (Var("p"), Var("q"))
STEP = Combiner("step", (X, Y), (P, Q), (X + Y + P, X + Q), (ZERO, ZERO))
SUM = Combiner("sum", (X,), (P,), (X + P,), (ZERO,))


def buffers(n: int) -> list[Buffer]:
    return [Buffer(f"b{k}", (1,), "int32") for k in range(n)]


def test_one_store_an_output() -> None:
    text = print_stmt(write_all(buffers(2), (ZERO,), [const(1, "int32"), const(2, "int32")]))
    assert text.splitlines() == ["b0[0] = 1", "b1[0] = 2"]


def test_of_one_output_nothing_is_bound() -> None:
    (b,) = buffers(1)
    old = Load(b, (ZERO,), "int32")
    made = combine_into([b], (ZERO,), SUM, [old], [const(3, "int32")], "b")
    assert isinstance(made, Store)
    assert print_stmt(made) == "b0[0] = b0[0] + 3"


def test_all_new_values_are_made_before_any_is_stored() -> None:
    made = buffers(2)
    old = [Load(b, (ZERO,), "int32") for b in made]
    update = combine_into(made, (ZERO,), STEP, old, [ZERO, ZERO], "b")
    f = Func("f", tuple(made), (True, True), For(Var("i"), 10, "serial", update))
    arrays = [np.array([1], "int32"), np.array([0], "int32")]
    interpret(f, arrays)
    assert [int(a[0]) for a in arrays] == [89, 55]


def test_what_is_chosen_is_stored() -> None:
    made, cond = buffers(2), const(1, "int32") < Var("n")
    old: list[Expr] = [Load(b, (ZERO,), "int32") for b in made]

    def chosen(k: int, new: Expr) -> Expr:
        return Select(cond, new, old[k], "int32")

    text = print_stmt(combine_into(made, (ZERO,), STEP, old, [ZERO, ZERO], "b", chosen))
    assert text.splitlines()[-2:] == [
        "b0[0] = select(1 < n, b.new0, b0[0])",
        "b1[0] = select(1 < n, b.new1, b1[0])",
    ]
