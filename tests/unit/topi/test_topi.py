"""TOPI's functions against NumPy and PyTorch, compiled, and its schedules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loopwright as tvm
from loopwright import te, topi
from loopwright.errors import SpaceError, TensorError

RNG = np.random.default_rng(0)


def computed(results: list[te.Tensor], inputs: list[te.Tensor], *arrays: Any) -> list[Any]:
    """Arrays of several results, by one kernel."""
    outs = [np.empty(result.shape, result.dtype) for result in results]
    s = te.create_schedule([result.op for result in results])
    tvm.build(s, [*inputs, *results], "llvm")(*arrays, *outs)
    return outs


def of_arrays(functions: list[Any], *arrays: Any) -> list[Any]:
    """Functions of tensors, compiled together and called on arrays."""
    inputs = [te.placeholder(x.shape, str(x.dtype), name=f"x{n}") for n, x in enumerate(arrays)]
    return computed([function(*inputs) for function in functions], inputs, *arrays)


BINARY = ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "less")
UNARY = ("exp", "log", "sqrt", "tanh", "negative", "floor", "sign", "abs")


def test_elements_are_numpys() -> None:
    a, b = RNG.random((2, 2, 3, 4), "float32") + 0.25
    functions = [getattr(topi, name) for name in BINARY]
    functions += [lambda x, _, name=name: getattr(topi, name)(x) for name in UNARY]
    functions += [lambda x, y: topi.where(topi.greater(x, y), x, y)]
    wants = [getattr(np, name)(a, b) for name in BINARY]
    wants += [*(getattr(np, name)(a) for name in UNARY), np.maximum(a, b)]
    got = of_arrays(functions, a, b)
    for name, one, want in zip((*BINARY, *UNARY, "where"), got, wants, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-5, err_msg=name)


def test_divisions_of_integers_are_tvms() -> None:
    """``mod`` and ``divide`` truncate, those named ``floor`` round down."""
    names = ("mod", "floor_mod", "divide", "floor_divide", "right_shift")
    a, b = np.array([-5, 5], "int32"), np.array([3, -3], "int32")
    functions = [getattr(topi, name) for name in names[:4]]
    functions += [lambda x, y: topi.right_shift(x, topi.abs(y))]
    wants = [np.fmod(a, b), a % b, np.array([-1, -1]), a // b, a >> abs(b)]
    for name, one, want in zip(names, of_arrays(functions, a, b), wants, strict=True):
        np.testing.assert_array_equal(one, want, err_msg=name)


CASES = {
    "sum by place": (lambda t: topi.sum(t, 1), lambda x: x.sum(1)),
    "max by name": (
        lambda t: topi.max(t, axis=(0, 2), keepdims=True),
        lambda x: x.max((0, 2), keepdims=True),
    ),
    "transpose": (lambda t: topi.transpose(t, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    "reshape": (lambda t: topi.reshape(t, (5, 12)), lambda x: x.reshape(5, 12)),
    "clip": (lambda t: topi.clip(t, -0.5, 0.5), lambda x: x.clip(-0.5, 0.5)),
    "flatten": (lambda t: topi.nn.flatten(t), lambda x: x.reshape(4, 15)),
    "concatenate": (lambda t: topi.concatenate([t, t], 2), lambda x: np.concatenate([x, x], 2)),
    "elemwise_sum": (lambda t: topi.elemwise_sum([t, t, t]), lambda x: x + x + x),
    "pad": (
        lambda t: topi.nn.pad(t, (1, 0, 2), (0, 0, 3), 7.0),
        lambda x: np.pad(x, ((1, 0), (0, 0), (2, 3)), constant_values=7.0),
    ),
    "pad by name": (
        lambda t: topi.nn.pad(data=t, pad_before=[0, 1, 0], name="padded"),
        lambda x: np.pad(x, ((0, 0), (1, 1), (0, 0))),
    ),
    "operands by name": (
        lambda t: topi.subtract(rhs=t, lhs=topi.exp(x=t)),
        lambda x: np.exp(x) - x,
    ),
    "new axes": (lambda t: topi.expand_dims(t, 1, 2), lambda x: x[:, None, None]),
    "leaky_relu": (lambda t: topi.nn.leaky_relu(t, 0.5), lambda x: np.where(x > 0, x, x / 2)),
    "full": (lambda t: topi.full((2, 3), "float32", 4.0), lambda x: np.full((2, 3), 4.0)),
}


def test_arguments_are_taken_by_place_and_by_name() -> None:
    x = RNG.standard_normal((4, 3, 5)).astype("float32")
    got = of_arrays([function for function, _ in CASES.values()], x)
    for name, one, (_, want) in zip(CASES, got, CASES.values(), strict=True):
        np.testing.assert_allclose(one, want(x), rtol=1e-5, atol=1e-6, err_msg=name)


def test_products_are_numpys() -> None:
    a, b, bias = (RNG.random(shape, "float32") for shape in ((5, 7), (7, 4), (4,)))
    functions = [
        lambda a, b, at, bt, bias, x, y: topi.matmul(a, b),
        lambda a, b, at, bt, bias, x, y: topi.matmul(at, b, True),
        lambda a, b, at, bt, bias, x, y: topi.matmul(a, bt, transp_b=True),
        lambda a, b, at, bt, bias, x, y: topi.matmul(at, bt, True, True),
        lambda a, b, at, bt, bias, x, y: topi.nn.dense(a, bt, bias),
        lambda a, b, at, bt, bias, x, y: topi.nn.batch_matmul(x, y),
        lambda a, b, at, bt, bias, x, y: topi.nn.batch_matmul(x, topi.expand_dims(bt, 0)),
    ]
    x, y = RNG.random((3, 5, 7), "float32"), RNG.random((3, 4, 7), "float32")
    got = of_arrays(functions, a, b, a.T.copy(), b.T.copy(), bias, x, y)
    wants = [*[a @ b] * 4, a @ b + bias, x @ y.transpose(0, 2, 1), x @ b]
    for one, want in zip(got, wants, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-5)


#: Orders of the dimensions of an image (N, C, H, W) and of a weight (O, C, KH, KW) in a layout.
LAYOUTS = {
    "NCHW": ((0, 1, 2, 3), (0, 1, 2, 3)),
    "NHWC": ((0, 2, 3, 1), (2, 3, 1, 0)),
    "HWCN": ((2, 3, 1, 0), (2, 3, 1, 0)),
}
WINDOWS = [(1, 0), (1, (1, 0)), (2, (1, 0, 2, 1)), ((2, 1), "SAME"), (1, "valid")]


def test_convolutions_of_all_layouts() -> None:
    x, w = RNG.random((2, 3, 7, 6), "float32"), RNG.random((4, 3, 3, 2), "float32")
    wants = [topi.testing.conv2d_nchw_python(x, w, *window) for window in WINDOWS]
    for layout, orders in LAYOUTS.items():
        arrays = [
            array.transpose(order).copy() for array, order in zip((x, w), orders, strict=True)
        ]
        own, in_numpy = (
            getattr(home, f"conv2d_{layout.lower()}{end}")
            for home, end in ((topi.nn, ""), (topi.testing, "_python"))
        )
        functions = [lambda a, b, v=v, own=own: own(a, b, *v, dilation=1) for v in WINDOWS]
        functions += [lambda a, b, layout=layout: topi.nn.conv2d(a, b, 1, 0, 1, layout)]
        for one, want in zip(of_arrays(functions, *arrays), [*wants, wants[0]], strict=True):
            np.testing.assert_allclose(one, want.transpose(orders[0]), rtol=1e-5)
        for window, want in zip(WINDOWS, wants, strict=True):
            np.testing.assert_allclose(
                in_numpy(*arrays, *window), want.transpose(orders[0]), rtol=1e-5
            )


@pytest.mark.slow  # PyTorch is imported
def test_convolutions_and_pools_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    F = torch.nn.functional
    x, w, v = (RNG.random(s, "float32") for s in ((2, 4, 8, 8), (6, 2, 3, 3), (4, 2, 3, 3)))
    image, weight, filters = map(torch.tensor, (x, w, v))
    pools = {"kernel": 3, "stride": 2, "dilation": 1, "padding": (1, 1, 1, 1)}
    functions = [
        lambda a, b, c: topi.nn.group_conv2d_nchw(a, b, 2, 2, 2, 2),
        lambda a, b, c: topi.nn.depthwise_conv2d_nchw(a, c, 1, 1, 1),
        lambda a, b, c: topi.nn.pool2d(a, pool_type="max", **pools),
        lambda a, b, c: topi.nn.pool2d(a, pool_type="avg", **pools),
    ]
    wants = [
        F.conv2d(image, weight, stride=2, padding=2, dilation=2, groups=2),
        F.conv2d(image, filters.reshape(8, 1, 3, 3), groups=4, padding=1),
        F.max_pool2d(image, 3, 2, 1),
        F.avg_pool2d(image, 3, 2, 1),
    ]
    for one, want in zip(of_arrays(functions, x, w, v), wants, strict=True):
        np.testing.assert_allclose(one, want.numpy(), rtol=1e-5)


@pytest.mark.parametrize("padding", [0, 1])
def test_templates_find_the_stage_that_pads(padding: int) -> None:
    data, kernel = te.placeholder((1, 4, 8, 8), name="data"), te.placeholder((8, 4, 3, 3), name="k")
    conv = topi.nn.conv2d_nchw(data, kernel, 1, padding, dilation=1, out_dtype="float32")
    s = te.create_schedule([conv.op])
    assert [axis.extent for axis in s[conv].op.reduce_axis] == [4, 3, 3]
    pad = s[conv].op.input_tensors[0]
    assert pad.op.input_tensors == [data]
    s[pad].compute_inline()
    assert tvm.lower(s, [data, kernel, conv])


def test_a_space_has_as_many_points_as_in_tvm() -> None:
    """The splits and knobs of TVM's tutorial for CUDA, of which TVM prints the number of points."""
    data, kernel = (te.placeholder(shape) for shape in ((1, 512, 7, 7), (512, 512, 3, 3)))
    conv = topi.nn.conv2d_nchw(data, kernel, (1, 1), (1, 1), dilation=1, out_dtype="float32")
    s, cfg = te.create_schedule([conv.op]), tvm.autotvm.ConfigSpace()
    for number, axis in enumerate(s[conv].op.axis[1:]):
        cfg.define_split(f"tile_{number}", axis, num_outputs=4)
    for number, axis in enumerate(s[conv].op.reduce_axis):
        cfg.define_split(f"part_{number}", axis, num_outputs=3)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    cfg.define_knob("unroll_explicit", [0, 1])
    assert cfg.range_length == 10_454_400


