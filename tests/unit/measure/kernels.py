"""Kernels as LLVM IR text that behave, misbehave and crash, for real, in a runner process.

All compute (or ought to compute) B = A + 1 over `N` float32.
"""

from __future__ import annotations

from loopwright import te
from loopwright.measure.candidate import Candidate
from loopwright.runtime import Artifact
from loopwright.te import Dag
from tests.unit.runtime.kernels import LAUNCH, arg, artifact

N = 64

_TEMPLATE = """
@text = private constant [$LENGTH x i8] c"$TEXT\\00"
declare i32 @usleep(i32)
declare i32 @puts(ptr)
declare i32 @fflush(ptr)
declare void @exit(i32)
declare i64 @write(i32, ptr, i64)
declare ptr @malloc(i64)
define i32 @kernel(ptr %args, ptr %workspace) {
entry:
  %a = load ptr, ptr %args
  %bp = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %bp
  br label %start
start:
$FIRST
  br label %loop
loop:
  %i = phi i64 [ $BEGIN, $FROM ], [ %i1, %loop ]
  %ap = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %ap
  %y = fadd float %x, $ADD
  %bi = getelementptr float, ptr %b, i64 %i
  store float %y, ptr %bi
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, $END
  br i1 %more, label %loop, label %out
out:
  ret i32 $CODE
}
"""


def text(
    first: str = "",
    *,
    add: str = "1.0",
    begin: int = 0,
    end: int = N,
    code: int = 0,
    origin: str = "%start",
    message: str = "hello from the kernel",
) -> str:
    """The kernel with something done `first`."""
    out = _TEMPLATE.replace("$FIRST", first).replace("$ADD", add).replace("$CODE", str(code))
    out = out.replace("$BEGIN", str(begin)).replace("$END", str(end)).replace("$FROM", origin)
    length = len(message.replace("\\0A", "\n")) + 1
    return out.replace("$LENGTH", str(length)).replace("$TEXT", message)


def sleepy(micros: int) -> str:
    return text(f"  %slept = call i32 @usleep(i32 {micros})")


GOOD = text()
SEGFAULT = text("  store volatile i32 1, ptr inttoptr (i64 8 to ptr)")
HANG = text(
    "  br label %spin\nspin:\n  %n = call i32 @usleep(i32 1000)\n  br label %spin\nnever:",
    origin="%never",
)
BUSY_HANG = text(
    "  br label %spin\nspin:\n  %v = load volatile i32, ptr %b\n  br label %spin\nnever:",
    origin="%never",
)
EXIT = text("  call void @exit(i32 3)")
ABORT = "declare void @abort()\n" + text(
    "  %w = call i64 @write(i32 2, ptr @text, i64 21)\n  call void @abort()"
)
PRINTS = text("  %p = call i32 @puts(ptr @text)\n  %f = call i32 @fflush(ptr null)")
FLOODS = text(
    """  br label %flood
flood:
  %k = phi i64 [ 0, %start ], [ %k1, %flood ]
  %w = call i64 @write(i32 1, ptr @text, i64 1000)
  %k1 = add i64 %k, 1
  %go = icmp slt i64 %k1, 20000
  br i1 %go, label %flood, label %flooded
flooded:""",
    origin="%flooded",
    message="x" * 1000,
)


def to_descriptors(first: int, call: str) -> str:
    """A call for each descriptor from `first` to 255."""
    return text(
        f"""  br label %each
each:
  %k = phi i32 [ {first}, %start ], [ %k1, %each ]
  {call}
  %k1 = add i32 %k, 1
  %go = icmp slt i32 %k1, 256
  br i1 %go, label %each, label %done
done:""",
        origin="%done",
    )


WRITES_EVERYWHERE = to_descriptors(3, "%w = call i64 @write(i32 %k, ptr @text, i64 21)")
CLOSES_EVERYTHING = "declare i32 @close(i32)\n" + to_descriptors(3, "%c = call i32 @close(i32 %k)")
CLOSES_STDERR = "declare i32 @close(i32)\n" + text("  %c = call i32 @close(i32 2)")
#: As the kernel does it to a process that takes all memory.
KILLS_ITSELF = "declare i32 @raise(i32)\n" + text("  %r = call i32 @raise(i32 9)")
#: What LLVM prints where it finds no memory, and the signal that it ends by.
PRETENDS_TO_LACK_MEMORY = "declare void @abort()\n" + text(
    "  %w = call i64 @write(i32 2, ptr @text, i64 26)\n  call void @abort()",
    message="LLVM ERROR: out of memory\\0A",
)
#: malloc of 100 GB; a kernel that sees it fail says so with code 1, as generated code does.
HUNGRY = text(
    """  %m = call ptr @malloc(i64 107374182400)
  %none = icmp eq ptr %m, null
  br i1 %none, label %full, label %fed
full:
  ret i32 1
fed:
  store volatile i8 1, ptr %m""",
    origin="%fed",
)
RETURNS_7 = text(code=7)
OFF_BY_A_BIT = text(add="1.5")
SKIPS_LAST = text(end=N - 1)
OVERRUNS = text(end=N + 4)
SPOILS_INPUT = text("  store float 0.0, ptr %a")
PARALLEL = (
    LAUNCH
    + """
define i32 @kernel(ptr %args, ptr %workspace) {
  %rc = call i32 @lw_parallel_launch(ptr @body, ptr %args, i64 64, i64 0, ptr null)
  ret i32 %rc
}
define internal i32 @body(i64 %begin, i64 %end, ptr %args, ptr %workspace) {
entry:
  %a = load ptr, ptr %args
  %bp = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %bp
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %i1, %loop ]
  %ap = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %ap
  %y = fadd float %x, 1.0
  %bi = getelementptr float, ptr %b, i64 %i
  store float %y, ptr %bi
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %end
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
"""
)


def dag() -> Dag:
    """What the kernels compute."""
    a = te.placeholder((N,), "float32", name="A")
    return Dag.from_ops([te.compute((N,), lambda i: a[i] + te.const(1, "float32"), name="B").op])[0]


def candidate(name: str = "kernel") -> Candidate:
    return Candidate(dag(), [], (0, 1), name)


def built(source: str, *, workspace: int = 0, n: int = N) -> Artifact:
    """An artifact as a builder would have sent it."""
    args = [arg("A", [n]), arg("B", [n], output=True)]
    return artifact(source, "kernel", args, workspace=workspace)
