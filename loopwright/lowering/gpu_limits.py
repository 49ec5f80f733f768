"""The limits of a GPU, and the check of a lowered function against them before code is written."""

# A candidate that no driver would launch is refused at once, with the reason. Extents that depend
# on sizes are checked when the kernel is launched.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import NoReturn

from loopwright import dtypes
from loopwright.errors import LowerError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Expr, Var
from loopwright.ir.node import Node
from loopwright.ir.stmt import Allocate, For, Func, Stmt, Store, View, is_launch
from loopwright.ir.visitor import free_vars
from loopwright.schedule import Schedule, infer_bounds
from loopwright.target import Target


@dataclass(frozen=True)
class GpuLimits:
    """Limits of a device; the defaults are those of every CUDA device since compute capability 3.

    Attributes:
        max_threads_per_block: product of the threadIdx extents.
        max_thread_x, max_thread_y, max_thread_z: extents of the threadIdx axes.
        max_block_x, max_block_y, max_block_z: extents of the blockIdx axes.
        max_shared_memory_per_block: bytes of all shared buffers of a kernel.
        max_local_memory_per_thread: bytes of the local buffers that a thread has at one time.
        max_vthread: extent of a loop of virtual threads in a schedule; lowering removes them.
        max_vector_bytes: bytes that a vectorized loop touches of one buffer that threads share.

    Example:
        >>> print(lw.transform.GpuLimits(max_threads_per_block=256).max_threads_per_block)
        256
    """

    max_threads_per_block: int = 1024
    max_thread_x: int = 1024
    max_thread_y: int = 1024
    max_thread_z: int = 64
    max_block_x: int = (1 << 31) - 1
    max_block_y: int = 65535
    max_block_z: int = 65535
    max_shared_memory_per_block: int = 49152
    max_local_memory_per_thread: int = 524288
    max_vthread: int = 8
    max_vector_bytes: int = 16

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise LowerError(f"GpuLimits: {f.name} must be a positive int, got {value!r}")


def limits_of(options: Mapping[str, object]) -> GpuLimits:
    """The limits that the options of a target give, and the defaults for others."""
    names = {f.name for f in fields(GpuLimits)}
    values = {k: v for k, v in options.items() if k in names}
    limits = GpuLimits(**values)  # type: ignore[arg-type]
    # A device of larger blocks (PoCL has 4096 threads) has axes as long, x and y at least.
    longest = max(limits.max_thread_x, limits.max_threads_per_block)
    return replace(limits, max_thread_x=longest, max_thread_y=longest)


def verify_target_limits(f: Func, schedule: Schedule) -> None:
    target = Target.current(allow_none=True)
    if target is not None and "gpu" in target.keys:
        verify_gpu_limits(f, limits_of(target.options), schedule)


def verify_gpu_limits(
    f: Func, limits: GpuLimits | None = None, schedule: Schedule | None = None
) -> None:
    """Check every kernel of a lowered function.

    Args:
        limits: those of the device; default `GpuLimits`.
        schedule: the schedule of ``f``, to check its virtual threads as well.

    Raises:
        LowerError: a limit is exceeded; names the limit, its value, the program's, and the loop or
            the buffers.

    Example:
        >>> A = te.placeholder((2048,), name="A")
        >>> B = te.compute((2048,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
        >>> f = lw.lower(s, [A, B])
        >>> try:
        ...     lw.transform.verify_gpu_limits(f)
        ... except lw.LoopwrightError as error:
        ...     print(str(error).partition(": ")[2].partition(" (")[0])
        ...
        function 'main': threadIdx.x has the extent 2048
    """
    limits = limits or GpuLimits()
    if schedule is not None:
        _check_vthreads(schedule, limits)
    _check_kernels(f.body, f.name, limits)


def _check_kernels(s: Stmt, name: str, limits: GpuLimits) -> None:
    if is_launch(s):
        _KernelCheck(name, limits).check(s)
        return
    for c in s.children():
        if isinstance(c, Stmt):
            _check_kernels(c, name, limits)


