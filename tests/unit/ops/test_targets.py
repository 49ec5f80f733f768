"""The default configuration of every operator on targets whose vectors are not this machine's."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from benchmarks.templates import BASELINES
from loopwright.ops import WORKLOADS
from loopwright.task import Template
from tests.covering import covering

ARGS = {
    "matmul": (64, 100, 64),
    "batch_matmul": (2, 64, 100, 64),
    "dense": (64, 100, 64),
    "matmul_int8": (64, 64, 64),
    "conv2d": (1, 16, 9, 9, 32, 3, 3),
    "depthwise_conv2d": (1, 32, 14, 14, 3, 3),
    "pool2d": (1, 32, 14, 14, 3, 3),
    "softmax": (32, 100),
    "layer_norm": (32, 100),
    "reduce": (32, 100),
    "elementwise": (32, 100),
    "transpose": (32, 100),
}


def test_every_operator_is_here() -> None:
    assert set(ARGS) == set(WORKLOADS)


@pytest.mark.parametrize(("name", "width"), covering(ARGS, [128, 256], strength=1))
def test_defaults_follow_the_target_of_the_task(name: str, width: int) -> None:
    """They are candidates of the space that the same target spans, and give the right result."""
    target = lw.Target(f"llvm -prefer-vector-width={width}")
    task = lw.create_task(name, args=ARGS[name], target=target)
    s, tensors = task.instantiate(task.config_space.default_index)
    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, t.shape)) for t in tensors]
    arrays = [
        rng.uniform(1, 9, shape).astype(t.dtype) for t, shape in zip(tensors, shapes, strict=True)
    ]
    lw.build(s, tensors, target=target)(*arrays)
    expected = task.reference(*arrays[:-1])
    np.testing.assert_allclose(arrays[-1], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "args", "rows", "columns"),
    [
        ("matmul", (64, 64, 64), "tile_i", "tile_j"),
        (BASELINES["conv2d"], (1, 16, 14, 14, 32, 3, 3), "tile_x", "tile_o"),
    ],
)
def test_filters_know_the_registers_of_the_target_of_the_task(
    op: str | Template, args: tuple[int, ...], rows: str, columns: str
) -> None:
    # 16 registers of 8 floats, whatever the host has and whatever target is in force.
    space = lw.create_task(op, args=args, target="llvm -mcpu=haswell").config_space
    valid = []
    for index in range(space.range_length):
        config = space.get(index)
        high, across = (
            k.size[-1] if hasattr(k, "size") else k.val for k in (config[rows], config[columns])
        )
        wide = -(-across // 8)
        valid.append(high * wide + wide + 1 <= 16)
    found = [space.is_valid(index) for index in range(space.range_length)]
    assert found == valid
    assert 0 < sum(valid) < len(valid)
    with lw.Target("llvm -mcpu=skylake-avx512"):
        assert [space.is_valid(index) for index in range(space.range_length)] == valid
