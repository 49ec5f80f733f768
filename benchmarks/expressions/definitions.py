"""Expressions that only the benchmark has; each makes the arguments, result last.

The others are those that the tests of automatic spaces run at small sizes.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

from loopwright import ops, te
from tests.unit.space.expressions import placeholder

Tensors = list[te.Tensor]


def _over(n: int, name: str = "k") -> te.IterVar:
    return te.reduce_axis((0, n), name=name)


# ---------------------------------------------------------------- of networks


def rms_norm(m: int, n: int) -> Tensors:
    X, g, k = placeholder(m, n, name="X"), placeholder(n, name="g"), _over(n)
    Q = te.compute((m,), lambda i: te.sum(X[i, k] * X[i, k], axis=k), name="Q")
    return [
        X,
        g,
        te.compute((m, n), lambda i, j: X[i, j] * g[j] / te.sqrt(Q[i] / n + 1e-5), name="Y"),
    ]


def cross_entropy(m: int, n: int) -> Tensors:
    """The mean over rows of the cross entropy between probabilities ``T`` and softmax of ``X``."""
    X, T = placeholder(m, n, name="X"), placeholder(m, n, name="T")
    k, q, r, b = _over(n), _over(n, "q"), _over(n, "r"), _over(m, "b")
    M = te.compute((m,), lambda i: te.max(X[i, k], axis=k), name="M")
    Z = te.compute((m,), lambda i: te.sum(te.exp(X[i, q] - M[i]), axis=q), name="Z")
    L = te.compute((m,), lambda i: M[i] + te.log(Z[i]), name="L")
    R = te.compute((m,), lambda i: te.sum(T[i, r] * (L[i] - X[i, r]), axis=r), name="R")
    S = te.compute((1,), lambda _: te.sum(R[b], axis=b), name="S")
    return [X, T, te.compute((1,), lambda i: S[i] * (1 / m), name="loss")]


def masked_softmax(b: int, n: int) -> Tensors:
    """Rows of a causal attention: what lies behind the diagonal has no weight."""
    X, k, q = placeholder(b, n, n, name="X"), _over(n), _over(n, "q")
    S = te.compute(
        (b, n, n),
        lambda h, i, j: te.select(j <= i, X[h, i, j], te.const(-1e30, "float32")),
        name="S",
    )
    M = te.compute((b, n), lambda h, i: te.max(S[h, i, k], axis=k), name="M")
    E = te.compute((b, n, n), lambda h, i, j: te.exp(S[h, i, j] - M[h, i]), name="E")
    Z = te.compute((b, n), lambda h, i: te.sum(E[h, i, q], axis=q), name="Z")
    return [X, te.compute((b, n, n), lambda h, i, j: E[h, i, j] / Z[h, i], name="Y")]


def gelu_dense(m: int, n: int, k: int) -> Tensors:
    X, W, b = placeholder(m, k, name="X"), placeholder(k, n, name="W"), placeholder(n, name="b")
    C = ops.matmul_compute(X, W, name="C")

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1.0 + te.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))

    D = te.compute((m, n), lambda i, j: C[i, j] + b[j], name="D")
    return [X, W, b, te.compute((m, n), lambda i, j: gelu(D[i, j]), name="Y")]


def low_rank(m: int, n: int, k: int, rank: int) -> Tensors:
    """A layer with a correction of low rank: ``X W + (X A) B``."""
    X, W = placeholder(m, k, name="X"), placeholder(k, n, name="W")
    A, B = placeholder(k, rank, name="A"), placeholder(rank, n, name="B")
    large, small = ops.matmul_compute(X, W, name="XW"), ops.matmul_compute(X, A, name="XA")
    more = ops.matmul_compute(small, B, name="XAB")
    return [X, W, A, B, te.compute((m, n), lambda i, j: large[i, j] + more[i, j], name="Y")]


def rotary(heads: int, n: int, d: int) -> Tensors:
    """Pairs of elements turned by an angle of their position."""
    X, half = placeholder(heads, n, d, name="X"), d // 2
    C, S = placeholder(n, d, name="C"), placeholder(n, d, name="S")

    def element(h: Any, i: Any, j: Any) -> Any:
        other = te.select(j < half, -X[h, i, te.min(j + half, d - 1)], X[h, i, te.max(j - half, 0)])
        return X[h, i, j] * C[i, j] + other * S[i, j]

    return [X, C, S, te.compute((heads, n, d), element, name="Y")]


# ---------------------------------------------------------------- convolutions


def locally_connected(n: int, o: int, size: int) -> Tensors:
    """A convolution whose weights differ from place to place."""
    X, W = placeholder(n, size + 2, name="X"), placeholder(size, o, n, 3, name="W")
    c, r = _over(n, "c"), _over(3)
    Y = te.compute(
        (o, size), lambda b, x: te.sum(X[c, x + r] * W[x, b, c, r], axis=[c, r]), name="Y"
    )
    return [X, W, Y]


def cost_volume(n: int, size: int, shifts: int) -> Tensors:
    """How well two images fit, one of them shifted."""
    A, B = placeholder(n, size, size), placeholder(n, size, size + shifts - 1, name="B")
    c = _over(n, "c")
    Y = te.compute(
        (shifts, size, size), lambda d, y, x: te.sum(A[c, y, x] * B[c, y, x + d], axis=c), name="Y"
    )
    return [A, B, Y]


def residual_block(n: int, size: int) -> Tensors:
    X, W = placeholder(1, n, size, size, name="X"), placeholder(n, n, 3, 3, name="W")
    b, R = placeholder(n, name="b"), placeholder(1, n, size, size, name="R")
    C = ops.conv2d_compute(X, W, pad=(1, 1))
    shape = (1, n, size, size)
    return [X, W, b, R, te.compute(
        shape, lambda i, c, y, x: te.max(C[i, c, y, x] + b[c] + R[i, c, y, x], 0.0), name="Y"
    )]  # fmt: skip


# ---------------------------------------------------------------- stencils, images


def jacobi(m: int, n: int, steps: int) -> Tensors:
    X = placeholder(m, n, name="X")
    t = X
    for step in range(steps):
        t = _jacobi_step(t, f"t{step}")
    return [X, t]


def _jacobi_step(t: te.Tensor, name: str) -> te.Tensor:
    m, n = t.static_shape
    found: te.Tensor = te.compute(
        (m - 2, n - 2),
        lambda i, j: 0.25 * (t[i, j + 1] + t[i + 2, j + 1] + t[i + 1, j] + t[i + 1, j + 2]),
        name=name,
    )
    return found


def sobel(m: int, n: int) -> Tensors:
    """The length of the gradient."""
    X = placeholder(m, n, name="X")

    def across(i: Any, j: Any) -> Any:
        return X[i, j + 2] - X[i, j] + 2.0 * (X[i + 1, j + 2] - X[i + 1, j]) + (
            X[i + 2, j + 2] - X[i + 2, j]
        )  # fmt: skip

    def down(i: Any, j: Any) -> Any:
        return X[i + 2, j] - X[i, j] + 2.0 * (X[i + 2, j + 1] - X[i, j + 1]) + (
            X[i + 2, j + 2] - X[i, j + 2]
        )  # fmt: skip

    U = te.compute((m - 2, n - 2), across, name="U")
    V = te.compute((m - 2, n - 2), down, name="V")
    return [X, te.compute(
        (m - 2, n - 2), lambda i, j: te.sqrt(U[i, j] * U[i, j] + V[i, j] * V[i, j]), name="Y"
    )]  # fmt: skip


def bilinear_resize(n: int, size: int) -> Tensors:
    """Images of twice the height and width, between whose points lie those of the input."""
    X = placeholder(n, size, size, name="X")

    def kept(i: Any) -> Any:
        return te.max(te.min(i, size - 1), 0)

    def weight(i: Any) -> Any:
        return te.select(te.equal(i % 2, 0), te.const(0.75, "float32"), te.const(0.25, "float32"))

    def wide(c: Any, y: Any, x: Any) -> Any:
        low = (x + 1) // 2 - 1
        return X[c, y, kept(low)] * (1.0 - weight(x)) + X[c, y, kept(low + 1)] * weight(x)

    R = te.compute((n, size, 2 * size), wide, name="R")

    def tall(c: Any, y: Any, x: Any) -> Any:
        low = (y + 1) // 2 - 1
        return R[c, kept(low), x] * (1.0 - weight(y)) + R[c, kept(low + 1), x] * weight(y)

    return [X, te.compute((n, 2 * size, 2 * size), tall, name="Y")]


def nearest_resize(n: int, size: int) -> Tensors:
    X = placeholder(n, size, size, name="X")
    shape = (n, 2 * size, 2 * size)
    return [X, te.compute(shape, lambda c, y, x: X[c, y // 2, x // 2], name="Y")]


def gray(m: int, n: int) -> Tensors:
    X = placeholder(m, n, 3, name="X", dtype="uint8")

    def element(i: Any, j: Any) -> Any:
        red, green, blue = (X[i, j, c].astype("float32") for c in range(3))
        return (0.299 * red + 0.587 * green + 0.114 * blue) * (1 / 255)

    return [X, te.compute((m, n), element, name="Y")]


def global_average(b: int, n: int, size: int) -> Tensors:
    X, y, x = placeholder(b, n, size, size, name="X"), _over(size, "y"), _over(size, "x")
    S = te.compute((b, n), lambda i, c: te.sum(X[i, c, y, x], axis=[y, x]), name="S")
    return [X, te.compute((b, n), lambda i, c: S[i, c] * (1 / (size * size)), name="Y")]


# ---------------------------------------------------------------- algebra


def power_spectrum(m: int, n: int) -> Tensors:
    """Squared sizes of the Fourier coefficients of rows, by products with two matrices."""
    X, C, S = placeholder(m, n, name="X"), placeholder(n, n, name="C"), placeholder(n, n, name="S")
    re, im = ops.matmul_compute(X, C, name="re"), ops.matmul_compute(X, S, name="im")
    return [X, C, S, te.compute(
        (m, n), lambda i, j: re[i, j] * re[i, j] + im[i, j] * im[i, j], name="P"
    )]  # fmt: skip


def quadratic_form(m: int, n: int) -> Tensors:
    X, M, k = placeholder(m, n, name="X"), placeholder(n, n, name="M"), _over(n, "q")
    P = ops.matmul_compute(X, M, name="P")
    return [X, M, te.compute((m,), lambda i: te.sum(P[i, k] * X[i, k], axis=k), name="Y")]


def kronecker(m: int, n: int) -> Tensors:
    A, B = placeholder(m, m), placeholder(n, n, name="B")
    return [A, B, te.compute(
        (m * n, m * n), lambda i, j: A[i // n, j // n] * B[i % n, j % n], name="K"
    )]  # fmt: skip


# ---------------------------------------------------------------- reductions


def variance_of_columns(m: int, n: int) -> Tensors:
    X, k, q = placeholder(m, n, name="X"), _over(m), _over(m, "q")
    S = te.compute((n,), lambda j: te.sum(X[k, j], axis=k), name="S")
    D = te.compute((m, n), lambda i, j: X[i, j] - S[j] * (1 / m), name="D")
    V = te.compute((n,), lambda j: te.sum(D[q, j] * D[q, j], axis=q), name="V")
    return [X, te.compute((n,), lambda j: V[j] * (1 / m), name="Y")]


def sum_of_squares(m: int, n: int) -> Tensors:
    X, i, j = placeholder(m, n, name="X"), _over(m, "i"), _over(n, "j")
    return [X, te.compute((1,), lambda _: te.sum(X[i, j] * X[i, j], axis=[i, j]), name="Y")]


# ---------------------------------------------------------------- copies, narrow types


def joined(m: int, n: int, w: int) -> Tensors:
    A, B = placeholder(m, n), placeholder(m, w, name="B")
    return [A, B, te.compute(
        (m, n + w), lambda i, j: te.if_then_else(j < n, A[i, j], B[i, j - n]), name="C"
    )]  # fmt: skip


def reflect_pad(n: int, size: int) -> Tensors:
    X = placeholder(n, size, size, name="X")

    def back(i: Any) -> Any:
        return te.abs((size - 1) - te.abs((size - 1) - (i - 1)))

    shape = (n, size + 2, size + 2)
    return [X, te.compute(shape, lambda c, y, x: X[c, back(y), back(x)], name="Y")]


def pixel_shuffle(n: int, size: int) -> Tensors:
    X = placeholder(n, 4, size, size, name="X")
    shape = (n, 2 * size, 2 * size)
    return [X, te.compute(
        shape, lambda c, y, x: X[c, y % 2 * 2 + x % 2, y // 2, x // 2], name="Y"
    )]  # fmt: skip


def int8_dense(m: int, n: int, k: int) -> Tensors:
    """A product of bytes, and what a network makes of it: scaled columns, a bias, ReLU."""
    A, B = placeholder(m, k, dtype="int8"), placeholder(k, n, name="B", dtype="int8")
    s, b = placeholder(n, name="s"), placeholder(n, name="b")
    C = ops.matmul_compute(A, B, out_dtype="int32")
    return [A, B, s, b, te.compute(
        (m, n), lambda i, j: te.max(C[i, j].astype("float32") * s[j] + b[j], 0.0), name="Y"
    )]  # fmt: skip
