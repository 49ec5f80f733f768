"""Expressions without a template whose records teach each other: layers and small programs."""

from __future__ import annotations

from collections.abc import Callable

from loopwright import ops, te

Make = Callable[[], list[te.Tensor]]


def _input(name: str, *shape: int) -> te.Tensor:
    tensor: te.Tensor = te.placeholder(shape, "float32", name=name)
    return tensor


def _product(m: int, n: int, k: int, trans_b: bool = False) -> Make:
    def make() -> list[te.Tensor]:
        A, B = _input("A", m, k), _input("B", *((n, k) if trans_b else (k, n)))
        return [A, B, ops.matmul_compute(A, B, trans_b=trans_b)]

    return make


def _dense_tanh() -> list[te.Tensor]:
    A, B, b = _input("A", 128, 512), _input("B", 512, 768), _input("b", 768)
    C = ops.matmul_compute(A, B)
    return [A, B, b, te.compute((128, 768), lambda i, j: te.tanh(C[i, j] + b[j]), name="D")]


def _batched() -> list[te.Tensor]:
    A, B = _input("A", 12, 128, 64), _input("B", 12, 64, 128)
    return [A, B, ops.matmul_compute(A, B)]


def _conv(c: int, size: int, o: int, kernel: int, stride: int, pad: int) -> Make:
    def make() -> list[te.Tensor]:
        X, W = _input("X", 1, c, size, size), _input("W", o, c, kernel, kernel)
        return [X, W, ops.conv2d_compute(X, W, (stride, stride), (pad, pad))]

    return make


def _depthwise() -> list[te.Tensor]:
    X, W = _input("X", 1, 96, 56, 56), _input("W", 96, 1, 3, 3)
    return [X, W, ops.depthwise_conv2d_compute(X, W, pad=(1, 1))]


def _distances() -> list[te.Tensor]:
    X, Y, k = _input("X", 512, 64), _input("Y", 512, 64), te.reduce_axis((0, 64), name="k")

    def square(i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        return te.sum((X[i, k] - Y[j, k]) * (X[i, k] - Y[j, k]), axis=k)

    return [X, Y, te.compute((512, 512), square, name="D")]


def _softmax() -> list[te.Tensor]:
    X = _input("X", 1024, 512)
    return [X, ops.softmax_compute(X)[0]]


def _layer_norm() -> list[te.Tensor]:
    X, g, b = _input("X", 512, 768), _input("g", 768), _input("b", 768)
    return [X, g, b, ops.layer_norm_compute(X, g, b)[0]]


def _columns() -> list[te.Tensor]:
    X = _input("X", 2048, 1024)
    return [X, ops.reduce_compute(X, "sum", axis=0)]


#: By the names that tables show.
WORKLOADS: dict[str, Make] = {
    "product 512x512x512": _product(512, 512, 512),
    "product 384x640x256": _product(384, 640, 256),
    "product 256x1024x512, B transposed": _product(256, 1024, 512, trans_b=True),
    "product 128x768x512, tanh": _dense_tanh,
    "12 products 128x128x64": _batched,
    "convolution 3x3, 64 to 64 at 28": _conv(64, 28, 64, 3, 1, 1),
    "convolution 1x1, 128 to 128 at 28": _conv(128, 28, 128, 1, 1, 0),
    "convolution 3x3 stride 2, 32 to 64 at 56": _conv(32, 56, 64, 3, 2, 1),
    "depthwise 3x3, 96 at 56": _depthwise,
    "distances 512x512x64": _distances,
    "softmax 1024x512": _softmax,
    "layer norm 512x768": _layer_norm,
    "sums of columns 2048x1024": _columns,
}
