"""What this machine can do at most: fused multiply-adds, and memory bandwidth.

The arithmetic is that of a target's vector instructions: a kernel for AVX2 cannot reach what
AVX-512 does. Both are measured by kernels of our own through the same pool and the same timer as
everything else, quick enough to be interleaved with the samples that are compared with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from loopwright import env
from loopwright.runtime import linker, pool
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec, Manifest
from loopwright.runtime.artifacts.objects import LLVM_OBJECT
from loopwright.runtime.devices.device import cpu
from loopwright.runtime.module import Module
from loopwright.runtime.ndarray import empty
from loopwright.runtime.timing import time_call

if TYPE_CHECKING:
    from loopwright.target import VectorUnit

# Loop turns of one unit of work: 10 to 20 us, long against handing it out.
_TURNS = 2000
_OUT = 1024
# float32 elements of one unit of the triad.
_BLOCK = 16384
_WINDOWS = 5


#: float32 operands that the kernel keeps beside its accumulators, and a register for a product.
_OPERANDS = 4


def host_unit() -> VectorUnit:
    """The vector unit of this machine."""
    from loopwright import target  # what runs built kernels needs none

    return target.host_unit()


def shape_of(unit: VectorUnit) -> tuple[int, int]:
    """float32 lanes of a vector, and accumulators that fit the registers: 12 of 16, 24 of 32."""
    return unit.nbytes // 4, (unit.registers - _OPERANDS) // 12 * 12


def _fma_text(unit: VectorUnit) -> str:
    width, count = shape_of(unit)
    vector = f"<{width} x float>"
    starts, phis, steps, total = [], [], [], []
    for i in range(count):
        starts.append(f"  %s{i} = fmul {vector} %mul, splat (float {float(i + 1)})")
        phis.append(f"  %a{i} = phi {vector} [ %s{i}, %unit ], [ %n{i}, %turn ]")
        if unit.fused:
            operands = f"{vector} %a{i}, {vector} %mul, {vector} %add"
            steps.append(f"  %n{i} = call {vector} @llvm.fma.v{width}f32({operands})")
        else:
            steps.append(f"  %p{i} = fmul {vector} %a{i}, %mul")
            steps.append(f"  %n{i} = fadd {vector} %p{i}, %add")
        before = f"%t{i - 1}" if i else "zeroinitializer"
        total.append(f"  %t{i} = fadd {vector} {before}, %n{i}")
    newline = "\n"
    return f"""
declare {vector} @llvm.fma.v{width}f32({vector}, {vector}, {vector})
declare i32 @lw_parallel_launch(ptr, ptr, i64, i64, ptr)

define i32 @fma(ptr %args, ptr %workspace) {{
  %work = load ptr, ptr %args
  %units = load i64, ptr %work
  %rc = call i32 @lw_parallel_launch(ptr @fma_body, ptr %args, i64 %units, i64 0, ptr null)
  ret i32 %rc
}}

; args: work [units], seed [multiplier, addend], out; what the seed holds is unknown to LLVM.
define internal i32 @fma_body(i64 %begin, i64 %end, ptr %args, ptr %workspace) {{
entry:
  %seed_place = getelementptr ptr, ptr %args, i64 1
  %seed = load ptr, ptr %seed_place
  %out_place = getelementptr ptr, ptr %args, i64 2
  %out = load ptr, ptr %out_place
  %m = load float, ptr %seed
  %c_place = getelementptr float, ptr %seed, i64 1
  %c = load float, ptr %c_place
  %m0 = insertelement {vector} poison, float %m, i32 0
  %mul = shufflevector {vector} %m0, {vector} poison, <{width} x i32> zeroinitializer
  %c0 = insertelement {vector} poison, float %c, i32 0
  %add = shufflevector {vector} %c0, {vector} poison, <{width} x i32> zeroinitializer
  br label %unit
unit:
  %u = phi i64 [ %begin, %entry ], [ %u1, %store ]
{newline.join(starts)}
  br label %turn
turn:
  %i = phi i64 [ 0, %unit ], [ %i1, %turn ]
{newline.join(phis)}
{newline.join(steps)}
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, {_TURNS}
  br i1 %more, label %turn, label %store
store:
{newline.join(total)}
  %one = extractelement {vector} %t{count - 1}, i32 0
  %slot = and i64 %u, {_OUT - 1}
  %place = getelementptr float, ptr %out, i64 %slot
  store volatile float %one, ptr %place
  %u1 = add i64 %u, 1
  %again = icmp slt i64 %u1, %end
  br i1 %again, label %unit, label %done
done:
  ret i32 0
}}
"""


def _triad_text(unit: VectorUnit) -> str:
    width, _ = shape_of(unit)
    vector = f"<{width} x float>"
    return f"""
