"""Statements that write several outputs of a stage at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var
from loopwright.ir.reduction import Combiner
from loopwright.ir.stmt import Let, Stmt, Store, seq

Indices = tuple[Expr, ...]


def write_all(buffers: Sequence[Buffer], indices: Indices, values: Sequence[Expr]) -> Stmt:
    """One store an output; no value may read what is stored."""
    return seq(*(Store(b, indices, v) for b, v in zip(buffers, values, strict=True)))


def combine_into(
    buffers: Sequence[Buffer],
    indices: Indices,
    combiner: Combiner,
    a: Sequence[Expr],
    b: Sequence[Expr],
    label: str,
    chosen: Callable[[int, Expr], Expr] = lambda _, value: value,
) -> Stmt:
    """Store what ``combiner`` makes of ``a`` and ``b``.

    Of a tuple, operands and results are bound to variables first, so that no store changes what
    another output is made of.

    Args:
        buffers: one an output.
        indices: the element, in all of them.
        combiner: combines two values of each output.
        a, b: one expression an output.
        label: begins the names of the variables.
        chosen: makes of output k and its new value what is stored.
    """
    if len(buffers) == 1:
        (whole,) = combiner.combine(a, b)
        return Store(buffers[0], indices, chosen(0, whole))
    lets: list[tuple[Var, Expr]] = []

    def named(name: str, items: Sequence[Expr]) -> list[Var]:
        made = [Var(f"{label}.{name}{k}", e.dtype) for k, e in enumerate(items)]
        lets.extend(zip(made, items, strict=True))
        return made

    new = named("new", combiner.combine(named("old", a), named("x", b)))
    out = write_all(buffers, indices, [chosen(k, v) for k, v in enumerate(new)])
    for var, value in reversed(lets):
        out = Let(var, value, out)
    return out
