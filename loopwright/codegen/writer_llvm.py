"""One function of the loop IR as LLVM IR text.

Indices are kept as affine forms over registers and the lane, so constants fold and addresses are
shared. Vector loops are cut into pieces of the native width; unrolled loops are written out.
"""

from __future__ import annotations

from typing import Any

from loopwright import dtypes
from loopwright.codegen.checks_llvm import write_check
from loopwright.codegen.digits import Digits
from loopwright.codegen.emitter_llvm import Emitter, ModuleWriter
from loopwright.codegen.facts import has_blocks, touches_memory, widest
from loopwright.codegen.functions_llvm import UNKNOWN, launch
from loopwright.codegen.instructions_llvm import write_instruction
from loopwright.codegen.memory_llvm import LANE, Memory
from loopwright.codegen.ops_llvm import Value, literal
from loopwright.codegen.runs_llvm import load_runs
from loopwright.codegen.sizes_llvm import SizeNames, flat_symbolic, last_index
from loopwright.codegen.transpose_llvm import transposed_copy
from loopwright.errors import CodegenError
from loopwright.ir.affine import Affine, exact, fits, interval, to_affine
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Call, Cast, Const, Expr, IfThenElse, Select, Unary, Var
from loopwright.ir.kernels import launched_by
from loopwright.ir.operations import COMPARE
from loopwright.ir.stmt import (
    UNROLL_HINT,
    Allocate,
    Check,
    For,
    If,
    IntrinsicCall,
    Let,
    Prefetch,
    Seq,
    Store,
    View,
)
from loopwright.ir.traversal import free_vars


class _AnyRange(dict[Var, tuple[int, int]]):
    """Ranges of variables of which nothing is known: no division is decided."""

    def __missing__(self, _: Var) -> tuple[int, int]:
        return UNKNOWN


_ANY = _AnyRange()


