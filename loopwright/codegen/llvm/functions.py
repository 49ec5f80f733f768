"""The functions of a module: the exported entry, and those that the pool runs. Every nest is an
``alwaysinline`` function with ``noalias`` parameters, called by thin ones that unpack pointers:
pointers loaded in the body carry no such promise, and LLVM then spills accumulators in every
iteration."""

from __future__ import annotations

from loopwright.codegen.code import (
    Bytes,
    CodePart,
    SizeDefinitions,
    buffers_of,
    has_nontemporal,
    kept_offsets,
    larger,
    variables_of_extents,
    whole_workspace,
)
from loopwright.codegen.llvm.emitter import ModuleWriter
from loopwright.codegen.llvm.indices import UNKNOWN
from loopwright.codegen.llvm.ops import Value, llvm_type
from loopwright.codegen.llvm.writer import FunctionWriter
from loopwright.ir.affine import Affine
from loopwright.ir.buffer import Buffer
from loopwright.ir.expr import Var
from loopwright.ir.sizes import Sizes
from loopwright.ir.stmt import For, Func, SplitFunc
from loopwright.ir.visitor import free_vars

_LAUNCH = "lw_parallel_launch"


def write_split(module: ModuleWriter, f: SplitFunc) -> Bytes:
    """Write the two parts of a function, and the whole, which calls one after the other; returns
    the workspace that the whole needs."""
    parts = []
    for x in (f.prepare, f.main):
        workspace = write_entry(module, x, "noinline ")
        parts.append(CodePart(x, workspace, module.parallel_workspace))
    module.parts = tuple(parts)
    *offsets, rest = kept_offsets(f.kept)
    place = dict(zip(f.kept, offsets, strict=True))
    lines = [f"define i32 @{f.name}(ptr %args, ptr %ws) nounwind {{", "entry:"]
    count = len(f.params)
    for k in range(count + len(f.sizes)):
        lines.append(f"  %s{k} = getelementptr ptr, ptr %args, i64 {k}")
        lines.append(f"  %x{k} = load ptr, ptr %s{k}, align 8")
    refs = {b: f"%x{k}" for k, b in enumerate(f.params)}
    for k, b in enumerate(f.kept):
        refs[b] = f"%k{k}"
        lines.append(f"  %k{k} = getelementptr i8, ptr %ws, i64 {place[b]}")
    lines.append(f"  %rest = getelementptr i8, ptr %ws, i64 {rest}")
    for n, part in enumerate((f.prepare, f.main)):
        # A size takes as many bytes as a pointer, and is handed on as one.
        given = [refs[b] for b in part.params] + [f"%x{count + k}" for k in range(len(part.sizes))]
        lines.append(f"  %given{n} = alloca [{len(given)} x ptr], align 8")
        for k, ref in enumerate(given):
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
    w = FunctionWriter(module, f.name, None if module.threads == 1 else _launch)
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
    given = [f"ptr noalias %p{k}" for k in range(count)] + [
        f"i64 %n{k}" for k in range(len(f.sizes))
    ]
    w.module.functions.append(_body_function(w, ", ".join([*given, "ptr noalias %ws"])))
    loads, args = [], []
    for k, ty in enumerate(["ptr"] * count + ["i64"] * len(f.sizes)):
        loads.append(f"  %s{k} = getelementptr ptr, ptr %args, i64 {k}")
        loads.append(f"  %x{k} = load {ty}, ptr %s{k}, align 8")
        args.append(f"{ty} %x{k}")
    call = f"  %rc = call i32 @{w.name}.body({', '.join([*args, 'ptr %ws'])})"
    lines = [f"define i32 @{w.name}(ptr %args, ptr %ws) {attributes}nounwind {{", "entry:"]
    module.functions.append("\n".join([*lines, *loads, call, "  ret i32 %rc", "}"]))
    return w.sizes.definition(w.memory.workspace)


def _launch(w: FunctionWriter, s: For) -> None:
    """Hand a loop to the pool; the body sees buffers and outer variables through a closure."""
    w.module.uses_pool = True
    w.module.counter += 1
    inner = FunctionWriter(w.module, f"{w.name}.par{w.module.counter}", None)
    buffers = [b for b in buffers_of(s.body) if b in w.pointers]
    used = free_vars(s.body) | variables_of_extents(buffers_of(s.body))
    outer = {a for v in used if v in w.env for a in w.env[v].terms}
    atoms = sorted(outer, key=lambda a: a.name)
    values = {v: x for v, x in w.bound.items() if v in used}
    given = [("ptr", w.pointers[b]) for b in buffers] + [("i64", a.name) for a in atoms]
    given += [(llvm_type(x.dtype), x.ref) for x in values.values()]
    _write_parallel(inner, s, buffers, atoms, values, w)
    w.module.functions.append(_range_function(inner, [ty for ty, _ in given]))
    w.wait_for_stores()
    closure = f"%c{w.module.counter}"
    w.allocas.append(f"  {closure} = alloca [{max(1, len(given))} x i64], align 64")
    for k, (ty, ref) in enumerate(given):
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


def _range_function(w: FunctionWriter, types: list[str]) -> str:
    """The function that the pool calls: a range of iterations, what they need in a closure; after
    the last one its stores have reached memory, or caches."""
    name, fence = w.name, [f"  {w.fence()}"] if w.streams else []
    loads, args = [], ["i64 %i"]
    for k, ty in enumerate(types):
        loads.append(f"  %s{k} = getelementptr i64, ptr %closure, i64 {k}")
        loads.append(f"  %x{k} = load {ty}, ptr %s{k}, align 8")
        args.append(f"{ty} %x{k}")
    args.append("ptr %ws")
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
