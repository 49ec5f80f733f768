"""What rules for GPUs share: limits of the target, bound loops, cooperative copies."""

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
#: Copies of a statement that are written out by default.
_UNROLLED = 16


@dataclass(frozen=True)
class Device:
    """The limits of a target, and what its default configurations are chosen for.

    Attributes:
        threads: of a block, at most.
        shared: bytes of shared memory of a block, at most.
        vthreads: virtual threads of a loop, at most.
        vector_bytes: that a thread reads or writes at once.
        warp: threads that run in lockstep.
        processors: that run blocks.
        registers: of a block, at most, in words of 4 bytes.
    """

    threads: int
    shared: int
    vthreads: int
    vector_bytes: int
    warp: int
    processors: int
    registers: int

    @classmethod
    def current(cls) -> Device:
        """The limits of the target in force; those of any OpenCL device where it names none."""
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
        """Elements that a thread reads at once of tensors of some types, at most four."""
        return max(1, min(4, *(self.vector_bytes // dtypes.nbytes(x) for x in types)))


def powers(most: int, least: int = 1) -> list[int]:
    """Powers of two between two numbers."""
    return [1 << n for n in range(most.bit_length()) if least <= 1 << n <= most]


def common_width(widest: int, *lengths: int) -> int:
    """The widest vector, a power of two of at most ``widest``, that divides some lengths."""
    return max(w for w in powers(widest) if gcd(w, *lengths) == w)


def copy_together(s: Schedule, stage: te.Tensor, threads: Any, width: Any) -> None:
    """Fill a stage in shared memory by all threads of a block, neighbours side by side.

    Args:
        s: the schedule.
        stage: computed at a loop of the kernel, in shared memory.
        threads: of a block.
        width: elements that a thread copies at once, as a vector; few rounds are unrolled.
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
    """Adjacent loops as one."""
    return s[stage].fuse(*loops) if len(loops) > 1 else loops[0]
