"""Measured limits of this machine: fused multiply-adds, and memory bandwidth.

The arithmetic is that of a target's vector instructions: a kernel for AVX2 cannot reach the peak
of AVX-512. Both are measured by kernels of our own through the same pool and the same timer as
everything else, quickly enough to interleave them with the samples that they are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from loopwright import env
from loopwright.runtime import linker, pool
from loopwright.runtime.artifacts.artifact import Artifact
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec, Manifest
from loopwright.runtime.devices.device import cpu
from loopwright.runtime.kernels.timing import time_call
from loopwright.runtime.module import Module
from loopwright.runtime.ndarray import empty
from loopwright.runtime.objects import LLVM_OBJECT

if TYPE_CHECKING:
    from loopwright.target import Roof, VectorUnit


# Loop turns of one unit of work: 10 to 20 us, long against handing it out.
_TURNS = 2000
_OUT = 1024
# float32 elements of one unit of the triad.
_BLOCK = 16384
_WINDOWS = 5

#: float32 operands that the kernel keeps beside its accumulators, and a register for a product.
_OPERANDS = 4

#: Multiply-adds of float32 vectors in a cycle, and cycles in a second, of the fastest CPUs.
_PER_CYCLE, _FASTEST_HZ = 2, 6.5e9
#: Two vectors stored in a cycle are two bytes an operation of the FMA peak; twice that is allowed.
_STORED_PER_FLOP = 4.0
#: Times the roof that are allowed; the roof is that of numbers of at least `_ROOF_BYTES` bytes.
_ROOFS, _ROOF_BYTES = 4.0, 4


def host_unit() -> VectorUnit:
    from loopwright import target  # not needed to run built kernels

    return target.host_unit()


def shape_of(unit: VectorUnit) -> tuple[int, int]:
    """float32 lanes of a vector, and accumulators that fit the registers: 12 of 16, 24 of 32."""
    return unit.nbytes // 4, (unit.registers - _OPERANDS) // 12 * 12


@dataclass(frozen=True)
class _Step:
    """The LLVM IR of one instruction."""

    #: Type of a lane of the accumulators.
    element: str
    #: Types of ``%x`` and ``%y``, which are the splats ``%m`` and ``%c`` of the seed.
    operands: tuple[str, str]
    #: The function that is called; empty for none.
    declared: str
    #: The step of accumulator ``{i}``, from ``%a{i}`` to ``%n{i}``.
    lines: str


def _step(roof: Roof) -> _Step:
    from loopwright.target import BYTES, FMA, FMA64, HALVES, PAIRS, PAIRS_OF_SHORTS

    lanes, bits = roof.lanes, 32 * roof.lanes
    element, operand, name = {
        FMA: ("float", f"<{lanes} x float>", f"llvm.fma.v{lanes}f32"),
        FMA64: ("double", f"<{lanes} x double>", f"llvm.fma.v{lanes}f64"),
        HALVES: ("float", f"<{2 * lanes} x bfloat>", f"llvm.x86.avx512bf16.dpbf16ps.{bits}"),
        BYTES: ("i32", f"<{lanes} x i32>", f"llvm.x86.avx512.vpdpbusd.{bits}"),
        PAIRS: ("i32", f"<{2 * lanes} x i16>", PAIRS_OF_SHORTS.get(lanes, "")),
    }[roof.instruction]
    vector = f"<{lanes} x {element}>"
    if roof.instruction == PAIRS:
        # The accumulator is a factor: of two constants LLVM would multiply once, before the loop.
        return _Step(
            element,
            (operand, vector),
            f"declare {vector} @{name}({operand}, {operand})",
            f"  %s{{i}}h = bitcast {vector} %a{{i}} to {operand}\n"
            f"  %p{{i}} = call {vector} @{name}({operand} %s{{i}}h, {operand} %x)\n"
            f"  %n{{i}} = add {vector} %p{{i}}, %y",
        )
    if roof.instruction in (FMA, FMA64) and not roof.unit.fused:
        lines = f"  %p{{i}} = fmul {vector} %a{{i}}, %x\n  %n{{i}} = fadd {vector} %p{{i}}, %y"
        return _Step(element, (operand, operand), "", lines)
    return _Step(
        element,
        (operand, operand),
        f"declare {vector} @{name}({vector}, {operand}, {operand})",
        f"  %n{{i}} = call {vector} @{name}({vector} %a{{i}}, {operand} %x, {operand} %y)",
    )


def _arithmetic_text(roof: Roof) -> str:
    step = _step(roof)
    vector, floats = f"<{roof.lanes} x {step.element}>", f"<{roof.lanes} x float>"
    widen, narrow = ("fpext", "fptrunc") if step.element == "double" else ("bitcast", "bitcast")
    add = "add" if step.element == "i32" else "fadd"
    x, y = step.operands
    operands = f"  %x = {widen} {floats} %m to {x}\n  %y = {widen} {floats} %c to {y}"
    starts, phis, steps, total = [], [], [], []
    count = shape_of(roof.unit)[1]
    for i in range(count):
        if step.element == "i32":
            starts.append(f"  %s{i} = add {vector} zeroinitializer, splat (i32 {i + 1})")
        else:
            starts.append(f"  %f{i} = fmul {floats} %m, splat (float {float(i + 1)})")
            starts.append(f"  %s{i} = {widen} {floats} %f{i} to {vector}")
        phis.append(f"  %a{i} = phi {vector} [ %s{i}, %unit ], [ %n{i}, %turn ]")
        steps.append(step.lines.format(i=i))
        before = f"%t{i - 1}" if i else "zeroinitializer"
        total.append(f"  %t{i} = {add} {vector} {before}, %n{i}")
    newline = "\n"
    return f"""
{step.declared}
declare i32 @lw_parallel_launch(ptr, ptr, i64, i64, ptr)