@pytest.mark.parametrize("home", ["generic", "x86"])
def test_schedules_are_the_default_of_the_target(home: str) -> None:
    A = te.placeholder((64, 256), name="A")
    B = topi.nn.softmax(A)
    with tvm.Target("llvm -num-threads=1"):
        s = getattr(topi, home).schedule_softmax(B)
        assert s.trace
        a, b = RNG.random((64, 256), "float32"), np.empty((64, 256), "float32")
        tvm.build(s, [A, B])(a, b)
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(b, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_schedules_for_gpus_bind_threads() -> None:
    A = te.placeholder((128, 512), name="A")
    B = topi.sum(A, axis=1)
    with tvm.Target("cuda -arch=sm_80"):
        s = topi.cuda.schedule_reduce([B])
        assert "threadIdx.x" in str(tvm.lower(s, [A, B]))
        f = tvm.build(s, [A, B])
    assert "__global__" in f.imported_modules[0].get_source()


def test_what_cannot_be_is_refused() -> None:
    A, n = te.placeholder((4, 4), name="A"), te.var("n")
    for call, text in (
        (lambda: topi.add(A, 1), "argument 1 is 1, no tensor"),
        (lambda: topi.add(A), r"takes \(lhs, rhs\), got \(lhs\)"),
        (lambda: topi.add(A, other=A), r"takes \(lhs, rhs\), got \(lhs, other\)"),
        (lambda: topi.add(A, lhs=A), "lhs is given twice"),
        (lambda: topi.exp(A, 3), r"takes \(data\), got"),
        (lambda: topi.nn.conv2d(A, A, 1, 0, 1, "CHWN"), "layouts are NCHW, NHWC, HWCN"),
        (
            lambda: topi.nn.conv2d_nchw(
                te.placeholder((1, 1, 4, 4)), te.placeholder((1, 1, 3, 3)), 1, "FULL", 1
            ),
            "SAME",
        ),
        (lambda: topi.nn.pool2d(A, 2, 2, 1, (0,) * 4, "min"), "there are max and avg"),
        (lambda: topi.generic.schedule_reduce(topi.exp(te.placeholder((n,), name="B"))), "n"),
    ):
        with pytest.raises((TensorError, SpaceError), match=text):
            call()
    with pytest.raises(AttributeError, match=r"loopwright\.graph has nn\.sparse_dense"):
        topi.nn.sparse_dense  # noqa: B018


def test_shapes_that_do_not_agree_are_named() -> None:
    P = te.placeholder
    for call, text in (
        (lambda: topi.matmul(P((4, 6)), P((7, 5))), "6 and 7"),
        (lambda: topi.matmul(P((4, 6)), P((5,))), "b is .* no tensor of 2"),
        (lambda: topi.nn.batch_matmul(P((2, 3, 4)), P((2, 5, 9))), "4 and 9"),
        (lambda: topi.nn.batch_matmul(P((2, 3, 4)), P((3, 5, 4))), "2 and 3"),
        (lambda: topi.nn.conv2d_hwcn(P((9, 9, 8, 1)), P((3, 3, 4, 8)), 1, 0, 1), "8 and 4"),
        (lambda: topi.nn.dense(P((4, 6)), P((5, 6)), P((9,))), "5 and 9"),
        (lambda: topi.nn.dense(P((4, 6)), P((5, 7))), "6 and 7"),
        (lambda: topi.elemwise_sum([P((4, 6)), P((9, 9))]), r"\(4, 6\) and \(9, 9\)"),
    ):
        with pytest.raises(TensorError, match=text):
            call()
    n = te.var("n")
    assert topi.nn.batch_matmul(P((n, 3, 4)), P((1, 5, 4))).shape[1:] == (3, 5)


def test_arguments_of_other_kinds_are_refused() -> None:
    A, image, kernel = (te.placeholder(s) for s in ((4, 6), (1, 4, 8, 8), (8, 4, 3, 3)))
    assert topi.full(3, "float32", 1.0).shape == (3,)
    assert topi.nn.pool2d(image, 2, 2, 1, 0, "max").shape == (1, 4, 4, 4)
    for call in (
        lambda: topi.concatenate([]),
        lambda: topi.elemwise_sum([]),
        lambda: topi.nn.pad(A, [1, 1], [1]),
        lambda: topi.nn.pool2d(image, 2, 2, 1, None, "max"),
        lambda: topi.nn.conv2d_nchw(image, kernel, 0, "SAME", 1),
        lambda: topi.nn.conv2d_nchw(image, kernel, None, 0, 1),
        lambda: topi.nn.conv2d_nchw(image, kernel, 1.5, 0, 1),
        lambda: topi.nn.conv2d_nchw(image, kernel, 1, None, 1),
        lambda: topi.nn.conv2d_nchw(te.placeholder((4, 8, 8)), kernel, 1, 0, 1),
        lambda: topi.nn.group_conv2d_nchw(image, kernel, 1, 0, 1, 1.5),
        lambda: topi.generic.schedule_injective(None),
    ):
        with pytest.raises(TensorError):
            call()
