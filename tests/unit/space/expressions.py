"""Expressions that tests of spaces share: each a function that makes the arguments, result last."""

from __future__ import annotations

from collections.abc import Callable

from loopwright import ops, te

Make = Callable[[], list[te.Tensor]]


def placeholder(*shape: int, name: str = "A", dtype: str = "float32") -> te.Tensor:
    tensor: te.Tensor = te.placeholder(shape, dtype, name=name)
    return tensor


def product(m: int, n: int, k: int, trans_a: bool = False, trans_b: bool = False) -> Make:
    def make() -> list[te.Tensor]:
        A = placeholder(*((k, m) if trans_a else (m, k)))
        B = placeholder(*((n, k) if trans_b else (k, n)), name="B")
        return [A, B, ops.matmul_compute(A, B, trans_a, trans_b)]

    return make


def batched() -> list[te.Tensor]:
    A, B = placeholder(3, 9, 10), placeholder(3, 10, 33, name="B")
    return [A, B, ops.matmul_compute(A, B)]


def min_plus(m: int = 7, n: int = 21, d: int = 5) -> list[te.Tensor]:
    A, B = placeholder(m, d), placeholder(d, n, name="B")
    k = te.reduce_axis((0, d), name="k")
    return [A, B, te.compute((m, n), lambda i, j: te.min(A[i, k] + B[k, j], axis=k), name="C")]


def product_with_tanh() -> list[te.Tensor]:
    A, B = placeholder(20, 11), placeholder(11, 35, name="B")
    b = placeholder(35, name="b")
    C = ops.matmul_compute(A, B)
    return [A, B, b, te.compute((20, 35), lambda i, j: te.tanh(C[i, j] + b[j]), name="D")]


def conv2d(layout: str, stride: int, pad: int) -> Make:
    def make() -> list[te.Tensor]:
        nchw = layout == "NCHW"
        X = placeholder(*((2, 5, 11, 9) if nchw else (2, 11, 9, 5)), name="X")
        W = placeholder(*((18, 5, 3, 3) if nchw else (3, 3, 5, 18)), name="W")
        Y = ops.conv2d_compute(X, W, (stride, stride), (pad, pad), layout=layout)
        return [X, W, Y]

    return make


def conv3d(n: int = 2, o: int = 17, size: int = 6, window: int = 2) -> list[te.Tensor]:
    X, W = (
        placeholder(n, size, size, size, name="X"),
        placeholder(o, n, window, window, window, name="W"),
    )
    c = te.reduce_axis((0, n), name="c")
    r = [te.reduce_axis((0, window), name=name) for name in "dhw"]
    left = size - window + 1
    Y = te.compute(
        (o, left, left, left),
        lambda b, z, y, x: te.sum(
            X[c, z + r[0], y + r[1], x + r[2]] * W[b, c, r[0], r[1], r[2]], axis=[c, *r]
        ),
        name="Y",
    )
    return [X, W, Y]


