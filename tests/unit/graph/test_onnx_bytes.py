"""Products of ONNX's quantised operators: of bytes, where CPUs have instructions for these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loopwright.graph.frontend.onnx import from_onnx
from tests.unit.graph.onnx_nodes import compared, model_of
from tests.unit.graph.values import Array

RNG = np.random.default_rng(1)


def _bytes(dtype: str, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def _is_of_bytes(model: Any, inputs: list[Array], known: list[int]) -> bool:
    module = from_onnx(model, constants={f"x{n}": inputs[n] for n in known})
    return 'out_dtype="int32"' in str(module)


@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("zero", ["none", "known", "given", "of rows"])
def test_products_of_matrices(dtypes: tuple[str, str], zero: str) -> None:
    a, b = _bytes(dtypes[0], 2, 5, 7), _bytes(dtypes[1], 7, 6)
    offset = _bytes(dtypes[0], 2, 5, 1) if zero == "of rows" else _bytes(dtypes[0])
    inputs = [a, b] if zero == "none" else [a, b, np.asarray(offset)]
    known = [1, 2] if zero == "known" else [1]
    model = model_of("MatMulInteger", inputs, 10)
    assert _is_of_bytes(model, inputs, known)
    compared(model, inputs, {n: inputs[n] for n in known}, None)


@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 0, 2, 1]}, {"group": 2, "strides": [2, 1]}])
@pytest.mark.parametrize("known_zero", [True, False])
def test_convolutions(attrs: dict[str, Any], known_zero: bool) -> None:
    x, w = _bytes("uint8", 1, 4, 6, 5), _bytes("int8", 6, 4 // attrs.get("group", 1), 3, 2)
    inputs = [x, w, np.asarray(np.uint8(117))]
    known = [1, 2] if known_zero else [1]
    model = model_of("ConvInteger", inputs, 10, **attrs)
    # What is around an image is known when a model is imported, or there are no bytes for it.
    assert _is_of_bytes(model, inputs, known) is (known_zero or "pads" not in attrs)
    compared(model, inputs, {n: inputs[n] for n in known}, None)


@pytest.mark.parametrize("by_channel", [False, True])
def test_a_quantised_convolution(by_channel: bool) -> None:
    x, w = _bytes("uint8", 1, 4, 6, 5), _bytes("int8", 6, 4, 3, 3)
    scales = RNG.uniform(0.001, 0.01, 6).astype("float32") if by_channel else np.float32(0.004)
    zeros = np.zeros(6, "int8") if by_channel else np.int8(0)
    bias = RNG.integers(-999, 999, 6, "int32")
    inputs = [x, np.float32(0.05), np.uint8(9), w, scales, zeros, np.float32(0.3), np.uint8(120)]
    inputs = [*map(np.asarray, inputs), bias]
    model = model_of("QLinearConv", inputs, 10, pads=[1, 1, 1, 1])
    known = list(range(1, 9))
    assert _is_of_bytes(model, inputs, known)
    wanted = _quantised(_convolved(x.astype("int64") - 9, w), scales * 0.05, 0.3, 120, bias)
    compared(model, inputs, {n: inputs[n] for n in known}, [wanted])


def _convolved(x: Array, w: Array) -> Array:
    """By NumPy, with a row and a column of zeros around the image."""
    around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
    return np.asarray(np.einsum("nchwij,ocij->nohw", views, w.astype("int64")))


def _quantised(total: Array, scale: Any, out_scale: float, zero: int, bias: Array) -> Array:
    spread = np.asarray(scale, "float32").reshape(-1, 1, 1)
    real = (total + bias.reshape(-1, 1, 1)).astype("float32") * spread
    return np.clip(np.rint(real / np.float32(out_scale)) + zero, 0, 255).astype("uint8")


def test_what_is_no_product_of_bytes_stays_as_it_was() -> None:
    a, b = _bytes("uint8", 5, 7), _bytes("int8", 7, 6)
    zeros = [np.asarray(np.uint8(3)), np.asarray(np.int8(5))]
    model = model_of("MatMulInteger", [a, b, *zeros], 10)
    # The second operand has a zero of its own, or is an input.
    for known in ([1, 3], [3]):
        assert not _is_of_bytes(model, [a, b, *zeros], known)
        compared(model, [a, b, *zeros], {n: [a, b, *zeros][n] for n in known}, None)
