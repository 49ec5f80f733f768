"""The limit of a device that bounds a kernel, measured by kernels of our own.

They are multiply-adds in registers, and a copy: tensor expressions with schedules, compiled as any
other program, so that every target that launches blocks and threads has them. A block is a unit of
work; the number of units is a size that is given at launch, so that one program serves small
devices and large ones. Products and sums in registers without a memory access are the ceiling of
Williams, Waterman and Patterson, "Roofline", CACM 52 (2009); the copy is that of STREAM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from loopwright import te
from loopwright.codegen import backend_of
from loopwright.driver import build
from loopwright.errors import RunError, UsageError
from loopwright.measure.comparison import computed_in
from loopwright.measure.machine_limit import MachineLimit, bytes_of, higher, stays_in_cache
from loopwright.measure.result import MeasureError
from loopwright.measure.runner import Runner
from loopwright.measure.workers.device_kernels import Yardstick
from loopwright.records import Json
from loopwright.runtime import Artifact, Device
from loopwright.schedule import Schedule
from loopwright.target import Target
from loopwright.te import Dag
from loopwright.transform import PassContext

#: Threads of a block, where the target allows so many.
_THREADS = 256
#: Number of times that a thread goes over its accumulators.
_TURNS = 512
#: Accumulators of a thread: enough to hide the latency of a multiply-add where warps take turns.
_IN_WARPS = 16
#: The same where a thread runs alone: the vectors of a CPU are made of the accumulators of one.
_ALONE = 128
#: Elements of eight bytes that a thread copies.
_COPIES = 8
_COPIED = "int64"
_Program = tuple[Schedule, list[te.Tensor]]


@dataclass(frozen=True)
class YardstickProgram:
    """A kernel that measures a limit of a device."""

    name: str  # of the limit, such as ``"FMA peak (float32)"``
    artifact: Artifact  # the kernel; the extent ``n`` of its arrays is the number of units
    work: int  # operations or bytes of one unit
    through_memory: bool  # its arrays must not fit into a cache


@lru_cache(maxsize=16)
def arithmetic(target: Target, dtype: str = "float32", turns: int = _TURNS) -> YardstickProgram:
    """Fused multiply-adds of float32 or float64; a UsageError without blocks and threads."""
    threads = _threads(target)
    alone = target.options.get("thread_warp_size") == 1
    accumulators = _ALONE if alone else _IN_WARPS
    artifact = _built(_multiply_adds(threads, accumulators, turns, dtype), target, "multiply_adds")
    work = 2 * threads * accumulators * turns
    return YardstickProgram(f"FMA peak ({dtype})", artifact, work, through_memory=False)


@lru_cache(maxsize=16)
def memory(target: Target) -> YardstickProgram:
    """A copy; each byte counts twice, as it is read and written. Raises as `arithmetic`."""
    threads = _threads(target)
    artifact = _built(_copy(threads), target, "copy")
    return YardstickProgram("memory bandwidth", artifact, 2 * 8 * _COPIES * threads, True)


def _threads(target: Target) -> int:
    limits = backend_of(target).limits
    if limits is None:
        raise UsageError(
            f"the target {target.kind} launches no blocks and threads, of which the kernels are "
            "made that tell the limits of a device"
        )
    return min(_THREADS, limits(target).max_threads_per_block)


def _built(program: _Program, target: Target, name: str) -> Artifact:
    with PassContext():  # whatever the caller has set for kernels of his own
        return build(*program, target, name=name).artifact


def _multiply_adds(threads: int, accumulators: int, turns: int, dtype: str) -> _Program:
    """Each accumulator becomes half of itself and an operand of its own, again and again.

    No compiler knows the operands, so that none finds two accumulators equal; each converges to
    twice its operand, and the stored value shows that no turn was left out.
    """
    step = te.comm_reducer(
        lambda x, y: x * te.const(0.5, dtype) + y, lambda t: te.const(0, t), name="step"
    )
    X = te.placeholder((accumulators,), dtype, name="X")
    k = te.reduce_axis((0, turns), name="k")
    j = te.reduce_axis((0, accumulators), name="j")
    n = te.size_var("n")
    acc = te.compute((n, threads, accumulators), lambda b, t, c: step(X[c], axis=k), name="acc")
    Y = te.compute((n, threads), lambda b, t: te.sum(acc[b, t, j], axis=j), name="Y")
    s = te.create_schedule(Y.op)
    block, thread = s[Y].op.axis
    _bind(s, Y, block, thread)
    s[Y].unroll(s[Y].op.reduce_axis[0])
    s[acc].set_scope("local")
    s[acc].compute_at(s[Y], thread)
    (c,) = s[acc].op.axis[2:]
    s[acc].reorder(s[acc].op.reduce_axis[0], c)
    s[acc].unroll(c)
    return s, [X, Y]


def _copy(threads: int) -> _Program:
    n = te.size_var("n")
    A = te.placeholder((n, _COPIES, threads), _COPIED, name="A")
    B = te.compute((n, _COPIES, threads), lambda b, i, t: A[b, i, t], name="B")
    s = te.create_schedule(B.op)
    block, each, thread = s[B].op.axis
    s[B].reorder(block, thread, each)
    _bind(s, B, block, thread)
    s[B].unroll(each)
    return s, [A, B]


def _bind(s: Schedule, out: te.Tensor, block: te.IterVar, thread: te.IterVar) -> None:
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))


#: Measures how many units of work of a kernel the device does in a second.
Rate = Callable[[YardstickProgram], float]


def device_limit(
    artifact: Artifact,
    dag: Dag,
    flop: int,
    target: Target,
    device: Device,
    rate: Rate,
    *,
    on_tensor_cores: bool = False,
) -> MachineLimit | None:
    """The limit that bounds a device's kernels with these arguments, as far as one is known."""
    nbytes = bytes_of(artifact)
    in_cache = stays_in_cache(nbytes, device)
    memory = None if in_cache else bandwidth_limit(nbytes, target, rate)
    counted = flop and not on_tensor_cores
    return higher(arithmetic_limit(flop, dag, target, rate) if counted else None, memory)


