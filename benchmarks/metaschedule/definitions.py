"""The expressions, for loopwright's ``te`` and for TVM's: it is an argument.

This file is also read by TVM's interpreter, and imports nothing. The names of inputs end in their
order; the result is last.
"""

from __future__ import annotations

from typing import Any

Tensors = list[Any]


def _matmul(te: Any, A: Any, B: Any, name: str = "C") -> Any:
    m, n, d = A.shape[0], B.shape[1], B.shape[0]
    k = te.reduce_axis((0, d), name="k")
    return te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name=name)


def matmul(te: Any, m: int, n: int, k: int) -> Tensors:
    """A plain product."""
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return [A, B, _matmul(te, A, B)]


def batch_matmul(te: Any, b: int, m: int, n: int, k: int) -> Tensors:
    """A product for each of a batch."""
    A, B = te.placeholder((b, m, k), name="A"), te.placeholder((b, k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((b, m, n), lambda h, i, j: te.sum(A[h, i, r] * B[h, r, j], axis=r), name="C")
    return [A, B, C]


def dense_bias_relu(te: Any, m: int, n: int, k: int) -> Tensors:
    """A layer of a network."""
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    b, C = te.placeholder((n,), name="bias"), _matmul(te, A, B)
    zero = te.const(0.0, "float32")
    D = te.compute((m, n), lambda i, j: te.max(C[i, j] + b[j], zero), name="D")
    return [A, B, b, D]


def conv2d(te: Any, n: int, size: int, o: int) -> Tensors:
    """A convolution of 3x3 with a border of zeros."""
    X, W = te.placeholder((n, size, size), name="X"), te.placeholder((o, n, 3, 3), name="W")
    c, r, q = (te.reduce_axis((0, d), name=x) for d, x in ((n, "c"), (3, "r"), (3, "q")))

    def padded(i: Any, y: Any, x: Any) -> Any:
        inside = te.all(y >= 1, y < size + 1, x >= 1, x < size + 1)
        return te.if_then_else(inside, X[i, y - 1, x - 1], te.const(0.0, "float32"))

    P = te.compute((n, size + 2, size + 2), padded, name="P")
    Y = te.compute(
        (o, size, size),
        lambda b, y, x: te.sum(P[c, y + r, x + q] * W[b, c, r, q], axis=[c, r, q]),
        name="Y",
    )
    return [X, W, Y]


def conv3d(te: Any, n: int, size: int, o: int) -> Tensors:
    """A convolution of 3x3x3."""
    X = te.placeholder((n, size, size, size), name="X")
    W = te.placeholder((o, n, 3, 3, 3), name="W")
    c, *r = (te.reduce_axis((0, d), name=x) for d, x in zip((n, 3, 3, 3), "cdhw", strict=True))
    Y = te.compute(
        (o, size - 2, size - 2, size - 2),
        lambda b, z, y, x: te.sum(
            X[c, z + r[0], y + r[1], x + r[2]] * W[b, c, r[0], r[1], r[2]], axis=[c, *r]
        ),
        name="Y",
    )
    return [X, W, Y]


def softmax(te: Any, m: int, n: int) -> Tensors:
    """Of each row."""
    X = te.placeholder((m, n), name="X")
    k, q = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="q")
    M = te.compute((m,), lambda i: te.max(X[i, k], axis=k), name="M")
    E = te.compute((m, n), lambda i, j: te.exp(X[i, j] - M[i]), name="E")
    Z = te.compute((m,), lambda i: te.sum(E[i, q], axis=q), name="Z")
    return [X, te.compute((m, n), lambda i, j: E[i, j] / Z[i], name="Y")]


def min_plus(te: Any, m: int, n: int, d: int) -> Tensors:
    """Shortest paths of two steps."""
    A, B = te.placeholder((m, d), name="A"), te.placeholder((d, n), name="B")
    k = te.reduce_axis((0, d), name="k")
    return [A, B, te.compute((m, n), lambda i, j: te.min(A[i, k] + B[k, j], axis=k), name="C")]


def distances(te: Any, m: int, n: int, d: int) -> Tensors:
    """Squared distances of all pairs."""
    X, Y = te.placeholder((m, d), name="X"), te.placeholder((n, d), name="Y")
    k = te.reduce_axis((0, d), name="k")

    def difference(i: Any, j: Any) -> Any:
        return X[i, k] - Y[j, k]

    D = te.compute(
        (m, n), lambda i, j: te.sum(difference(i, j) * difference(i, j), axis=k), name="D"
    )
    return [X, Y, D]


#: Name of a row, expression, sizes.
CASES: dict[str, tuple[str, tuple[int, ...]]] = {
    "matmul_512": ("matmul", (512, 512, 512)),
    "batch_matmul_12x128x128x64": ("batch_matmul", (12, 128, 128, 64)),
    "dense_bias_relu_kn_128x3072x768": ("dense_bias_relu", (128, 3072, 768)),
    "conv2d_64_56_3x3": ("conv2d", (64, 56, 64)),
    "conv3d_16_20_32": ("conv3d", (16, 20, 32)),
    "softmax_1024x1024": ("softmax", (1024, 1024)),
    "min_plus_256": ("min_plus", (256, 256, 256)),
    "distances_512x512x64": ("distances", (512, 512, 64)),
    "small_matmul_64": ("matmul", (64, 64, 64)),
}
#: What only tries whether everything works.
TRIAL_CASE = "small_matmul_64"


def tensors(te: Any, name: str) -> Tensors:
    """The arguments of a case."""
    expression, sizes = CASES[name]
    found: Tensors = globals()[expression](te, *sizes)
    return found