define i32 @fma(ptr %args, ptr %workspace) {{
  %work = load ptr, ptr %args
  %units = load i64, ptr %work
  %rc = call i32 @lw_parallel_launch(ptr @fma_body, ptr %args, i64 %units, i64 0, ptr null)
  ret i32 %rc
}}

; args: work [units], seed [two operands], out; what the seed holds is unknown to LLVM.
define internal i32 @fma_body(i64 %begin, i64 %end, ptr %args, ptr %workspace) {{
entry:
  %seed_place = getelementptr ptr, ptr %args, i64 1
  %seed = load ptr, ptr %seed_place
  %out_place = getelementptr ptr, ptr %args, i64 2
  %out = load ptr, ptr %out_place
  %first = load float, ptr %seed
  %second_place = getelementptr float, ptr %seed, i64 1
  %second = load float, ptr %second_place
  %m0 = insertelement {floats} poison, float %first, i32 0
  %m = shufflevector {floats} %m0, {floats} poison, <{roof.lanes} x i32> zeroinitializer
  %c0 = insertelement {floats} poison, float %second, i32 0
  %c = shufflevector {floats} %c0, {floats} poison, <{roof.lanes} x i32> zeroinitializer
{operands}
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
  %stored = {narrow} {step.element} %one to float
  %slot = and i64 %u, {_OUT - 1}
  %place = getelementptr float, ptr %out, i64 %slot
  store volatile float %stored, ptr %place
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
def _object(name: str, roof: Roof) -> bytes:
    unit = roof.unit
    text = _arithmetic_text(roof) if name == "fma" else _triad_text(unit)
    return linker.compile_text(text, cpu=(unit.cpu, unit.features))


def kernel_module(
    name: str, args: Sequence[ArgSpec], num_threads: int, roof: Roof | None = None
) -> Module:
    """Module of the kernel ``fma`` or ``triad`` with the instruction ``roof``, or multiply-adds."""
    roof = multiply_adds(roof)
    unit = roof.unit
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
    return Module(Artifact(manifest.to_json(), _object(name, roof)))


class FmaKernel:
    """Kernel of an instruction for a number of threads, and the units of work in a second."""

    def __init__(self, num_threads: int, roof: Roof) -> None:
        args = [
            ArgSpec("work", (1,), "int64", output=False),
            ArgSpec("seed", (2,), "float32", output=False),
            ArgSpec("out", (_OUT,), "float32", output=True),
        ]
        self.work = np.ones(1, dtype=np.int64)
        seed = np.array([0.5, 1.0], dtype=np.float32)
        out = np.zeros(_OUT, dtype=np.float32)
        self.call = kernel_module("fma", args, num_threads, roof)["fma"].bind(self.work, seed, out)
        self.flop_per_unit = roof.flop * shape_of(roof.unit)[1] * _TURNS
        self.units_per_second = 0.0
        self.rate(64 * num_threads)
        self.units_per_second = self.rate(256 * num_threads) / self.flop_per_unit

    def rate(self, units: int) -> float:
        """Run so many units of work; returns flop/s."""
        self.work[0] = units
        return self.flop_per_unit * units / time_call(self.call, 1)


def multiply_adds(unit: VectorUnit | Roof | None) -> Roof:
    """The float32 multiply-adds of a vector unit, None: of this machine's; a roof is itself."""
    from loopwright.target import Roof

    if isinstance(unit, Roof):
        return unit
    unit = unit or host_unit()
    return Roof(unit, "fma", unit.nbytes // 4)


def fma_kernel(num_threads: int, unit: VectorUnit | Roof | None) -> FmaKernel:
    """The kernel of `multiply_adds`, compiled and calibrated at the first call."""
    return _kernel_of(num_threads, multiply_adds(unit))


@lru_cache(maxsize=16)
def _kernel_of(num_threads: int, roof: Roof) -> FmaKernel:
    return FmaKernel(num_threads, roof)


def fma_peak(
    num_threads: int | None = None, seconds: float = 0.1, unit: VectorUnit | Roof | None = None
) -> float:
    """Measure the float32 operations per second of fused multiply-adds.

    Independent vector accumulators in registers, no memory: an upper bound of all kernels. The
    first call for a number of threads and a vector unit compiles (some 20 ms); later ones only
    measure. A multiply-add counts two. UsageError where the number of threads is out of range,
    TargetError where this machine lacks instructions of the unit.

    Args:
        num_threads: default `get_num_threads`.
        seconds: length of the measurement; the best of five parts of it counts, since other work
            of the machine slows the rest.
        unit: the vector instructions to measure, `Target.vector_unit` of the target that kernels
            are compiled for; None: this machine's. Without an instruction for multiply-adds it is
            a product and a sum. A `loopwright.target.Roof` stands for another instruction, such as
            dot products of bytes.
    """
    threads = pool.check_num_threads(num_threads or pool.get_num_threads())
    kernel = fma_kernel(threads, unit)
    units = max(1, round(kernel.units_per_second * seconds / _WINDOWS))
    return max(kernel.rate(units) for _ in range(_WINDOWS))


def bandwidth(
    num_threads: int | None = None, seconds: float = 0.2, nbytes: int | None = None
) -> float:
    """Measure bytes per second of memory by ``a = b + 3 * c`` on float32 (the triad of STREAM).

    Two reads and one write per element count, as in STREAM; reading a line before it is overwritten
    does not. UsageError where the number of threads, default `get_num_threads`, is out of range.

    Args:
        seconds: length of the measurement, at least three passes; the best pass counts.
        nbytes: bytes of each of the three arrays; default four times the last cache, from 32 to
            512 MiB. They are allocated for this call.
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


def assumed_peak(threads: int, unit: VectorUnit | None = None, hertz: float = _FASTEST_HZ) -> float:
    """The FMA peak of the fastest CPUs in float32 operations a second; `hertz` is their clock."""
    lanes, _ = shape_of(unit or host_unit())
    return 2 * _PER_CYCLE * lanes * hertz * threads


def out_of_reach(
    seconds: float, stored: int, operations: int, element_bytes: int, peak: float
) -> str:
    """The reason why no call can take so few seconds; empty where one could.

    Results would be stored faster than the first-level cache takes them, or more arithmetic done
    than vector units do. `stored` is in bytes, `peak` in float32 operations a second of fused
    multiply-adds. `element_bytes` is the shortest type that it reads: a vector holds more elements
    of it.
    """
    took = f"a call of {seconds * 1e9:.3g} ns"
    most = _STORED_PER_FLOP * peak
    if stored > most * seconds:
        return (
            f"{took} stores {stored / seconds / 1e9:.3g} GB/s, where the first-level cache takes "
            f"at most {most / 1e9:.3g} GB/s"
        )
    roof = peak * _ROOF_BYTES / min(element_bytes, _ROOF_BYTES)
    if operations > _ROOFS * roof * seconds:
        return (
            f"{took} does {operations} operations, {operations / seconds / roof:.3g} times what "
            f"vector instructions can do ({roof / 1e9:.3g} GFLOP/s)"
        )
    return ""
