"""Contractions of 16-bit floats or of tf32 summed in float32, on the tensor cores of CUDA devices.

Tiles of both operands pass through shared memory, some steps of the reduction ahead of their use,
and from there into fragments in registers, by ldmatrix or, those of tf32, element by element, as in
CUTLASS's multistage kernels for Ampere; mma.sync multiplies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from loopwright import dtypes, te
from loopwright.errors import TaskError, did_you_mean
from loopwright.ir.expr import IterVar
from loopwright.ir.reduction import Reduce
from loopwright.ir.structural import structural_equal
from loopwright.schedule import Schedule
from loopwright.space.expression import is_computed
from loopwright.space.structure import Sketch, Structure
from loopwright.target import Target

#: Rows and columns of a warp's tile, warps of a block along both, mma along the reduction that are
#: staged at once, and places of shared memory.
TILES, WARPS, _DEPTHS, STAGES = (16, 32, 64), (1, 2, 4), (1, 2, 4), (2, 3, 4, 5)
#: Precisions of operands: their type in memory, and steps of the reduction in one mma.
_PRECISIONS = {"float16": ("float16", 16), "bfloat16": ("bfloat16", 16), "tf32": ("float32", 8)}
_COPIED = 16  #: bytes that a thread copies at once
FIRST_ARCH = 80  #: the first compute capability, times ten, that has these instructions
_LANES = 32
#: Warps of a block that the default has at most; more leave each thread too few registers.
DEFAULT_WARPS = 8
_ACCUMULATORS = 128  #: accumulators of a lane at most: half of the registers that it can have


@dataclass(frozen=True)
class MmaOperands:
    precision: str  # of the multiplication
    dtype: str  # in memory
    steps: int  # of the reduction in one mma
    trans_b: bool  # whether B is given transposed

    @staticmethod
    def of(precision: str, trans_b: bool) -> MmaOperands:
        """Operands of a precision; `TaskError` if tensor cores do not have it."""
        if precision not in _PRECISIONS:
            raise TaskError(
                f"matmul_tensor_core: dtype is {', '.join(_PRECISIONS)}, got {precision!r}"
                f"{did_you_mean(precision, _PRECISIONS)}; for products in full float32 take matmul"
            )
        return MmaOperands(precision, *_PRECISIONS[precision], trans_b)

    def takes(self, m: int, n: int, k: int) -> bool:
        """Whether rows of these shapes can be copied 16 bytes at once."""
        return min(m, n) >= 16 and k >= 1 and not n % self.vector and not k % self.steps

    @property
    def is_tf32(self) -> bool:
        return self.precision == "tf32"

    @property
    def nbytes(self) -> int:
        return dtypes.nbytes(self.dtype)

    @property
    def vector(self) -> int:
        """Elements that a thread copies at once."""
        return _COPIED // self.nbytes

    @property
    def b_operand(self) -> Any:
        """Name of B's fragments."""
        return "b_nk" if self.trans_b else "b"

    @property
    def mma(self) -> te.TensorIntrin:
        if self.is_tf32:
            return te.intrinsics.mma_m16n8k8(self.trans_b)
        return te.intrinsics.mma_m16n8k16(self.precision, self.trans_b)

    def factor(self, x: Any) -> Any:
        return te.intrinsics.round_tf32(x) if self.is_tf32 else x.astype("float32")

    def gap(self, operand: str) -> int:
        """Elements between rows of a tile in shared memory, so that no two lanes use one bank."""
        # ldmatrix reads 8 rows of 16 bytes at once; lanes of tf32 read 8 rows of 4 elements, and 4
        # rows of 8 elements of a B that is not transposed.
        return 4 if self.is_tf32 and operand != "b" else 8

    def shared_bytes(self, rows: int, columns: int, step: int) -> int:
        of_a = rows * (step + self.gap("a"))
        gap = self.gap(self.b_operand)
        of_b = columns * (step + gap) if self.trans_b else step * (columns + gap)
        return self.nbytes * (of_a + of_b)


#: A tile of a warp, warps of a block, steps and places.
Point = tuple[tuple[int, int], tuple[int, int], int, int]


