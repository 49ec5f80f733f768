"""Texts of a kernel: its loop nest, LLVM IR, C, assembly, and code of devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from loopwright.errors import UsageError, did_you_mean
from loopwright.history.rebuild import rebuild
from loopwright.inspection.choosing import LogLike, choose, log_of
from loopwright.records import Record
from loopwright.target import Target
from loopwright.target.kinds import KINDS

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
            ``"asm"`` (assembly of the target's own compiler), ``"opencl"``, ``"cuda"``,
            ``"ptx"`` (NVRTC's output for CUDA C++, before machine code), or ``"hip"``
            (the kernels of the target ``cuda`` for AMD's GPUs, which nothing here compiles).

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
    """Emit one text of the kernel of a record, rebuilt from its log.

    Args:
        log: the log, or its path.
        record: a record of it, an id or the beginning of one, ``"best"`` or ``"default"``.
        kind: see `emit`.
        trial: the number of a trial instead.
        run: the run of that trial.

    Raises:
        RecordError: there is no such record, or it cannot be rebuilt.
        UsageError: see `choose` and `emit`.

    Example:
        >>> from loopwright.inspection import text_of
        >>> print(text_of("matmul.jsonl", "best", "nest").startswith("def "))
        True
    """
    opened = log_of(log)
    if not isinstance(record, Record):
        record = choose(opened, record, trial=trial, run=run)
    rebuilt = rebuild(opened, record)
    with rebuilt.passes:
        return emit(rebuilt.schedule, rebuilt.args, rebuilt.target, kind)


def of_kind(target: Target, kind: str) -> Target:
    """Target of a kind with the options that a given one shares with it."""
    if target.kind == kind:
        return target
    shared = {k: v for k, v in target.options.items() if k in KINDS[kind].options}
    return Target({"kind": kind, **shared})
