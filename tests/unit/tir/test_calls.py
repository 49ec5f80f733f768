"""Functions by their names in C and in TVM, compared with NumPy and Python's ``math``."""

from __future__ import annotations

import math

import numpy as np
import pytest

import loopwright as tvm
from loopwright import te, tir
from loopwright.errors import TensorError

X = np.linspace(0.1, 0.9, 7)


def run(call, dtype: str) -> np.ndarray:
    """The values of ``call(x)``, or of ``call(x, 0.5)``, for each number of `X`."""
    x = te.placeholder(X.shape, dtype, name="x")
    y = te.compute(X.shape, lambda i: call(x[i]), name="y")
    out = np.zeros(X.shape, y.dtype)
    tvm.build(te.create_schedule(y.op), [x, y], "llvm")(X.astype(dtype), out)
    return out


C = "atan ceil cos cosh erf exp exp2 expm1 fabs floor log log10 log1p log2 sin sinh sqrt tan tanh"


@pytest.mark.parametrize("name", C.split())
def test_functions_of_c(name: str) -> None:
    function = {"exp2": lambda x: 2.0**x}.get(name) or getattr(math, name)
    wanted = [function(x) for x in X]
    double = run(lambda x: tir.call_pure_extern("float64", name, x), "float64")
    single = run(lambda x: tir.call_pure_extern("float32", f"{name}f", x), "float32")
    assert (double.dtype, single.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(double, wanted, rtol=1e-14)
    np.testing.assert_allclose(single, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "others"), [("powf", (0.5,)), ("fmodf", (0.25,)), ("fmaf", (2.0, 1.0))]
)
def test_functions_of_several_numbers(name: str, others: tuple[float, ...]) -> None:
    wanted = {"powf": np.sqrt(X), "fmodf": X % 0.25, "fmaf": X * 2 + 1}[name]
    result = run(lambda x: tir.call_pure_extern("float32", name, x, *others), "float32")
    np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-7)


def test_the_name_says_in_which_type_c_computes() -> None:
    x = te.placeholder((4,), "float32", name="x")
    double = tir.call_pure_extern("float32", "exp", x[0])
    assert str(double) == "float32(exp(float64(x[0])))"
    assert str(tir.call_pure_extern("float32", "nearbyintf", x[0])) == str(te.round(x[0]))


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "rsqrt", "fabs", "nearbyint"])
def test_functions_of_tvm(name: str) -> None:
    x = te.placeholder((4,), name="x")
    ours = getattr(te, {"fabs": "abs", "nearbyint": "round"}.get(name, name))
    assert str(tir.call_intrin("float32", f"tir.{name}", x[0])) == str(ours(x[0]))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: tir.call_pure_extern("float32", "__expf", x), r"no '__expf' \(did you mean"),
        (lambda x: tir.call_pure_extern("float32", "mine", x), "code of other languages cannot"),
        (lambda x: tir.call_intrin("float32", "tir.mylog", x), "no 'tir.mylog'.*; write what it"),
        (
            lambda x: tir.call_pure_extern("float32", "powf", x),
            r"'powf' takes 2 argument\(s\), got",
        ),
        (lambda x: tir.call_intrin("float99", "tir.exp", x), "float99"),
    ],
)
def test_what_cannot_be_called_is_said(call, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        call(te.placeholder((4,), name="x")[0])