def tensor_cores(outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> list[Structure]:
    """Structure of a product by tensor cores of the target; none for other expressions."""
    (out,) = outputs
    product = _product_of(out)
    if product is None or not has_tensor_cores(Target.current()):
        return []
    a, b, kind = product
    (m, n), (k,) = out.static_shape, out.op.reduce_axis
    if not kind.takes(m, n, k.count):
        return []
    fits = fitting(m, n, kind)
    space = [p for p in points(k.count, kind) if fits(*p)]
    if not space:
        return []
    few = [p for p in space if prod(p[1]) <= DEFAULT_WARPS] or space
    best = min(few, key=lambda p: cost(m, n, kind, *p))
    sketch = Sketch(outputs, args)
    flat = [(*tile, *warps, step, stages) for tile, warps, step, stages in space]
    chosen = sketch.numbers("block", flat, flat[space.index(best)])
    point = (chosen[0:2], chosen[2:4], chosen[4], chosen[5])
    MmaProduct(sketch.s, (a, b, out), kind, point).schedule()
    sketch.why.append(f"tensor cores multiply {kind.precision} and sum in float32")
    return [sketch.finished("fragments on tensor cores")]


def has_tensor_cores(target: Target) -> bool:
    if target.kind.name != "cuda":
        return False
    return int(str(target.options["arch"]).removeprefix("sm_").rstrip("af")) >= FIRST_ARCH


def _product_of(out: te.Tensor) -> tuple[te.Tensor, te.Tensor, MmaOperands] | None:
    body = getattr(out.op, "body", None)
    inputs = out.op.input_tensors
    if not isinstance(body, Reduce) or body.where is not None or body.init is not None:
        return None
    if len(out.shape) != 2 or len(inputs) != 2 or len(out.op.reduce_axis) != 1:
        return None
    if body.combiner.name != "sum" or out.dtype != "float32" or any(map(is_computed, inputs)):
        return None
    (i, j), (k,) = out.op.axis, out.op.reduce_axis
    kinds = [MmaOperands.of(name, trans_b) for name in _PRECISIONS for trans_b in (False, True)]
    for (a, b), kind in product((inputs, inputs[::-1]), kinds):
        if {a.dtype, b.dtype} != {kind.dtype} or not len(a.shape) == len(b.shape) == 2:
            continue
        factors = kind.factor(a[i, k]) * kind.factor(b[j, k] if kind.trans_b else b[k, j])
        if structural_equal(factors, body.source[0]):
            return a, b, kind
    return None


def points(K: int, kind: MmaOperands) -> list[Point]:
    """All points of a product of ``K`` steps, those that do not fit included."""
    tiles, warps = product(TILES, TILES), product(WARPS, WARPS)
    return list(product(tiles, warps, staged_steps(K, kind), STAGES))


def staged_steps(K: int, kind: MmaOperands) -> list[int]:
    """Steps of the reduction that can be staged at once."""
    return [n * kind.steps for n in _DEPTHS if K % (n * kind.steps) == 0]


def fitting(
    M: int, N: int, kind: MmaOperands
) -> Callable[[Sequence[int], Sequence[int], int, int], bool]:
    """Test whether a block has the registers and the memory that it needs, and enough to do."""
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


def cost(
    M: int,
    N: int,
    kind: MmaOperands,
    tiles: Sequence[int],
    warps: Sequence[int],
    step: int,
    stages: int,
) -> float:
    """Rough time of a product: waves of blocks times a block's transfers and arithmetic."""
    rows, columns = tiles[0] * warps[0], tiles[1] * warps[1]
    blocks = -(-M // rows) * -(-N // columns)
    waves = -(-blocks // int(Target.current().options["multi_processor_count"]))
    multiplied = rows * columns / 4
    moved = 16 * (rows + columns) + 2 * rows * columns * (1 / tiles[0] + 1 / tiles[1])
    idle = 1 + 4 / (warps[0] * warps[1]) + 1 / stages + kind.steps / (2 * step)
    return waves * (multiplied + moved) * idle


class MmaProduct:
    def __init__(
        self,
        s: Schedule,
        tensors: tuple[te.Tensor, te.Tensor, te.Tensor],
        kind: MmaOperands,
        point: tuple[Sequence[Any], Sequence[Any], Any, Any],
    ) -> None:
        self.s, self.tensors, self.kind = s, tensors, kind
        #: steps of the reduction that are staged at once, and places of shared memory for them
        self.tile, self.warps, self.step, self.stages = point

    def schedule(self) -> None:
        """Schedule blocks, warps, accumulators, fragments and shared tiles, from the outside in."""
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
        """Products of a warp. Returns the loops at which tiles and fragments are loaded."""
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
        s = self.s
        i, j = s[x].op.axis
        i, ii = s[x].split(i, factor=16)
        j, jj = s[x].split(j, factor=16)
        s[x].reorder(i, j, ii, jj)
        s[x].tensorize(ii, te.intrinsics.ldmatrix_x4(operand, self.kind.dtype))

    def load_elements(self, x: te.Tensor, operand: str) -> None:
        """Load fragments of tf32: each lane loads its own, as ldmatrix transposes 16 bits only."""
        s = self.s
        i, j = s[x].op.axis
        lines, steps = (j, i) if operand == "b" else (i, j)
        tile, line = s[x].split(lines, factor=16)
        half, line = s[x].split(line, factor=8)
        high, step = s[x].split(steps, factor=4)
        s[x].reorder(tile, half, high, line, step)
        s[x].bind(s[x].fuse(line, step), te.thread_axis("threadIdx.x"))

    def copy(self, x: te.Tensor, operand: str) -> None:
        """Copy a tile to shared memory by all threads of a block, rows in different banks."""
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
