"""A program and two passes for the tests of contexts and instruments."""

from __future__ import annotations

from loopwright import te
from loopwright.ir.expr import const
from loopwright.ir.stmt import Func, Seq, Store
from loopwright.schedule import Schedule, create_schedule
from loopwright.transform import func_pass


def program() -> tuple[Schedule, list[te.Tensor]]:
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule(b)
    s[b].pragma(b.op.axis[0], "auto_unroll_max_step", 4)
    return s, [a, b]


@func_pass(opt_level=2, name="Blank")
def blank(f: Func) -> Func:
    """Removes everything: easy to see."""
    return f.with_body(Seq(()))


def half(f: Func) -> Func:
    """Adds a statement: the first element of the output is set at the end."""
    zero = const(0, "int32")
    last = Store(f.params[1], (zero, zero), const(0.5, "float32"))
    return f.with_body(Seq((f.body, last)))
