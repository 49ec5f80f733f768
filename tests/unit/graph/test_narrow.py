"""Floats of 8 and 4 bits and integers of 4 and 2, against the package ml_dtypes and onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs the package ml_dtypes")
pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from loopwright.errors import GraphError  # noqa: E402
from loopwright.graph import op  # noqa: E402
from loopwright.graph.frontend.onnx import from_onnx, stored  # noqa: E402
from loopwright.graph.op.narrow import FORMATS, SCALE  # noqa: E402
from tests.unit.graph.onnx_nodes import compared, info, model_of  # noqa: E402
from tests.unit.graph.values import Array, run, values  # noqa: E402

RNG = np.random.default_rng(0)
X = np.float32([[0.4789, -3.3, 7.5, 500], [-0.0, 1e-7, -1e6, 2.25]])


def _dtype(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name))


def _codes(name: str) -> Array:
    return np.arange(16 if name.startswith("float4") else 256, dtype="uint8")


@pytest.mark.parametrize("name", [*FORMATS, SCALE])
def test_all_bits_mean_what_they_mean_to_ml_dtypes(name: str) -> None:
    wanted = _codes(name).view(_dtype(name)).astype("float32")
    (found,) = values(op.decode_float(_codes(name), dtype=name))
    np.testing.assert_array_equal(found, wanted)
    known = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(wanted[known]))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_rounded_to_even(name: str, saturate: bool) -> None:
    """All numbers of a format, what lies in the middle of two, and its neighbours on both sides."""
    dtype = _dtype(name)
    all_of_them = _codes(name).view(dtype).astype("float32")
    ends = np.unique(all_of_them[np.isfinite(all_of_them)])
    middle = (ends[1:] + ends[:-1]) / 2
    special = np.float32([np.inf, -np.inf, -0.0, 1e-30, 1e30, 464, 465, 61439, 61440, 248])
    random = RNG.standard_normal(500) * np.exp2(RNG.uniform(-20, 18, 500))
    sides = [np.nextafter(middle, np.float32(s * np.inf)) for s in (-1, 1)]
    x = np.concatenate([ends, middle, *sides, special, random]).astype("float32")
    limits = ml_dtypes.finfo(dtype)
    wanted = np.clip(x, limits.min, limits.max) if saturate else x
    (found,) = values(op.encode_float(x, dtype=name, saturate=saturate))
    np.testing.assert_array_equal(found, wanted.astype(dtype).view("uint8"))


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_no_number_stays_none_where_there_is_one(name: str) -> None:
    (found,) = values(op.encode_float(np.float32([np.nan]), dtype=name))
    assert found == (0 if FORMATS[name].nan is None else FORMATS[name].nan)


@pytest.mark.parametrize("rounding", ["up", "down"])
def test_powers_of_two_are_rounded_by_choice(rounding: str) -> None:
    x = np.float32([0.124, 0.25, 1.1, 3, 2**100, 3e38, np.inf])
    (found,) = values(op.encode_float(x, dtype=SCALE, rounding=rounding))
    exponents = np.log2(x[:-2].astype("float64"))
    whole = np.ceil(exponents) if rounding == "up" else np.floor(exponents)
    np.testing.assert_array_equal(found[:-2], whole + 127)
    assert found[-2:].tolist() == [254, 255]


@pytest.mark.parametrize(("bits", "signed"), [(4, True), (4, False), (2, True), (2, False)])
def test_the_lowest_bits_of_integers_are_kept(bits: int, signed: bool) -> None:
    x = np.arange(-20, 20, dtype="int32")
    low = -(1 << (bits - 1)) if signed else 0
    (found,) = values(op.wrap_integer(x, bits=bits, signed=signed))
    np.testing.assert_array_equal(found, (x - low) % (1 << bits) + low)


@pytest.mark.parametrize("name", [*FORMATS, "int4", "uint4", "int2", "uint2"])
@pytest.mark.parametrize("back", [False, True])
def test_casts_from_and_to_narrow_dtypes(name: str, back: bool) -> None:
    narrow = helper.np_dtype_to_tensor_dtype(_dtype(name))
    x = X if "float" in name else np.arange(-9, 15, dtype="float32")
    as_narrow = numpy_helper.saturate_cast(x, _dtype(name))
    if back:
        model = model_of("Cast", [as_narrow], 25, to=TensorProto.FLOAT16)
        compared(model, [as_narrow], {}, [as_narrow.astype("float16")])
        return
    wanted = as_narrow if "float" in name else x.astype("int32").astype(_dtype(name))
    bits = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}.get(name)
    if bits is not None:  # ml_dtypes leaves what stands above the bits open
        low = -(1 << (bits - 1)) if name.startswith("int") else 0
        wanted = ((x - low) % (1 << bits) + low).astype(stored(as_narrow).dtype)
    compared(model_of("Cast", [x], 25, to=narrow), [x], {}, [wanted])


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "int4", "uint2"])
def test_tensors_are_quantised_to_narrow_dtypes_and_back(name: str) -> None:
    scale, zero = np.float32([0.5, 2]), np.zeros(2, _dtype(name))
    if name == "uint2":
        zero = np.ones(2, _dtype(name))
    inputs = [X, scale, zero]
    compared(model_of("QuantizeLinear", inputs, 25, axis=0), inputs, {}, None)
    whole = numpy_helper.saturate_cast(X, _dtype(name))
    inputs = [whole, scale, zero]
    compared(model_of("DequantizeLinear", inputs, 25, axis=0), inputs, {}, None)


def _chain(*nodes: Any) -> Any:
    given = np.arange(6).reshape(2, 3).astype(ml_dtypes.float8_e5m2)
    tensor = numpy_helper.from_array(given, "w")
    g = helper.make_graph(list(nodes), "g", [info("x", X)], [info("y", None)], initializer=[tensor])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 24)])


def test_elements_of_narrow_dtypes_are_moved() -> None:
    model = _chain(
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Concat", ["t", "t"], ["twice"], axis=1),
        helper.make_node("CastLike", ["twice", "x"], ["y"]),
    )
    wanted = np.tile(np.arange(6).reshape(2, 3).T, (1, 2)).astype("float32")
    np.testing.assert_array_equal(run(from_onnx(model), X)[0], wanted)


def test_arithmetic_with_narrow_dtypes_is_refused() -> None:
    with pytest.raises(GraphError, match="it cannot compute with float8_e5m2; Cast it to float32"):
        from_onnx(_chain(helper.make_node("Add", ["w", "w"], ["y"])), fallback=False)


def test_arrays_of_other_dtypes_are_stored_as_they_are() -> None:
    assert stored(X) is X
    assert stored(np.array([-3, 7], ml_dtypes.int4)).tolist() == [-3, 7]


def test_a_format_that_there_is_not_is_refused() -> None:
    with pytest.raises(GraphError, match="there is no format 'float8_e4m3'"):
        values(op.decode_float(_codes("float8_e5m2"), dtype="float8_e4m3"))
