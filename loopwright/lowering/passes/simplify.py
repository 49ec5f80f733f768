"""Simplify, one bottom-up sweep over expressions without a fixpoint; ConstantFolding and
RemoveNoOp."""
#
# Literals are folded, integer arithmetic on loops becomes affine, comparisons and ``min``/``max``
# are decided by intervals, and a condition counts as true in the statements that it guards.
# Operations on floats are dropped only where that is exact for every value, NaN and -0 included:
# ``x * 1``, ``x / 1``, ``x - 0``, ``-(-x)``; never ``x + 0``, which turns -0 into 0, nor ``x * 0``.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from loopwright import dtypes
from loopwright.ir.affine import (
    Affine,
    Interval,
    decided,
    exact,
    fits,
    interval,
    shorter_division,
    to_affine,
)
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import (
    BITWISE,
    COMPARE,
    FOLD,
    SHIFTS,
    Binary,
    Call,
    Cast,
    Const,
    Dim,
    Expr,
    IfThenElse,
    Select,
    Unary,
    Var,
    cast,
    conjuncts,
    const,
)
from loopwright.ir.node import Node, StructuralKey, same
from loopwright.ir.stmt import Allocate, CallPacked, For, Func, If, Let, Seq, Stmt, Store, seq
from loopwright.ir.visitor import Mutator, contains
from loopwright.lowering.context import func_pass

# ---------------------------------------------------------------- constant folding
#
# ConstantFolding computes operations on literals, exactly as they would be computed at run time. It
# is the example of how a pass is written: a mutator that folds, bottom-up, nodes whose operands
# have become literals. The pipeline does not list it, since `Simplify` does this and more.

#: Functions that are rounded correctly everywhere, so that folding gives the same bits.
_EXACT_CALLS = {
    "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "abs": np.abs,
}  # fmt: skip
_FLOATS = ("float32", "float64")
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
    "min": lambda a, b: a if a != a or a < b else b,
    "max": lambda a, b: a if a != a or a > b else b,
}  # fmt: skip


def fold(e: Expr) -> Expr:
    """The literal that a node with literal operands stands for, else the node itself."""
    # Functions whose last bit depends on the library (``exp``) are left alone, and integer division
    # by zero, which programs define as zero, folds to zero.
    match e:
        case Binary(op=op, a=Const() as a, b=Const() as b):
            x, y = a.value, b.value
            if op in ("and", "or"):
                return const(x and y if op == "and" else x or y, "bool")
            if op in COMPARE:
                return const(bool(FOLD[op](x, y)), "bool")
            if dtypes.is_float(a.dtype):
                if op not in _FLOAT or a.dtype not in _FLOATS:
                    return e
                with np.errstate(all="ignore"):
                    value = _FLOAT[op](_scalar(x, a.dtype), _scalar(y, b.dtype))
                    return Const(float(value), a.dtype)
            if a.dtype == "bool" and op not in ("min", "max"):
                return e
            if op in ("//", "%", "tdiv", "tmod"):
                return const(_divided(op, x, y), a.dtype)
            if op in SHIFTS:
                y &= dtypes.bits(a.dtype) - 1
            return const(FOLD[op](x, y), a.dtype) if op in FOLD or op in BITWISE else e
        case Unary(op=op, a=Const(value=v, dtype=d)):
            return const(-v if op == "-" else not v if op == "not" else ~v, d)
        case Cast(value=Const() as v, dtype=d):
            return cast(v, d)
        case Select(cond=Const(value=c), a=a, b=b) | IfThenElse(cond=Const(value=c), a=a, b=b):
            return a if c else b
        case Call(fn=fn, args=(Const(value=v),), dtype=d) if fn in _EXACT_CALLS and d in _FLOATS:
            with np.errstate(all="ignore"):
                return Const(float(_EXACT_CALLS[fn](_scalar(v, d))), d)
    return e


def _divided(op: str, x: int, y: int) -> int:
    if y == 0:
        return 0
    if op in ("//", "%"):
        return x // y if op == "//" else x % y
    q = abs(x) // abs(y)
    q = q if (x < 0) == (y < 0) else -q
    return q if op == "tdiv" else x - q * y


def _scalar(v: float, dtype: str) -> np.generic:
    scalar: np.generic = np.dtype(dtype).type(v)
    return scalar


class ConstantFolder(Mutator):
    def generic_visit(self, n: Node) -> Any:
        rebuilt = super().generic_visit(n)
        return fold(rebuilt) if isinstance(rebuilt, Expr) else rebuilt


