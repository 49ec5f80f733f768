"""StorageRewrite: large buffers that are never in use at the same time share memory.

At each level of the program (the body of a function or of a loop) the statements stand in a line. A
buffer is in use from the first to the last of them that touches it. Buffers are placed by size,
largest first, each at the lowest offset where it meets no other that is in use with it (greedy by
size: Pisarchyk & Lee, Efficient Memory Management for Deep Neural Net Inference, 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopwright.ir.buffer import STACK_LIMIT, Buffer, Load
from loopwright.ir.stmt import Allocate, Func, Prefetch, Seq, Stmt, Store, View, seq
from loopwright.ir.traversal import walk
from loopwright.lowering.context import func_pass
from loopwright.lowering.nest.launch import is_launch

_ALIGN = 64
_SCOPES = ("global", "local")
_ACCESS = Load | Store | Prefetch


@func_pass(opt_level=2, name="StorageRewrite")
def storage_rewrite(f: Func) -> Func:
    """Put buffers that are in use one after the other into the same memory.

    Only buffers of more than `STACK_LIMIT` bytes, and only where it saves memory.

    Before::

        B = alloc(float32[4096], global)
        for i in range(4096): B[i] = A[i] + 1.0
        C = alloc(float32[4096], global)
        for i in range(4096): C[i] = B[i] * 2.0
        D = alloc(float32[4096], global)
        for i in range(4096): D[i] = C[i] - 3.0
        for i in range(4096): E[i] = D[i] * D[i]

    After (D takes the place of B)::

        pool = alloc(uint8[32768], global)
        B = view(pool, 0, float32[4096])
        for i in range(4096): B[i] = A[i] + 1.0
        C = view(pool, 16384, float32[4096])
        for i in range(4096): C[i] = B[i] * 2.0
        D = view(pool, 0, float32[4096])
        for i in range(4096): D[i] = C[i] - 3.0
        for i in range(4096): E[i] = D[i] * D[i]
    """
    return f.with_body(_level(f.body, "global"))


@dataclass(slots=True)
class _Place:
    buffer: Buffer
    first: int
    last: int
    size: int
    offset: int = 0


def _level(s: Any, scope: str) -> Any:
    """One level of the program, and those below; ``scope``: of what they share."""
    scope = "local" if is_launch(s) else scope  # a thread has no global memory of its own
    if not isinstance(s, Allocate | Seq):
        return s.map_children(lambda c: _level(c, scope) if isinstance(c, Stmt) else c)
    line: list[Stmt] = []
    made: list[Buffer] = []
    _flatten(s, line, made)
    wanted = [b for b in made if _large(b)]
    if len(wanted) > 1:
        places = _places(wanted, line)
        total = _plan(places)
        if total < _stacked(s):
            pool = Buffer("pool", (total,), "uint8", scope)
            return _rewritten([_level(x, scope) for x in line], places, pool, made)
    return s.map_children(lambda c: _level(c, scope) if isinstance(c, Stmt) else c)


def _large(b: Buffer) -> bool:
    return b.scope in _SCOPES and not b.symbolic and b.nbytes > STACK_LIMIT


def _flatten(s: Stmt, line: list[Stmt], made: list[Buffer]) -> None:
    if isinstance(s, Allocate):
        made.append(s.buffer)
        _flatten(s.body, line, made)
    elif isinstance(s, Seq):
        for x in s.stmts:
            _flatten(x, line, made)
    else:
        line.append(s)


def _stacked(s: Stmt) -> int:
    """Bytes that the level takes as it is: scopes nest, and follow one another."""
    if isinstance(s, Allocate):
        return (_rounded(s.buffer.nbytes) if _large(s.buffer) else 0) + _stacked(s.body)
    return max(map(_stacked, s.stmts), default=0) if isinstance(s, Seq) else 0


def _rounded(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


def _places(wanted: list[Buffer], line: list[Stmt]) -> list[_Place]:
    found: dict[Buffer, _Place] = {}
    large = set(wanted)
    for k, s in enumerate(line):
        touched: set[Buffer] = set()
        walk(s, lambda n: touched.add(n.buffer) if isinstance(n, _ACCESS) else None)  # noqa: B023
        for b in touched & large:
            found.setdefault(b, _Place(b, k, k, _rounded(b.nbytes))).last = k
    return [found[b] for b in wanted if b in found]


def _plan(places: list[_Place]) -> int:
    """Give every buffer an offset; returns the bytes of all."""
    placed: list[_Place] = []
    for p in sorted(places, key=lambda p: -p.size):
        others = [q for q in placed if q.first <= p.last and p.first <= q.last]
        for q in sorted(others, key=lambda q: q.offset):
            if p.offset + p.size <= q.offset:
                break
            p.offset = max(p.offset, q.offset + q.size)
        placed.append(p)
    return max((p.offset + p.size for p in places), default=0)


def _rewritten(line: list[Stmt], places: list[_Place], pool: Buffer, made: list[Buffer]) -> Stmt:
    out: Stmt = Seq(())
    for k in range(len(line) - 1, -1, -1):
        out = seq(line[k], out) if out != Seq(()) else line[k]
        for p in places:
            if p.first == k:
                out = View(p.buffer, pool, p.offset, out)
    shared = {p.buffer for p in places}
    for b in reversed(made):
        if b not in shared:
            out = Allocate(b, out)
    return Allocate(pool, out)