def distances(m: int = 19, n: int = 21, d: int = 3) -> list[te.Tensor]:
    X, Y = placeholder(m, d, name="X"), placeholder(n, d, name="Y")
    k = te.reduce_axis((0, d), name="k")

    def difference(i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        return X[i, k] - Y[j, k]

    D = te.compute(
        (m, n), lambda i, j: te.sum(difference(i, j) * difference(i, j), axis=k), name="D"
    )
    return [X, Y, D]


def bytes_product() -> list[te.Tensor]:
    """Bytes into int32: what dot product instructions take."""
    A, B = placeholder(13, 24, name="A", dtype="uint8"), placeholder(24, 40, name="B", dtype="int8")
    k = te.reduce_axis((0, 24), name="k")
    C = te.compute(
        (13, 40),
        lambda i, j: te.sum(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k),
        name="C",
    )
    return [A, B, C]


CONTRACTIONS: dict[str, Make] = {
    "product": product(13, 50, 21),
    "product of transposed A": product(13, 50, 21, trans_a=True),
    "product of transposed B": product(13, 50, 21, trans_b=True),
    "product over a prime": product(7, 37, 541),
    "one row": product(1, 40, 9),
    "one column": product(40, 1, 9),
    "batched": batched,
    "min-plus": min_plus,
    "tanh behind": product_with_tanh,
    "conv2d": conv2d("NCHW", 1, 1),
    "conv2d, stride 2": conv2d("NCHW", 2, 0),
    "conv2d NHWC": conv2d("NHWC", 1, 1),
    "conv3d": conv3d,
    "distances": distances,
}


def softmax() -> list[te.Tensor]:
    X = placeholder(9, 37, name="X")
    return [X, ops.softmax_compute(X)[0]]


def layer_norm() -> list[te.Tensor]:
    X, g, b = placeholder(9, 37, name="X"), placeholder(37, name="g"), placeholder(37, name="b")
    return [X, g, b, ops.layer_norm_compute(X, g, b)[0]]


def row_maxima() -> list[te.Tensor]:
    X, k = placeholder(3, 5, 40, name="X"), te.reduce_axis((0, 40), name="k")
    return [X, te.compute((3, 5), lambda i, j: te.max(te.abs(X[i, j, k]), axis=k), name="Y")]


def columns() -> list[te.Tensor]:
    X = placeholder(21, 50, name="X")
    return [X, ops.reduce_compute(X, "sum", axis=0)]


def depthwise(layout: str) -> Make:
    def make() -> list[te.Tensor]:
        nchw = layout == "NCHW"
        X = placeholder(*((2, 7, 12, 20) if nchw else (2, 12, 20, 7)), name="X")
        W = placeholder(*((7, 1, 3, 3) if nchw else (3, 3, 7, 1)), name="W")
        return [X, W, ops.depthwise_conv2d_compute(X, W, pad=(1, 1), layout=layout)]

    return make


def pooled() -> list[te.Tensor]:
    X = placeholder(2, 9, 9, 21, name="X")
    r, q = te.reduce_axis((0, 3), name="r"), te.reduce_axis((0, 3), name="q")
    Y = te.compute(
        (2, 4, 4, 21),
        lambda n, y, x, c: te.max(X[n, 2 * y + r, 2 * x + q, c], axis=[r, q]),
        name="Y",
    )
    return [X, Y]


def blurred() -> list[te.Tensor]:
    X = placeholder(30, 41, name="X")
    B = te.compute((30, 39), lambda i, j: X[i, j] + X[i, j + 1] + X[i, j + 2], name="B")
    return [X, te.compute((28, 39), lambda i, j: B[i, j] * B[i + 2, j], name="C")]


def transposed() -> list[te.Tensor]:
    X = placeholder(5, 6, 33, name="X")
    return [X, te.compute((33, 5, 6), lambda c, a, b: X[a, b, c] + 1, name="T")]


def flat() -> list[te.Tensor]:
    X = placeholder(1000, name="X")
    return [X, te.compute((1000,), lambda i: te.max(X[i], 0), name="Y")]


def dot() -> list[te.Tensor]:
    A, B, k = placeholder(100), placeholder(100, name="B"), te.reduce_axis((0, 100), name="k")
    return [A, B, te.compute((1,), lambda i: te.sum(A[k] * B[k], axis=k), name="C")]


def product_of_three() -> list[te.Tensor]:
    A, B, C = placeholder(9, 8), placeholder(8, 10, name="B"), placeholder(10, 11, name="C")
    return [A, B, C, ops.matmul_compute(ops.matmul_compute(A, B, name="AB"), C, name="D")]


def running_columns(m: int = 40, n: int = 33) -> list[te.Tensor]:
    """Largest element so far of each column."""
    X, k = placeholder(m, n, name="X"), te.reduce_axis((0, m), name="k")
    Y = te.compute((m, n), lambda i, j: te.max(X[k, j], axis=k, where=k <= i), name="Y")
    return [X, Y]


#: With whether sums of integers are exact in any order.
OTHERS: dict[str, tuple[Make, bool]] = {
    "softmax": (softmax, False),
    "layer_norm": (layer_norm, False),
    "maxima of rows": (row_maxima, True),
    "columns": (columns, True),
    "depthwise": (depthwise("NCHW"), True),
    "depthwise NHWC": (depthwise("NHWC"), True),
    "pooled": (pooled, True),
    "blurred": (blurred, True),
    "transposed": (transposed, True),
    "flat": (flat, True),
    "dot": (dot, True),
    "product of three": (product_of_three, True),
    "running maxima": (running_columns, True),
}
