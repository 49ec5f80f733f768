"""One function of the loop IR as LLVM IR text, with calls of packed functions and checks."""

# Indices are affine forms (`loopwright.codegen.llvm.indices`), so constants fold and addresses are
# shared; vector loops are cut into pieces of the native width, unrolled loops are written out.

from __future__ import annotations

from typing import assert_never

from loopwright import dtypes
from loopwright.codegen.code import (
    Bytes,
    CodePart,
    SizeDefinitions,
    has_blocks,
    has_nontemporal,
    kept_offsets,
    larger,
    touches_memory,
    variables_of_extents,
    whole_workspace,
    widest,
)
from loopwright.codegen.llvm.emitter import FALSE, TRUE, ModuleWriter, Value, llvm_type
from loopwright.codegen.llvm.hoisting import spills_if_hoisted
from loopwright.codegen.llvm.indices import LANE, UNKNOWN, IndexWriter
from loopwright.codegen.llvm.instructions import (
    ZeroPointCorrections,
    is_corrected,
    write_instruction,
)
from loopwright.codegen.llvm.memory import FunctionMemory
from loopwright.codegen.llvm.shuffles import (
    interleaved_copy,
    load_stretches,
    load_window,
    rest_of_copy,
    transposed_copy,
)
from loopwright.errors import CodegenError
from loopwright.ir.affine import Affine, exact, fits, interval
from loopwright.ir.buffer import AnyExpr, Buffer, Load
from loopwright.ir.expr import COMPARE, Binary, Expr, IfThenElse, Var
from loopwright.ir.interp.threads import launched_by
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import (
    UNROLL_HINT,
    Allocate,
    AllReduce,
    AnyStmt,
    AsyncGroup,
    AsyncWait,
    Barrier,
    CallPacked,
    Check,
    For,
    Func,
    If,
    IntrinsicCall,
    Let,
    Prefetch,
    Seq,
    SplitFunc,
    Stmt,
    Store,
    View,
    buffers_of,
)
from loopwright.ir.visitor import free_vars
from loopwright.runtime import FIRST_CODE, record_name
from loopwright.runtime import packed_calls as calls

# ---------------------------------------------------------------- calls of packed functions
#
# `CallPacked` as LLVM IR: DLPack tensors on the stack, and a call of ``lw_call_packed``. The layout
# is that of `loopwright.runtime.packed_calls`; a ``DLTensor`` is written as six words of a
# little-endian machine.


def write_call(w: IndexWriter, s: CallPacked) -> None:
    """Call a packed function, and leave the function with a code where it has not run."""
    if w.lanes != 1:
        raise CodegenError(f"llvm: call_packed {s.name!r} stands in vector code")
    if s.name not in w.module.packed:
        w.module.packed.append(s.name)
    w.declare(calls.CALL, f"declare void @{calls.CALL}(ptr, ptr, ptr, i32)")
    count = len(s.args)
    values = _room(w, "values", count + 1)
    kinds = _room(w, "kinds", count + 1)
    for k, arg in enumerate(s.args):
        kind, ty, ref = _value(w, arg, k)
        at = w.emit(f"getelementptr i64, ptr {values}, i64 {k}")
        w.put(f"store {ty} {ref}, ptr {at}, align 8")
        at = w.emit(f"getelementptr i32, ptr {kinds}, i64 {k}")
        w.put(f"store i32 {kind}, ptr {at}, align 4")
    arguments = f"ptr {_text(w, s.name)}, ptr {values}, ptr {kinds}, i32 {count}"
    went = w.emit(f"getelementptr i64, ptr {values}, i64 {count}")
    w.put(f"store i64 {calls.INTERRUPTED}, ptr {went}, align 8")
    w.put(f"call void @{calls.CALL}({arguments})")
    status = w.emit(f"load i64, ptr {went}, align 8")
    w.leave_with(w.emit(f"trunc i64 {status} to i32"))


def _value(w: IndexWriter, arg: Buffer | Expr | str, k: int) -> tuple[int, str, str]:
    if isinstance(arg, str):
        return calls.TEXT, "ptr", _text(w, arg)
    if isinstance(arg, Buffer):
        kind = calls.INPUT if arg in w.module.inputs else calls.TENSOR
        return kind, "ptr", _tensor(w, arg, k)
    value = w.expr(arg)
    if dtypes.is_float(arg.dtype):
        return calls.FLOAT, "double", w.ops.cast(value, "float64").ref
    word = w.ops.cast(value, "int64").ref
    if arg.dtype == "bool":
        return calls.BOOL, "i64", word
    return calls.UINT if dtypes.is_unsigned(arg.dtype) else calls.INT, "i64", word