def _check_vthreads(schedule: Schedule, limits: GpuLimits) -> None:
    state = schedule.state
    stages = [sb for sb in infer_bounds(state).stages.values() if sb.kernel is not None]
    for sb, x in [(stage, x) for stage in stages for x in stage.loops]:
        if x.mark is not None and x.mark.tag == "vthread" and x.count > limits.max_vthread:
            name = state.loop_label(sb.stage, x.loop.id)
            raise LowerError(
                f"gpu limits: loop {name!r} is bound to {x.count} virtual threads (step "
                f"{x.mark.step}), max_vthread is {limits.max_vthread}; split it and bind a "
                "smaller part"
            )


class _KernelCheck:
    def __init__(self, name: str, limits: GpuLimits) -> None:
        self.name, self.limits = name, limits
        #: Its threadIdx loops.
        self.threads: list[For] = []
        #: Its buffers in shared memory.
        self.shared: list[Buffer] = []
        #: The vectorized loops around the node at hand.
        self.vectors: list[For] = []

    def check(self, s: For) -> None:
        local = self.walk(s)
        self.count()
        self.memory("max_shared_memory_per_block", self.shared, "shared memory of a block")
        self.memory("max_local_memory_per_thread", local, "local memory of a thread")

    def refuse(self, text: str) -> NoReturn:
        raise LowerError(f"gpu limits: function {self.name!r}: {text}")

    def walk(self, s: Node) -> list[Buffer]:
        """Check thread axes and vectors; the local buffers that take most memory at once."""
        match s:
            case For(kind="thread") if is_launch(s):
                self.axis(s)
            case For(kind="vectorized"):
                self.vectors.append(s)
                local = self.children(s)
                self.vectors.pop()
                return local
            case Allocate(buffer=b, body=body) if b.is_shared:
                self.shared.append(b)
                return self.walk(body)
            case Allocate(buffer=b, body=body) if b.scope == "warp":
                return self.walk(body)  # what instructions exchange between lanes takes nothing
            case Allocate(buffer=b, body=body):
                return [b, *self.walk(body)]
            case View(body=body):  # its memory is that of a buffer that was counted
                return self.walk(body)
            case Load(buffer=b, indices=idx) | Store(buffer=b, indices=idx) if b.scope != "local":
                self.vector(b, idx)
        return self.children(s)

    def children(self, s: Node) -> list[Buffer]:
        return max((self.walk(c) for c in s.children()), key=_bytes, default=[])

    def axis(self, s: For) -> None:
        which, letter = s.tag.split(".")
        limit = f"max_{'thread' if which == 'threadIdx' else 'block'}_{letter}"
        most = getattr(self.limits, limit)
        if which == "threadIdx":
            self.threads.append(s)
        if isinstance(s.extent, int) and s.extent > most:
            self.refuse(
                f"{s.tag} has the extent {s.extent} ({_bound(s)}), {limit} is {most}; split the "
                "loop and bind a smaller part"
            )

    def count(self) -> None:
        total, most = prod(x.count for x in self.threads), self.limits.max_threads_per_block
        if total > most:
            axes = ", ".join(f"{x.tag} {x.extent} ({_bound(x)})" for x in self.threads)
            self.refuse(
                f"a block has {total} threads ({axes}), max_threads_per_block is {most}; bind "
                "smaller loops"
            )

    def memory(self, limit: str, buffers: list[Buffer], what: str) -> None:
        total, most = _bytes(buffers), getattr(self.limits, limit)
        if total > most:
            largest = sorted((b for b in buffers if not b.symbolic), key=lambda b: -b.nbytes)
            parts = ", ".join(f"{b.name!r} {b.nbytes}" for b in largest)
            self.refuse(
                f"{what} takes {total} bytes ({parts}), {limit} is {most}; make the tiles smaller"
            )

    def vector(self, b: Buffer, indices: tuple[Expr, ...]) -> None:
        used: set[Var] = set().union(*(free_vars(i) for i in indices))
        for x in self.vectors:
            size, most = x.count * dtypes.nbytes(b.dtype), self.limits.max_vector_bytes
            if x.var in used and size > most:
                self.refuse(
                    f"the vectorized loop {x.var.name!r} touches {size} bytes of {b.name!r} at a "
                    f"time, max_vector_bytes is {most}; split it and vectorize a smaller part"
                )


def _bytes(buffers: list[Buffer]) -> int:
    return sum(b.nbytes for b in buffers if not b.symbolic)


def _bound(s: For) -> str:
    text = str(dict(s.pragmas).get("bound", s.var.name))
    return text if text.startswith("env_threads") else f"loop {text}"
