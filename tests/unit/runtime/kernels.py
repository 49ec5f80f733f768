"""Tiny programs as LLVM IR text for the tests of the runtime; no compiler column involved."""

from __future__ import annotations

from typing import Any

from loopwright.runtime import Artifact, Function, Module, linker
from loopwright.runtime.kernels import fastcall, function

LAUNCH = "declare i32 @lw_parallel_launch(ptr, ptr, i64, i64, ptr)\n"

# B = A + 1 over 6 float32
ADD_ONE = """
define i32 @add_one(ptr %args, ptr %workspace) {
entry:
  %a = load ptr, ptr %args
  %bp = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %bp
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %ap = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %ap
  %y = fadd float %x, 1.0
  %bi = getelementptr float, ptr %b, i64 %i
  store float %y, ptr %bi
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 6
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
"""

# counter[0] += 1
COUNT = """
define i32 @count(ptr %args, ptr %workspace) {
  %c = load ptr, ptr %args
  %old = load i64, ptr %c
  %new = add i64 %old, 1
  store i64 %new, ptr %c
  ret i32 0
}
"""

# Sleeps micros[0] microseconds, then counter[0] += 1.
SLEEP = """
declare i32 @usleep(i32)
define i32 @sleep(ptr %args, ptr %workspace) {
  %m = load ptr, ptr %args
  %us = load i32, ptr %m
  %rc = call i32 @usleep(i32 %us)
  %cp = getelementptr ptr, ptr %args, i64 1
  %c = load ptr, ptr %cp
  %old = atomicrmw add ptr %c, i64 1 seq_cst
  ret i32 0
}
"""

# Returns code[0].
FAIL = """
define i32 @fail(ptr %args, ptr %workspace) {
  %c = load ptr, ptr %args
  %code = load i32, ptr %c
  ret i32 %code
}
"""

# Writes the address of its workspace to where[0], and fills 256 bytes of it.
WHERE = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define i32 @where(ptr %args, ptr %workspace) {
  call void @llvm.memset.p0.i64(ptr %workspace, i8 1, i64 256, i1 false)
  %w = load ptr, ptr %args
  %address = ptrtoint ptr %workspace to i64
  store i64 %address, ptr %w
  ret i32 0
}
"""

# Takes the next place p of counter[0], writes the workspace's address to where[p], and waits, at
# most 20 seconds, until where[63] calls have done so.
HOLD = """
declare i32 @usleep(i32)
define i32 @hold(ptr %args, ptr %workspace) {
entry:
  %c = load ptr, ptr %args
  %p = atomicrmw add ptr %c, i64 1 seq_cst
  %wp = getelementptr ptr, ptr %args, i64 1
  %w = load ptr, ptr %wp
  %place = getelementptr i64, ptr %w, i64 %p
  %address = ptrtoint ptr %workspace to i64
  store i64 %address, ptr %place
  %all_at = getelementptr i64, ptr %w, i64 63
  %all = load i64, ptr %all_at
  br label %wait
wait:
  %k = phi i64 [ 0, %entry ], [ %k1, %nap ]
  %here = load atomic i64, ptr %c seq_cst, align 8
  %together = icmp sge i64 %here, %all
  %late = icmp sge i64 %k, 20000
  %stop = or i1 %together, %late
  br i1 %stop, label %out, label %nap
nap:
  %rc = call i32 @usleep(i32 1000)
  %k1 = add i64 %k, 1
  br label %wait
out:
  ret i32 0
}
"""

# out = exp(tanh(x)), through libm; the copy goes through libc.
LIBM = """
declare float @expf(float)
declare float @tanhf(float)
declare ptr @memcpy(ptr, ptr, i64)
define i32 @libm(ptr %args, ptr %workspace) {
  %x = load ptr, ptr %args
  %op = getelementptr ptr, ptr %args, i64 1
  %o = load ptr, ptr %op
  %c = call ptr @memcpy(ptr %o, ptr %x, i64 4)
  %v = load float, ptr %o
  %t = call float @tanhf(float %v)
  %e = call float @expf(float %t)
  store float %e, ptr %o
  ret i32 0
}
"""

# args: params int64 [n, workspace bytes, sleep in us, code, index], hits int32, where int64.
# The body adds 1 to hits[i], stores its workspace's address at where[i], may sleep, may fail.
COVER = (
    LAUNCH
    + """
declare i32 @usleep(i32)
define i32 @cover(ptr %args, ptr %workspace) {
  %p = load ptr, ptr %args
  %n = load i64, ptr %p
  %bp = getelementptr i64, ptr %p, i64 1
  %bytes = load i64, ptr %bp
  %rc = call i32 @lw_parallel_launch(ptr @cover_body, ptr %args, i64 %n, i64 %bytes, ptr %workspace)
  ret i32 %rc
}
define internal i32 @cover_body(i64 %begin, i64 %end, ptr %args, ptr %workspace) {
entry:
  %p = load ptr, ptr %args
  %hp = getelementptr ptr, ptr %args, i64 1
  %hits = load ptr, ptr %hp
  %wp = getelementptr ptr, ptr %args, i64 2
  %where = load ptr, ptr %wp
  %sp = getelementptr i64, ptr %p, i64 2
  %us64 = load i64, ptr %sp
  %us = trunc i64 %us64 to i32
  %cp = getelementptr i64, ptr %p, i64 3
  %code64 = load i64, ptr %cp
  %code = trunc i64 %code64 to i32
  %xp = getelementptr i64, ptr %p, i64 4
  %bad = load i64, ptr %xp
  %here = ptrtoint ptr %workspace to i64
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %next ]
  %hi = getelementptr i32, ptr %hits, i64 %i
  %old = atomicrmw add ptr %hi, i32 1 seq_cst
  %wi = getelementptr i64, ptr %where, i64 %i
  store i64 %here, ptr %wi
  %lazy = icmp ne i32 %us, 0
  br i1 %lazy, label %nap, label %test
