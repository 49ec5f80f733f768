"""matmul_tensor_core: products of 16-bit floats or of tf32 summed in float32, on tensor cores.

The schedule is that of CUTLASS's multistage kernels for Ampere: tiles pass through shared memory,
some steps ahead of their use, into fragments (`loopwright.space.rules.tensor_core_gpu`).
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from loopwright import space, te
from loopwright.errors import TaskError
from loopwright.ops.operator import Array, LoopOrIndex, Reference
from loopwright.schedule import Schedule
from loopwright.target import Target
from loopwright.task import get_config, template


def _reference(M: int, N: int, K: int, trans_b: bool, dtype: str) -> Reference:
    def factor(x: Array) -> Array:
        if dtype != "tf32":
            return x.astype(np.float32)
        # As `te.intrinsics.round_tf32` does it.
        rounded = (x.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
        return np.where(np.isnan(x), x, rounded.view(np.float32))

    def reference(a: Array, b: Array) -> Array:
        x, y = factor(a), factor(b)
        return x @ (y.T if trans_b else y)

    return reference


def _default(M: int, N: int, K: int, trans_b: bool, dtype: str) -> dict[str, object]:
    kind = space.MmaOperands.of(dtype, trans_b)
    _check(M, N, K, kind)
    fits = space.fitting(M, N, kind)
    best = min(
        (c for c in space.points(K, kind) if fits(*c) and prod(c[1]) <= space.DEFAULT_WARPS),
        key=lambda c: space.cost(M, N, kind, *c),
    )
    tiles, warps, step, stages = best
    return {"tile": list(tiles), "warps": list(warps), "step": step, "stages": stages}


def _check(M: int, N: int, K: int, kind: space.MmaOperands) -> None:
    """Refuse shapes whose rows cannot be copied 16 bytes at once, and other targets."""
    if Target.current().kind.name != "cuda":
        raise TaskError(
            f"matmul_tensor_core is for targets cuda, and the target in force is "
            f"{Target.current().kind.name}; take matmul"
        )
    if not space.has_tensor_cores(Target.current()):
        raise TaskError(
            f"matmul_tensor_core needs sm_{space.FIRST_ARCH} or later, and the target in force is "
            f"for {Target.current().options['arch']}; take matmul"
        )
    if not kind.takes(M, N, K):
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
    """
    kind = space.MmaOperands.of(dtype, trans_b)
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
    cfg.define_knob("tile", list(product(space.TILES, space.TILES)))
    cfg.define_knob("warps", list(product(space.WARPS, space.WARPS)))
    cfg.define_knob("step", space.staged_steps(K, kind))
    cfg.define_knob("stages", list(space.STAGES))
    fits = space.fitting(M, N, kind)
    cfg.multi_filter(lambda c: fits(c["tile"].val, c["warps"].val, c["step"].val, c["stages"].val))
    point = (cfg["tile"].val, cfg["warps"].val, cfg["step"].val, cfg["stages"].val)
    space.MmaProduct(s, (a, b, c), kind, point).schedule()
    return s, [a, b, c]
