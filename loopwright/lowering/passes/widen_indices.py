"""WidenIndices: arithmetic on loop variables that 32 bits cannot hold is done in 64."""

from __future__ import annotations

from collections.abc import Iterable

from loopwright.ir.affine import Interval
from loopwright.ir.buffer import Load
from loopwright.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var, const
from loopwright.ir.index_bounds import INDEX_BITS, IndexBounds
from loopwright.ir.node import Node
from loopwright.ir.operations import COMPARE
from loopwright.ir.stmt import Allocate, For, Func, Let, Prefetch, Store
from loopwright.ir.visitor import Mutator
from loopwright.lowering.context import PassContext, func_pass

#: Where no loop and no dimension is longer, nothing that lowering makes of loop variables can leave
#: 32 bits: tiles run over by less than their length, at each of less than 64 levels of splits.
_SHORT = 1 << 25


@func_pass(opt_level=0, name="WidenIndices")
def widen_indices(f: Func) -> Func:
    """Compute in int64 what an interval shows to leave int32, whatever made it.

    Arithmetic on loop variables (indices, guards, the parts of a fused loop, values that a program
    makes of its axes) means what it means for whole numbers: it never wraps. Where it meets data,
    or is stored, the result is cut to the dtype that the program asks for.

    Before::

        for f in range(2160000000):
          f.q = f // 40000
          B[0] = B[0] + int64(f)

    After, with ``f`` an int64::

        for f in range(2160000000):
          f.q = int32(f // int64(40000))
          B[0] = B[0] + f
    """
    bits = PassContext.current().count("index_bits", INDEX_BITS)
    if bits == INDEX_BITS and not _has_long_extent(f):
        return f
    return widened(f, bits)


def widened(f: Func, bits: int = INDEX_BITS) -> Func:
    """What `widen_indices` gives, after a look at every expression.

    Args:
        f: the function.
        bits: what needs more bits than this is done in 64.
    """
    return f.with_body(_Widener(f.sizes, bits).visit(f.body))


def _has_long_extent(n: Node) -> bool:
    """Whether a loop or a dimension is long, or has a symbolic length."""
    match n:
        case Func(params=params, body=body):
            long = any(_is_long(d) for p in params for d in p.shape)
            return long or _has_long_extent(body)
        case For(extent=extent, body=body):
            return _is_long(extent) or _has_long_extent(body)
        case Allocate(buffer=b, body=body):
            return any(map(_is_long, b.shape)) or _has_long_extent(body)
        case Store():
            return False
    return any(_has_long_extent(c) for c in n.children() if not isinstance(c, Expr))


def _is_long(extent: int | Expr) -> bool:
    return not isinstance(extent, int) or extent > _SHORT


class _Widener(Mutator):
    """Rebuilds what needs it; all else stays the same object.

    Attributes:
        bounds: what is known of the variables in scope.
        wide: variables that 32 bits cannot hold, and the 64-bit ones that take their place.
    """

    def __init__(self, sizes: Iterable[Var], bits: int) -> None:
        super().__init__()
        self.bounds = IndexBounds(bits, sizes)
        self.wide: dict[Var, Var] = {}

    # ------------------------------------------------------------ statements

    def visit_For(self, s: For) -> For:
        """A loop, whose variable may have to become wide."""
        var = self._bind(s.var, (0, self.bounds.last(s.extent)))
        body = self.visit(s.body)
        if var is s.var:
            return s.with_body(body)
        return For(var, s.extent, s.kind, body, s.pragmas, s.tag)

    def visit_Let(self, s: Let) -> Let:
        """A name, which may have to become wide; those of sizes stay, as shapes hold them."""
        if self.bounds.bind_size(s.var, s.value):
            body = self.visit(s.body)
            return s if body is s.body else Let(s.var, s.value, body)
        reach = self.bounds.reach(s.value)
        value = self.visit(s.value)
        var = self._bind(s.var, None if reach is None else reach.bounds)
        if var is not s.var:
            value = self.widened(s.value)
        body = self.visit(s.body)
        same = value is s.value and var is s.var and body is s.body
        return s if same else Let(var, value, body)

    def _bind(self, v: Var, bounds: Interval | None) -> Var:
        """The variable to bind in place of ``v``, which takes values within these bounds."""
        self.bounds.bind(v, bounds)
        self.wide.pop(v, None)
        if bounds is None or v.dtype != "int32" or self.bounds.fits(bounds):
            return v
        self.wide[v] = Var(v.name, "int64")
        return self.wide[v]

    def visit_Store(self, s: Store) -> Store:
        """A store: indices may be wide, the value has the dtype of the buffer."""
        indices, value = self._indices(s.indices), self.visit(s.value)
        if indices is s.indices and value is s.value:
            return s
        return Store(s.buffer, indices, value)

    def visit_Prefetch(self, s: Prefetch) -> Prefetch:
        """A prefetch: indices may be wide."""
        indices = self._indices(s.indices)
        return s if indices is s.indices else Prefetch(s.buffer, indices)

    # ------------------------------------------------------------ expressions

    def visit_Load(self, e: Load) -> Load:
        """A load: indices may be wide."""
        indices = self._indices(e.indices)
        return e if indices is e.indices else Load(e.buffer, indices, e.dtype)

    def _indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        new = tuple(self.widened(i) if self.bounds.leaves(i) else self.visit(i) for i in indices)
        return new if any(a is not b for a, b in zip(new, indices, strict=True)) else indices

    def visit_Cast(self, e: Cast) -> Expr:
        """A conversion takes the exact value."""
        if not self.bounds.leaves(e.value):
            return self._narrow(e)
        wide = self.widened(e.value)
        return wide if e.dtype == "int64" else Cast(wide, e.dtype)

    def visit_Binary(self, e: Binary) -> Expr:
        """A comparison takes exact values."""
        if e.op in COMPARE and (self.bounds.leaves(e.a) or self.bounds.leaves(e.b)):
            return Binary(e.op, self.widened(e.a), self.widened(e.b), e.dtype)
        return self._narrow(e)

    def visit_Unary(self, e: Unary) -> Expr:
        """An operation whose own dtype is asked for."""
        return self._narrow(e)

    def visit_Select(self, e: Select) -> Expr:
        """An operation whose own dtype is asked for."""
        return self._narrow(e)

    def visit_Var(self, e: Var) -> Expr:
        """A variable whose own dtype is asked for."""
        return self._narrow(e)

    def _narrow(self, e: Expr) -> Expr:
        """An expression where its own dtype is asked for."""
        reach = self.bounds.reach(e)
        if reach is None:
            same: Expr = self.generic_visit(e)
            return same
        if not reach.leaves:
            return e
        wide = self.widened(e)
        return wide if wide.dtype == e.dtype else Cast(wide, e.dtype)

    def widened(self, e: Expr) -> Expr:
        """The exact value of an integer expression, as an int64."""
        if self.bounds.reach(e) is None:
            return _to_int64(self.visit(e))
        match e:
            case Const(value=v):
                return const(v, "int64")
            case Cast(value=v):
                return self.widened(v)
            case Unary(op=op, a=a):
                return Unary(op, self.widened(a), "int64")
            case Binary(op=op, a=a, b=b):
                return Binary(op, self.widened(a), self.widened(b), "int64")
            case Select(cond=c, a=a, b=b):
                return Select(self.visit(c), self.widened(a), self.widened(b), "int64")
        assert isinstance(e, Var)
        return self.wide[e] if e in self.wide else _to_int64(e)


def _to_int64(e: Expr) -> Expr:
    return e if e.dtype == "int64" else Cast(e, "int64")
