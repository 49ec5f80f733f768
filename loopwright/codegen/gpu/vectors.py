"""Accesses of a vectorized loop that are vectors: neighbours in memory that threads share. A device
computes each lane by itself; it moves the lanes of one access at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loopwright import dtypes
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Expr, IfThenElse, Var, const
from loopwright.ir.node import Node, StructuralKey, same
from loopwright.ir.stmt import For, If, Seq, Stmt, Store
from loopwright.ir.visitor import free_vars, nodes, substitute

#: Lanes of the vector types of OpenCL; CUDA's are made for any of these.
LANES = (2, 4, 8, 16)
#: Bytes that a thread moves at once.
MOST_BYTES = 16

#: The offset of an element as an affine form, where it is one.
Offset = Callable[[Buffer, tuple[Expr, ...]], Affine | None]
#: An element by its buffer and its indices.
Element = tuple[Buffer, tuple[Expr, ...]]


@dataclass(frozen=True)
class VectorStore:
    store: Store
    is_vector: bool  #: whether its lanes are neighbours
    loads: tuple[Element, ...]  #: elements of the first lane whose lanes are neighbours


@dataclass(frozen=True)
class VectorLoop:
    lane: Var  #: variable of the loop
    lanes: int  #: extent of the loop
    conditions: tuple[Expr, ...]  #: each holds for all lanes or for none
    stores: tuple[VectorStore, ...]


def vector_loop(s: For, offset: Offset, aligned: bool) -> VectorLoop | None:
    """A vectorized loop as vectors, which lie at multiples of their size if ``aligned``; None where
    no access of it is one."""
    if s.count not in LANES:
        return None
    conditions: list[Expr] = []
    body: Stmt = s.body
    while isinstance(body, If) and body.orelse is None and s.var not in free_vars(body.cond):
        conditions.append(body.cond)
        body = body.then
    stores = list(body.stmts) if isinstance(body, Seq) else [body]
    if not all(isinstance(x, Store) for x in stores):
        return None
    picked = [x for x in stores if isinstance(x, Store)]
    if not picked or _depend(picked):
        return None
    is_vector = _Neighbours(s, offset, aligned)
    out = tuple(
        VectorStore(x, is_vector(x.buffer, x.indices), _loads(x, is_vector)) for x in picked
    )
    if not any(x.is_vector or x.loads for x in out):
        return None
    return VectorLoop(s.var, s.count, tuple(conditions), out)


def one_choice(s: For, form: Callable[[Expr], Affine | None]) -> If | None:
    """A vectorized loop whose lanes all make one choice, as that choice between two such loops.

    Before, where ``i`` is any number::

        for lane in vectorized(4):
          S[i * 4 + lane] = A[i * 4 + lane] if i * 4 + lane < 1000 else 0.0

    After::

        if i * 4 < 1000:
          for lane in vectorized(4):
            S[i * 4 + lane] = A[i * 4 + lane]
        else:
          for lane in vectorized(4):
            S[i * 4 + lane] = 0.0
    """

    def first(cond: Expr) -> Expr:
        return substitute(cond, {s.var: const(0, s.var.dtype)})

    match s.body:
        case If(cond=c, then=then, orelse=other) if s.var in free_vars(c) and _agree(c, s, form):
            return If(first(c), s.with_body(then), None if other is None else s.with_body(other))
        case Store(buffer=b, indices=i, value=IfThenElse(cond=c, a=x, b=y)) if _agree(c, s, form):
            return If(first(c), s.with_body(Store(b, i, x)), s.with_body(Store(b, i, y)))
    return None


def _agree(cond: Expr, s: For, form: Callable[[Expr], Affine | None]) -> bool:
    """Whether a condition is known to have one value for all lanes.

    ``lane + r < 0`` does where the number of lanes divides r: then r is at most minus that number,
    or not negative.
    """
    if s.var not in free_vars(cond):
        return True
    match cond:
        case Binary(op="and" | "or", a=a, b=b):
            return _agree(a, s, form) and _agree(b, s, form)
        case Binary(op="<" | ">=" | "<=" | ">" as op, a=a, b=b):
            x, y = form(a), form(b)
            if x is None or y is None:
                return False
            least = x - y - (1 if op in ("<=", ">") else 0)
            others = (least.const, *(c for v, c in least.terms.items() if v is not s.var))
            return least.terms.get(s.var) == 1 and all(c % s.count == 0 for c in others)
    return False


def _depend(stores: list[Store]) -> bool:
    """Whether a lane may read or write what another lane writes."""
    written = [(x.buffer, x.indices) for x in stores]
    if len({b for b, _ in written}) < len(written):
        return True
    parts = [e for x in stores for e in (x.value, *x.indices)]
    loads = [n for e in parts for n in nodes(e) if isinstance(n, Load)]
    read = [(n.buffer, n.indices) for n in loads]
    targets = dict(written)
    return any(b in targets and (len(stores) > 1 or not same(targets[b], i)) for b, i in read)


@dataclass(frozen=True)
class _Neighbours:
    loop: For
    offset: Offset
    aligned: bool

    def __call__(self, b: Buffer, indices: tuple[Expr, ...]) -> bool:
        size = self.loop.count * dtypes.nbytes(b.dtype)
        if b.scope == "local" or size > MOST_BYTES:
            return False
        form = self.offset(b, indices)
        if form is None or form.terms.get(self.loop.var) != 1:
            return False
        others = [c for v, c in form.terms.items() if v is not self.loop.var]
        lanes = self.loop.count
        return not self.aligned or all(c % lanes == 0 for c in (form.const, *others))


def _loads(s: Store, is_vector: _Neighbours) -> tuple[Element, ...]:
    """Elements that a store reads for certain, and whose lanes are neighbours."""
    found: dict[StructuralKey, None] = {}

    def visit(n: Node) -> None:
        if isinstance(n, IfThenElse):
            visit(n.cond)
            return
        if isinstance(n, Load) and is_vector(n.buffer, n.indices):
            found[StructuralKey((n.buffer, n.indices))] = None
        for c in n.children():
            visit(c)

    visit(s.value)
    return tuple(key.node for key in found)
