"""Texts of a kernel: its loop nest, LLVM IR, C, assembly, and code of devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from loopwright.errors import UsageError, did_you_mean
from loopwright.history import rebuild
from loopwright.inspection.choosing import LogLike, choose, log_of
from loopwright.ir import Func
from loopwright.ir.stmt import For, If, Seq, Stmt, Store
from loopwright.records import Record
from loopwright.target import KINDS, Target

if TYPE_CHECKING:
    from loopwright.schedule import Schedule
    from loopwright.te import Tensor


#: A text of a kernel.
Emitted: TypeAlias = Literal["nest", "llvm", "c", "asm", "opencl", "cuda", "ptx", "hip"]
EMITTED: tuple[Emitted, ...] = get_args(Emitted)
#: Name in `Module.get_source` of the first text of a target.
_OF_TARGET = {
    "llvm": "ll", "c": "c", "opencl": "cl", "cuda": "cuda", "ptx": "ptx", "hip": "hip",
}  # fmt: skip


def emit(schedule: Schedule, args: Sequence[Tensor], target: Target, kind: str) -> str:
    """Emit one text of a kernel, lowered in the `PassContext` of the caller.

    Args:
        schedule: its schedule.
        args: its tensors in calling order.
        target: its target. The text may be of another kind: it is then of the same program for a
            target with the options that both have, such as the CPU and threads.
        kind: ``"nest"`` (the loop nest after all passes), ``"llvm"`` (LLVM IR, optimised), ``"c"``,
            ``"asm"`` (assembly of the target's own compiler), ``"opencl"``, ``"cuda"``, ``"ptx"``
            (NVRTC's output for CUDA C++, before machine code), or ``"hip"`` (the kernels of the
            target ``cuda`` for AMD's GPUs, which nothing here compiles).

    Raises:
        UsageError: another kind, or the target has no assembly.
        LoopwrightError: the program cannot be lowered or compiled for the target.

    Example:
        >>> from loopwright.inspection import emit
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> print(emit(te.create_schedule(B.op), [A, B], lw.Target("llvm"), "nest"))
        def main(A: float32[4], B: out float32[4]):
          for i in range(4):
            B[i] = A[i] + 1.0
    """
    from loopwright.driver import build
    from loopwright.lowering import lower

    if kind not in EMITTED:
        raise UsageError(
            f"there is no text {kind!r} of a kernel{did_you_mean(kind, EMITTED)}; "
            f"it is one of {', '.join(EMITTED)}"
        )
    if kind == "nest":
        return str(lower(schedule, args))
    if kind == "asm":
        return build(schedule, args, target, cache=False).get_source("asm").expandtabs()
    resolved = of_kind(target, "cuda" if kind in ("ptx", "hip") else kind)
    return build(schedule, args, resolved, cache=False).get_source(_OF_TARGET[kind])


def text_of(
    log: LogLike,
    record: Record | str | None,
    kind: str,
    *,
    trial: int | None = None,
    run: str | None = None,
) -> str:
    """Emit one text of the kernel of a record, rebuilt from its log; see `choose` and `emit`.

    Raises:
        RecordError: there is no such record, or it cannot be rebuilt.
    """
    opened = log_of(log)
    if not isinstance(record, Record):
        record = choose(opened, record, trial=trial, run=run)
    rebuilt = rebuild(opened, record)
    with rebuilt.passes:
        return emit(rebuilt.schedule, rebuilt.args, rebuilt.target, kind)


def of_kind(target: Target, kind: str) -> Target:
    if target.kind == kind:
        return target
    shared = {k: v for k, v in target.options.items() if k in KINDS[kind].options}
    return Target({"kind": kind, **shared})


#: Characters of a condition that are shown.
_CONDITION = 60


def outline(func: Func) -> str:
    """Loops of a lowered function with their extents and marks, and the tensors that they write.

    Lines are indented by nesting; loops that stand directly within each other share one. Indices
    and arithmetic are left out, and so are guards that stand in front of the same loops in any
    case.

    Example:
        >>> A = te.placeholder((64, 32), name="A")
        >>> B = te.compute((64, 32), lambda i, j: A[i, j] * 2, name="B")
        >>> s = te.create_schedule(B.op)
        >>> outer, inner = s[B].split(B.op.axis[1], factor=8)
        >>> s[B].vectorize(inner)
        >>> print(lw.inspection.outline(lw.lower(s, [A, B])))
        B: i 64, j.0 4, j.1 8 vectorized
    """
    return "\n".join(_lines(func.body, []))


def _lines(stmt: Stmt, loops: Sequence[str]) -> Iterator[str]:
    match stmt:
        case For():
            mark = "" if stmt.kind == "serial" else stmt.tag or stmt.kind
            mark = "" if mark == stmt.var.name else mark
            loop = f"{stmt.var.name} {stmt.extent} {mark}".rstrip()
            yield from _lines(stmt.body, [*loops, loop])
        case Seq():
            yield from _under(", ".join(loops), stmt.stmts)
        case If(orelse=None):
            yield from _lines(stmt.then, loops)
        case If(orelse=Stmt() as other) if [*_lines(stmt.then, [])] == [*_lines(other, [])]:
            # As the branches of whole tiles and of edges are.
            yield from _lines(stmt.then, loops)
        case If():
            condition = str(stmt.cond)
            shown = condition if len(condition) <= _CONDITION else f"{condition[:_CONDITION]}..."
            yield from _under(", ".join([*loops, f"if {shown}"]), [stmt.then])
            assert stmt.orelse is not None
            yield from _under("else", [stmt.orelse])
        case Store():
            yield f"{stmt.buffer.name}: {', '.join(loops)}" if loops else stmt.buffer.name
        case _:
            body = getattr(stmt, "body", None)
            if isinstance(body, Stmt):
                yield from _lines(body, loops)
            else:
                name = type(stmt).__name__
                yield f"{name}: {', '.join(loops)}" if loops else name


def _under(head: str, parts: Sequence[Stmt]) -> Iterator[str]:
    if head:
        yield head
    indent = "  " if head else ""
    yield from (f"{indent}{line}" for part in parts for line in _lines(part, []))