def _tensor(w: IndexWriter, b: Buffer, k: int) -> str:
    shape = _room(w, f"shape{k}", len(b.shape) + 1)
    for d, n in enumerate(b.shape):
        at = w.emit(f"getelementptr i64, ptr {shape}, i64 {d}")
        w.put(f"store i64 {w.count_of(n)}, ptr {at}, align 8")
    one_lane = 1 << 16
    dtype = calls.type_code(b.dtype) | calls.type_bits(b.dtype) << 8 | one_lane
    words = [
        ("ptr", w.pointers[b]),
        ("i64", "1"),  # the CPU, number 0
        ("i64", str(len(b.shape) | dtype << 32)),
        ("ptr", shape),
        ("ptr", "null"),
        ("i64", "0"),
    ]
    tensor = _room(w, f"tensor{k}", len(words))
    for place, (ty, ref) in enumerate(words):
        at = w.emit(f"getelementptr i64, ptr {tensor}, i64 {place}")
        w.put(f"store {ty} {ref}, ptr {at}, align 8")
    return tensor


def _room(w: IndexWriter, use: str, words: int) -> str:
    """Words in the function's frame; calls that follow each other, as unrolled ones, share them."""

    def make() -> str:
        reg = f"%packed{len(w.allocas)}"
        w.allocas.append(f"  {reg} = alloca [{words} x i64], align 8")
        return reg

    return w.cached((use, words), make)


def _text(w: IndexWriter, text: str) -> str:
    data = text.encode() + b"\0"
    name = f"@lw_text_{data.hex()}"
    escaped = "".join(f"\\{byte:02x}" for byte in data)
    w.declare(name, f'{name} = private constant [{len(data)} x i8] c"{escaped}"')
    return name


# ---------------------------------------------------------------- checks
#
# The module has one record, ``lw_checks_NAME``: a word that tells whether it is taken, then the
# values of the check that failed. One of the threads that fail at once takes it. The function
# returns `FIRST_CODE` and the number of the check.


def write_check(w: IndexWriter, s: Check) -> None:
    cond = w.expr(s.cond)
    if cond.lanes != 1:
        raise CodegenError("llvm: a check stands in vector code; run the loop one by one")
    number = len(w.module.checks)
    w.module.checks.append(s.text)
    w.module.check_words = max(w.module.check_words, 1 + len(s.values))
    record = f"@{record_name(w.module.name)}"
    size = f"[{w.module.check_words} x i64]"
    w.module.declares["checks"] = f"{record} = global {size} zeroinitializer, align 8"
    ok, bad, mine, out = (w.label(x) for x in ("holds", "fails", "record", "leave"))
    w.put(f"br i1 {cond.ref}, label %{ok}, label %{bad}")
    w.start(bad)
    w.scopes.append({})
    taken = w.emit(f"cmpxchg ptr {record}, i64 0, i64 {FIRST_CODE + number} acq_rel monotonic")
    won = w.emit(f"extractvalue {{ i64, i1 }} {taken}, 1")
    w.put(f"br i1 {won}, label %{mine}, label %{out}")
    w.start(mine)
    for k, e in enumerate(s.values):
        at = w.emit(f"getelementptr i64, ptr {record}, i64 {k + 1}")
        w.put(f"store i64 {w.i64(w.index(e)).ref}, ptr {at}, align 8")
    w.put(f"br label %{out}")
    w.start(out)
    w.put(f"ret i32 {FIRST_CODE + number}")
    w.scopes.pop()
    w.start(ok)


