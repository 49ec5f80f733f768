"""Loops from which LLVM would move more loads than registers can hold.

LLVM moves out of a loop whatever the loop does not move, and what finds no register lies on the
stack from then on: all elements of an unrolled reduction, say, that the next columns use again.
"""

from __future__ import annotations

from math import prod

from loopwright import dtypes
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Call, Cast, Expr, Var
from loopwright.ir.node import Node
from loopwright.ir.stmt import Allocate, For, Let, Store
from loopwright.ir.visitor import distinct_nodes, free_vars


def spills_if_hoisted(loop: For, registers: int, vector_bytes: int) -> bool:
    """Whether the vectors loaded in a loop that does not move them, and its results, are more than
    the registers. Never so where it stores to one place again and again, which is a register as
    long as the loop runs, or would compute more than sums and products anew."""
    moving = {loop.var}
    copies: dict[Var, int] = {}  # iterations that are written out
    lanes: set[Var] = set()
    behind: dict[Var, set[Var]] = {}  # loops that move a variable of a Let
    body = list(distinct_nodes(loop.body))  # parents first
    results = {n.buffer for n in body if isinstance(n, Allocate)}
    stored = {n.buffer for n in body if isinstance(n, Store)}
    loads: dict[tuple[Buffer, tuple[Expr, ...]], set[Var]] = {}
    standing: dict[int, bool] = {}  # of each node below, by its id

    def loops(*exprs: Expr) -> set[Var]:
        return {x for e in exprs for v in free_vars(e) for x in behind.get(v, {v})}

    def stands_still(e: Node) -> bool:
        if id(e) not in standing:
            match e:
                case Var():
                    alone = not behind.get(e, {e}) & moving
                case Load(buffer=b):
                    alone = b not in stored
                case _:
                    alone = True
            standing[id(e)] = alone and all(map(stands_still, e.children()))
        return standing[id(e)]

    for n in body:
        match n:
            case For(var=v, kind="unrolled" | "vectorized", extent=int(count)):
                copies[v] = count
                lanes |= {v} if n.kind == "vectorized" else set()
            case For(var=v):
                moving.add(v)
            case Let(var=v, value=e):
                behind[v] = loops(e)
            case Store(buffer=b, indices=at) if b not in results and loop.var not in loops(*at):
                return False
            case Load(buffer=b, indices=at) if stands_still(n):
                loads[b, at] = loops(*at)
        if isinstance(n, Expr) and _is_costly(n) and stands_still(n):
            return False

    def vectors(b: Buffer, count: int) -> int:
        return -(-count * dtypes.nbytes(b.dtype) // vector_bytes)

    held = sum(
        prod(copies[v] for v in at - lanes if v in copies)
        * vectors(b, prod(copies[v] for v in at & lanes))
        for (b, _), at in loads.items()
    )
    sums = (
        vectors(b, prod(n for n in b.shape if isinstance(n, int)))
        for b in results
        if not b.symbolic
    )
    return held > 0 and held + sum(sums) > registers


def _is_costly(n: Expr) -> bool:
    """Whether a value takes longer to compute than to load."""
    match n:
        case Call(dtype=d) | Cast(dtype=d) | Binary(op="/", dtype=d):
            return dtypes.is_float(d)
        case Load(dtype=d):
            return d in dtypes.HALVES
    return False