declare i32 @lw_parallel_launch(ptr, ptr, i64, i64, ptr)

define i32 @triad(ptr %args, ptr %workspace) {{
  %work = load ptr, ptr %args
  %units = load i64, ptr %work
  %rc = call i32 @lw_parallel_launch(ptr @triad_body, ptr %args, i64 %units, i64 0, ptr null)
  ret i32 %rc
}}

; args: work [units], b, c, a; a = b + 3 * c, a block of {_BLOCK} elements per unit.
define internal i32 @triad_body(i64 %begin, i64 %end, ptr %args, ptr %workspace) {{
entry:
  %b_place = getelementptr ptr, ptr %args, i64 1
  %b = load ptr, ptr %b_place
  %c_place = getelementptr ptr, ptr %args, i64 2
  %c = load ptr, ptr %c_place
  %a_place = getelementptr ptr, ptr %args, i64 3
  %a = load ptr, ptr %a_place
  %first = mul i64 %begin, {_BLOCK}
  %last = mul i64 %end, {_BLOCK}
  br label %turn
turn:
  %i = phi i64 [ %first, %entry ], [ %i1, %turn ]
  %bi = getelementptr float, ptr %b, i64 %i
  %ci = getelementptr float, ptr %c, i64 %i
  %ai = getelementptr float, ptr %a, i64 %i
  %x = load {vector}, ptr %bi, align 4
  %y = load {vector}, ptr %ci, align 4
  %z = fmul {vector} %y, splat (float 3.0)
  %s = fadd {vector} %x, %z
  store {vector} %s, ptr %ai, align 4
  %i1 = add i64 %i, {width}
  %more = icmp slt i64 %i1, %last
  br i1 %more, label %turn, label %done
done:
  ret i32 0
}}
"""


@lru_cache(maxsize=16)
def _object(name: str, unit: VectorUnit) -> bytes:
    text = _fma_text(unit) if name == "fma" else _triad_text(unit)
    return linker.compile_text(text, cpu=(unit.cpu, unit.features))


def kernel_module(
    name: str, args: Sequence[ArgSpec], num_threads: int, unit: VectorUnit | None = None
) -> Module:
    """The kernel ``fma`` or ``triad`` for these arguments, for a vector unit or this machine's."""
    unit = unit or host_unit()
    manifest = Manifest(
        LLVM_OBJECT.name,
        name,
        linker.host_triple(),
        unit.cpu,
        unit.features,
        num_threads,
        (FunctionSpec(name, tuple(args), uses_pool=True),),
        loopwright=env.version("loopwright"),
        llvmlite=env.version("llvmlite"),
        needs=unit.needs,
    )
    return Module(Artifact(manifest.to_json(), _object(name, unit)))


