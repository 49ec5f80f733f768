"""Facts of code for symbolic sizes that speed depends on."""

from __future__ import annotations

import re

import pytest

from loopwright import te
from loopwright.codegen.llvm.compiler import write_module
from loopwright.lowering import lower
from loopwright.target import Target
from tests.unit.lowering.test_symbolic import packed, product


@pytest.mark.parametrize("threads", [1, 2])
def test_the_register_tile_keeps_whole_vectors(threads: int) -> None:
    """Index arithmetic in int64 does not narrow the vectors of a tile of floats."""
    s, A, B, C = product()
    packed(s, B, C)
    target = Target(f"llvm -mcpu=x86-64-v3 -num-threads={threads}")
    text, _, _ = write_module(lower(s, [A, B, C]), target)
    widths = set(re.findall(r"fmul contract <(\d+) x float>", text))
    assert widths == {"8"}
    assert "gather" not in text


def test_a_product_of_a_loop_and_a_stride_is_shared() -> None:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    text, _, workspace = write_module(lower(s, [A, B]), Target("llvm -num-threads=1"))
    assert text.count("mul i64") == 1
    assert workspace == 0
