"""Every operator, in random configurations of its space, against its NumPy reference."""

from __future__ import annotations

from functools import partial
from importlib import import_module

import numpy as np
import pytest

import loopwright as lw
from loopwright import dtypes, ops, te
from loopwright.errors import TaskError, TensorError, UsageError
from tests.covering import covering
from tests.kernels import build

#: By night: further mixtures of attributes, and other numbers, dtypes and shapes.
night = partial(pytest.param, marks=pytest.mark.slow)
#: Points of a space: the default and another, by night three more.
points = pytest.mark.parametrize(
    "points", [pytest.param(range(2), id="first"), night(range(2, 5), id="more")]
)
CONVS = [
    night((1, 3, 8, 9, 5, 3, 3, 1, 1)),
    (2, 4, 9, 7, 17, 3, 2, 2, (1, 0)),
    night((1, 5, 6, 6, 8, 1, 1, 1, 0)),
    night((1, 2, 11, 12, 33, 5, 3, (1, 2), 2)),
    (1, 1, 1, 1, 1, 1, 1, 1, 0),
    night((1, 4, 9, 10, 21, 3, 3, 2, 1, "float32", 1, 1, "NHWC")),
    night((2, 6, 11, 12, 9, 3, 2, 1, (2, 1), "float32", (2, 3), 1, "NCHW")),
    night((1, 6, 8, 8, 40, 3, 3, 1, 1, "float32", 1, 2, "NCHW")),
    (1, 6, 8, 8, 40, 3, 3, 1, 1, "float32", (1, 2), 2, "NHWC"),
    (1, 8, 7, 7, 8, 3, 3, 1, 1, "int8", 1, 8, "NCHW"),
]
DEPTHWISE = [
    night((1, 3, 8, 9, 3, 3, 1, 1)),
    night((2, 5, 9, 37, 3, 2, 2, (1, 0))),
    (1, 2, 12, 35, 3, 3, (1, 3), 2, "float32", 2),
    (1, 19, 7, 8, 3, 3, 1, 1, "float32", 1, "NHWC"),
    (1, 4, 8, 40, 5, 5, 1, 0, "int8", 1, "NCHW"),
]
ROWS = [
    night("reduce", (5, 37)),
    ("reduce", (9, 64, "max")),
    ("reduce", (7, 19, "min", 1, "int32")),
    ("reduce", (6, 33, "prod", 1, "float64")),
    night("reduce", (40, 70, "sum", 0)),
    night("reduce", (3, 130, "max", 0)),
    night("reduce", (30, 21, "sum", 1, "int8")),
    ("reduce", (30, 21, "sum", 0, "uint8")),
    ("softmax", (5, 37)),
    night("softmax", (3, 64, "float64")),
    ("layer_norm", (5, 37)),
    night("layer_norm", (4, 96, 1e-3, "float64")),
    night("elementwise", (9, 37)),
    ("elementwise", (4, 64, "exp,scale,sigmoid,mul,abs,sqrt,neg,tanh")),
    ("elementwise", (5, 33, "shift,relu,add", "int16")),
    ("elementwise", (5, 33, ("exp", "scale"))),
    ("transpose", (37, 21)),
    night("transpose", (64, 96)),
    night("transpose", (33, 17, "float64")),
    night("transpose", (40, 80, "int8")),
]