def arithmetic_limit(flop: int, dag: Dag, target: Target, rate: Rate) -> MachineLimit:
    """The limit by arithmetic in float64, if the only float, else in float32, as of short types."""
    dtype = "float64" if computed_in(dag) == "float64" else "float32"
    return _limit(arithmetic(target, dtype), flop, rate)


def bandwidth_limit(nbytes: int, target: Target, rate: Rate) -> MachineLimit:
    return _limit(memory(target), nbytes, rate)


def _limit(program: YardstickProgram, work: float, rate: Rate) -> MachineLimit:
    return MachineLimit(program.name, work, lambda: rate(program) * program.work)


def in_runner(runner: Runner) -> Rate:
    """Measures in the process of a runner; raises a RunError where that fails."""

    def rate(program: YardstickProgram) -> float:
        result = runner.undisturbed(
            lambda: runner.yardstick(program.name, program.artifact, program.through_memory)
        )
        if isinstance(result, MeasureError):
            raise RunError(result.text)
        return result

    return rate


def in_this_process(device: Device) -> Rate:
    """Measures in this process; errors are those of `Yardstick`."""
    loaded: dict[str, Yardstick] = {}

    def rate(program: YardstickProgram) -> float:
        if program.name not in loaded:
            loaded[program.name] = Yardstick(program.artifact, device, program.through_memory)
        return loaded[program.name].rate()

    return rate


def uses_tensor_cores(trace: Json) -> bool:
    """Whether a trace multiplies with instructions of tensor cores (``mma_m16n8k16_float16``)."""
    tensorized = [step[-1] for step in trace if step[0] == "tensorize"]
    return any(str(intrinsic["name"]).startswith("mma_") for intrinsic in tensorized)
