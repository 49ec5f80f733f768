"""LowerWarpMemory: buffers that the lanes of a warp share become registers of each lane.

Every thread touches the registers of its own lane only, ``[threadIdx.x // 4, threadIdx.x % 4,
...]``, which this pass proves; so the first two dimensions go. Buffers inside of `IntrinsicCall`
stay: the interpreter runs these, and code generators write the instruction. TVM's pass of this name
also makes shuffles of other accesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loopwright.errors import LowerError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var
from loopwright.ir.kinds import WARP_LANES, WARP_SIZE
from loopwright.ir.printer import print_expr
from loopwright.ir.sizes import evaluate
from loopwright.ir.stmt import Allocate, Func, IntrinsicCall, Let, Stmt, Store
from loopwright.ir.traversal import free_vars, substitute
from loopwright.ir.visitor import map_statements
from loopwright.lowering.context import func_pass
from loopwright.lowering.nest.launch import is_launch


@func_pass(opt_level=0, name="LowerWarpMemory")
def lower_warp_memory(f: Func) -> Func:
    """Keep the registers of a warp's buffers in each lane.

    Before::

        C = alloc(float32[8, 4, 2, 2], warp)
        for r in range(2): C[threadIdx.x // 4, threadIdx.x % 4, r, 0] = 0.0

    After::

        C = alloc(float32[2, 2], local)
        for r in range(2): C[r, 0] = 0.0
    """
    return f.with_body(_statement(f.body, None))


def _statement(s: Stmt, lane: Var | None) -> Stmt:
    """A statement; ``lane`` is the variable of threadIdx.x around it."""
    if is_launch(s) and s.tag == "threadIdx.x":
        lane = s.var
    match s:
        case IntrinsicCall():
            return s
        case Allocate(buffer=b, body=body) if b.scope == "warp":
            if lane is None:
                raise LowerError(f"lower: {b.name!r} is spread over a warp, and there is none")
            new = Buffer(b.name, b.shape[2:], b.dtype, "local", b.strides and b.strides[2:])
            return _statement(Allocate(new, _Registers(b, new, lane).rewrite(body, {})), lane)
    return map_statements(s, lambda c: _statement(c, lane))


class _Registers:
    def __init__(self, old: Buffer, new: Buffer, lane: Var) -> None:
        self.old, self.new, self.lane = old, new, lane

    # Any: an expression gives an expression and a statement a statement.
    def rewrite(self, n: Any, lets: Mapping[Var, Expr]) -> Any:
        match n:
            case Let(var=v, value=e, body=body):
                value = self.rewrite(e, lets)
                inner = {**lets, v: substitute(value, dict(lets))}
                return Let(v, value, self.rewrite(body, inner))
            case IntrinsicCall(name=name, operands=operands, body=body):
                began = tuple(self._operand(x) for x in operands)
                return IntrinsicCall(name, began, self.rewrite(body, lets))
        n = n.map_children(lambda c: self.rewrite(c, lets))
        match n:
            case Load(buffer=b, indices=idx, dtype=d) if b is self.old:
                return Load(self.new, self._own(idx, lets), d)
            case Store(buffer=b, indices=idx, value=e) if b is self.old:
                return Store(self.new, self._own(idx, lets), e)
        return n

    def _operand(self, x: Load) -> Load:
        """First element of an operand, which names the registers of lane 0."""
        return Load(self.new, x.indices[2:], x.dtype) if x.buffer is self.old else x

    def _own(self, indices: tuple[Expr, ...], lets: Mapping[Var, Expr]) -> tuple[Expr, ...]:
        """The indices without those of the lane, which must be those of the running thread."""
        given = [substitute(i, dict(lets)) for i in indices[:2]]
        width = WARP_LANES[1]
        if not all(free_vars(i) <= {self.lane} for i in given) or any(
            tuple(evaluate(i, {self.lane: k}) for i in given) != (k // width, k % width)
            for k in range(WARP_SIZE)
        ):
            shown = ", ".join(print_expr(i) for i in given)
            raise LowerError(
                f"lower: {self.old.name!r} is spread over the lanes of a warp, and a thread "
                f"touches [{shown}] of it, where its own is [threadIdx.x // {width}, threadIdx.x % "
                f"{width}]; split the loops as its layout does, fuse those of extents 8 and 4 and "
                "bind them to threadIdx.x, or tensorize the stage"
            )
        return indices[2:]