class FunctionWriter(IndexWriter):
    """Writes the body of one function: the entry's, or a parallel loop's. Parallel
    loops go to the pool, or run one iteration after the other."""

    def __init__(self, module: ModuleWriter, name: str, parallel: bool) -> None:
        super().__init__(module)
        self.name = name
        #: Places of the buffers in scope.
        self.memory = FunctionMemory(self)
        #: Definitions of what was computed from sizes.
        self.sizes = SizeDefinitions()
        #: Whether stores go past the caches, here or in parallel loops inside.
        self.streams = False
        self._parallel = parallel
        self._corrections: ZeroPointCorrections | None = None

    def fence(self) -> str:
        """The instruction after which earlier stores past the caches are seen by other threads."""
        # Such stores of x86 are ordered with no others (Intel 64 manual, volume 3, 9.2.2): what the
        # pool says of finished work could arrive before them.
        name = "llvm.x86.sse.sfence"
        self.declare(name, f"declare void @{name}()")
        return f"call void @{name}()"

    def wait_for_stores(self) -> None:
        if self.streams:
            self.put(self.fence())

    def expr(self, e: Expr) -> Value:
        if not isinstance(e, AnyExpr):
            raise CodegenError(f"llvm: no code for {type(e).__name__}")
        match e:
            case Var():
                value = self.bound[e] if e in self.bound else self.i64(self._wide(e))
                return self.ops.cast(value, e.dtype)
            case Load(buffer=b, indices=idx):
                form = self.offset_form(b, idx)
                if form is not None:
                    return self.memory.load(b, form)
                near = None
                if self.lanes > 1:
                    near = load_stretches(self.memory, b, idx) or load_window(self.memory, b, idx)
                return near or self.memory.load(b, self.offset(b, idx))
            case Binary():
                if e.op in COMPARE and self.is_plain(e.a) and self.is_plain(e.b):
                    x, y = self._wide(e.a), self._wide(e.b)
                    return self.decided(e.op, x, y) or self.ops.compare(
                        e.op, self.i64(x), self.i64(y)
                    )
                if dtypes.is_int(e.dtype) and exact(e, self.env, self.ranges):
                    return self.ops.cast(self.i64(self._wide(e)), e.dtype)
            case IfThenElse():
                return self._if_then_else(e)
        return self.operation(e)

    def _if_then_else(self, e: IfThenElse) -> Value:
        cond = self.expr(e.cond)
        if cond.ref in (TRUE, FALSE):
            return self.expr(e.a if cond.ref == TRUE else e.b)
        if not touches_memory(e):
            return self.ops.select(cond, self.expr(e.a), self.expr(e.b))
        a, b = self.under(cond, lambda: self.expr(e.a)), e.b
        if touches_memory(b):
            other = self.under(self.ops.invert(cond), lambda: self.expr(b))
        else:
            other = self.expr(b)
        if cond.lanes < max(a.lanes, other.lanes):
            # LLVM makes a branch of a scalar condition, for each vector of the loop.
            cond = self.splat(cond, self.lanes)
        return self.ops.select(cond, a, other)

    def stmt(self, s: Stmt) -> None:
        if not isinstance(s, AnyStmt) or isinstance(s, Barrier | AllReduce):
            raise CodegenError(f"llvm: no code for {type(s).__name__}")
        match s:
            case Seq(stmts=stmts):
                for x in stmts:
                    self.stmt(x)
            case Store(buffer=b, indices=idx, value=v, nontemporal=past):
                self.memory.store(b, self.offset(b, idx), self.expr(v), past)
            case For():
                self._for(s)
            case If():
                cond = self.expr(s.cond)
                self._branch(cond, s.then)
                if s.orelse is not None:
                    self._branch(self.ops.invert(cond), s.orelse)
            case Let(var=v, value=e, body=body):
                self._let(v, e, body)
            case Allocate(buffer=b, body=body):
                self.memory.allocate(b, lambda: self.stmt(body))
            case Prefetch(buffer=b, indices=idx):
                self.memory.prefetch(b, self.offset(b, idx))
            case Check():
                write_check(self, s)
            case CallPacked():
                self.wait_for_stores()
                write_call(self, s)
            case View(buffer=b, of=of, offset=k, body=body):
                self.memory.view(b, of, k)
                self.stmt(body)
            case AsyncGroup(body=body):
                self.stmt(body)
            case AsyncWait():
                pass
            case IntrinsicCall():
                if not write_instruction(self.memory, s, self._corrections):
                    self.stmt(s.body)
            case _:
                assert_never(s)

    def _let(self, v: Var, e: Expr, body: Stmt) -> None:
        """Keep arithmetic on axes as an affine form or in i64, all else in its own dtype."""
        if e.dtype != v.dtype:
            raise CodegenError(f"llvm: {v.name!r} is {v.dtype}, its value is of {e.dtype}")
        self.sizes.learn(v, e)
        bounds = interval(e, self.env, self.ranges) if dtypes.is_int(e.dtype) else None
        if bounds is None or not fits(e, self.env, self.ranges):
            self._bind(v, self.expr(e))
        else:
            i = self.index(e)
            if not isinstance(i, Value):
                self.env[v] = i
            elif i.lanes > 1:
                self.quotients.let(v, e)
                self._bind(v, i)
                self.ranges[v] = bounds
            else:
                reg = Var(i.ref, "int64")
                self.env[v], self.ranges[reg] = Affine.of(reg), bounds
        self.stmt(body)
        self.bound.pop(v, None)
        self.quotients.forget(v)

    def _bind(self, v: Var, value: Value) -> None:
        """Let a variable stand for a value of which no affine form is known."""
        self.bound[v] = value
        self.env.pop(v, None)
        self.ranges.pop(v, None)

    def _branch(self, cond: Value, body: Stmt) -> None:
        """Run a body where a condition holds: a jump, and in vector code a mask as well."""
        if cond.ref in (TRUE, FALSE):
            if cond.ref == TRUE:
                self.stmt(body)
            return
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
            native = max(1, self.module.vector_bytes // widest(s.body))
            at = 0
            while at < s.count:
                lanes = min(native, s.count - at)
                lanes = 1 << (lanes.bit_length() - 1)
                self.lanes = lanes
                self.ranges[LANE] = (0, lanes - 1)
                self.iteration(s, Affine(at, {LANE: 1}) if lanes > 1 else Affine(at))
                self.lanes = 1
                at += lanes
        elif s.kind == "unrolled":
            rest = rest_of_copy(self, s)
            if rest is not None:
                self._serial_loop(rest)
            elif not (transposed_copy(self.memory, s) or interleaved_copy(self.memory, s)):
                self._written_out(s)
        elif s.kind == "parallel" and self._parallel and self.lanes == 1:
            _launch(self, s)
        else:
            self._serial_loop(s)

    def iteration(self, s: For, value: Affine) -> None:
        self.env[s.var] = value
        self.stmt(s.body)

    def _written_out(self, s: For) -> None:
        """All iterations of a loop; what has to be taken off sums of dot products comes last."""
        outermost = self._corrections is None and is_corrected(s)
        if outermost:
            self._corrections = ZeroPointCorrections(self)
        for k in range(s.count):
            self.iteration(s, Affine(k))
        if outermost and self._corrections is not None:
            self._corrections.apply()
            self._corrections = None

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
        self.ranges[atom] = (0, self.last_index(s.extent))
        self.scopes.append({})
        self.iteration(s, Affine.of(atom))
        self.scopes.pop()
        self.put(f"br label %{back}")
        self.start(back)
        self.lines.append(f"  {nxt} = add nuw nsw i64 {reg}, 1")
        more = self.emit(f"icmp ult i64 {nxt}, {count}")
        properties = ["llvm.loop.unroll.enable"] if UNROLL_HINT in s.pragmas else []
        if spills_if_hoisted(s, self.module.registers, self.module.vector_bytes):
            properties.append("llvm.licm.disable")
        hint = f", !llvm.loop {self.module.loop_hint(properties)}" if properties else ""
        self.put(f"br i1 {more}, label %{head}, label %{done}{hint}")
        self.start(done)


# ---------------------------------------------------------------- functions
#
# Every nest is an ``alwaysinline`` function with ``noalias`` parameters, called by thin ones that
# unpack pointers: pointers loaded in the body carry no such promise, and LLVM then spills
# accumulators in every iteration.

_LAUNCH = "lw_parallel_launch"


def write_split(module: ModuleWriter, f: SplitFunc) -> Bytes:
    """Write the two parts of a function, and the whole, which calls one after the other; returns
    the workspace that the whole needs."""
    parts = []
    for x in (f.prepare, f.main):
        parts.append(CodePart(x, write_entry(module, x, "noinline "), module.parallel_workspace))
    module.parts = tuple(parts)
    *offsets, rest = kept_offsets(f.kept)
    place = dict(zip(f.kept, offsets, strict=True))
    lines = [f"define i32 @{f.name}(ptr %args, ptr %ws) nounwind {{", "entry:"]
    count = len(f.params)
    for k in range(count + len(f.sizes)):
        lines += _loaded(k, "ptr", "ptr", "%args")
    refs = {b: f"%x{k}" for k, b in enumerate(f.params)}
    for k, b in enumerate(f.kept):
        refs[b] = f"%k{k}"
        lines.append(f"  %k{k} = getelementptr i8, ptr %ws, i64 {place[b]}")
    lines.append(f"  %rest = getelementptr i8, ptr %ws, i64 {rest}")
    for n, part in enumerate((f.prepare, f.main)):
        # A size takes as many bytes as a pointer, and is handed on as one.
        values = [refs[b] for b in part.params] + [f"%x{count + k}" for k in range(len(part.sizes))]
        lines.append(f"  %given{n} = alloca [{len(values)} x ptr], align 8")
        for k, ref in enumerate(values):
            lines.append(f"  %g{n}.{k} = getelementptr ptr, ptr %given{n}, i64 {k}")
            lines.append(f"  store ptr {ref}, ptr %g{n}.{k}, align 8")
    lines += [
        f"  %first = call i32 @{f.prepare.name}(ptr %given0, ptr %rest)",
        "  %bad = icmp ne i32 %first, 0",
        "  br i1 %bad, label %fail, label %go",
        "fail:",
        "  ret i32 %first",
        "go:",
        f"  %second = call i32 @{f.main.name}(ptr %given1, ptr %rest)",
        "  ret i32 %second",
        "}",
    ]
    module.functions.append("\n".join(lines))
    return whole_workspace(f.kept, parts)


def write_entry(module: ModuleWriter, f: Func, attributes: str = "") -> Bytes:
    """Write the exported function and its inlined body; returns the workspace that it needs."""
    w = FunctionWriter(module, f.name, module.threads != 1)
    module.inputs = frozenset(f.inputs)
    count = len(f.params)
    w.pointers = {b: f"%p{k}" for k, b in enumerate(f.params)}
    ranges = Sizes.of_function(f.sizes, [n for b in f.params for n in b.shape]).ranges
    for k, v in enumerate(f.sizes):
        w.env[v] = Affine.of(w.atom(f"%n{k}"))
        w.ranges[w.atom(f"%n{k}")] = ranges[v]
    w.streams = module.streams and has_nontemporal(f.body)
    w.stmt(f.body)
    w.wait_for_stores()
    w.put("ret i32 0")
    sizes = range(len(f.sizes))
    params = [f"ptr noalias %p{k}" for k in range(count)] + [f"i64 %n{k}" for k in sizes]
    w.module.functions.append(_body_function(w, ", ".join([*params, "ptr noalias %ws"])))
    types = ["ptr"] * count + ["i64"] * len(f.sizes)
    loads = [line for k, ty in enumerate(types) for line in _loaded(k, ty, "ptr", "%args")]
    args = [f"{ty} %x{k}" for k, ty in enumerate(types)]
    call = f"  %rc = call i32 @{w.name}.body({', '.join([*args, 'ptr %ws'])})"
    lines = [f"define i32 @{w.name}(ptr %args, ptr %ws) {attributes}nounwind {{", "entry:"]
    module.functions.append("\n".join([*lines, *loads, call, "  ret i32 %rc", "}"]))
    return w.sizes.definition(w.memory.workspace)


def _launch(w: FunctionWriter, s: For) -> None:
    """Hand a loop to the pool; the body sees buffers and outer variables through a closure."""
    w.module.uses_pool = True
    w.module.counter += 1
    inner = FunctionWriter(w.module, f"{w.name}.par{w.module.counter}", False)
    buffers = [b for b in buffers_of(s.body) if b in w.pointers]
    used = free_vars(s.body) | variables_of_extents(buffers_of(s.body))
    atoms = sorted({a for v in used if v in w.env for a in w.env[v].terms}, key=lambda a: a.name)
    values = {v: x for v, x in w.bound.items() if v in used}
    captured = [("ptr", w.pointers[b]) for b in buffers] + [("i64", a.name) for a in atoms]
    captured += [(llvm_type(x.dtype), x.ref) for x in values.values()]
    _write_parallel(inner, s, buffers, atoms, values, w)
    w.module.functions.append(_range_function(inner, [ty for ty, _ in captured]))
    w.wait_for_stores()
    closure = f"%c{w.module.counter}"
    w.allocas.append(f"  {closure} = alloca [{max(1, len(captured))} x i64], align 64")
    for k, (ty, ref) in enumerate(captured):
        at = w.emit(f"getelementptr i64, ptr {closure}, i64 {k}")
        w.put(f"store {ty} {ref}, ptr {at}, align 8")
    size = inner.memory.workspace
    spare = w.memory.spare(size)
    w.module.parallel_workspace = larger(w.module.parallel_workspace, w.sizes.definition(size))
    w.declare(_LAUNCH, f"declare i32 @{_LAUNCH}(ptr, ptr, i64, i64, ptr)")
    call = (
        f"call i32 @{_LAUNCH}(ptr @{inner.name}, ptr {closure}, i64 {w.count_of(s.extent)}, "
        f"i64 {w.count_of(size)}, ptr {spare})"
    )
    w.leave_with(w.emit(call))


def _write_parallel(
    w: FunctionWriter,
    s: For,
    buffers: list[Buffer],
    atoms: list[Var],
    values: dict[Var, Value],
    outer: FunctionWriter,
) -> None:
    """Write the inlined nest of one iteration; what it is given comes in `_launch`'s order."""
    fresh = {a: Var(f"%a{k}", "int64") for k, a in enumerate(atoms)}
    sub = {a: Affine.of(f) for a, f in fresh.items()}
    w.env = {v: a.substitute(sub) for v, a in outer.env.items()}
    w.ranges = {f: outer.ranges.get(a, UNKNOWN) for a, f in fresh.items()}
    w.pointers = {b: f"%p{k}" for k, b in enumerate(buffers)}
    w.bound = {v: Value(f"%d{k}", x.dtype) for k, (v, x) in enumerate(values.items())}
    w.ranges |= {v: outer.ranges[v] for v in values if v in outer.ranges}
    loop_var = Var("%i", "int64")
    w.ranges[loop_var] = (0, outer.last_index(s.extent))
    w.sizes = SizeDefinitions(outer.sizes.by_variable)
    w.streams = outer.streams and has_nontemporal(s.body)
    w.iteration(s, Affine.of(loop_var))
    w.put("ret i32 0")
    params = [f"ptr noalias %p{k}" for k in range(len(buffers))]
    params += [f"i64 %a{k}" for k in range(len(atoms))]
    params += [f"{llvm_type(x.dtype)} {x.ref}" for x in w.bound.values()]
    w.module.functions.append(_body_function(w, ", ".join(["i64 %i", *params, "ptr noalias %ws"])))


def _loaded(k: int, ty: str, step: str, array: str) -> list[str]:
    return [
        f"  %s{k} = getelementptr {step}, ptr {array}, i64 {k}",
        f"  %x{k} = load {ty}, ptr %s{k}, align 8",
    ]


def _range_function(w: FunctionWriter, types: list[str]) -> str:
    """The function that the pool calls: a range of iterations, what they need in a closure; after
    the last one its stores have reached memory, or caches."""
    name, fence = w.name, [f"  {w.fence()}"] if w.streams else []
    loads = [line for k, ty in enumerate(types) for line in _loaded(k, ty, "i64", "%closure")]
    args = ["i64 %i", *(f"{ty} %x{k}" for k, ty in enumerate(types)), "ptr %ws"]
    return "\n".join(
        [
            f"define internal i32 @{name}(i64 %begin, i64 %end, ptr %closure, ptr %ws) nounwind {{",
            "entry:",
            *loads,
            "  %some = icmp slt i64 %begin, %end",
            "  br i1 %some, label %loop, label %done",
            "loop:",
            "  %i = phi i64 [ %begin, %entry ], [ %next, %more ]",
            f"  %rc = call i32 @{name}.body({', '.join(args)})",
            "  %bad = icmp ne i32 %rc, 0",
            "  br i1 %bad, label %fail, label %more",
            "more:",
            "  %next = add nsw i64 %i, 1",
            "  %go = icmp slt i64 %next, %end",
            "  br i1 %go, label %loop, label %done",
            "fail:",
            "  ret i32 %rc",
            "done:",
            *fence,
            "  ret i32 0",
            "}",
        ]
    )


def _body_function(w: FunctionWriter, params: str) -> str:
    head = f"define internal i32 @{w.name}.body({params}) alwaysinline nounwind {{"
    return "\n".join([head, "entry:", *w.allocas, *w.lines, "}"])
