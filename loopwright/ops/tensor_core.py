"""matmul_tensor_core: products of 16-bit floats or of tf32 summed in float32, on tensor cores.

A block computes a tile of C with several warps. Tiles of A and B pass through shared memory, some
steps of the reduction ahead of their use, and from there into fragments in registers, by ldmatrix
or, those of tf32, element by element; mma.sync multiplies them. This is the schedule of CUTLASS's
multistage kernels for Ampere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import TaskError, did_you_mean
from loopwright.ir.expr import IterVar
from loopwright.ops.operator import Array, LoopOrIndex, Reference
from loopwright.schedule import Schedule
from loopwright.target import Target
from loopwright.task import get_config, template
from loopwright.task.template_config import TemplateConfig

#: Rows and columns of a warp's tile, warps of a block along both, how many mma along the reduction
#: are staged at once, and places of shared memory.
_TILES, _WARPS, _DEPTHS, _STAGES = (16, 32, 64), (1, 2, 4), (1, 2, 4), (2, 3, 4, 5)
#: Bytes that a thread copies at once.
_COPIED = 16
#: The first compute capability, times ten, that has these instructions.
_FIRST_ARCH = 80
_LANES = 32
#: Warps of a block that the default has at most; more leave each thread too few registers.
_DEFAULT_WARPS = 8
#: Accumulators of a lane at most: half of the registers that it can have.
_ACCUMULATORS = 128


@dataclass(frozen=True)
class _Operands:
    """What the schedule depends on in A and B.

    Attributes:
        precision: in which they are multiplied.
        dtype: in memory.
        steps: of the reduction in one mma.
        trans_b: whether B is given transposed.
    """

    precision: str
    dtype: str
    steps: int
    trans_b: bool

    @staticmethod
    def of(precision: str, trans_b: bool) -> _Operands:
        """Those of a precision.

        Raises:
            TaskError: tensor cores do not have it.
        """
        kinds = {"float16": ("float16", 16), "bfloat16": ("bfloat16", 16), "tf32": ("float32", 8)}
        if precision not in kinds:
            raise TaskError(
                f"matmul_tensor_core: dtype is {', '.join(kinds)}, got {precision!r}"
                f"{did_you_mean(precision, kinds)}; for products in full float32 take matmul"
            )
        return _Operands(precision, *kinds[precision], trans_b)

    @property
    def is_tf32(self) -> bool:
        """Whether elements of float32 are rounded to tf32."""
        return self.precision == "tf32"

    @property
    def nbytes(self) -> int:
        """Of an element."""
        return dtypes.nbytes(self.dtype)

    @property
    def vector(self) -> int:
        """Elements that a thread copies at once."""
        return _COPIED // self.nbytes

    @property
    def b_operand(self) -> Any:
        """The name of B's fragments."""
        return "b_nk" if self.trans_b else "b"

    @property
    def mma(self) -> te.TensorIntrin:
        """The instruction."""
        if self.is_tf32:
            return te.intrinsics.mma_m16n8k8(self.trans_b)
        return te.intrinsics.mma_m16n8k16(self.precision, self.trans_b)

    def factor(self, x: Any) -> Any:
        """What is multiplied for an element."""
        return te.intrinsics.round_tf32(x) if self.is_tf32 else x.astype("float32")

    def gap(self, operand: str) -> int:
        """Elements between rows of a tile in shared memory, so that no two lanes use one bank.

        ldmatrix reads 8 rows of 16 bytes at once; lanes of tf32 read 8 rows of 4 elements, and 4
        rows of 8 elements of a B that is not transposed.
        """
        return 4 if self.is_tf32 and operand != "b" else 8

    def shared_bytes(self, rows: int, columns: int, step: int) -> int:
        """Shared memory of a tile of A and one of B."""
        of_a = rows * (step + self.gap("a"))
        gap = self.gap(self.b_operand)
        of_b = columns * (step + gap) if self.trans_b else step * (columns + gap)
        return self.nbytes * (of_a + of_b)


def _reference(M: int, N: int, K: int, trans_b: bool, dtype: str) -> Reference:
    def factor(x: Array) -> Array:
        return _nearest_tf32(x) if dtype == "tf32" else x.astype(np.float32)

    def reference(a: Array, b: Array) -> Array:
        x, y = factor(a), factor(b)
        return x @ (y.T if trans_b else y)

    return reference