@func_pass(opt_level=2, name="ConstantFolding")
def constant_folding(f: Func) -> Func:
    """Compute what depends on literals only, in the dtype and with the rounding of run time.
    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: A[i] * (te.const(2.0) + te.const(3.0)), name="B")
        >>> f = lw.lower(te.create_schedule(B.op), [A, B], simple_mode=True)
        >>> print(f)
        def main(A: float32[8], B: out float32[8]):
          for i in range(8):
            B[i] = A[i] * (2.0 + 3.0)
        >>> print(lw.transform.ConstantFolding(f))
        def main(A: float32[8], B: out float32[8]):
          for i in range(8):
            B[i] = A[i] * 5.0
    """
    return f.with_body(ConstantFolder().visit(f.body))


# ---------------------------------------------------------------- simplification

N = TypeVar("N", bound=Node)
_TRUE, _FALSE = const(True, "bool"), const(False, "bool")


@func_pass(opt_level=1, name="Simplify")
def simplify(f: Func) -> Func:
    """Simplify every expression, and statements whose condition is decided.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: te.select(i < 100, A[i], 0.0), name="B")
        >>> f = lw.lower(te.create_schedule(B.op), [A, B], simple_mode=True)
        >>> print(f)
        def main(A: float32[8], B: out float32[8]):
          for i in range(8):
            B[i] = select(i < 100, A[i], 0.0)
        >>> print(lw.transform.Simplify(f))
        def main(A: float32[8], B: out float32[8]):
          for i in range(8):
            B[i] = A[i]
    """
    return f.with_body(_Simplifier().visit(f.body))


