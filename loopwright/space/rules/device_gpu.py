"""Common parts of rules for GPUs: limits of the target, bound loops, cooperative copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from loopwright import dtypes, te
from loopwright.ir.expr import IterVar
from loopwright.schedule import Schedule
from loopwright.space.rules.knobs_gpu import is_one
from loopwright.target import Target
from loopwright.target.gpu import OPENCL_DEFAULTS

#: Blocks of the axes y and z that every device launches.
MOST_BLOCKS_YZ = 65535
#: Registers of a block where the target does not say: those of all CUDA devices.
_REGISTERS = 65536
#: Unrolled copies of a statement by default.
_UNROLLED = 16


@dataclass(frozen=True)
class Device:
    """Limits of a target, and the properties that its default configurations depend on."""

    threads: int  # of a block, at most
    shared: int  # bytes of shared memory of a block, at most
    vthreads: int  # virtual threads of a loop, at most
    vector_bytes: int  # bytes that a thread reads or writes at once
    warp: int  # threads that run in lockstep
    processors: int  # processors that run blocks
    registers: int  # of a block, at most, in words of 4 bytes

    @classmethod
    def current(cls) -> Device:
        """Limits of the target in force; those of any OpenCL device where it names none."""
        options = {**OPENCL_DEFAULTS, **Target.current().options}
        return cls(
            options["max_threads_per_block"],
            options["max_shared_memory_per_block"],
            options["max_vthread"],
            options["max_vector_bytes"],
            options["thread_warp_size"],
            options["multi_processor_count"],
            options.get("registers_per_block", _REGISTERS),
        )

    def lanes(self, *types: str) -> int:
        """Elements, at most four, that a thread reads at once of tensors of some types."""
        return max(1, min(4, *(self.vector_bytes // dtypes.nbytes(x) for x in types)))


def powers(most: int, least: int = 1) -> list[int]:
    """Powers of two between two numbers."""
    return [1 << n for n in range(most.bit_length()) if least <= 1 << n <= most]


def common_width(widest: int, *lengths: int) -> int:
    """Widest vector, a power of two of at most ``widest``, that divides some lengths."""
    return max(w for w in powers(widest) if gcd(w, *lengths) == w)


def copy_together(s: Schedule, stage: te.Tensor, threads: Any, width: Any) -> None:
    """Fill a stage in shared memory by all threads of a block, neighbours side by side.

    ``stage`` is computed at a loop of the kernel. A thread copies ``width`` elements at once, as a
    vector; few rounds are unrolled.
    """
    rest = fused(s, stage, s[stage].op.axis)
    if not is_one(width):
        rest, lanes = s[stage].split(rest, factor=width)
        s[stage].vectorize(lanes)
    rounds, thread = s[stage].split(rest, factor=threads)
    s[stage].bind(thread, te.thread_axis("threadIdx.x"))
    s[stage].pragma(rounds, "auto_unroll_max_step", _UNROLLED)


def inline_all(s: Schedule, tensors: Sequence[te.Tensor], but: Callable[[te.Tensor], bool]) -> None:
    """Inline tensors, except those for which ``but`` is true."""
    for t in tensors:
        if not but(t):
            s[t].compute_inline()


def fused(s: Schedule, stage: te.Tensor, loops: Sequence[IterVar]) -> IterVar:
    return s[stage].fuse(*loops) if len(loops) > 1 else loops[0]
