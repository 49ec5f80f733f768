"""Intrinsics of tensor cores: proved like any other, and tf32 rounded alike by compilers."""

from __future__ import annotations

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.te.intrin_proof import why_not_harmless
from tests.unit.lowering.tensor_core_programs import nearest_tf32


@pytest.mark.parametrize("transposed", [False, True])
def test_products_do_what_their_descriptions_say(transposed: bool) -> None:
    assert why_not_harmless(te.intrinsics.mma_m16n8k8(transposed)) == ""
    assert why_not_harmless(te.intrinsics.mma_m16n8k16("bfloat16", transposed)) == ""


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_compilers_round_to_tf32(target: str) -> None:
    """Every exponent and both signs, on both sides of ties; NaN stays NaN."""
    near = [bits for tie in (0x1000, 0x3000, 0x7FF000) for bits in (tie - 1, tie, tie + 1)]
    bits = np.add.outer(np.arange(512, dtype="uint32") << 23, np.array(near, "uint32")).ravel()
    x = bits.view("float32")
    a = te.placeholder(x.shape, name="A")
    b = te.compute(x.shape, lambda i: te.intrinsics.round_tf32(a[i]), name="B")
    s = te.create_schedule(b.op)
    s[b].vectorize(s[b].split(b.op.axis[0], factor=8)[1])
    y = np.empty_like(x)
    lw.build(s, [a, b], target)(x, y)
    number = ~np.isnan(x)
    want = nearest_tf32(x[number])
    np.testing.assert_array_equal(y[number].view("uint32"), want.view("uint32"))
    assert np.isnan(y[~number]).all()
    assert (~number).sum() == 2 * len(near)