def data(tensors: list[te.Tensor], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for t in tensors:
        values = rng.standard_normal(t.shape) * (1 if t.dtype.startswith("float") else 5)
        arrays.append(values.astype(t.dtype))
    return arrays


def check(task: lw.Task, index: int) -> None:
    config = task.config_space.get(index)
    schedule, tensors = task.instantiate(config)
    f = build(schedule, tensors, task.target, name="f")
    arrays = data(tensors)
    out = arrays[-1]
    out[...] = np.nan if out.dtype.kind == "f" else 77
    f(*arrays)
    wanted = task.reference(*arrays[:-1])
    assert out.shape == wanted.shape
    scale = max(1.0, float(np.abs(wanted).max()))
    tolerance = 1e-5 if out.dtype == np.float32 else 1e-12 if out.dtype == np.float64 else 0
    worst = float(np.abs(out - wanted).max())
    assert worst <= tolerance * scale, f"{task} {config.values}"


def sample(task: lw.Task, points: range = range(2)) -> list[int]:
    space = task.config_space
    rng = np.random.default_rng(len(space))
    picked = [space.default_index]
    while len(picked) < points.stop:
        index = int(rng.integers(len(space)))
        if space.is_valid(index):
            picked.append(index)
    return picked[points.start :]


@points
@pytest.mark.parametrize(
    ("shape", "trans_a", "trans_b"),
    covering([(16, 32, 8), (13, 37, 11), (1, 50, 3)], [False, True], [False, True]),
)
def test_matmul_in_random_configurations(
    shape: tuple[int, ...], trans_a: bool, trans_b: bool, points: range
) -> None:
    task = lw.create_task("matmul", (*shape, trans_a, trans_b), "llvm")
    for index in sample(task, points):
        check(task, index)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int8"])
def test_matmul_in_other_dtypes(dtype: str) -> None:
    task = lw.create_task("matmul", (9, 21, 10, False, True, dtype), "llvm -num-threads=1")
    for index in sample(task):
        check(task, index)


@pytest.mark.parametrize(
    ("bias", "relu", "weight"), covering([False, True], [False, True], ["NK", "KN"])
)
def test_dense_in_random_configurations(bias: bool, relu: bool, weight: str) -> None:
    task = lw.create_task("dense", (13, 37, 11, bias, relu, "float32", weight), "llvm")
    for index in sample(task):
        check(task, index)


def test_products_that_take_as_long_as_their_data_are_derived() -> None:
    def derived(name: str, *args: object, target: str = "llvm") -> bool:
        return lw.create_task(name, args, target).automatic

    for few in (1, 16):
        assert derived("matmul", few, 4096, 4096)
        assert derived("matmul", few, 4096, 4096, False, True)
    assert not derived("matmul", 17, 4096, 4096)
    assert not derived("matmul", 1, 1024, 1024)
    assert derived("matmul", 2048, 2048, 2)
    assert derived("matmul", 4096, 3, 1024, True)
    assert derived("matmul", 1, 2048, 1024, False, False, "float64")
    assert not derived("matmul", 1, 2048, 1024, False, False, "float16")
    assert derived("dense", 1, 4096, 1024)
    assert derived("batch_matmul", 64, 1, 256, 256)
    assert derived("matmul", 1, 4096, 4096, target="c")
    assert not derived("matmul", 1, 4096, 4096, target="opencl")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("matmul", (1, 50, 67, False, False)),
        ("matmul", (3, 37, 41, False, True)),
        *(
            night("matmul", (rows, 83, 129, trans_a, trans_b))
            for rows in range(1, 10)
            for trans_a in (False, True)
            for trans_b in (False, True)
        ),
        night("matmul", (83, 3, 129, False, False)),
        night("matmul", (83, 129, 3, False, True)),
        *(
            night("matmul", (5, 83, 129, False, trans_b, dtype))
            for trans_b in (False, True)
            for dtype in ("float64", "int32", "int8", "uint8")
        ),
        night("dense", (2, 83, 129, True, True, "float32", "KN")),
        night("dense", (7, 83, 129, False, False, "float32", "NK")),
        night("batch_matmul", (3, 2, 83, 129, True, True)),
    ],
    ids=str,
)
def test_derived_products_are_right(
    name: str, args: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The name in the package is that of the operator.
    monkeypatch.setattr(import_module("loopwright.ops.matmul"), "_STREAMED", 0)
    task = lw.create_task(name, args, "llvm -num-threads=2")
    assert task.automatic
    check(task, task.config_space.default_index)


@points
@pytest.mark.parametrize("args", CONVS, ids=str)
def test_conv2d_in_random_configurations(args: tuple[object, ...], points: range) -> None:
    task = lw.create_task("conv2d", args, "llvm")
    for index in sample(task, points):
        check(task, index)


@points
@pytest.mark.parametrize(
    ("trans_a", "trans_b", "dtype"),
    [
        night(False, False, "float32"),
        night(True, False, "float32"),
        (False, True, "float32"),
        (True, True, "uint8"),
    ],
)
def test_batch_matmul_in_random_configurations(
    trans_a: bool, trans_b: bool, dtype: str, points: range
) -> None:
    task = lw.create_task("batch_matmul", (3, 13, 37, 11, trans_a, trans_b, dtype), "llvm")
    for index in sample(task, points):
        check(task, index)


@points
@pytest.mark.parametrize("args", DEPTHWISE, ids=str)
def test_depthwise_in_random_configurations(args: tuple[object, ...], points: range) -> None:
    task = lw.create_task("depthwise_conv2d", args, "llvm")
    for index in sample(task, points):
        check(task, index)


@points
@pytest.mark.parametrize(
    ("kind", "include", "layout"),
    [
        ("max", False, "NHWC"),
        night("avg", False, "NCHW"),
        night("max", False, "NCHW"),
        night("avg", False, "NHWC"),
        ("avg", True, "NCHW"),
        night("avg", True, "NHWC"),
    ],
)
def test_pooling_in_random_configurations(
    kind: str, include: bool, layout: str, points: range
) -> None:
    args = (1, 3, 12, 40, 3, 3, 2, 1, kind, include, "float32", layout)
    task = lw.create_task("pool2d", args, "llvm")
    for index in sample(task, points):
        check(task, index)


@points
def test_pooling_of_integers(points: range) -> None:
    task = lw.create_task("pool2d", (1, 2, 9, 9, 2, 3, (2, 3), 0, "max", False, "int32"), "llvm")
    for index in sample(task, points):
        check(task, index)


@points
@pytest.mark.parametrize(("name", "args"), ROWS, ids=str)
def test_rows_and_elementwise_in_random_configurations(
    name: str, args: tuple[object, ...], points: range
) -> None:
    task = lw.create_task(name, args, "llvm")
    for index in sample(task, points):
        check(task, index)


def test_softmax_and_layer_norm_add_up() -> None:
    x = (np.random.default_rng(3).standard_normal((4, 50)) * 20).astype("float32")
    y = np.empty_like(x)
    s, tensors = ops.softmax(4, 50)
    lw.build(s, tensors)(x, y)
    np.testing.assert_allclose(y.sum(1), 1, rtol=1e-5)
    s, tensors = ops.layer_norm(4, 50)
    lw.build(s, tensors)(x, np.ones(50, "float32"), np.zeros(50, "float32"), y)
    np.testing.assert_allclose(y.mean(1), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(1), 1, rtol=1e-4)


STRUCTURED = [
    night("conv2d", (1, 6, 10, 10, 20, 3, 3, 1, 1)),
    night("conv2d", (1, 6, 9, 11, 20, 3, 3, 2, 1, "float32", 1, 2, "NHWC")),
    ("depthwise_conv2d", (1, 3, 10, 21, 3, 3, 1, 1)),
    ("pool2d", (1, 3, 11, 21, 3, 3, 2, 1, "max", False, "float32", "NHWC")),
]


@pytest.mark.parametrize(("name", "args"), STRUCTURED, ids=str)
def test_every_structure_of_windows(name: str, args: tuple[object, ...]) -> None:
    task = lw.create_task(name, args, "llvm")
    begin = 0
    for part in task.structures:
        check(task, begin + part.config_space.default_index)
        begin += part.config_space.range_length
    assert begin == task.config_space.range_length


HALVES = [
    ("matmul", (13, 37, 21, False, True)),
    ("dense", (13, 37, 21, True, True)),
    ("dense", (5, 40, 21, False, False)),
    ("batch_matmul", (2, 8, 20, 16, False, False)),
    ("conv2d", (1, 4, 9, 9, 18, 3, 3, 1, 1)),
    ("depthwise_conv2d", (1, 3, 8, 20, 3, 3, 1, 1)),
    ("pool2d", (1, 3, 9, 20, 3, 3, 2, 1, "avg", False)),
    ("pool2d", (1, 3, 9, 20, 3, 3, 2, 1, "max", False)),
    ("softmax", (5, 37)),
    ("layer_norm", (5, 37, 1e-5)),
    ("reduce", (9, 64, "sum", 0)),
    ("elementwise", (5, 33, "scale,sigmoid,add")),
    ("transpose", (33, 64)),
]


@pytest.mark.parametrize(
    ("case", "dtype"), covering(HALVES, ["float16", "bfloat16"], strength=1), ids=str
)
def test_halves_are_summed_as_float32(case: tuple[str, tuple[object, ...]], dtype: str) -> None:
    name, args = case
    rest = ("NK",) if name == "dense" else ()
    task = lw.create_task(name, (*args[: 5 if name == "dense" else None], dtype, *rest), "llvm")
    space = task.config_space
    s, tensors = task.instantiate(space.get(space.default_index))
    assert {t.dtype for t in tensors} == {dtype}
    arrays = [x.astype(np.dtype(dtypes.check(dtype))) for x in float_data(tensors)]
    lw.build(s, tensors, task.target)(*arrays)
    got, want = (x.astype("float32") for x in (arrays[-1], task.reference(*arrays[:-1])))
    # One rounding of the result may go the other way: no more than a unit in the last place.
    unit = 2.0 ** (-10 if dtype == "float16" else -7)
    assert (np.abs(got - want) <= unit * np.abs(want) + 1e-4 * np.abs(want).max()).all()


def float_data(tensors: list[te.Tensor]) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    return [rng.standard_normal(t.shape) for t in tensors]


def test_bytes_are_summed_in_int32() -> None:
    task = lw.create_task("matmul", (4, 5, 600, False, False, "int8"), "llvm -num-threads=1")
    s, tensors = task.instantiate(task.config_space.get(task.config_space.default_index))
    a, b = np.full((4, 600), 127, np.int8), np.full((600, 5), -128, np.int8)
    c = np.zeros((4, 5), np.int32)
    lw.build(s, tensors, task.target)(a, b, c)
    assert (c == -127 * 128 * 600).all()


def test_reference_of_pooling_against_loops() -> None:
    args = (1, 2, 5, 6, 3, 2, (2, 1), 1, "avg", False)
    x = np.random.default_rng(2).standard_normal((1, 2, 5, 6)).astype("float32")
    got = lw.create_task("pool2d", args, "llvm").reference(x)
    for _, c, y, z in np.ndindex(*got.shape):
        rows = slice(max(2 * y - 1, 0), min(2 * y + 2, 5))
        columns = slice(max(z - 1, 0), min(z + 1, 6))
        assert abs(got[0, c, y, z] - x[0, c, rows, columns].mean()) < 1e-6


@pytest.mark.parametrize("value", ["panel", "block", "none"])
def test_every_packing_of_matmul(value: str) -> None:
    task = lw.create_task("matmul", (30, 70, 19), "llvm")
    space = task.config_space
    base = dict(space.get(space.default_index).values)
    check(task, space.find({**base, "pack": value}))


def test_reference_of_conv2d_against_loops() -> None:
    args = (2, 3, 6, 5, 4, 3, 2, (2, 1), (1, 0))
    x, w = np.random.default_rng(1).standard_normal((2, 3, 6, 5)), np.ones((4, 3, 3, 2))
    w *= np.arange(72).reshape(w.shape)
    got = lw.create_task("conv2d", args, "llvm").reference(x, w)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    want = np.zeros(got.shape)
    for b, o, y, z in np.ndindex(*want.shape):
        patch = padded[b, :, 2 * y : 2 * y + 3, z : z + 2]
        want[b, o, y, z] = (patch * w[o]).sum()
    np.testing.assert_allclose(got, want)


def test_flop_of_the_operators() -> None:
    assert lw.create_task("matmul", (8, 9, 10), "llvm").flop == 2 * 8 * 9 * 10
    conv = lw.create_task("conv2d", (1, 4, 8, 8, 6, 3, 3), "llvm")
    assert conv.flop == 2 * 6 * 6 * 6 * 4 * 3 * 3
    dense = lw.create_task("dense", (8, 9, 10), "llvm")
    assert dense.flop == 2 * 8 * 9 * 10 + 2 * 8 * 9


def test_spaces_hold_real_choices() -> None:
    for name, args in (
        ("matmul", (512, 512, 512)),
        ("dense", (128, 3072, 768)),
    ):
        space = lw.create_task(name, args, "llvm").config_space
        assert space.valid_count().count > 1000, name
        assert len(space.knobs) >= 5, name


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("matmul", (0, 4, 4), "must be positive, got 0"),
        ("matmul", (-3, 4, 4), "must be positive, got -3"),
        ("matmul", (2.5, 4, 4), "positive integers, got 2.5"),
        ("matmul", (4, 4, 4, False, False, "float99"), "unknown dtype 'float99'"),
        ("dense", (4, 4, 4, True, True, "float32", "XY"), "weight is 'NK' or 'KN'"),
        ("conv2d", (1, 3, 4, 4, 5, 7, 7), "7x7 kernel does not fit"),
        ("conv2d", (1, 3, 8, 8, 5, 3, 3, 0), "must be positive"),
        ("conv2d", (1, 3, 8, 8, 5, 3, 3, (1, 2, 3)), "integer or a pair"),
        (
            "conv2d",
            (1, 3, 8, 8, 5, 3, 3, 1, 0, "float32", 4),
            "3x3 kernel does not fit 8x8, .* dilation",
        ),
        ("conv2d", (1, 4, 8, 8, 6, 3, 3, 1, 0, "float32", 1, 4), "4 groups do not divide 4 input"),
        ("conv2d", (1, 4, 8, 8, 6, 3, 3, 1, 0, "float32", 1, 0), "0 groups"),
        ("conv2d", (1, 4, 8, 8, 6, 3, 3, 1, 0, "float32", 1, 1, "CHW"), "layout is one of NCHW"),
        ("depthwise_conv2d", (1, 4, 8, 8, 3, 3, 0), "must be positive"),
        ("reduce", (4, 4, "mean"), "kind is one of sum, prod, max, min"),
        ("reduce", (4, 4, "sum", 2), "axis is 0 or 1, got 2"),
        ("softmax", (4, 4, "int32"), "int32 has no exponentials"),
        ("layer_norm", (4, 4, 1e-5, "int8"), "int8 has no square roots"),
        ("elementwise", (4, 4, "scale,sigmoyd"), "unknown link 'sigmoyd' .did you mean 'sigmoid'"),
        ("elementwise", (4, 4, ""), "the chain is empty"),
        ("elementwise", (4, 4, "exp", "int32"), "exp is for floats"),
        ("pool2d", (1, 4, 8, 8, 3, 3, 1, 2), "more than half of the kernel"),
        ("pool2d", (1, 4, 8, 8, 3, 3, 1, 1, "min"), "kind is one of max, avg"),
        ("pool2d", (1, 4, 8, 8, 3, 3, 1, 1, "avg", False, "int32"), "average of int32"),
    ],
)
def test_bad_arguments_are_named(name: str, args: tuple[object, ...], text: str) -> None:
    with pytest.raises((TaskError, TensorError), match=text):
        lw.create_task(name, args, "llvm")


