"""TVM's ``tir`` names mean what TVM's mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopwright as tvm
from loopwright import te, tir
from loopwright.errors import TensorError


def test_every_name_is_there_and_documented() -> None:
    assert tvm.tir is tir
    missing = [name for name in tir.__all__ if not (getattr(tir, name).__doc__ or "").strip()]
    assert not missing


def test_expressions_against_numpy() -> None:
    x = te.placeholder((12,), "float32", name="x")
    y = te.compute(
        (12,),
        lambda i: tir.Select(
            tir.all(i >= 3, tir.indexmod(i, 2) < 1),
            x[tir.indexdiv(i, 2)] + tir.const(1, "float32"),
            tir.Cast("float32", tir.floormod(i, 5)) * tir.exp(x[i]),
        ),
        name="y",
    )
    values = np.linspace(-1, 1, 12, dtype="float32")
    result = np.zeros(12, "float32")
    tvm.build(te.create_schedule(y.op), [x, y])(values, result)
    i = np.arange(12)
    wanted = np.where((i >= 3) & (i % 2 == 0), values[i // 2] + 1, i % 5 * np.exp(values))
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


@pytest.mark.parametrize("name", ["call_extern", "call_llvm_pure_intrin"])
def test_calls_of_foreign_code_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name}.*: code of other languages cannot be called"):
        getattr(tir, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'no_such'$"):
        tir.no_such  # noqa: B018


def test_buffers_take_the_arguments_of_tvm() -> None:
    stride = te.var("s1")
    b = tir.decl_buffer((4, 8), "float32", name="B", offset_factor=1, strides=[stride, 1])
    assert (b.shape, b.dtype, b.strides) == ((4, 8), "float32", (None, 1))
    plain = tir.decl_buffer((4, 8), scope="global", strides=[], data_alignment=64, elem_offset=0)
    assert (plain.dtype, plain.strides) == ("float32", (8, 1))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"data": 1}, "decl_buffer 'buffer': data= is not supported; leave it out"),
        ({"scope": "shared"}, "decl_buffer 'buffer': scope= is not supported"),
        ({"buffer_type": "auto_broadcast"}, "decl_buffer 'buffer': buffer_type= is not supported"),
        ({"strides": [1]}, r"1 stride\(s\) for 2 dimension"),
    ],
)
def test_what_buffers_cannot_be_is_said(given: dict[str, Any], text: str) -> None:
    with pytest.raises(TensorError, match=text):
        tir.decl_buffer((4, 8), **given)
