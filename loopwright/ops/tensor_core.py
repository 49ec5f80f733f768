"""matmul_tensor_core: products of 16-bit floats summed in float32, on tensor cores of CUDA.

A block computes a tile of C with several warps. Tiles of A and B pass through shared memory, some
steps of the reduction ahead of their use, and from there by ldmatrix into fragments in registers,
which mma.sync multiplies. This is the schedule of CUTLASS's multistage kernels for Ampere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from loopwright import te
from loopwright.errors import TaskError
from loopwright.ir.expr import IterVar
from loopwright.ops.operator import Array, LoopOrIndex, Reference
from loopwright.schedule import Schedule
from loopwright.target import Target
from loopwright.task import get_config, template
from loopwright.task.template_config import TemplateConfig

#: Rows and columns of a warp's tile, warps of a block along both, steps that are staged at once,
#: and places of shared memory.
_TILES, _WARPS, _STEPS, _STAGES = (16, 32, 64), (1, 2, 4), (16, 32, 64), (2, 3, 4, 5)
#: Elements of 16 bits that a thread copies at once, and between rows of shared memory that fall
#: into different banks.
_VECTOR, _GAP = 8, 8
_BYTES = 2
#: The first compute capability, times ten, that has mma.m16n8k16.
_FIRST_ARCH = 80
_LANES = 32
#: Warps of a block that the default has at most; more leave each thread too few registers.
_DEFAULT_WARPS = 8
#: Accumulators of a lane at most: half of the registers that it can have.
_ACCUMULATORS = 128


def _reference(M: int, N: int, K: int, trans_b: bool, dtype: str) -> Reference:
    def reference(a: Array, b: Array) -> Array:
        x, y = a.astype(np.float32), b.astype(np.float32)
        return x @ (y.T if trans_b else y)

    return reference


def _default(M: int, N: int, K: int, trans_b: bool, dtype: str) -> dict[str, object]:
    _check(M, N, K)
    fits = _fitting(M, N)
    space = [c for c in _candidates(K) if fits(*c) and prod(c[1]) <= _DEFAULT_WARPS]
    tiles, warps, step, stages = min(space, key=lambda c: _cost(M, N, *c))
    return {"tile": list(tiles), "warps": list(warps), "step": step, "stages": stages}


#: A tile of a warp, warps of a block, steps and places.
_Point = tuple[tuple[int, int], tuple[int, int], int, int]


def _candidates(K: int) -> list[_Point]:
    steps = [n for n in _STEPS if K % n == 0]
    return list(product(product(_TILES, _TILES), product(_WARPS, _WARPS), steps, _STAGES))


def _fitting(M: int, N: int) -> Callable[[Sequence[int], Sequence[int], int, int], bool]:
    """Tells whether a block has the registers and the memory that it needs, and enough to do."""
    options = Target.current().options

    def fits(tiles: Sequence[int], warps: Sequence[int], step: int, stages: int) -> bool:
        rows, columns = tiles[0] * warps[0], tiles[1] * warps[1]
        of_b = max(columns * (step + _GAP), step * (columns + _GAP))
        shared = stages * _BYTES * (rows * (step + _GAP) + of_b)
        threads = _LANES * warps[0] * warps[1]
        return (
            tiles[0] * tiles[1] <= _ACCUMULATORS * _LANES
            and shared <= options["max_shared_memory_per_block"]
            and threads <= options["max_threads_per_block"]
            and all(n < extent + 16 for n, extent in ((rows, M), (columns, N)))
            # Every thread copies as much as any other.
            and not any(n * step % (_VECTOR * threads) for n in (rows, columns))
        )

    return fits


def _cost(
    M: int, N: int, tiles: Sequence[int], warps: Sequence[int], step: int, stages: int
) -> float:
    """Time of a product, roughly: waves of blocks times what a block moves and multiplies."""
    rows, columns = tiles[0] * warps[0], tiles[1] * warps[1]
    blocks = -(-M // rows) * -(-N // columns)
    waves = -(-blocks // int(Target.current().options["multi_processor_count"]))
    multiplied = rows * columns / 4
    moved = 16 * (rows + columns) + 2 * rows * columns * (1 / tiles[0] + 1 / tiles[1])
    idle = 1 + 4 / (warps[0] * warps[1]) + 1 / stages + 8 / step
    return waves * (multiplied + moved) * idle


def _check(M: int, N: int, K: int) -> None:
    """Refuse shapes whose rows cannot be copied 16 bytes at once, and other targets.

    Raises:
        TaskError: says which.
    """
    if Target.current().kind.name != "cuda":
        raise TaskError(
            f"matmul_tensor_core is for targets cuda, and the target in force is "
            f"{Target.current().kind.name}; take matmul"
        )
    arch = str(Target.current().options["arch"])
    if int(arch.removeprefix("sm_").rstrip("af")) < _FIRST_ARCH:
        raise TaskError(
            f"matmul_tensor_core needs sm_{_FIRST_ARCH} or later, and the target in force is for "
            f"{arch}; take matmul"
        )
    if min(M, N, K) < 16 or N % _VECTOR or K % 16:
        raise TaskError(
            f"matmul_tensor_core takes M from 16 on, N from 16 on in multiples of {_VECTOR} and K "
            f"in multiples of 16, got M = {M}, N = {N}, K = {K}; pad them, or take matmul"
        )


@template("matmul_tensor_core", make_reference=_reference, default=_default)
def matmul_tensor_core(
    M: int, N: int, K: int, trans_b: bool = False, dtype: str = "float16"
) -> tuple[Schedule, list[te.Tensor]]:
    """C (M, N) of float32 = A (M, K) @ B (K, N) of 16-bit floats; ``trans_b``: B is (N, K).

    For targets cuda of compute capability 8.0 and later. Sums are in float32, in the order of the
    hardware. The knobs: ``tile`` of a warp, ``warps`` of a block, ``step`` of the reduction that is
    staged at once, ``stages`` that are staged ahead.

    Args:
        M: rows, 16 or more.
        N: columns, a multiple of 8 from 16 on.
        K: length of the sums, a multiple of 16.
        trans_b: whether B is given transposed.
        dtype: of A and B, ``"float16"`` or ``"bfloat16"``.

    Raises:
        TaskError: another target or shape.

    Example:
        >>> with lw.Target("cuda -arch=sm_80"):
        ...     s, args = lw.ops.matmul_tensor_core(256, 256, 256)
        ...
        >>> print([t.name for t in args])
        ['A', 'B', 'C']
    """
    _check(M, N, K)
    a = te.placeholder((M, K), dtype, name="A")
    b = te.placeholder((N, K) if trans_b else (K, N), dtype, name="B")
    k = te.reduce_axis((0, K), name="k")

    def element(i: LoopOrIndex, j: LoopOrIndex) -> Any:
        y = b[j, k] if trans_b else b[k, j]
        return te.sum(a[i, k].astype("float32") * y.astype("float32"), axis=k)

    c = te.compute((M, N), element, name="C", tag="matmul")
    s = te.create_schedule(c.op)
    cfg = get_config()
    _define_space(cfg, M, N, K)
    _Product(cfg, s, (a, b, c), trans_b).schedule()
    return s, [a, b, c]


def _define_space(cfg: TemplateConfig, M: int, N: int, K: int) -> None:
    cfg.define_knob("tile", list(product(_TILES, _TILES)))
    cfg.define_knob("warps", list(product(_WARPS, _WARPS)))
    cfg.define_knob("step", [n for n in _STEPS if K % n == 0])
    cfg.define_knob("stages", list(_STAGES))
    fits = _fitting(M, N)
    cfg.multi_filter(lambda c: fits(c["tile"].val, c["warps"].val, c["step"].val, c["stages"].val))


class _Product:
    """The schedule of one product.

    Attributes:
        tile: rows and columns of a warp.
        warps: of a block, along both.
        step: steps of the reduction that are staged at once.
        stages: places of shared memory for them.
    """

    def __init__(
        self,
        cfg: TemplateConfig,
        s: Schedule,
        tensors: tuple[te.Tensor, te.Tensor, te.Tensor],
        trans_b: bool,
    ) -> None:
        self.s, self.tensors, self.trans_b = s, tensors, trans_b
        self.tile, self.warps = cfg["tile"].val, cfg["warps"].val
        self.step, self.stages = cfg["step"].val, cfg["stages"].val
        self.dtype = tensors[0].dtype

    def schedule(self) -> None:
        """Blocks, warps, accumulators, fragments and shared tiles, from the outside in."""
        s, (a, b, c) = self.s, self.tensors
        shared = [s.cache_read(x, "shared.dyn", [c]) for x in (a, b)]
        fragments = [s.cache_read(x, "warp", [c]) for x in shared]
        acc = s.cache_write(c, "warp")
        s[acc].compute_at(s[c], self.result(c))
        ko, ki = self.accumulate(acc)
        for x, operand in zip(fragments, ("a", "b_nk" if self.trans_b else "b"), strict=True):
            s[x].compute_at(s[acc], ki)
            self.load_fragment(x, operand)
        for x in shared:
            s[x].compute_at(s[acc], ko)
            self.copy(x)

    def result(self, c: te.Tensor) -> IterVar:
        """Loops over blocks and warps; each lane stores its registers. Returns the warp's loop."""
        s = self.s
        i, j = s[c].op.axis
        wi, i = s[c].split(i, factor=self.tile[0])
        wj, j = s[c].split(j, factor=self.tile[1])
        bi, wi = s[c].split(wi, factor=self.warps[0])
        bj, wj = s[c].split(wj, factor=self.warps[1])
        it, i = s[c].split(i, factor=16)
        high, row = s[c].split(i, factor=8)
        jt, j = s[c].split(j, factor=8)
        pair, low = s[c].split(j, factor=2)
        s[c].reorder(bi, bj, wi, wj, it, jt, high, row, pair, low)
        lane = s[c].fuse(row, pair)
        axes = ("blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")
        for loop, tag in zip((bi, bj, wi, wj, lane), axes, strict=True):
            s[c].bind(loop, te.thread_axis(tag))
        s[c].vectorize(low)
        return wj

    def accumulate(self, acc: te.Tensor) -> tuple[IterVar, IterVar]:
        """The products of a warp. Returns the loops at which tiles and fragments are loaded."""
        s = self.s
        s[acc].transform_layout(te.intrinsics.fragment_layout("c"))
        i, j = s[acc].op.axis
        i, ii = s[acc].split(i, factor=16)
        j, jj = s[acc].split(j, factor=8)
        ko, k = s[acc].split(s[acc].op.reduce_axis[0], factor=self.step)
        ki, kk = s[acc].split(k, factor=16)
        s[acc].reorder(ko, ki, i, j, ii, jj, kk)
        s[acc].unroll(ki)
        s[acc].tensorize(ii, te.intrinsics.mma_m16n8k16(self.dtype, self.trans_b))
        return ko, ki

    def load_fragment(self, x: te.Tensor, operand: Any) -> None:
        """Fragments by ldmatrix."""
        s = self.s
        s[x].transform_layout(te.intrinsics.fragment_layout(operand))
        i, j = s[x].op.axis
        i, ii = s[x].split(i, factor=16)
        j, jj = s[x].split(j, factor=16)
        s[x].reorder(i, j, ii, jj)
        s[x].tensorize(ii, te.intrinsics.ldmatrix_x4(operand, self.dtype))

    def copy(self, x: te.Tensor) -> None:
        """A tile in shared memory by all threads of a block, rows in different banks."""
        s = self.s
        s[x].storage_align(0, 16, _GAP)
        loop = s[x].fuse(*s[x].op.axis)
        loop, lanes = s[x].split(loop, factor=_VECTOR)
        for axis, count in (("x", _LANES), ("y", self.warps[1]), ("z", self.warps[0])):
            loop, thread = s[x].split(loop, factor=count)
            s[x].bind(thread, te.thread_axis(f"threadIdx.{axis}"))
        s[x].unroll(loop)
        s[x].vectorize(lanes)
        s[x].double_buffer(self.stages)
