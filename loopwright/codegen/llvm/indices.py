"""Indices and offsets in LLVM IR: affine over registers and the lane, or else values in i64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from loopwright.codegen.llvm.emitter import Emitter, ModuleWriter, Value, literal
from loopwright.errors import CodegenError
from loopwright.ir.affine import Affine, Interval, decided, exact, fits, interval, to_affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Binary, Cast, Const, Expr, Unary, Var
from loopwright.ir.node import StructuralKey
from loopwright.ir.visitor import free_vars

# ---------------------------------------------------------------- quotients
#
# Offsets in which a quotient and a remainder of one number meet again.
#
# A fused loop ``f`` over rows of 56 reads ``A[f // 56, f % 56]``. Neither index is affine in the
# lanes of ``f``, but the offset ``56 * (f // 56) + f % 56`` is ``f`` itself: the access is
# contiguous even where a vector crosses from one row to the next.


class Division(NamedTuple):
    op: Literal["//", "%"]
    number: Affine
    divisor: int


class Quotients:
    """Quotients and remainders as variables of affine forms; equal ones are one variable."""

    def __init__(self, affine: Callable[[Expr], Affine | None]) -> None:
        self._affine = affine
        self._variables: dict[Division, Var] = {}
        self._divisions: dict[Var, Division] = {}
        self._lets: dict[Var, Affine] = {}

    def let(self, v: Var, e: Expr) -> None:
        """Note that ``v`` stands for ``e``, where that has a form with quotients."""
        form = self.form(e)
        if form is not None:
            self._lets[v] = form

    def forget(self, v: Var) -> None:
        self._lets.pop(v, None)

    def form(self, e: Expr) -> Affine | None:
        """An index that does not wrap as an affine form over registers, the lane, quotients and
        remainders."""
        if isinstance(e, Var) and e in self._lets:
            return self._lets[e]
        plain = self._affine(e)
        if plain is not None:
            return plain
        match e:
            case Unary(op="-", a=a):
                x = self.form(a)
                return None if x is None else x * -1
            case Binary(op="+" | "-" as op, a=a, b=b):
                x, y = self.form(a), self.form(b)
                if x is None or y is None:
                    return None
                return x + y if op == "+" else x - y
            case Binary(op="*", a=a, b=Const(value=k)) | Binary(op="*", a=Const(value=k), b=a):
                x = self.form(a)
                return None if x is None else x * int(k)
            case Binary(op="//" | "%" as op, a=a, b=Const(value=n)) if n > 0:
                x = self.form(a)
                if x is None:
                    return None
                division = Division("%", x, int(n))
                return Affine.of(
                    self._quotient(x, int(n)) if op == "//" else self._variable(division)
                )
        return None

    def joined(self, form: Affine) -> Affine | None:
        """The form with ``n * (x // n) + x % n`` turned into ``x``; None if quotients are left."""
        while (shorter := self._join_one(form)) is not None:
            form = shorter
        return None if any(v in self._divisions for v in form.terms) else form

    def _join_one(self, form: Affine) -> Affine | None:
        """The form with one remainder joined to its quotient; None where there is no such pair."""
        for r, c in form.terms.items():
            division = self._divisions.get(r)
            if division is None or division.op != "%":
                continue
            _, x, n = division
            q = self._quotient(x, n)
            if form.terms.get(q, 0) == c * n:
                return form + x * c - Affine(0, {q: c * n, r: c})
        return None

    def _quotient(self, x: Affine, n: int) -> Var:
        """The variable of ``x // n``; a quotient of a quotient is one quotient."""
        if x.const == 0 and len(x.terms) == 1:
            ((v, c),) = x.terms.items()
            inner = self._divisions.get(v)
            if c == 1 and inner is not None and inner.op == "//":
                return self._quotient(inner.number, inner.divisor * n)
        return self._variable(Division("//", x, n))

    def _variable(self, division: Division) -> Var:
        if division not in self._variables:
            v = Var(f"quotient{len(self._variables)}", "int64")
            self._variables[division], self._divisions[v] = v, division
        return self._variables[division]


#: Bounds of a register of which nothing is known.
UNKNOWN = (-(1 << 40), 1 << 40)
#: The lane number inside a vectorized loop, as a variable of affine forms.
LANE = Var("lane", "int64")


class _AnyRange(dict[Var, Interval]):
    """Ranges of variables of which nothing is known: no division is decided."""

    def __missing__(self, _: Var) -> Interval:
        return UNKNOWN


_ANY = _AnyRange()


def flat_offset(b: Buffer, indices: Sequence[Affine]) -> Affine:
    """Offset in elements of an affine access to a buffer whose extents are known."""
    out = Affine(0)
    if b.strides is not None:
        for i, stride in zip(indices, b.strides, strict=True):
            out = out + i * stride
        return out
    for i, n in zip(indices, b.extents, strict=True):
        out = out * n + i
    return out


class IndexWriter(Emitter):
    def __init__(self, module: ModuleWriter) -> None:
        super().__init__(module)
        #: Variables of the IR that have an affine form.
        self.env: dict[Var, Affine] = {}
        #: Variables of the IR that have only a value.
        self.bound: dict[Var, Value] = {}
        #: Bounds of the variables of affine forms.
        self.ranges: dict[Var, Interval] = {}
        #: Beginnings of the buffers in scope.
        self.pointers: dict[Buffer, str] = {}
        self.quotients = Quotients(self.affine)
        self._registers: dict[str, Var] = {}

    def affine(self, e: Expr) -> Affine | None:
        if self.bound and not self.bound.keys().isdisjoint(free_vars(e)):
            return None
        return to_affine(e, self.env, self.ranges)

    def scalar(self, a: Affine) -> str:
        key = ("i64", a.const, frozenset(a.terms.items()))
        return self.cached(key, lambda: self._scalar(a)) if a.terms else str(a.const)

    def _scalar(self, a: Affine) -> str:
        out: str | None = None
        for v, c in a.terms.items():
            term = v.name if c == 1 else self.pure(f"mul i64 {v.name}, {c}")
            out = term if out is None else self.pure(f"add i64 {out}, {term}")
        assert out is not None
        return self.pure(f"add i64 {out}, {a.const}") if a.const else out

    def index_vector(self, a: Affine) -> Value:
        stride = a.terms.get(LANE, 0)
        rest = Affine(a.const, {v: c for v, c in a.terms.items() if v is not LANE})
        first = 0 if rest.terms else rest.const
        steps = ", ".join(f"i64 {first + k * stride}" for k in range(self.lanes))
        if not rest.terms:
            return Value(f"<{steps}>", "int64", self.lanes)
        base = self.splat(Value(self.scalar(rest), "int64"), self.lanes)
        ty = f"<{self.lanes} x i64>"
        return Value(self.pure(f"add {ty} {base.ref}, <{steps}>"), "int64", self.lanes)

    def index(self, e: Expr) -> Affine | Value:
        a = self.affine(e)
        if a is not None:
            return a
        return self._wide(e) if self.is_plain(e) else self.ops.cast(self.expr(e), "int64")

    def is_plain(self, e: Expr) -> bool:
        """Whether an integer is arithmetic on axes whose exact value fits its dtype."""
        return exact(e, self.env, self.ranges) and fits(e, self.env, self.ranges)

    def _wide(self, e: Expr) -> Affine | Value:
        a = self.affine(e)
        if a is not None:
            return a
        match e:
            case Var():
                return self.ops.cast(self.bound[e], "int64")
            case Cast(value=v):
                return self._wide(v)
            case Unary(a=x):
                return self.ops.negate(self.i64(self._wide(x)))
            case Binary(op="+" | "-" | "*" as op, a=x, b=y):
                return self._combined(op, self._wide(x), self._wide(y))
            case Binary(op=op, a=x, b=y):
                p, q = self.i64(self._wide(x)), self.i64(self._wide(y))
                return self.ops.binary(op, p, q, "int64")
        raise CodegenError(f"llvm: {type(e).__name__} is not arithmetic on axes")

    def decided(self, op: str, x: Affine | Value, y: Affine | Value) -> Value | None:
        """A comparison of indices that comes out the same in all lanes and iterations."""
        if isinstance(x, Value) or isinstance(y, Value):
            return None
        answer = decided(op, (x - y).bounds(self.ranges))
        return None if answer is None else Value(literal(answer, "bool"), "bool")

    def _combined(self, op: str, x: Affine | Value, y: Affine | Value) -> Affine | Value:
        """A sum or product; affine in the lane where what is not affine is the same in all."""
        p, q = self._atom(x), self._atom(y)
        if p is None or q is None or (op == "*" and p.terms and q.terms):
            return self.ops.binary(op, self.i64(x), self.i64(y), "int64")
        if op == "*":
            return p * q.const if not q.terms else q * p.const
        return p + q if op == "+" else p - q

    def _atom(self, x: Affine | Value) -> Affine | None:
        """A form that is affine with scalar registers as variables."""
        if isinstance(x, Affine):
            return x
        return None if x.lanes > 1 or not x.ref.startswith("%") else Affine.of(self.atom(x.ref))

    def i64(self, i: Affine | Value) -> Value:
        if isinstance(i, Value):
            return i
        return self.index_vector(i) if LANE in i.terms else Value(self.scalar(i), "int64")

    def offset_form(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | None:
        """Offset in elements of an access as an affine form, where it has one."""
        form = self._form_of_loops(b, indices)
        if form is not None and self.bound.keys().isdisjoint(form.terms):
            return form.substitute(self.env)
        if b.symbolic or not all(map(self.is_plain, indices)):
            return None
        # Quotients and remainders in the indices may meet again.
        parts = [self.quotients.form(i) for i in indices]
        forms = [f for f in parts if f is not None]
        return self.quotients.joined(flat_offset(b, forms)) if len(forms) == len(parts) else None

    def offset(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | Value:
        form = self.offset_form(b, indices)
        if form is not None:
            return form
        parts = [self.index(i) for i in indices]
        atoms = [a for p in parts if (a := self._atom(p)) is not None]
        if len(atoms) == len(parts):
            flat = self._flat_symbolic(b, atoms) if b.symbolic else flat_offset(b, atoms)
            if flat is not None:
                return flat
        return self._offset_value(b, parts)

    def _offset_value(self, b: Buffer, parts: Sequence[Affine | Value]) -> Value:
        out = Value("0", "int64")
        if b.strides is not None:
            for p, stride in zip(parts, b.strides, strict=True):
                step = self.i64(p)
                step = self.ops.binary("*", step, self.ops.const(stride, step), "int64")
                out = self.ops.binary("+", out, step, "int64")
            return out
        for p, n in zip(parts, b.shape, strict=True):
            out = self.ops.binary("*", out, Value(self.count_of(n), "int64"), "int64")
            out = self.ops.binary("+", out, self.i64(p), "int64")
        return out

    def _form_of_loops(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | None:
        """The offset over the variables of the IR, if that needs no ranges; worked out once."""
        if b.symbolic:
            return None
        key = StructuralKey((b, indices))
        if key not in self.module.offsets:
            parts = [to_affine(i, {}, _ANY) for i in indices]
            forms = [p for p in parts if p is not None]
            self.module.offsets[key] = flat_offset(b, forms) if len(forms) == len(parts) else None
        return self.module.offsets[key]

    def count_of(self, n: int | Expr) -> str:
        """An extent, or a number of bytes, as an i64 operand."""
        return str(n) if isinstance(n, int) else self.i64(self.index(n)).ref

    def last_index(self, n: int | Expr) -> int:
        """The largest index below an extent, as far as known."""
        if isinstance(n, int):
            return n - 1
        bounds = interval(n, self.env, self.ranges)
        return bounds[1] - 1 if bounds is not None else UNKNOWN[1]

    def atom(self, reg: str) -> Var:
        """A register as a variable of affine forms, the same object each time."""
        if reg not in self._registers:
            self._registers[reg] = Var(reg, "int64")
            self.ranges[self._registers[reg]] = UNKNOWN
        return self._registers[reg]

    def _flat_symbolic(self, b: Buffer, indices: Sequence[Affine]) -> Affine | None:
        """Offset in elements of an access to a buffer of symbolic shape, over registers; None where
        the lanes of a vector lie a symbolic distance apart."""
        out = Affine(0)
        for i, n in zip(indices, b.shape, strict=True):
            if LANE in out.terms and not isinstance(n, int):
                return None
            out = (out * n if isinstance(n, int) else self._times(out, n)) + i
        return out

    def _times(self, x: Affine, n: Expr) -> Affine:
        """``x * n``: one multiplication for each register of x, shared within a scope."""
        length = self.count_of(n)
        if not length.startswith("%"):
            return x * int(length)
        out = Affine(0, {self.atom(length): x.const} if x.const else {})
        for v, c in x.terms.items():
            out = out + Affine(0, {self.atom(self.pure(f"mul i64 {v.name}, {length}")): c})
        return out