class _Simplifier(Mutator):
    def __init__(self) -> None:
        super().__init__()
        #: Bounds of variables.
        self.ranges: dict[Var, Interval] = {}
        #: Variables that stand for a literal or another variable.
        self.env: dict[Var, Expr] = {}
        #: Integers among them, as affine forms.
        self.forms: dict[Var, Affine] = {}
        #: Conditions that hold (True) or do not hold (False) around the node at hand.
        self.decided: dict[StructuralKey, bool] = {}
        #: Simplified expressions, valid for the other attributes as they are.
        self.memo: dict[StructuralKey, Expr] = {}

    def visit_For(self, s: For) -> Stmt:
        if isinstance(s.extent, int) and s.extent == 1 and s.kind != "thread" and not s.pragmas:
            return self.standing_for(s.var, const(0, s.var.dtype), s.body)
        if isinstance(s.extent, int):
            self.learn(s.var, (0, s.extent - 1))
        out: Stmt = self.generic_visit(s)
        return out

    def visit_Let(self, s: Let) -> Stmt:
        value: Expr = self.visit(s.value)
        if isinstance(value, Const | Var):
            return self.standing_for(s.var, value, s.body)
        bounds = interval(value, {}, self.ranges) if dtypes.is_int(value.dtype) else None
        self.learn(s.var, bounds if bounds and fits(value, {}, self.ranges) else None)
        body: Stmt = self.visit(s.body)
        return s if value is s.value and body is s.body else Let(s.var, value, body)

    def learn(self, v: Var, bounds: Interval | None) -> None:
        """Note the bounds of a variable, which copies of a nest may define with other ones."""
        if self.ranges.get(v) == bounds:
            return
        self.memo = {}
        if bounds is None:
            del self.ranges[v]
        else:
            self.ranges[v] = bounds

    def standing_for(self, v: Var, value: Const | Var, body: Stmt) -> Stmt:
        memo, self.memo = self.memo, {}
        self.env[v] = value
        if dtypes.is_int(value.dtype):
            self.forms[v] = Affine.of(value) if isinstance(value, Var) else Affine(value.value)
        out: Stmt = self.visit(body)
        self.memo = memo
        self.env.pop(v)
        self.forms.pop(v, None)
        return out

    def visit_If(self, s: If) -> Stmt:
        cond: Expr = self.visit(s.cond)
        if isinstance(cond, Const):
            branch = (s.then if cond.value else s.orelse) or Seq(())
            taken: Stmt = self.visit(branch)
            return taken
        then = self.where(cond, True, s.then)
        other = s.orelse if s.orelse is None else self.where(cond, False, s.orelse)
        if cond is s.cond and then is s.then and other is s.orelse:
            return s
        return If(cond, then, other)

    def where(self, cond: Expr, holds: bool, n: N) -> N:
        parts = conjuncts(cond) if holds else [cond]
        # A condition that reads memory may change while a statement runs.
        new = {StructuralKey(c): holds for c in parts if not contains(c, Load)}
        decided, memo = self.decided, self.memo
        if new:
            self.decided, self.memo = {**decided, **new}, {}
        out: N = self.visit(n)
        if new:
            self.decided, self.memo = decided, memo
        return out

    def visit_Var(self, e: Var) -> Expr:
        return self.env.get(e, e)

    def visit_Const(self, e: Const) -> Expr:
        return e

    def visit_Binary(self, e: Binary | Unary | Cast) -> Expr:
        """An operation simplified, once for each place where the same is known."""
        whole: Expr = e
        match e:
            case Binary(op="+" | "-", a=a, b=Const(value=v)) if v != 0:
                whole = a  # a literal that is added or subtracted last stays there
        if self.settled(whole, set()):
            return e
        key = StructuralKey(e)
        simplified = self.memo.get(key)
        if simplified is None:
            simplified = self.memo[key] = self.simple(e)
        return simplified

    visit_Unary = visit_Cast = visit_Binary

    def visit_Select(self, e: Select) -> Expr:
        folded = fold(self.generic_visit(e))
        return folded.a if isinstance(folded, Select) and same(folded.a, folded.b) else folded

    def visit_IfThenElse(self, e: IfThenElse) -> Expr:
        cond: Expr = self.visit(e.cond)
        if isinstance(cond, Const):
            taken: Expr = self.visit(e.a if cond.value else e.b)
            return taken
        a, b = self.where(cond, True, e.a), self.where(cond, False, e.b)
        if same(a, b):
            return a
        kept = cond is e.cond and a is e.a and b is e.b
        return e if kept else IfThenElse(cond, a, b, e.dtype)

    def generic_visit(self, n: Node) -> Any:
        rebuilt = super().generic_visit(n)
        return fold(rebuilt) if isinstance(rebuilt, Expr) else rebuilt

    # Any: the class of ``e`` is looked up once, as this runs for every index.
    def settled(self, e: Any, seen: set[Var]) -> bool:
        """Whether a sum has the form that `Affine` gives it, but for its order, as most have."""
        kind = type(e)
        if kind is Var:
            new = e not in seen and e not in self.env
            seen.add(e)
            return new
        if kind is not Binary:
            return False
        if e.op == "*":
            k = e.b.value if type(e.b) is Const else 0
            return k not in (0, 1) and type(e.a) is Var and self.settled(e.a, seen)
        return e.op == "+" and self.settled(e.a, seen) and self.settled(e.b, seen)

    def simple(self, e: Binary | Unary | Cast) -> Expr:
        """An operation as one affine form if it is one, else rebuilt from simplified operands."""
        if dtypes.is_int(e.dtype):
            form = self.affine(e)
            if form is not None:
                return form
        rebuilt: Expr = super().generic_visit(e)
        folded = fold(rebuilt)
        if folded is not rebuilt:
            return folded
        truth = self.decided.get(StructuralKey(rebuilt)) if self.decided else None
        if truth is not None:
            return _TRUE if truth else _FALSE
        match rebuilt:
            case Binary():
                return self.binary(rebuilt)
            case Unary(op=op, a=Unary(op=inner, a=a)) if op == inner:
                return a
            case Cast(value=v, dtype=d) if v.dtype == d:
                return v
        return rebuilt

    def affine(self, e: Expr) -> Expr | None:
        """Arithmetic on loops in its affine form, where it cannot wrap."""
        if not isinstance(e, Binary) or e.op not in ("+", "-", "*", "//", "%"):
            return None
        form = to_affine(e, self.forms, self.ranges)
        if form is None and e.op in ("//", "%"):
            return shorter_division(e, self.forms, self.ranges)
        if form is None or any(v not in self.ranges for v in form.terms):
            return None
        lo, hi = form.bounds(self.ranges)
        least, most = dtypes.limits(e.dtype)
        if lo < least or hi > most:
            return None
        out = form.to_expr(e.dtype) if form.terms else const(form.const, e.dtype)
        if out.dtype != e.dtype:
            return None
        return e if same(out, e) else out

    def binary(self, e: Binary) -> Expr:
        a, b = e.a, e.b
        if e.op in ("and", "or"):
            return _logic(e)
        if dtypes.is_float(a.dtype):
            return _float(e)
        if not dtypes.is_int(a.dtype):
            return e
        if e.op in COMPARE or e.op in ("min", "max"):
            return self.compared(e)
        match e.op, b:
            case ("+" | "-", Const(value=0)) | ("*" | "//" | "tdiv", Const(value=1)):
                return a
            case ("*", Const(value=0)) | ("%" | "tmod", Const(value=1)):
                return const(0, e.dtype)
        match e.op, a:
            case ("+", Const(value=0)) | ("*", Const(value=1)):
                return b
            case ("*", Const(value=0)):
                return a
        return e

    def compared(self, e: Binary) -> Expr:
        """A comparison, ``min`` or ``max`` of integers, decided where the difference is."""
        bounds = (0, 0) if same(e.a, e.b) else self.difference(e.a, e.b)
        if bounds is None:
            return e
        if e.op in ("min", "max"):
            # ``a`` is the minimum if a <= b, as the maximum is if a >= b.
            sides = ("<=", ">=") if e.op == "min" else (">=", "<=")
            first, second = (decided(op, bounds) for op in sides)
            return e.a if first else e.b if second else e
        answer = decided(e.op, bounds)
        return e if answer is None else _TRUE if answer else _FALSE

    def difference(self, a: Expr, b: Expr) -> Interval | None:
        """Bounds of ``a - b``, where both are arithmetic on loops that does not wrap."""
        if not all(exact(x, {}, self.ranges) and fits(x, {}, self.ranges) for x in (a, b)):
            return None
        x, y = to_affine(a, {}, self.ranges), to_affine(b, {}, self.ranges)
        if x is not None and y is not None:
            return (x - y).bounds(self.ranges)
        p, q = interval(a, {}, self.ranges), interval(b, {}, self.ranges)
        return (p[0] - q[1], p[1] - q[0]) if p and q else None