class FunctionWriter(Emitter):
    """Writes the body of one function: the entry's, or a parallel loop's (`functions_llvm`)."""

    def __init__(self, module: ModuleWriter, name: str, inside_parallel: bool) -> None:
        super().__init__(module)
        self.name, self.inside_parallel = name, inside_parallel
        self.pointers: dict[Buffer, str] = {}
        self.env: dict[Var, Affine] = {}
        self.bound: dict[Var, Value] = {}
        self.atoms: dict[str, Var] = {}
        self.sizes = SizeNames()
        self.ranges: dict[Var, tuple[int, int]] = {}
        self.digits = Digits(self.affine)
        self.memory = Memory(self)

    def inner(self, name: str) -> FunctionWriter:
        """A writer for the body of a parallel loop of this function."""
        return FunctionWriter(self.m, name, inside_parallel=True)

    # ------------------------------------------------------------ indices

    def affine(self, e: Expr) -> Affine | None:
        """An index as an affine form over registers and the lane."""
        if self.bound and not self.bound.keys().isdisjoint(free_vars(e)):
            return None
        return to_affine(e, self.env, self.ranges)

    def scalar(self, a: Affine) -> str:
        """The value of an affine form without lanes, as an i64."""
        key = ("i64", a.const, frozenset(a.terms.items()))
        return self.cached(key, lambda: self._scalar(a)) if a.terms else str(a.const)

    def _scalar(self, a: Affine) -> str:
        out: str | None = None
        for v, c in a.terms.items():
            term = v.name if c == 1 else self.emit(f"mul i64 {v.name}, {c}")
            out = term if out is None else self.emit(f"add i64 {out}, {term}")
        assert out is not None
        return self.emit(f"add i64 {out}, {a.const}") if a.const else out

    def index_vector(self, a: Affine) -> Value:
        """The value of an affine form, one i64 a lane."""
        stride = a.terms.get(LANE, 0)
        rest = Affine(a.const, {v: c for v, c in a.terms.items() if v is not LANE})
        base = self.splat(Value(self.scalar(rest), "int64"), self.lanes)
        steps = ", ".join(f"i64 {k * stride}" for k in range(self.lanes))
        ty = f"<{self.lanes} x i64>"
        return Value(self.emit(f"add {ty} {base.ref}, <{steps}>"), "int64", self.lanes)

    def index(self, e: Expr) -> Affine | Value:
        """An index: affine where it is, else computed in i64."""
        a = self.affine(e)
        if a is not None:
            return a
        if self._exact(e) and fits(e, self.env, self.ranges):
            return self._wide(e)
        return self.ops.cast(self.expr(e), "int64")

    def _exact(self, e: Expr) -> bool:
        return exact(e, self.env, self.ranges)

    def _wide(self, e: Expr) -> Affine | Value:
        """Arithmetic on axes in i64."""
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
        if x.lanes > 1 or not x.ref.startswith("%"):
            return None
        return Affine.of(self.atom(x.ref))

    def i64(self, i: Affine | Value) -> Value:
        """An index as a value."""
        if isinstance(i, Value):
            return i
        return self.index_vector(i) if LANE in i.terms else Value(self.scalar(i), "int64")

    def offset_form(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | None:
        """Offset in elements of an access as an affine form, where it has one."""
        known = self._flat(b, indices)
        if known is not None and self.bound.keys().isdisjoint(known.terms):
            return known.substitute(self.env)
        return self._joined(b, indices)

    def offset(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | Value:
        """Offset in elements of an access."""
        form = self.offset_form(b, indices)
        if form is not None:
            return form
        parts = [self.index(i) for i in indices]
        atoms = [a for p in parts if (a := self._atom(p)) is not None]
        if len(atoms) == len(parts):
            flat = flat_symbolic(self, b, atoms) if b.symbolic else self.memory.flat(b, atoms)
            if flat is not None:
                return flat
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

    def _joined(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | None:
        """The offset where quotients and remainders in the indices meet again."""
        if b.symbolic or not all(
            self._exact(i) and fits(i, self.env, self.ranges) for i in indices
        ):
            return None
        forms = [self.digits.form(i) for i in indices]
        known = [f for f in forms if f is not None]
        whole = len(known) == len(forms)
        return self.digits.joined(self.memory.flat(b, known)) if whole else None

    def count_of(self, n: Any) -> str:
        """An extent, or a number of bytes, as an i64 operand."""
        return str(n) if isinstance(n, int) else self.i64(self.index(n)).ref

    def atom(self, reg: str) -> Var:
        """A register as a variable of affine forms; one object a register."""
        if reg not in self.atoms:
            self.atoms[reg] = Var(reg, "int64")
            self.ranges[self.atoms[reg]] = UNKNOWN
        return self.atoms[reg]

    def _flat(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | None:
        """The offset over the variables of the IR, if that needs no ranges; worked out once."""
        if b.symbolic:
            return None
        key = (b, indices)
        if key not in self.m.flat:
            parts = [to_affine(i, {}, _ANY) for i in indices]
            known = [p for p in parts if p is not None]
            whole = len(known) == len(parts)
            self.m.flat[key] = self.memory.flat(b, known) if whole else None
        return self.m.flat[key]

    # ------------------------------------------------------------ expressions

    def expr(self, e: Any) -> Value:
        """The value of an expression."""
        match e:
            case Const(value=v, dtype=d):
                return Value(literal(v, d), d)
            case Var():
                value = self.bound[e] if e in self.bound else self.i64(self._wide(e))
                return self.ops.cast(value, e.dtype)
            case Load(buffer=b, indices=idx):
                runs = None if self.offset_form(b, idx) is not None else load_runs(self, b, idx)
                return runs or self.memory.load(b, self.offset(b, idx))
            case Binary():
                return self._binary(e)
            case Cast(value=v, dtype=d):
                return self.ops.cast(self.expr(v), d)
            case Select(cond=c, a=a, b=b):
                return self.ops.select(self.expr(c), self.expr(a), self.expr(b))
            case IfThenElse():
                return self._if_then_else(e)
            case Unary(op="not", a=a):
                return self.ops.invert(self.expr(a))
            case Unary(op="~", a=a):
                return self.ops.flip(self.expr(a))
            case Unary(a=a):
                return self.ops.negate(self.expr(a))
            case Call(fn="reinterpret", args=(a,), dtype=d):
                return self.ops.reinterpret(self.expr(a), d)
            case Call(fn=fn, args=args):
                return self.ops.call(fn, [self.expr(a) for a in args])
        raise CodegenError(f"llvm: no code for {type(e).__name__}")

    def _binary(self, e: Binary) -> Value:
        if e.op in COMPARE and all(
            self._exact(x) and fits(x, self.env, self.ranges) for x in (e.a, e.b)
        ):
            return self.ops.compare(e.op, self.i64(self._wide(e.a)), self.i64(self._wide(e.b)))
        if dtypes.is_int(e.dtype) and self._exact(e):
            return self.ops.cast(self.i64(self._wide(e)), e.dtype)
        return self.ops.binary(e.op, self.expr(e.a), self.expr(e.b), e.dtype)

    def _if_then_else(self, e: IfThenElse) -> Value:
        cond = self.expr(e.cond)
        if not touches_memory(e):
            return self.ops.select(cond, self.expr(e.a), self.expr(e.b))
        a = self.under(cond, lambda: self.expr(e.a))
        b = e.b
        other = (
            self.under(self.ops.invert(cond), lambda: self.expr(b))
            if touches_memory(b)
            else self.expr(b)
        )
        return self.ops.select(cond, a, other)

    # ------------------------------------------------------------ statements

    def stmt(self, s: Any) -> None:
        """Write a statement."""
        match s:
            case Seq(stmts=stmts):
                for x in stmts:
                    self.stmt(x)
            case Store(buffer=b, indices=idx, value=v):
                self.memory.store(b, self.offset(b, idx), self.expr(v))
            case For():
                self._for(s)
            case If():
                self._if(s)
            case Let(var=v, value=e, body=body):
                self._let(v, e, body)
            case Allocate(buffer=b, body=body):
                self.memory.allocate(b, lambda: self.stmt(body))
            case Prefetch(buffer=b, indices=idx):
                self.memory.prefetch(b, self.offset(b, idx))
            case Check():
                write_check(self, s)
            case View(buffer=b, of=of, offset=k, body=body):
                self.memory.view(b, of, k)
                self.stmt(body)
            case IntrinsicCall():
                if not write_instruction(self, s):
                    self.stmt(s.body)
            case _:
                raise CodegenError(f"llvm: no code for {type(s).__name__}")

    def _let(self, v: Var, e: Expr, body: Any) -> None:
        """Arithmetic on axes is kept as an affine form or in i64, all else in its own dtype."""
        if e.dtype != v.dtype:
            raise CodegenError(f"llvm: {v.name!r} is {v.dtype}, its value is of {e.dtype}")
        self.sizes.learn(v, e)
        known = interval(e, self.env, self.ranges) if dtypes.is_int(e.dtype) else None
        if known is None or not fits(e, self.env, self.ranges):
            self._bind(v, self.expr(e))
        else:
            i = self.index(e)
            if not isinstance(i, Value):
                self.env[v] = i
            elif i.lanes > 1:
                self.digits.let(v, e)
                self._bind(v, i)
                self.ranges[v] = known
            else:
                reg = Var(i.ref, "int64")
                self.env[v], self.ranges[reg] = Affine.of(reg), known
        self.stmt(body)
        self.bound.pop(v, None)
        self.digits.forget(v)

    def _bind(self, v: Var, value: Value) -> None:
        """Let a variable stand for a value of which no affine form is known."""
        self.bound[v] = value
        self.env.pop(v, None)
        self.ranges.pop(v, None)

    def _if(self, s: If) -> None:
        cond = self.expr(s.cond)
        self._branch(cond, s.then)
        if s.orelse is not None:
            self._branch(self.ops.invert(cond), s.orelse)

    def _branch(self, cond: Value, body: Any) -> None:
        """Run a body where a condition holds: a jump, and in vector code a mask as well."""
        masked = cond.lanes > 1
        active = cond
        if masked and self.mask is not None:
            active = self.ops.binary("and", cond, self.mask, "bool")
        go = self.any_lane(active) if masked else cond.ref
        then, done = self.label("then"), self.label("endif")
        self.put(f"br i1 {go}, label %{then}, label %{done}")
        self.start(then)
        old, self.mask = self.mask, active if masked else self.mask
        self.scopes.append({})
        self.stmt(body)
        self.scopes.pop()
        self.mask = old
        self.put(f"br label %{done}")
        self.start(done)

    def _for(self, s: For) -> None:
        if s.kind == "thread":
            raise CodegenError(
                f"llvm: {launched_by(s)}; thread axes are for GPU targets, on a CPU use parallel, "
                "vectorize or unroll"
            )
        if s.kind == "vectorized" and self.lanes == 1 and not has_blocks(s.body):
            self._vector_loop(s)
        elif s.kind == "unrolled":
            if not transposed_copy(self, s):
                for k in range(s.extent):
                    self.iteration(s, Affine(k))
        elif s.kind == "parallel" and self._may_launch():
            launch(self, s)
        else:
            self._serial_loop(s)

    def _may_launch(self) -> bool:
        return not self.inside_parallel and self.m.threads != 1 and self.lanes == 1

    def iteration(self, s: For, value: Affine) -> None:
        """One iteration of a loop, with ``value`` for its variable."""
        self.env[s.var] = value
        self.stmt(s.body)

    def _serial_loop(self, s: For) -> None:
        head, done = self.label("loop"), self.label("done")
        before, count = self.label("pre"), self.count_of(s.extent)
        self.put(f"br label %{before}")
        self.start(before)
        self.put(f"br label %{head}")
        self.start(head)
        self.count += 1
        reg, nxt = f"%i{self.count}", f"%n{self.count}"
        back = self.label("back")
        self.lines.append(f"  {reg} = phi i64 [ 0, %{before} ], [ {nxt}, %{back} ]")
        atom = Var(reg, "int64")
        self.ranges[atom] = (0, last_index(self, s.extent))
        self.scopes.append({})
        self.iteration(s, Affine.of(atom))
        self.scopes.pop()
        self.put(f"br label %{back}")
        self.start(back)
        self.lines.append(f"  {nxt} = add nuw nsw i64 {reg}, 1")
        more = self.emit(f"icmp ult i64 {nxt}, {count}")
        hint = f", !llvm.loop {self.m.unroll_hint()}" if UNROLL_HINT in s.pragmas else ""
        self.put(f"br i1 {more}, label %{head}, label %{done}{hint}")
        self.start(done)

    def _vector_loop(self, s: For) -> None:
        native = max(1, self.m.vector_bytes // widest(s.body))
        at = 0
        while at < s.extent:
            lanes = min(native, s.extent - at)
            lanes = 1 << (lanes.bit_length() - 1)
            self.lanes = lanes
            self.ranges[LANE] = (0, lanes - 1)
            self.scopes.append({})
            self.iteration(s, Affine(at, {LANE: 1}) if lanes > 1 else Affine(at))
            self.scopes.pop()
            self.lanes = 1
            at += lanes