def _nearest_tf32(x: Array) -> Array:
    """As `te.intrinsics.round_tf32`."""
    rounded = (x.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


def _default(M: int, N: int, K: int, trans_b: bool, dtype: str) -> dict[str, object]:
    kind = _Operands.of(dtype, trans_b)
    _check(M, N, K, kind)
    fits = _fitting(M, N, kind)
    space = [c for c in _candidates(K, kind) if fits(*c) and prod(c[1]) <= _DEFAULT_WARPS]
    tiles, warps, step, stages = min(space, key=lambda c: _cost(M, N, kind, *c))
    return {"tile": list(tiles), "warps": list(warps), "step": step, "stages": stages}


#: A tile of a warp, warps of a block, steps and places.
_Point = tuple[tuple[int, int], tuple[int, int], int, int]


def _candidates(K: int, kind: _Operands) -> list[_Point]:
    tiles, warps = product(_TILES, _TILES), product(_WARPS, _WARPS)
    return list(product(tiles, warps, _steps(K, kind), _STAGES))


def _steps(K: int, kind: _Operands) -> list[int]:
    """Steps of the reduction that can be staged at once."""
    return [n * kind.steps for n in _DEPTHS if K % (n * kind.steps) == 0]


def _fitting(
    M: int, N: int, kind: _Operands
) -> Callable[[Sequence[int], Sequence[int], int, int], bool]:
    """Tells whether a block has the registers and the memory that it needs, and enough to do."""
    options = Target.current().options

    def fits(tiles: Sequence[int], warps: Sequence[int], step: int, stages: int) -> bool:
        rows, columns = tiles[0] * warps[0], tiles[1] * warps[1]
        shared = stages * kind.shared_bytes(rows, columns, step)
        threads = _LANES * warps[0] * warps[1]
        return (
            tiles[0] * tiles[1] <= _ACCUMULATORS * _LANES
            and shared <= options["max_shared_memory_per_block"]
            and threads <= options["max_threads_per_block"]
            and all(n < extent + 16 for n, extent in ((rows, M), (columns, N)))
            # Every thread copies as much as any other.
            and not any(n * step % (kind.vector * threads) for n in (rows, columns))
        )

    return fits


def _cost(
    M: int,
    N: int,
    kind: _Operands,
    tiles: Sequence[int],
    warps: Sequence[int],
    step: int,
    stages: int,
) -> float:
    """Time of a product, roughly: waves of blocks times what a block moves and multiplies."""
    rows, columns = tiles[0] * warps[0], tiles[1] * warps[1]
    blocks = -(-M // rows) * -(-N // columns)
    waves = -(-blocks // int(Target.current().options["multi_processor_count"]))
    multiplied = rows * columns / 4
    moved = 16 * (rows + columns) + 2 * rows * columns * (1 / tiles[0] + 1 / tiles[1])
    idle = 1 + 4 / (warps[0] * warps[1]) + 1 / stages + kind.steps / (2 * step)
    return waves * (multiplied + moved) * idle


def _check(M: int, N: int, K: int, kind: _Operands) -> None:
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
    if min(M, N) < 16 or K < 1 or N % kind.vector or K % kind.steps:
        raise TaskError(
            f"matmul_tensor_core takes M from 16 on, N from 16 on in multiples of {kind.vector} "
            f"and K in multiples of {kind.steps}, got M = {M}, N = {N}, K = {K}; pad them, or take "
            "matmul"
        )


@template("matmul_tensor_core", make_reference=_reference, default=_default)
def matmul_tensor_core(
    M: int, N: int, K: int, trans_b: bool = False, dtype: str = "float16"
) -> tuple[Schedule, list[te.Tensor]]:
    """C (M, N) of float32 = A (M, K) @ B (K, N) on tensor cores; ``trans_b``: B is (N, K).

    For targets cuda of compute capability 8.0 and later. Sums are in float32, in the order of the
    hardware. The knobs: ``tile`` of a warp, ``warps`` of a block, ``step`` of the reduction that is
    staged at once, ``stages`` that are staged ahead.

    With ``dtype="tf32"`` A and B are of float32, and each element is rounded to tf32 before it is
    multiplied: of its 24 significant bits 11 are left, those of float16, a relative error of
    2**-11 at most; the range stays that of float32. `matmul` of float32 never does so.

    Args:
        M: rows, 16 or more.
        N: columns, a multiple of 8 (4 for tf32) from 16 on.
        K: length of the sums, a multiple of 16 (8 for tf32).
        trans_b: whether B is given transposed.
        dtype: of A and B, ``"float16"`` or ``"bfloat16"``; ``"tf32"``: of float32, multiplied as
            tf32.

    Raises:
        TaskError: another target, shape or dtype.

    Example:
        >>> with lw.Target("cuda -arch=sm_80"):
        ...     s, args = lw.ops.matmul_tensor_core(256, 256, 256)
        ...
        >>> print([t.name for t in args])
        ['A', 'B', 'C']
    """
    kind = _Operands.of(dtype, trans_b)
    _check(M, N, K, kind)
    a = te.placeholder((M, K), kind.dtype, name="A")
    b = te.placeholder((N, K) if trans_b else (K, N), kind.dtype, name="B")
    k = te.reduce_axis((0, K), name="k")

    def element(i: LoopOrIndex, j: LoopOrIndex) -> Any:
        y = b[j, k] if trans_b else b[k, j]
        return te.sum(kind.factor(a[i, k]) * kind.factor(y), axis=k)

    c = te.compute((M, N), element, name="C", tag="matmul")
    s = te.create_schedule(c.op)
    cfg = get_config()
    # Rounding is not counted.
    cfg.add_flop(2 * M * N * K)
    _define_space(cfg, M, N, K, kind)
    _Product(cfg, s, (a, b, c), kind).schedule()
    return s, [a, b, c]


def _define_space(cfg: TemplateConfig, M: int, N: int, K: int, kind: _Operands) -> None:
    cfg.define_knob("tile", list(product(_TILES, _TILES)))
    cfg.define_knob("warps", list(product(_WARPS, _WARPS)))
    cfg.define_knob("step", _steps(K, kind))
    cfg.define_knob("stages", list(_STAGES))
    fits = _fitting(M, N, kind)
    cfg.multi_filter(lambda c: fits(c["tile"].val, c["warps"].val, c["step"].val, c["stages"].val))


class _Product:
    """The schedule of one product.

    Attributes:
        tile: rows and columns of a warp.
        warps: of a block, along both.
        step: steps of the reduction that are staged at once.
        stages: places of shared memory for them.
        kind: what A and B are.
    """

    def __init__(
        self,
        cfg: TemplateConfig,
        s: Schedule,
        tensors: tuple[te.Tensor, te.Tensor, te.Tensor],
        kind: _Operands,
    ) -> None:
        self.s, self.tensors, self.kind = s, tensors, kind
        self.tile, self.warps = cfg["tile"].val, cfg["warps"].val
        self.step, self.stages = cfg["step"].val, cfg["stages"].val

    def schedule(self) -> None:
        """Blocks, warps, accumulators, fragments and shared tiles, from the outside in."""
        s, (a, b, c) = self.s, self.tensors
        shared = [s.cache_read(x, "shared.dyn", [c]) for x in (a, b)]
        fragments = [s.cache_read(x, "warp", [c]) for x in shared]
        acc = s.cache_write(c, "warp")
        s[acc].compute_at(s[c], self.result(c))
        ko, ki = self.accumulate(acc)
        operands = ("a", self.kind.b_operand)
        load = self.load_elements if self.kind.is_tf32 else self.load_matrices
        for x, operand in zip(fragments, operands, strict=True):
            s[x].compute_at(s[acc], ki)
            s[x].transform_layout(te.intrinsics.fragment_layout(operand, self.kind.precision))
            load(x, operand)
        for x, operand in zip(shared, operands, strict=True):
            s[x].compute_at(s[acc], ko)
            self.copy(x, operand)

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
        ki, kk = s[acc].split(k, factor=self.kind.steps)
        s[acc].reorder(ko, ki, i, j, ii, jj, kk)
        s[acc].unroll(ki)
        s[acc].tensorize(ii, self.kind.mma)
        return ko, ki

    def load_matrices(self, x: te.Tensor, operand: str) -> None:
        """Fragments by ldmatrix."""
        s = self.s
        i, j = s[x].op.axis
        i, ii = s[x].split(i, factor=16)
        j, jj = s[x].split(j, factor=16)
        s[x].reorder(i, j, ii, jj)
        s[x].tensorize(ii, te.intrinsics.ldmatrix_x4(operand, self.kind.dtype))

    def load_elements(self, x: te.Tensor, operand: str) -> None:
        """Fragments of tf32: each lane loads its own, as ldmatrix transposes 16 bits only."""
        s = self.s
        i, j = s[x].op.axis
        lines, steps = (j, i) if operand == "b" else (i, j)
        tile, line = s[x].split(lines, factor=16)
        half, line = s[x].split(line, factor=8)
        high, step = s[x].split(steps, factor=4)
        s[x].reorder(tile, half, high, line, step)
        s[x].bind(s[x].fuse(line, step), te.thread_axis("threadIdx.x"))

    def copy(self, x: te.Tensor, operand: str) -> None:
        """A tile in shared memory by all threads of a block, rows in different banks."""
        s, gap = self.s, self.kind.gap(operand)
        s[x].storage_align(0, 2 * gap, gap)
        loop = s[x].fuse(*s[x].op.axis)
        loop, lanes = s[x].split(loop, factor=self.kind.vector)
        for axis, count in (("x", _LANES), ("y", self.warps[1]), ("z", self.warps[0])):
            loop, thread = s[x].split(loop, factor=count)
            s[x].bind(thread, te.thread_axis(f"threadIdx.{axis}"))
        s[x].unroll(loop)
        s[x].vectorize(lanes)
        s[x].double_buffer(self.stages)
