"""Quantisation: scales from data, whole products that equal the fake-quantised ones, and errors."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import strategies as st

import loopwright as lw
from loopwright import graph
from loopwright.errors import GraphError, UsageError
from loopwright.graph import op, transform
from loopwright.graph.quantize import ValueRange, calibrate
from tests.covering import covering
from tests.unit.graph.values import Array, drawn, run

TO_INTEGER = transform.FakeQuantizationToInteger
LOWER = transform.Sequential([TO_INTEGER, transform.QnnCanonicalize, transform.SimplifyExpr])
REQUANTIZED = transform.Sequential([LOWER, transform.FoldConstant, transform.FoldRequantize])


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _i32(value: int) -> graph.Constant:
    return graph.const(value, "int32")


def _real(data: graph.Expr, scale: float, zero: int) -> graph.Expr:
    return op.qnn.dequantize(data, scale, _i32(zero))


def _real_weight(seed: int, shape: tuple[int, ...], axis: int) -> graph.Expr:
    rng = _rng(seed)
    whole = rng.integers(-127, 128, shape).astype("int8")
    scale = rng.uniform(0.01, 0.1, shape[axis]).astype("float32")
    return op.qnn.dequantize(whole, scale, _i32(0), axis=axis)


def _bytes(shape: tuple[int, ...], seed: int = 1) -> Array:
    return _rng(seed).integers(0, 256, shape).astype("uint8")


def _calls(module: graph.IRModule) -> list[graph.Call]:
    return [e for e in graph.post_order(module["main"]) if isinstance(e, graph.Call)]


def _names(module: graph.IRModule) -> list[str]:
    return [e.op.name for e in _calls(module)]  # type: ignore[attr-defined]


def _product_dtypes(module: graph.IRModule) -> set[str]:
    types = graph.infer_types(module)
    products = ("nn.conv", "nn.dense", "matmul")
    return {types[e].dtype for e in _calls(module) if e.op.name in products}  # type: ignore


def _same_values(e: graph.Expr, *inputs: Array) -> graph.IRModule:
    """The module in whole numbers, where its values are those of the fake-quantised one."""
    before = graph.IRModule.from_expr(e)
    with lw.PassContext(config={"verify": True}):
        after = LOWER(before)
    for a, b in zip(run(after, *inputs), run(before, *inputs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * np.abs(b).max())
    return after


@drawn(st.data(), change=10, night=20)
def test_quantising_is_what_numpy_says(data: st.DataObject) -> None:
    dtype, axis = data.draw(st.sampled_from(["int8", "uint8"])), data.draw(st.integers(-3, 2))
    by_axis, rng = data.draw(st.booleans()), _rng(data.draw(st.integers(0, 99)))
    x = (rng.standard_normal((2, 3, 4)) * 5).astype("float32")
    size = (x.shape[axis],) if by_axis else ()
    scale = rng.uniform(0.02, 0.5, size).astype("float32")
    zero = rng.integers(0, 99, size).astype("int32")
    spread = [-1 if by_axis and d == axis % 3 else 1 for d in range(3)]
    s, z = (a.reshape(spread) for a in (scale, zero))
    info = np.iinfo(dtype)
    wanted = np.clip(np.rint(x / s) + z, info.min, info.max).astype(dtype)
    var = graph.var("x", x.shape)
    quantized = op.qnn.quantize(var, scale, zero, axis=axis, out_dtype=dtype)
    e = graph.Tuple((quantized, op.qnn.dequantize(quantized, scale, zero, axis=axis)))
    for module in (graph.IRModule.from_expr(e), LOWER(graph.IRModule.from_expr(e))):
        whole, real = run(module, x)
        np.testing.assert_array_equal(whole, wanted)
        np.testing.assert_allclose(real, (wanted.astype("int32") - z) * s, rtol=1e-6)


def test_scales_that_do_not_fit_are_refused() -> None:
    x = graph.var("x", (2, 3))
    for call, message in (
        (
            op.qnn.quantize(x, np.ones(4, "float32"), _i32(0)),
            "the extents of .* and axis -1 differ: 4 and 3",
        ),
        (op.qnn.quantize(x, 1.0, 0.0), "is int32 of one dimension at most"),
        (op.qnn.quantize(x, 1.0, _i32(0), out_dtype="int32"), "not int32"),
    ):
        with pytest.raises(GraphError, match=message):
            graph.infer_types(graph.IRModule.from_expr(call))


@drawn(
    st.sampled_from(["nn.dense", "matmul", "nn.conv"]),
    st.integers(0, 255),
    st.integers(0, 9),
    change=12,
    night=25,
)
def test_products_of_quantised_tensors_are_of_whole_numbers(name: str, zero: int, n: int) -> None:
    if name == "nn.conv":
        shape, weight = (1, 3, 5, 4), _real_weight(n, (4, 3, 3, 2), 0)
        attrs = {"padding": (1, 0, 2, 1), "strides": (1, 2)}
    else:
        shape, attrs = (2, 3, 6), {}
        weight = _real_weight(n, *(((4, 6), 0) if name == "nn.dense" else ((6, 4), 1)))
    x = graph.var("x", shape, "uint8")
    product = graph.get_op(name)(_real(x, 0.05, zero), weight, **attrs)
    after = _same_values(op.add(product, 1.0), _bytes(shape, n))
    assert _product_dtypes(after) == {"int32"}
    assert "qnn.dequantize" not in _names(after)


@pytest.mark.parametrize(
    ("dtypes", "zeros", "shapes"),
    covering(
        [("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8")],
        [(0, 0), (7, 0), (0, -3), (7, 5)],
        [((4, 6), (6, 5)), ((2, 3, 4, 6), (3, 6, 5))],
    ),
)
def test_products_of_two_values_are_of_whole_numbers(
    dtypes: tuple[str, str], zeros: tuple[int, int], shapes: tuple[tuple[int, ...], ...]
) -> None:
    x, y = (graph.var(n, s, d) for n, s, d in zip("xy", shapes, dtypes, strict=True))
    product = op.matmul(_real(x, 0.5, zeros[0]), _real(y, 0.25, zeros[1]))
    given = [_bytes(s, k).astype(d) for k, (s, d) in enumerate(zip(shapes, dtypes, strict=True))]
    after = _same_values(product, *given)
    assert _product_dtypes(after) == {"int32"}
    types = graph.infer_types(after)
    (whole,) = (e for e in _calls(after) if e.op.name == "matmul")  # type: ignore[attr-defined]
    read = [types[a].dtype for a in whole.args]  # type: ignore[union-attr]
    assert read == ["uint8", "int8"]  # as the CPU's instructions have them


def test_products_of_two_values_that_do_not_fit_stay_in_float32() -> None:
    x, y = graph.var("x", (4, 6), "uint8"), graph.var("y", (6, 4), "int8")
    by_axis = op.qnn.dequantize(y, np.ones(4, "float32"), np.zeros(4, "int32"), axis=1)
    vector, wide = graph.var("v", (6,), "int8"), graph.var("w", (6, 4), "int32")
    long = graph.var("a", (1, 40_000), "uint8"), graph.var("b", (40_000, 1), "uint8")
    for product in (
        op.matmul(_real(x, 0.5, 3), _real(wide, 0.5, 0)),
        op.matmul(*(_real(v, 0.5, 1) for v in long)),
        op.matmul(_real(x, 0.5, 3), by_axis),
        op.matmul(_real(x, 0.5, 3), _real(vector, 0.5, 0)),
    ):
        after = TO_INTEGER(graph.IRModule.from_expr(product))
        assert _product_dtypes(after) == {"float32"}


def test_tasks_of_bytes_are_those_of_logs_whatever_the_instructions() -> None:
    rng = _rng(3)
    kernel, weight = (rng.integers(-9, 9, s).astype("int8") for s in ((8, 8, 3, 3), (6, 128)))
    sums = op.nn.conv(graph.var("x", (2, 8, 6, 6), "uint8"), kernel, out_dtype="int32")
    x = op.reshape(op.cast(sums, dtype="uint8"), newshape=(2, 128))
    module = graph.IRModule.from_expr(op.nn.dense(x, weight, out_dtype="int32"))
    for cpu in ("x86-64-v3", "znver4"):
        tasks = graph.extract_tasks(module, f"llvm -mcpu={cpu}")
        assert [one.task.dag_hash for one in tasks] == ["56726158becff436", "81128cbd561b7a19"]


def test_depthwise_convolutions_and_one_scale_for_all() -> None:
    x = graph.var("x", (1, 4, 5, 5), "uint8")
    weight = _real_weight(0, (4, 1, 3, 3), 0)
    conv = op.nn.conv(_real(x, 0.1, 7), weight, groups=4, padding=1)
    assert _product_dtypes(_same_values(conv, _bytes((1, 4, 5, 5)))) == {"int32"}
    whole = _rng().integers(-127, 128, (3, 6)).astype("int8")
    dense = op.nn.dense(
        _real(graph.var("x", (2, 6), "uint8"), 0.1, 7), op.qnn.dequantize(whole, 0.25, _i32(0))
    )
    assert _product_dtypes(_same_values(dense, _bytes((2, 6)))) == {"int32"}


def test_products_that_do_not_fit_stay_in_float32() -> None:
    x = graph.var("x", (2, 6), "uint8")
    whole = _rng().integers(-127, 128, (6, 6)).astype("int8")
    scales = np.linspace(0.1, 0.6, 6, dtype="float32")
    wrong_axis = op.qnn.dequantize(whole, scales, _i32(0), axis=1)
    moved = op.qnn.dequantize(whole, scales, _i32(5), axis=0)
    by_column = op.qnn.dequantize(x, scales, _i32(0), axis=1)
    for data, weight in (
        (_real(x, 0.1, 3), wrong_axis),
        (_real(x, 0.1, 3), moved),
        (by_column, _real_weight(0, (6, 6), 0)),
    ):
        after = _same_values(op.nn.dense(data, weight), _bytes((2, 6)))
        assert _product_dtypes(after) == {"float32"}


def test_what_moves_elements_moves_bytes() -> None:
    x = graph.var("x", (1, 2, 6, 6))
    scale, zero = 0.02, _i32(0)
    pooled = op.nn.max_pool(op.nn.relu(x), pool_size=3, strides=2, padding=1)
    whole = op.qnn.quantize(pooled, scale, zero, out_dtype="uint8")
    after = TO_INTEGER(graph.IRModule.from_expr(whole))
    assert _names(after) == ["qnn.quantize", "nn.max_pool"]
    given_ = _rng().standard_normal((1, 2, 6, 6)).astype("float32")
    before = run(graph.IRModule.from_expr(whole), given_)
    np.testing.assert_array_equal(run(after, given_)[0], before[0])
    flat = op.nn.batch_flatten(_real(graph.var("x", (2, 3, 2), "uint8"), 0.5, 3))
    dense = op.nn.dense(flat, _real_weight(0, (4, 6), 0))
    assert _product_dtypes(_same_values(dense, _bytes((2, 3, 2)))) == {"int32"}


@pytest.mark.parametrize(
    ("name", "limit", "dtype", "zero", "held"),
    [
        ("maximum", 0.0, "uint8", 0, True),
        ("maximum", 0.1, "uint8", 0, False),
        ("maximum", -1.3, "uint8", 13, True),
        ("maximum", -12.8, "int8", 0, True),
        ("maximum", 0.0, "int8", 0, False),
        ("minimum", 25.5, "uint8", 0, True),
        ("minimum", 25.4, "uint8", 0, False),
        ("minimum", 13.0, "int8", 0, True),
        ("minimum", 6.0, "uint8", 0, False),
    ],
)
def test_limits_that_whole_numbers_have_in_any_case_are_left_out(
    name: str, limit: float, dtype: str, zero: int, held: bool
) -> None:
    x = graph.var("x", (512,))
    limited = graph.get_op(name)(x, limit)
    whole = op.qnn.quantize(limited, 0.1, _i32(zero), out_dtype=dtype)
    before = graph.IRModule.from_expr(whole)
    after = TO_INTEGER(before)
    assert (name in _names(after)) == (not held)
    values = np.linspace(-40, 40, 512, dtype="float32")
    values[7] = np.nan
    np.testing.assert_array_equal(run(after, values)[0], run(before, values)[0])


@drawn(st.data(), change=10, night=25)
def test_a_scale_between_whole_numbers_goes_into_the_factors(data: st.DataObject) -> None:
    dtype, zero = data.draw(st.sampled_from([("int8", -3), ("uint8", 0), ("uint8", 100)]))
    rng = _rng(data.draw(st.integers(0, 99)))
    x, y = graph.var("x", (3, 6), "uint8"), graph.var("y", (3, 4), "int8")
    real = op.nn.dense(_real(x, 0.05, 7), _real_weight(0, (4, 6), 0))
    steps = data.draw(st.lists(st.sampled_from(["bias", "limits", "relu", "other"]), max_size=4))
    for step in steps:
        if step == "bias":
            real = op.add(real, rng.standard_normal(4).astype("float32"))
        elif step == "limits":
            real = op.minimum(op.maximum(real, -1.0), 6.0)
        elif step == "relu":
            real = op.nn.relu(real)
        else:
            real = op.add(real, op.qnn.dequantize(y, 0.25, _i32(2)))
    scale = float(np.float32(data.draw(st.floats(0.01, 0.2))))
    module = graph.IRModule.from_expr(op.qnn.quantize(real, scale, _i32(zero), out_dtype=dtype))
    after = REQUANTIZED(module)
    assert "divide" not in _names(after)
    given_ = [_bytes((3, 6)), rng.integers(-128, 128, (3, 4)).astype("int8")]
    free = [p.name for p in module["main"].params]
    named = dict(zip("xy", given_, strict=True))
    a, b = (run(m, *(named[n] for n in free))[0].astype(int) for m in (after, module))
    assert np.abs(a - b).max() <= 1
    assert np.count_nonzero(a != b) <= 1  # of 12, where it lies between two whole numbers


def test_a_scale_stays_where_others_read_what_lies_between_or_it_does_not_fit() -> None:
    x, scale = graph.var("x", (3, 6), "uint8"), 0.1
    real = op.add(op.nn.dense(_real(x, 0.05, 7), _real_weight(0, (4, 6), 0)), 1.0)
    whole = op.qnn.quantize(real, scale, _i32(0))
    tiny = op.qnn.quantize(op.multiply(op.cast(x, dtype="float32"), 1e30), 1e-30, _i32(0))
    by_axis = op.qnn.quantize(real, np.full(4, 0.1, "float32"), _i32(0).data.repeat(4))
    of_floats = op.qnn.quantize(op.multiply(graph.var("z", (4,)), 0.5), scale, _i32(0))
    for e in (graph.Tuple((whole, real)), tiny, by_axis, of_floats):
        assert "divide" in _names(REQUANTIZED(graph.IRModule.from_expr(e)))


def test_there_and_back_is_nothing() -> None:
    x = graph.var("x", (4,), "uint8")
    again = op.qnn.quantize(_real(x, 0.5, 3), 0.5, _i32(3), out_dtype="uint8")
    assert _names(TO_INTEGER(graph.IRModule.from_expr(again))) == []
    other = op.qnn.quantize(_real(x, 0.5, 3), 0.25, _i32(3), out_dtype="uint8")
    assert _names(_same_values(other, _bytes((4,)))) != []


# ---------------------------------------------------------------- calibration

VALUE = graph.var("x", (1000,))
IDENTITY = graph.Function((VALUE,), op.negative(VALUE))


def _ranged(method: str, *arrays: Array, percentile: float = 99.0) -> ValueRange:
    data = [{"x": a.astype("float32")} for a in arrays]
    (found,) = calibrate(IDENTITY, [VALUE], data, method, percentile, "llvm")  # type: ignore
    return found


def test_ranges_of_all_numbers_hold_0_and_all_runs() -> None:
    a = _rng().uniform(1, 3, 1000).astype("float32")
    assert _ranged("min_max", a, a + 1) == ValueRange(0.0, float(a.max() + 1))
    assert _ranged("min_max", -a) == ValueRange(float(-a.max()), 0.0)


def test_percentiles_are_those_of_numpy() -> None:
    a = _rng().standard_normal(1000).astype("float32")
    found, width = _ranged("percentile", a), (a.max() - a.min()) / 2048
    assert abs(found.low - np.percentile(a, 0.5)) < 0.05 + width
    assert abs(found.high - np.percentile(a, 99.5)) < 0.05 + width
    found = _ranged("percentile", np.abs(a))
    assert found.low == 0
    assert abs(found.high - np.percentile(np.abs(a), 99)) < 0.05 + width


def test_entropy_cuts_off_what_stands_alone() -> None:
    a = _rng().standard_normal(1000).astype("float32")
    alone = a.copy()
    alone[0] = 50.0
    found = _ranged("entropy", alone)
    assert 2 < found.high < 25
    assert found.low == pytest.approx(a[1:].min(), abs=1e-6)
    even = _ranged("entropy", np.linspace(-1, 1, 1000))
    assert even.high > 0.9


@pytest.mark.parametrize("method", ["min_max", "percentile", "entropy"])
def test_a_value_that_is_0_throughout(method: str) -> None:
    assert _ranged(method, np.zeros(1000)) == ValueRange(0.0, 0.0)


# ---------------------------------------------------------------- whole models


def _model() -> graph.IRModule:
    """Two convolutions with normalisation and a residual sum, a pool, and a product."""
    rng = _rng(3)

    def conv(x: graph.Expr, inputs: int) -> graph.Expr:
        weight = rng.standard_normal((8, inputs, 3, 3)) / (3 * np.sqrt(inputs))
        found = op.nn.conv(x, weight.astype("float32"), padding=1, span=f"conv{inputs}")
        parts = [rng.uniform(0.5, 1.5, 8).astype("float32") for _ in range(4)]
        return op.nn.batch_norm(found, *parts)

    x = graph.var("image", (1, 5, 8, 8))
    first = op.nn.max_pool(op.nn.relu(conv(x, 5)), pool_size=2, strides=2)
    second = op.nn.relu(op.add(first, conv(first, 8)))
    weight = (rng.standard_normal((5, 32)) / 6).astype("float32")
    rows = op.reshape(op.mean(second, axis=2), newshape=(1, 32))
    return graph.IRModule.from_expr(op.nn.dense(rows, weight))


def _images(count: int, seed: int = 0) -> list[Array]:
    return [_rng(seed + n).standard_normal((1, 5, 8, 8)).astype("float32") for n in range(count)]


@lru_cache
def _quantized(method: str = "min_max") -> graph.IRModule:
    """The model, quantised by four images."""
    return graph.quantize(_model(), _images(4), calibration=method, target="llvm")  # type: ignore


@pytest.mark.parametrize(
    "method", ["min_max", pytest.param("percentile", marks=pytest.mark.slow), "entropy"]
)
def test_a_quantised_model_is_near_the_model(method: str) -> None:
    module, quantized = _model(), _quantized(method)
    assert _product_dtypes(LOWER(quantized)) == {"int32"}
    for image in _images(2, seed=50):
        (wanted,), (found,) = run(module, image), run(quantized, image)
        assert np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(wanted)


def test_what_is_compiled_is_the_fake_quantised_model() -> None:
    quantized = _quantized()
    compiled = graph.compile(quantized, "llvm")
    for image in _images(2, seed=50):
        # Halves may be rounded the other way.
        (fake,) = run(quantized, image)
        np.testing.assert_allclose(compiled(image)[0], fake, atol=0.01 * np.abs(fake).max())


@pytest.mark.parametrize("count", [8, 16])
def test_one_row_of_few_bytes_is_summed_as_a_whole(count: int) -> None:
    """LLVM 22 sums a part of them where it finds the dot product instruction for itself."""
    x, weight = graph.var("x", (1, count), "uint8"), _rng().integers(-127, 128, (5, count))
    module = graph.IRModule.from_expr(op.nn.dense(x, weight.astype("int8"), out_dtype="int32"))
    row = _bytes((1, count))
    np.testing.assert_array_equal(graph.compile(module, "llvm")(row)[0], row @ weight.T)


def test_attention_is_quantised_where_that_is_asked_for() -> None:
    x = graph.var("x", (2, 8, 16))
    scores = op.matmul(x, op.transpose(x, axes=(0, 2, 1)))
    module = graph.IRModule.from_expr(op.matmul(op.nn.softmax(scores), op.tanh(x)))
    data = [_rng(k).standard_normal((2, 8, 16)).astype("float32") for k in range(4)]
    assert "qnn.quantize" not in _names(graph.quantize(module, data, target="llvm"))
    quantized = graph.quantize(module, data, of_values=True, target="llvm")
    after = LOWER(quantized)
    assert _product_dtypes(after) == {"int32"}
    (wanted,), (found,) = run(module, data[0]), run(after, data[0])
    assert np.linalg.norm(found - wanted) < 0.03 * np.linalg.norm(wanted)


def test_what_both_operands_read_is_rounded_once() -> None:
    x = graph.var("x", (4, 4))
    module = graph.IRModule.from_expr(op.matmul(x, x))
    data = [_rng().standard_normal((4, 4)).astype("float32")]
    quantized = graph.quantize(module, data, of_values=True, target="llvm")
    assert _names(quantized).count("qnn.quantize") == 1
    assert _product_dtypes(LOWER(quantized)) == {"int32"}


def test_what_is_skipped_stays_in_float32() -> None:
    quantized = graph.quantize(_model(), [{"image": _images(1)[0]}], skip=["conv5"], target="llvm")
    assert _product_dtypes(LOWER(quantized)) == {"int32", "float32"}


def test_a_convolution_of_few_channels_stays_in_float32() -> None:
    x, weight = graph.var("x", (1, 3, 4, 4)), np.ones((4, 3, 3, 3), "float32")
    module = graph.IRModule.from_expr(op.nn.conv(x, weight))
    assert _product_dtypes(LOWER(graph.quantize(module, []))) == {"float32"}


def test_a_model_without_products_stays_as_it_is() -> None:
    module = graph.IRModule.from_expr(op.tanh(graph.var("x", (4,))))
    assert _names(graph.quantize(module, [])) == ["tanh"]


def test_bad_input_is_told() -> None:
    module = _model()
    x, y = graph.var("x", (1, 4)), graph.var("y", (1, 4))
    right = graph.IRModule.from_expr(op.nn.dense(x, np.ones((2, 4), "float32")))
    with pytest.raises(UsageError, match="did you mean 'entropy'"):
        graph.quantize(module, _images(1), calibration="entropi")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="percentile is 3"):
        graph.quantize(module, _images(1), calibration="percentile", percentile=3)
    with pytest.raises(GraphError, match="there are no calibration data"):
        graph.quantize(module, [], target="llvm")
    with pytest.raises(GraphError, match="is not finite for calibration data"):
        graph.quantize(right, [np.full((1, 4), np.nan, "float32")], target="llvm")
    with pytest.raises(UsageError, match=r"has the span 'conv6' \(did you mean 'conv"):
        graph.quantize(module, _images(1), skip=["conv6"])
    wrong = graph.IRModule.from_expr(op.nn.dense(x, np.full((2, 4), np.nan, "float32"), span="d"))
    with pytest.raises(GraphError, match="the weight of d is not finite"):
        graph.quantize(wrong, [np.ones((1, 4), "float32")], target="llvm")
    two = op.nn.dense(op.add(x, y), np.ones((2, 4), "float32"))
    with pytest.raises(GraphError, match="by name for a model of the inputs x, y"):
        graph.quantize(graph.IRModule.from_expr(two), [np.ones((1, 4), "float32")])


def test_quantised_onnx_models_are_of_whole_numbers() -> None:
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    rng = _rng(5)
    arrays = {
        "scale": np.float32(0.03),
        "zero": np.uint8(120),
        "weight": rng.integers(-127, 128, (4, 5, 3, 3)).astype("int8"),
        "scales": rng.uniform(0.01, 0.1, 4).astype("float32"),
        "zeros": np.zeros(4, "int8"),
        "bias": rng.integers(-99, 99, 4).astype("int32"),
        "bias_scales": rng.uniform(0.01, 0.1, 4).astype("float32"),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["real"]),
        helper.make_node("DequantizeLinear", ["weight", "scales", "zeros"], ["w"], axis=0),
        helper.make_node("DequantizeLinear", ["bias", "bias_scales"], ["b"], axis=0),
        helper.make_node("Conv", ["real", "w", "b"], ["y"], pads=[1, 1, 1, 1]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n, 6, 6])
        for name, n in (("x", 5), ("y", 4))
    )
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()]
    g = helper.make_graph(nodes, "qdq", [x], [y], weights)
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 21)])
    onnx.checker.check_model(model)
    module = graph.from_onnx(model)
    assert _product_dtypes(LOWER(module)) == {"int32"}
    image = rng.standard_normal((1, 5, 6, 6)).astype("float32")
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": image})
    np.testing.assert_allclose(run(LOWER(module), image)[0], wanted, rtol=1e-4, atol=1e-4)
