"""One function of the loop IR as LLVM IR text.

Indices are kept as affine forms over registers and the lane, so constants fold and addresses are
shared. Vector loops are cut into pieces of the native width; unrolled loops are written out. A parallel
loop becomes a function of its own that the pool runs over ranges. Bodies are ``alwaysinline``
functions with ``noalias`` parameters, called from thin entry functions that unpack pointers: this
is what lets LLVM keep accumulators in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from loopwright import dtypes
from loopwright.codegen.memory_llvm import LANE, STACK_LIMIT, STACK_TOTAL, Memory, memory_type
from loopwright.codegen.ops_llvm import Operations, Value, literal, llvm_type
from loopwright.errors import CodegenError
from loopwright.ir.affine import Affine, interval, to_affine
from loopwright.ir.expr import (
    COMPARE,
    Binary,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    IfThenElse,
    Load,
    Select,
    Unary,
    Var,
    free_vars,
    walk,
)
from loopwright.ir.stmt import Allocate, For, If, Let, Seq, Store

_UNKNOWN = (-(1 << 40), 1 << 40)


class ModuleWriter:
    """What the functions of one module share."""

    def __init__(self, name: str, fastmath: bool, vector_bytes: int, threads: int) -> None:
        self.name, self.fastmath = name, fastmath
        self.vector_bytes, self.threads = vector_bytes, threads
        self.declares: dict[str, str] = {}
        self.functions: list[str] = []
        self.parallel_workspace = 0
        self.uses_pool = False
        self.counter = 0

    def text(self) -> str:
        """The module."""
        return "\n".join([*self.declares.values(), *self.functions]) + "\n"


class FunctionWriter:
    """Writes the body of one function (the entry's, or a parallel loop's)."""

    def __init__(self, module: ModuleWriter, name: str, inside_parallel: bool) -> None:
        self.m, self.name, self.inside_parallel = module, name, inside_parallel
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.pointers: dict[Buffer, str] = {}
        self.env: dict[Var, Affine] = {}
        self.vectors: dict[Var, Value] = {}
        self.ranges: dict[Var, tuple[int, int]] = {}
        self.lanes = 1
        self.mask: Value | None = None
        self.workspace = 0
        self.workspace_now = 0
        self.stack = 0
        self.count = 0
        self.scopes: list[dict[Hashable, str]] = [{}]
        self.ops = Operations(self.emit, self.declare, module.fastmath, self.splat)
        self.memory = Memory(self)

    # ------------------------------------------------------------ text

    def emit(self, text: str) -> str:
        """Write an instruction that gives a value; returns its register."""
        self.count += 1
        reg = f"%v{self.count}"
        self.lines.append(f"  {reg} = {text}")
        return reg

    def put(self, text: str) -> None:
        """Write an instruction without a value."""
        self.lines.append("  " + text)

    def label(self, hint: str) -> str:
        """A new block name."""
        self.count += 1
        return f"{hint}{self.count}"

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")

    def declare(self, name: str, text: str) -> None:
        """Declare an external function once."""
        self.m.declares.setdefault(name, text)

    def cached(self, key: Hashable, make: Callable[[], str]) -> str:
        """A register made once in this scope or one around it."""
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        self.scopes[-1][key] = reg = make()
        return reg

    # ------------------------------------------------------------ indices

    def affine(self, e: Expr) -> Affine | None:
        """An index as an affine form over registers and the lane."""
        if self.vectors and not self.vectors.keys().isdisjoint(free_vars(e)):
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
        if _pure_index(e):
            match e:
                case Var():
                    return self.vectors[e]
                case Cast(value=v):
                    return self.index(v)
                case Unary(a=x):
                    return self.ops.negate(self.i64(self.index(x)))
                case Binary(op=op, a=x, b=y):
                    p, q = self.i64(self.index(x)), self.i64(self.index(y))
                    return self.ops.binary(op, p, q, "int64")
        return self.ops.cast(self.expr(e), "int64")

    def i64(self, i: Affine | Value) -> Value:
        """An index as a value."""
        if isinstance(i, Value):
            return i
        return self.index_vector(i) if LANE in i.terms else Value(self.scalar(i), "int64")

    def offset(self, b: Buffer, indices: tuple[Expr, ...]) -> Affine | Value:
        """Offset in elements of an access."""
        parts = [self.index(i) for i in indices]
        if all(isinstance(p, Affine) for p in parts):
            return self.memory.flat(b, parts)  # type: ignore[arg-type]
        out = Value("0", "int64")
        for p, n in zip(parts, b.shape, strict=True):
            out = self.ops.binary("*", out, self.ops.const(n, out), "int64")
            out = self.ops.binary("+", *self.ops.align(out, self.i64(p)), "int64")
        return out

    # ------------------------------------------------------------ vectors and masks

    def splat(self, v: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        ty = llvm_type(v.dtype, lanes)
        if not v.ref.startswith("%"):
            one = llvm_type(v.dtype)
            return Value("<" + ", ".join([f"{one} {v.ref}"] * lanes) + ">", v.dtype, lanes)
        return Value(self._splat(v.ref, llvm_type(v.dtype), ty, lanes), v.dtype, lanes)

    def splat_memory(self, v: Value, ty: str) -> Value:
        """As `splat`, of a value in its memory type."""
        vty = f"<{self.lanes} x {ty}>"
        if not v.ref.startswith("%"):
            return Value("<" + ", ".join([f"{ty} {v.ref}"] * self.lanes) + ">", v.dtype, self.lanes)
        return Value(self._splat(v.ref, ty, vty, self.lanes), v.dtype, self.lanes)

    def _splat(self, ref: str, one: str, many: str, lanes: int) -> str:
        def make() -> str:
            x = self.emit(f"insertelement {many} poison, {one} {ref}, i64 0")
            return self.emit(
                f"shufflevector {many} {x}, {many} poison, <{lanes} x i32> zeroinitializer"
            )

        return self.cached(("splat", ref, many), make)

    def vector_mask(self) -> str:
        """The mask, one bit a lane."""
        assert self.mask is not None
        return self.splat(self.mask, self.lanes).ref if self.mask.lanes == 1 else self.mask.ref

    def any_active(self) -> str:
        """Whether any lane is active, as an i1."""
        assert self.mask is not None
        return self.mask.ref if self.mask.lanes == 1 else self._any(self.mask)

    def _any(self, mask: Value) -> str:
        name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
        ty = f"<{mask.lanes} x i1>"
        self.declare(name, f"declare i1 @{name}({ty})")
        return self.emit(f"call i1 @{name}({ty} {mask.ref})")

    def under(self, cond: Value, make: Callable[[], Any]) -> Any:
        """Do something with ``cond`` added to the mask."""
        old = self.mask
        self.mask = cond if old is None else self.ops.binary("and", old, cond, "bool")
        self.scopes.append({})
        try:
            return make()
        finally:
            self.mask = old
            self.scopes.pop()

    # ------------------------------------------------------------ expressions

    def expr(self, e: Any) -> Value:
        """The value of an expression."""
        match e:
            case Const(value=v, dtype=d):
                return Value(literal(v, d), d)
            case Var():
                return self.ops.cast(self.i64(self.index(e)), e.dtype)
            case Load(buffer=b, indices=idx):
                return self.memory.load(b, self.offset(b, idx))
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
            case Unary(a=a):
                return self.ops.negate(self.expr(a))
            case Call(fn=fn, args=args):
                return self.ops.call(fn, [self.expr(a) for a in args])
        raise CodegenError(f"llvm: no code for {type(e).__name__}")

    def _binary(self, e: Binary) -> Value:
        if e.op in COMPARE and _pure_index(e.a) and _pure_index(e.b):
            a, b = self.i64(self.index(e.a)), self.i64(self.index(e.b))
            return self.ops.compare(e.op, a, b)
        if dtypes.is_int(e.dtype) and _pure_index(e):
            return self.ops.cast(self.i64(self.index(e)), e.dtype)
        return self.ops.binary(e.op, self.expr(e.a), self.expr(e.b), e.dtype)

    def _if_then_else(self, e: IfThenElse) -> Value:
        cond = self.expr(e.cond)
        if not _touches_memory(e):
            return self.ops.select(cond, self.expr(e.a), self.expr(e.b))
        a = self.under(cond, lambda: self.expr(e.a))
        b = e.b
        other = (
            self.under(self.ops.invert(cond), lambda: self.expr(b))
            if _touches_memory(b)
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
                self._allocate(b, body)
            case _:
                raise CodegenError(f"llvm: no code for {type(s).__name__}")

    def _let(self, v: Var, e: Expr, body: Any) -> None:
        i = self.index(e)
        if isinstance(i, Value) and i.lanes > 1:
            self.vectors[v] = i
        elif isinstance(i, Value):
            reg = Var(i.ref, "int64")
            self.env[v] = Affine.of(reg)
            self.ranges[reg] = interval(e, self.env, self.ranges) or _UNKNOWN
        else:
            self.env[v] = i
        self.stmt(body)
        self.vectors.pop(v, None)

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
        go = self._any(active) if masked else cond.ref
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
                f"llvm: loop {s.var.name!r} is bound to {s.tag}; thread axes are for GPU targets, "
                "on a CPU use parallel, vectorize or unroll"
            )
        if s.kind == "vectorized" and self.lanes == 1 and not _has_blocks(s.body):
            self._vector_loop(s)
        elif s.kind == "unrolled":
            for k in range(s.extent):
                self._iteration(s, Affine(k))
        elif s.kind == "parallel" and self._may_launch():
            self._launch(s)
        else:
            self._serial_loop(s)

    def _may_launch(self) -> bool:
        return not self.inside_parallel and self.m.threads != 1 and self.lanes == 1

    def _iteration(self, s: For, value: Affine) -> None:
        self.env[s.var] = value
        self.stmt(s.body)

    def _serial_loop(self, s: For) -> None:
        head, done = self.label("loop"), self.label("done")
        before = self.label("pre")
        self.put(f"br label %{before}")
        self.start(before)
        self.put(f"br label %{head}")
        self.start(head)
        self.count += 1
        reg, nxt = f"%i{self.count}", f"%n{self.count}"
        back = self.label("back")
        self.lines.append(f"  {reg} = phi i64 [ 0, %{before} ], [ {nxt}, %{back} ]")
        atom = Var(reg, "int64")
        self.ranges[atom] = (0, s.extent - 1)
        self.scopes.append({})
        self._iteration(s, Affine.of(atom))
        self.scopes.pop()
        self.put(f"br label %{back}")
        self.start(back)
        self.lines.append(f"  {nxt} = add nuw nsw i64 {reg}, 1")
        more = self.emit(f"icmp ult i64 {nxt}, {s.extent}")
        self.put(f"br i1 {more}, label %{head}, label %{done}")
        self.start(done)

    def _vector_loop(self, s: For) -> None:
        native = max(1, self.m.vector_bytes // _widest(s.body))
        at = 0
        while at < s.extent:
            lanes = min(native, s.extent - at)
            lanes = 1 << (lanes.bit_length() - 1)
            self.lanes = lanes
            self.ranges[LANE] = (0, lanes - 1)
            self.scopes.append({})
            self._iteration(s, Affine(at, {LANE: 1}) if lanes > 1 else Affine(at))
            self.scopes.pop()
            self.lanes = 1
            at += lanes

    # ------------------------------------------------------------ memory

    def _allocate(self, b: Buffer, body: Any) -> None:
        if b.nbytes <= STACK_LIMIT and self.stack + b.nbytes <= STACK_TOTAL:
            self.stack += b.nbytes
            reg = f"%b{len(self.allocas)}"
            ty = memory_type(b.dtype)
            self.allocas.append(f"  {reg} = alloca [{b.size} x {ty}], align 64")
            self.pointers[b] = reg
            self.stmt(body)
            return
        old = self.workspace_now
        self.pointers[b] = self.emit(f"getelementptr i8, ptr %ws, i64 {old}")
        self._reserve(old + -(-b.nbytes // 64) * 64)
        self.stmt(body)
        self.workspace_now = old

    def _reserve(self, end: int) -> None:
        self.workspace_now = end
        self.workspace = max(self.workspace, end)

    # ------------------------------------------------------------ parallel loops

    def _launch(self, s: For) -> None:
        """Hand a loop to the pool; the body sees buffers and outer variables through a closure."""
        self.m.uses_pool = True
        self.m.counter += 1
        inner = FunctionWriter(self.m, f"{self.name}.par{self.m.counter}", inside_parallel=True)
        buffers = [b for b in _buffers(s.body) if b in self.pointers]
        atoms = sorted({a for v in free_vars(s.body) if v in self.env for a in self.env[v].terms},
                       key=lambda a: a.name)  # fmt: skip
        inner.write_parallel(s, buffers, atoms, self)
        slots = len(buffers) + len(atoms)
        closure = f"%c{self.m.counter}"
        self.allocas.append(f"  {closure} = alloca [{max(1, slots)} x i64], align 64")
        given = [("ptr", self.pointers[b]) for b in buffers] + [("i64", a.name) for a in atoms]
        for k, (ty, ref) in enumerate(given):
            at = self.emit(f"getelementptr i64, ptr {closure}, i64 {k}")
            self.put(f"store {ty} {ref}, ptr {at}, align 8")
        old = self.workspace_now
        spare = self.emit(f"getelementptr i8, ptr %ws, i64 {old}")
        self._reserve(old + inner.workspace)
        self.workspace_now = old
        self.m.parallel_workspace = max(self.m.parallel_workspace, inner.workspace)
        launch = "lw_parallel_launch"
        self.declare(launch, f"declare i32 @{launch}(ptr, ptr, i64, i64, ptr)")
        rc = self.emit(
            f"call i32 @{launch}(ptr @{inner.name}, ptr {closure}, i64 {s.extent}, "
            f"i64 {inner.workspace}, ptr {spare})"
        )
        bad = self.emit(f"icmp ne i32 {rc}, 0")
        fail, ok = self.label("fail"), self.label("ok")
        self.put(f"br i1 {bad}, label %{fail}, label %{ok}")
        self.start(fail)
        self.put(f"ret i32 {rc}")
        self.start(ok)

    def write_parallel(
        self, s: For, buffers: list[Buffer], atoms: list[Var], outer: FunctionWriter
    ) -> None:
        """The functions of a parallel body: the range function and the inlined nest."""
        self.env = {v: a for v, a in outer.env.items()}
        fresh = {a: Var(f"%a{k}", "int64") for k, a in enumerate(atoms)}
        sub = {a: Affine.of(f) for a, f in fresh.items()}
        self.env = {v: a.substitute(sub) for v, a in self.env.items()}
        self.ranges = {f: outer.ranges.get(a, _UNKNOWN) for a, f in fresh.items()}
        self.pointers = {b: f"%p{k}" for k, b in enumerate(buffers)}
        loop_var = Var("%i", "int64")
        self.ranges[loop_var] = (0, s.extent - 1)
        self._iteration(s, Affine.of(loop_var))
        self.put("ret i32 0")
        params = [f"ptr noalias %p{k}" for k in range(len(buffers))]
        params += [f"i64 %a{k}" for k in range(len(atoms))]
        head = ", ".join(["i64 %i", *params, "ptr noalias %ws"])
        self.m.functions.append(self._function(f"{self.name}.body", head))
        self.m.functions.append(self._range_function(len(buffers), len(atoms)))

    def _range_function(self, n_buffers: int, n_atoms: int) -> str:
        loads, args = [], ["i64 %i"]
        for k in range(n_buffers + n_atoms):
            ty = "ptr" if k < n_buffers else "i64"
            loads.append(f"  %s{k} = getelementptr i64, ptr %closure, i64 {k}")
            loads.append(f"  %x{k} = load {ty}, ptr %s{k}, align 8")
            args.append(f"{ty} %x{k}")
        args.append("ptr %ws")
        return "\n".join(
            [
                f"define internal i32 @{self.name}(i64 %begin, i64 %end, ptr %closure, ptr %ws) "
                "nounwind {",
                "entry:",
                *loads,
                "  %some = icmp slt i64 %begin, %end",
                "  br i1 %some, label %loop, label %done",
                "loop:",
                "  %i = phi i64 [ %begin, %entry ], [ %next, %more ]",
                f"  %rc = call i32 @{self.name}.body({', '.join(args)})",
                "  %bad = icmp ne i32 %rc, 0",
                "  br i1 %bad, label %fail, label %more",
                "more:",
                "  %next = add nsw i64 %i, 1",
                "  %go = icmp slt i64 %next, %end",
                "  br i1 %go, label %loop, label %done",
                "fail:",
                "  ret i32 %rc",
                "done:",
                "  ret i32 0",
                "}",
            ]
        )

    def _function(self, name: str, params: str) -> str:
        return "\n".join(
            [
                f"define internal i32 @{name}({params}) alwaysinline nounwind {{",
                "entry:",
                *self.allocas,
                *self.lines,
                "}",
            ]
        )

    def write_entry(self, params: tuple[Buffer, ...], body: Any) -> None:
        """The exported function and its inlined body."""
        self.pointers = {b: f"%p{k}" for k, b in enumerate(params)}
        self.stmt(body)
        self.put("ret i32 0")
        head = ", ".join(
            [*(f"ptr noalias %p{k}" for k in range(len(params))), "ptr noalias %ws"]
        )
        self.m.functions.append(self._function(f"{self.name}.body", head))
        loads, args = [], []
        for k in range(len(params)):
            loads.append(f"  %s{k} = getelementptr ptr, ptr %args, i64 {k}")
            loads.append(f"  %x{k} = load ptr, ptr %s{k}, align 8")
            args.append(f"ptr %x{k}")
        call = f"  %rc = call i32 @{self.name}.body({', '.join([*args, 'ptr %ws'])})"
        lines = [f"define i32 @{self.name}(ptr %args, ptr %ws) nounwind {{", "entry:"]
        self.m.functions.append("\n".join([*lines, *loads, call, "  ret i32 %rc", "}"]))


def _pure_index(e: Expr) -> bool:
    """Integer arithmetic over variables and constants: it may be computed in i64."""
    match e:
        case Var() | Const():
            return not dtypes.is_float(e.dtype) and e.dtype != "bool"
        case Cast(value=v, dtype=d):
            return dtypes.bits(d) >= 32 and dtypes.is_int(d) and _pure_index(v)
        case Unary(op="-", a=a):
            return _pure_index(a)
        case Binary(op=op, a=a, b=b):
            known = ("+", "-", "*", "//", "%", "tdiv", "tmod", "min", "max")
            return op in known and _pure_index(a) and _pure_index(b)
    return False


def _touches_memory(e: Expr) -> bool:
    found: list[Any] = []
    walk(e, lambda n: found.append(n) if isinstance(n, Load) else None)
    return bool(found)


def _has_blocks(s: Any) -> bool:
    """Constructs that cannot stand inside vector code: the loop then runs one by one."""
    found: list[Any] = []

    def visit(n: Any) -> None:
        nested = isinstance(n, For) and n.kind in ("vectorized", "parallel", "thread")
        if nested or isinstance(n, Allocate):
            found.append(n)

    walk(s, visit)
    return bool(found)


def _widest(s: Any) -> int:
    """Bytes of the widest element that a body loads or stores."""
    widest = [1]

    def visit(n: Any) -> None:
        if isinstance(n, Load | Store):
            widest.append(dtypes.nbytes(n.buffer.dtype))
        elif isinstance(n, Cast):
            widest.append(dtypes.nbytes(n.dtype))

    walk(s, visit)
    return max(widest)


def _buffers(s: Any) -> list[Buffer]:
    """Buffers that a statement uses, in order."""
    seen: dict[Buffer, None] = {}
    walk(s, lambda n: seen.setdefault(n.buffer) if isinstance(n, Load | Store) else None)
    return list(seen)
