"""matmul_int8: packing, and results for shapes that divide and that do not, with both knobs."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright.ops.matmul_int8 import pack_int8, unpack_int8

SHAPES = [(8, 32, 16), (16, 48, 20), (13, 50, 37), (1, 7, 3), (30, 33, 4), (3, 130, 9)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_packing(m: int, n: int, k: int) -> None:
    b = np.random.default_rng(m).integers(-128, 128, (k, n), np.int8)
    packed = pack_int8(b)
    assert packed.shape == (-(-n // 16), -(-k // 4), 16, 4)
    assert packed[(n - 1) // 16, (k - 1) // 4, (n - 1) % 16, (k - 1) % 4] == b[k - 1, n - 1]
    assert packed.astype(np.int64).sum() == b.astype(np.int64).sum()
    np.testing.assert_array_equal(unpack_int8(packed, k, n), b)


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        # Whole tiles, and less than one; what cuts tiles off is below.
        *((x, "llvm") for x in SHAPES[::3]),
        *(pytest.param(x, "llvm", marks=pytest.mark.slow) for x in (*SHAPES[1::3], *SHAPES[2::3])),
        ((13, 50, 37), "llvm -mcpu=x86-64-v3"),
        ((3, 18, 9), "c"),
    ],
)
def test_results_are_exact(shape: tuple[int, int, int], target: str) -> None:
    task = lw.create_task("matmul_int8", shape, target)
    m, n, k = shape
    rng = np.random.default_rng(k)
    a = rng.integers(0, 256, (m, k), np.uint8)
    b = rng.integers(-128, 128, (k, n), np.int8)
    want = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    assert task.reference is not None
    np.testing.assert_array_equal(task.reference(a, pack_int8(b)), want)
    for config in (task.fallback(), 0, len(task.config_space) - 1):
        s, args = task.instantiate(config)
        got = np.full((m, n), 99, np.int32)
        lw.build(s, args, target, name="f")(a, pack_int8(b), got)
        np.testing.assert_array_equal(got, want)


def test_the_space_has_both_ways() -> None:
    task = lw.create_task("matmul_int8", (16, 32, 16), "llvm")
    text = {i: str(lw.lower(*task.instantiate(i))) for i in (0, len(task.config_space) - 1)}
    assert sum("dot_16x4_u8s8s32" in x for x in text.values()) == 1