class FmaKernel:
    """The FMA kernel bound for one number of threads, and how many units fill a second."""

    def __init__(self, num_threads: int, unit: VectorUnit) -> None:
        args = [
            ArgSpec("work", (1,), "int64", output=False),
            ArgSpec("seed", (2,), "float32", output=False),
            ArgSpec("out", (_OUT,), "float32", output=True),
        ]
        self.work = np.ones(1, dtype=np.int64)
        seed = np.array([0.5, 1.0], dtype=np.float32)
        out = np.zeros(_OUT, dtype=np.float32)
        function = kernel_module("fma", args, num_threads, unit)["fma"]
        self.call = function.bind(self.work, seed, out)
        width, count = shape_of(unit)
        self.flop_per_unit = 2 * width * count * _TURNS
        self.units_per_second = 0.0
        self.rate(64 * num_threads)
        self.units_per_second = self.rate(256 * num_threads) / self.flop_per_unit

    def rate(self, units: int) -> float:
        """Run so many units of work; returns flop/s."""
        self.work[0] = units
        return self.flop_per_unit * units / time_call(self.call, 1)


@lru_cache(maxsize=16)
def fma_kernel(num_threads: int, unit: VectorUnit) -> FmaKernel:
    """The FMA kernel for a number of threads, compiled and calibrated at the first call."""
    return FmaKernel(num_threads, unit)


def fma_peak(
    num_threads: int | None = None, seconds: float = 0.1, unit: VectorUnit | None = None
) -> float:
    """Measure how many float32 operations per second fused multiply-adds reach.

    Independent vector accumulators in registers, no memory: what no kernel can exceed. The first
    call for a number of threads and a vector unit compiles (some 20 ms); later ones only measure.

    Args:
        num_threads: threads; default `pool.get_num_threads`.
        seconds: length of the measurement; the best of five parts of it counts, since whatever
            else the machine did in the others is not its limit.
        unit: the vector instructions to measure, `Target.vector_unit` of the target that kernels
            are compiled for; None: this machine's. Without an instruction for multiply-adds it is
            a product and a sum.

    Returns:
        flop/s; a multiply-add counts two.

    Raises:
        UsageError: the number of threads is out of range.
        TargetError: this machine lacks instructions of the unit.

    Example:
        >>> print(lw.runtime.fma_peak(1, seconds=0.01) > 0)
        True
    """
    threads = pool.check_num_threads(num_threads or pool.get_num_threads())
    kernel = fma_kernel(threads, unit or host_unit())
    units = max(1, round(kernel.units_per_second * seconds / _WINDOWS))
    return max(kernel.rate(units) for _ in range(_WINDOWS))


def bandwidth(
    num_threads: int | None = None, seconds: float = 0.2, nbytes: int | None = None
) -> float:
    """Measure memory bandwidth by ``a = b + 3 * c`` on float32 (the triad of STREAM).

    Args:
        num_threads: threads; default `pool.get_num_threads`.
        seconds: length of the measurement, at least three passes; the best pass counts.
        nbytes: bytes of each of the three arrays; default four times the last cache, from 32 to
            512 MiB. They are allocated for this call.

    Returns:
        Bytes per second: two reads and one write per element, as STREAM counts. Reading a line
        before it is overwritten is not counted.

    Raises:
        UsageError: the number of threads is out of range.

    Example:
        >>> print(lw.runtime.bandwidth(1, seconds=0.01, nbytes=1 << 20) > 1e8)
        True
    """
    threads = pool.check_num_threads(num_threads or pool.get_num_threads())
    if nbytes is None:
        last = max(cpu(0).cache_sizes.values(), default=32 << 20)
        nbytes = min(max(4 * last, 32 << 20), 512 << 20)
    units = max(1, nbytes // (4 * _BLOCK))
    size = units * _BLOCK
    arrays = [empty(size) for _ in range(3)]
    for part in arrays:
        part[:] = 1.0
    work = ArgSpec("work", (1,), "int64", output=False)
    specs = [ArgSpec(name, (size,), "float32", output=name == "a") for name in ("b", "c", "a")]
    module = kernel_module("triad", [work, *specs], threads)
    call = module["triad"].bind(np.array([units], dtype=np.int64), *arrays)
    once = time_call(call, 1)
    passes = max(3, round(seconds / once))
    return 3 * 4 * size / min(time_call(call, 1) for _ in range(passes))