def _logic(e: Binary) -> Expr:
    for x, y in ((e.a, e.b), (e.b, e.a)):
        if isinstance(x, Const):
            neutral = x.value == (e.op == "and")
            return y if neutral else x
    return e.a if same(e.a, e.b) else e


def _float(e: Binary) -> Expr:
    """Identities that hold for every float, NaN and both zeros included."""
    match e.op, e.b:
        case ("*" | "/", Const(value=1.0)):
            return e.a
        case ("-", Const(value=0.0 as z)) if math.copysign(1.0, z) > 0:
            return e.a
        case ("+", Const(value=0.0 as z)) if math.copysign(1.0, z) < 0:
            return e.a
    match e.op, e.a:
        case ("*", Const(value=1.0)):
            return e.b
        case ("+", Const(value=0.0 as z)) if math.copysign(1.0, z) < 0:
            return e.b
    return e.a if e.op in ("min", "max") and same(e.a, e.b) else e


_NOTHING = Seq(())


@func_pass(opt_level=1, name="RemoveNoOp")
def remove_no_op(f: Func) -> Func:
    """Drop empty loops and branches, decided conditions, unused names and idle stores."""
    return f.with_body(_Remover().visit(f.body))


class _Remover(Mutator):
    def __init__(self) -> None:
        super().__init__()
        #: Variables and buffers that were read or written so far.
        self.used: set[Var | Buffer] = set()

    def visit_Var(self, e: Var) -> Var:
        self.used.add(e)
        return e

    def use(self, n: Dim) -> None:
        if isinstance(n, Expr):
            self.visit(n)

    def visit_Load(self, e: Load) -> Load:
        self.used.add(e.buffer)
        return self.rebuilt(e)

    def visit_Store(self, s: Store) -> Stmt:
        value = s.value
        if isinstance(value, Load) and value.buffer is s.buffer and same(value.indices, s.indices):
            return _NOTHING
        self.used.add(s.buffer)
        return self.rebuilt(s)

    visit_Prefetch = visit_Load

    def visit_CallPacked(self, s: CallPacked) -> Stmt:
        self.used.update(s.buffers)
        return self.rebuilt(s)

    def visit_Seq(self, s: Seq) -> Stmt:
        s = self.rebuilt(s)
        flat = not any(isinstance(x, Seq) for x in s.stmts) and len(s.stmts) != 1
        return s if flat else seq(*s.stmts)

    def visit_For(self, s: For) -> Stmt:
        if isinstance(s.extent, int) and s.extent == 0:
            return _NOTHING
        body: Stmt = self.visit(s.body)
        if body == _NOTHING:
            return _NOTHING
        self.use(s.extent)
        return s.with_body(body)

    def visit_Let(self, s: Let) -> Stmt:
        body: Stmt = self.visit(s.body)
        if s.var not in self.used:
            return body
        self.visit(s.value)
        return s if body is s.body else Let(s.var, s.value, body)

    def visit_Allocate(self, s: Allocate) -> Stmt:
        rebuilt = self.rebuilt(s)
        if s.buffer not in self.used:
            return rebuilt.body
        for n in s.buffer.shape:
            self.use(n)
        return rebuilt

    def visit_If(self, s: If) -> Stmt:
        if isinstance(s.cond, Const):
            taken = s.then if s.cond.value else s.orelse
            return _NOTHING if taken is None else self.visit(taken)
        then: Stmt = self.visit(s.then)
        other: Stmt | None = None if s.orelse is None else self.visit(s.orelse)
        if other == _NOTHING:
            other = None
        if then == _NOTHING and other is None:
            return _NOTHING
        self.visit(s.cond)
        if other is not None and then == _NOTHING:
            return If(Unary("not", s.cond, "bool"), other)
        return s if then is s.then and other is s.orelse else If(s.cond, then, other)

    def rebuilt(self, n: N) -> N:
        out: N = self.generic_visit(n)
        return out