nap:
  %slept = call i32 @usleep(i32 %us)
  br label %test
test:
  %here_bad = icmp eq i64 %i, %bad
  br i1 %here_bad, label %failed, label %next
failed:
  ret i32 %code
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
"""
)

# The loop of COVER 10000 times, until one fails.
AGAIN = (
    COVER
    + """
define i32 @again(ptr %args, ptr %workspace) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ]
  %rc = call i32 @cover(ptr %args, ptr %workspace)
  %i1 = add i32 %i, 1
  %good = icmp eq i32 %rc, 0
  %few = icmp ult i32 %i1, 10000
  %more = and i1 %good, %few
  br i1 %more, label %loop, label %out
out:
  ret i32 %rc
}
"""
)

# args: n int64[1], calls int64[1], indices int64[1]: how many ranges came, and how long they were.
RANGES = (
    LAUNCH
    + """
define i32 @ranges(ptr %args, ptr %workspace) {
  %p = load ptr, ptr %args
  %n = load i64, ptr %p
  %rc = call i32 @lw_parallel_launch(ptr @one, ptr %args, i64 %n, i64 0, ptr null)
  ret i32 %rc
}
define internal i32 @one(i64 %begin, i64 %end, ptr %args, ptr %workspace) {
  %cp = getelementptr ptr, ptr %args, i64 1
  %calls = load ptr, ptr %cp
  %ip = getelementptr ptr, ptr %args, i64 2
  %indices = load ptr, ptr %ip
  %size = sub i64 %end, %begin
  %old1 = atomicrmw add ptr %calls, i64 1 seq_cst
  %old2 = atomicrmw add ptr %indices, i64 %size seq_cst
  ret i32 0
}
"""
)

# A parallel loop over 16 rows whose body launches one over 8 columns: hits[16 * 8].
NESTED = (
    LAUNCH
    + """
define i32 @nested(ptr %args, ptr %workspace) {
  %h = load ptr, ptr %args
  %rc = call i32 @lw_parallel_launch(ptr @rows, ptr %h, i64 16, i64 0, ptr null)
  ret i32 %rc
}
define internal i32 @rows(i64 %begin, i64 %end, ptr %hits, ptr %workspace) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %at = mul i64 %i, 8
  %row = getelementptr i32, ptr %hits, i64 %at
  %rc = call i32 @lw_parallel_launch(ptr @columns, ptr %row, i64 8, i64 0, ptr null)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
define internal i32 @columns(i64 %begin, i64 %end, ptr %row, ptr %workspace) {
entry:
  br label %loop
loop:
  %j = phi i64 [ %begin, %entry ], [ %j1, %loop ]
  %place = getelementptr i32, ptr %row, i64 %j
  %old = atomicrmw add ptr %place, i32 1 seq_cst
  %j1 = add i64 %j, 1
  %more = icmp slt i64 %j1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
"""
)

Spec = tuple[str, list[int], str, bool]


def arg(name: str, shape: list[int], dtype: str = "float32", output: bool = False) -> Spec:
    return name, shape, dtype, output


def artifact(
    text: str,
    name: str,
    args: list[Spec],
    *,
    workspace: int = 0,
    parallel_workspace: int = 0,
    num_threads: int = 0,
) -> Artifact:
    fields = ("name", "shape", "dtype", "output")
    function = {
        "name": name,
        "args": [dict(zip(fields, spec, strict=True)) for spec in args],
        "workspace_bytes": workspace,
        "parallel_workspace_bytes": parallel_workspace,
        "uses_pool": "lw_parallel_launch" in text,
    }
    manifest: dict[str, Any] = {
        "format": 1,
        "kind": "llvm-object",
        "entry": name,
        "triple": linker.host_triple(),
        "cpu": linker.host_cpu(),
        "features": linker.host_features(),
        "num_threads": num_threads,
        "functions": [function],
        "loopwright": "0",
        "llvmlite": "0",
    }
    return Artifact(manifest, linker.compile_text(text))


def add_one() -> Module:
    return Module(artifact(ADD_ONE, "add_one", [arg("A", [2, 3]), arg("B", [2, 3], output=True)]))


def warm(module: Module, *args: object) -> None:
    """Call a module until plain arrays are checked in compiled code."""
    for _ in range(function._WARM):
        module(*args)
    entry = module[module.entry_name]
    assert isinstance(entry, Function)
    assert entry._fast is not fastcall.refuse


def count() -> Module:
    return Module(artifact(COUNT, "count", [arg("counter", [1], "int64", True)]))


def sleep() -> Module:
    args = [arg("micros", [1], "int32"), arg("counter", [1], "int64", True)]
    return Module(artifact(SLEEP, "sleep", args))


def cover(n: int, num_threads: int = 0, text: str = COVER, name: str = "cover") -> Module:
    args = [arg("params", [5], "int64"), arg("hits", [n], "int32", True)]
    args.append(arg("where", [n], "int64", True))
    return Module(artifact(text, name, args, workspace=64, num_threads=num_threads))


def ranges() -> Module:
    args = [arg("n", [1], "int64")]
    args += [arg(name, [1], "int64", True) for name in ("calls", "indices")]
    return Module(artifact(RANGES, "ranges", args))


def nested() -> Module:
    return Module(artifact(NESTED, "nested", [arg("hits", [128], "int32", True)]))