def test_mismatched_operands_are_named() -> None:
    a = te.placeholder((4, 5), "float32", name="A")
    with pytest.raises(TensorError, match="reduction extents 5 and 6"):
        ops.matmul_compute(a, te.placeholder((6, 7), "float32"))
    with pytest.raises(TensorError, match="A is float32 and B float64"):
        ops.matmul_compute(a, te.placeholder((5, 7), "float64"))
    x = te.placeholder((1, 3, 8, 8), "float32")
    with pytest.raises(TensorError, match="reduce: the input has 2 dimensions, got 4"):
        ops.reduce_compute(x)
    with pytest.raises(TensorError, match="3 channels, the weight 4"):
        ops.conv2d_compute(x, te.placeholder((2, 4, 3, 3), "float32"))
    with pytest.raises(TensorError, match="3 channels, the weight 4 x 1"):
        ops.depthwise_conv2d_compute(x, te.placeholder((4, 1, 3, 3), "float32"))


def test_operator_parameters() -> None:
    matmul = ops.WORKLOADS["matmul"]
    assert matmul.args({"M": 2, "N": 3, "K": 4}) == (2, 3, 4, False, False, "float32")
    with pytest.raises(UsageError, match=r"needs N=\.\.\. K=\.\.\."):
        matmul.args({"M": 2})
    with pytest.raises(UsageError, match="did you mean 'trans_b'"):
        matmul.args({"M": 2, "N": 3, "K": 4, "trans": True})
