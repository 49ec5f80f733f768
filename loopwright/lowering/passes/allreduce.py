"""LowerThreadAllreduce: each `AllReduce` becomes a tree of combinations in shared memory: threads
store their values in a row, halves of which are combined until one value is left, which all threads
of the group read. `thread_sync` inserts the barriers. As TVM's pass of this name."""

from __future__ import annotations

from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, as_expr, binary
from loopwright.ir.stmt import Allocate, AllReduce, For, Func, If, Stmt, Store, seq
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass
from loopwright.lowering.nest.launch import is_launch
from loopwright.lowering.nest.multi_output import combine_into


@func_pass(opt_level=0, name="LowerThreadAllreduce")
def lower_thread_allreduce(f: Func) -> Func:
    """Replace every `AllReduce` by loads and stores of shared memory."""
    return f.with_body(_go(f.body, []))


def _go(s: Stmt, axes: list[For]) -> Stmt:
    if isinstance(s, AllReduce):
        return _tree(s, axes)
    inner = [*axes, s] if is_launch(s) and s.tag.startswith("threadIdx") else axes
    return map_statements(s, lambda c: _go(c, inner))


def _flat(axes: list[For]) -> tuple[Expr, int]:
    """The index of a thread over several thread axes, row-major, and the number of threads."""
    out, count = Affine(0), 1
    for x in axes:
        out = out * x.count + Affine.of(x.var)
        count *= x.count
    return out.to_expr(), count


def _tree(s: AllReduce, axes: list[For]) -> Stmt:
    """The tree for one `AllReduce` inside the thread loops ``axes``."""
    lane, lanes = _flat([x for x in axes if x.tag in s.tags])
    group, groups = _flat([x for x in axes if x.tag not in s.tags])
    if lanes == 1:
        return seq()
    rows = [Buffer(f"{b.name}.row", (groups, lanes), b.dtype, "shared") for b in s.buffers]
    at = (group, lane)
    steps: list[Stmt] = [
        Store(r, at, Load(b, s.indices, b.dtype)) for r, b in zip(rows, s.buffers, strict=True)
    ]
    count = lanes
    while count > 1:
        half = 1 << ((count - 1).bit_length() - 1)
        steps.append(If(binary("<", lane, count - half), _fold(s, rows, group, lane, half)))
        count = half
    first = (group, as_expr(0))
    steps += [
        Store(b, s.indices, Load(r, first, b.dtype)) for r, b in zip(rows, s.buffers, strict=True)
    ]
    out = seq(*steps)
    for r in reversed(rows):
        out = Allocate(r, out)
    return out


def _fold(s: AllReduce, rows: list[Buffer], group: Expr, lane: Expr, half: int) -> Stmt:
    """Combine the value at ``lane`` of each row with the one ``half`` places further."""
    near = [Load(r, (group, lane), r.dtype) for r in rows]
    far = [Load(r, (group, binary("+", lane, half)), r.dtype) for r in rows]
    return combine_into(rows, (group, lane), s.combiner, near, far, s.buffers[0].name)
