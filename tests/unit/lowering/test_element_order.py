"""Transformed layouts in the nest: places of elements, padding, and lanes that stay together."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from loopwright import te
from loopwright.codegen.backends import compile_func
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.schedule import Schedule, create_schedule
from loopwright.target import Target


def doubled(n: int, m: int) -> tuple[Schedule, te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((n, m), lambda i, j: b[i, j] + 1.0, name="C")
    return create_schedule(c), a, b, c


def checked(s: Schedule, a: te.Tensor, c: te.Tensor) -> str:
    f = lower(s, [a, c])
    x = np.random.default_rng(0).integers(-4, 5, a.shape).astype("float32")
    out = np.full(c.shape, np.nan, "float32")
    interpret(f, [x, out])
    np.testing.assert_array_equal(out, x * 2 + 1)
    return str(f)


def test_padding_is_filled_before_the_stage_writes(golden: Any) -> None:
    s, a, b, c = doubled(3, 10)
    s[b].transform_layout(lambda i, j: (j // 4, i, j % 4), pad_value=9)
    golden(checked(s, a, c))


def test_padding_of_storage_is_filled_where_it_begins(golden: Any) -> None:
    s, a, b, c = doubled(3, 10)
    jo, _ = s[c].split(c.op.axis[1], factor=5)
    s[b].compute_at(s[c], jo)
    s[b].store_at(s[c], c.op.axis[0])
    s[b].transform_layout(lambda i, j: (j // 4, i, j % 4), pad_value=0)
    golden(checked(s, a, c))


def test_a_layout_without_padding_is_not_filled() -> None:
    s, a, b, c = doubled(3, 8)
    s[b].transform_layout(lambda i, j: (j // 4, i, j % 4), pad_value=9)
    assert "9.0" not in checked(s, a, c)


def test_lanes_of_a_fused_and_split_index_lie_together() -> None:
    """Vectors of four within rows of twelve and blocks of sixteen: no gather, no scatter."""
    s, a, b, c = doubled(64, 12)
    s[b].transform_layout(lambda i, j: ((i * 12 + j) // 16, (i * 12 + j) % 16))
    for t in (b, c):
        _, ji = s[t].split(s[t].op.axis[1], factor=4)
        s[t].vectorize(ji)
    checked(s, a, c)
    text = compile_func(lower(s, [a, c]), Target("llvm")).source("ll-unoptimised")
    assert len(re.findall(r"store <4 x float>", text)) == 2
    assert "extractelement" not in text
