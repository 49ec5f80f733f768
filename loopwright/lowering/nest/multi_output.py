"""Statements that write all outputs of a stage, of which there may be several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Expr, Var
from loopwright.ir.reduction import Combiner
from loopwright.ir.stmt import Let, Stmt, Store, seq

Indices = tuple[Expr, ...]


def write_all(
    buffers: Sequence[Buffer],
    indices: Indices,
    values: Sequence[Expr],
    nontemporal: bool = False,
) -> Stmt:
    """A store for each output; no value may read what is stored."""
    stores = (Store(b, indices, v, nontemporal) for b, v in zip(buffers, values, strict=True))
    return seq(*stores)


def combine_into(
    buffers: Sequence[Buffer],
    indices: Indices,
    combiner: Combiner,
    a: Sequence[Expr],
    b: Sequence[Expr],
    label: str,
    chosen: Callable[[int, Expr], Expr] = lambda _, value: value,
) -> Stmt:
    """Store the combination of ``a`` and ``b``, which have one expression for each output.

    For several outputs, operands and results are first bound to variables whose names begin with
    ``label``, so that no store changes an operand of another output. ``chosen`` gives the value to
    store from the number of an output and its combined value.
    """
    if len(buffers) == 1:
        (whole,) = combiner.combine(a, b)
        return Store(buffers[0], indices, chosen(0, whole))
    lets: list[tuple[Var, Expr]] = []

    def named(name: str, items: Sequence[Expr]) -> list[Var]:
        variables = [Var(f"{label}.{name}{k}", e.dtype) for k, e in enumerate(items)]
        lets.extend(zip(variables, items, strict=True))
        return variables

    new = named("new", combiner.combine(named("old", a), named("x", b)))
    out = write_all(buffers, indices, [chosen(k, v) for k, v in enumerate(new)])
    for var, value in reversed(lets):
        out = Let(var, value, out)
    return out
