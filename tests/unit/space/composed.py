"""Expressions that have no template: each a function that makes the arguments, result last."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

from loopwright import ops, te
from tests.unit.space.expressions import Make, placeholder

Element = Callable[..., Any]


def _over(n: int, name: str = "k") -> te.IterVar:
    return te.reduce_axis((0, n), name=name)


def _compute(shape: tuple[int, ...], element: Element, name: str) -> te.Tensor:
    tensor: te.Tensor = te.compute(shape, element, name=name)
    return tensor


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + te.exp(-x))


def _mapped(t: te.Tensor, f: Callable[[Any], Any], name: str) -> te.Tensor:
    return _compute(t.static_shape, lambda *i: f(t[i]), name)


# ---------------------------------------------------------------- of networks


def attention() -> list[te.Tensor]:
    Q, K, V = (placeholder(2, 9, 16, name=n) for n in "QKV")
    S = ops.matmul_compute(Q, K, trans_b=True, name="S")
    T = _mapped(S, lambda x: x * 0.25, "T")
    k, q = _over(9, "a"), _over(9, "b")
    M = _compute((2, 9), lambda b, i: te.max(T[b, i, k], axis=k), "M")
    E = _compute((2, 9, 9), lambda b, i, j: te.exp(T[b, i, j] - M[b, i]), "E")
    Z = _compute((2, 9), lambda b, i: te.sum(E[b, i, q], axis=q), "Z")
    P = _compute((2, 9, 9), lambda b, i, j: E[b, i, j] / Z[b, i], "P")
    return [Q, K, V, ops.matmul_compute(P, V, name="O")]


def gated_mlp() -> list[te.Tensor]:
    X, U, G = placeholder(7, 12, name="X"), placeholder(12, 20, name="U"), placeholder(12, 20)
    W = placeholder(20, 12, name="W")
    up, gate = ops.matmul_compute(X, U, name="up"), ops.matmul_compute(X, G, name="gate")
    H = _compute((7, 20), lambda i, j: up[i, j] * gate[i, j] * _sigmoid(gate[i, j]), "H")
    return [X, U, G, W, ops.matmul_compute(H, W, name="Y")]


def gru_cell() -> list[te.Tensor]:
    x, h = placeholder(3, 10, name="x"), placeholder(3, 8, name="h")
    W = [placeholder(10, 8, name=f"W{n}") for n in "zrn"]
    R = [placeholder(8, 8, name=f"R{n}") for n in "zrn"]
    a = [ops.matmul_compute(x, w, name=f"a{n}") for n, w in zip("zrn", W, strict=True)]
    b = [ops.matmul_compute(h, r, name=f"b{n}") for n, r in zip("zrn", R, strict=True)]
    z = _compute((3, 8), lambda i, j: _sigmoid(a[0][i, j] + b[0][i, j]), "z")
    r = _compute((3, 8), lambda i, j: _sigmoid(a[1][i, j] + b[1][i, j]), "r")
    n = _compute((3, 8), lambda i, j: te.tanh(a[2][i, j] + r[i, j] * b[2][i, j]), "n")
    Y = _compute((3, 8), lambda i, j: (1.0 - z[i, j]) * n[i, j] + z[i, j] * h[i, j], "Y")
    return [x, h, *W, *R, Y]


def separable() -> list[te.Tensor]:
    X, D = placeholder(1, 6, 9, 9, name="X"), placeholder(6, 1, 3, 3, name="D")
    P = placeholder(10, 6, 1, 1, name="P")
    mid = ops.depthwise_conv2d_compute(X, D, pad=(1, 1), name="mid")
    return [X, D, P, ops.conv2d_compute(_mapped(mid, lambda x: te.max(x, 0), "relu"), P)]


def group_norm() -> list[te.Tensor]:
    X, k, q = placeholder(2, 4, 24, name="X"), _over(24), _over(24, "q")
    mean = _compute((2, 4), lambda n, g: te.sum(X[n, g, k], axis=k), "total")
    D = _compute((2, 4, 24), lambda n, g, i: X[n, g, i] - mean[n, g] / 24, "D")
    V = _compute((2, 4), lambda n, g: te.sum(D[n, g, q] * D[n, g, q], axis=q), "V")
    Y = _compute((2, 4, 24), lambda n, g, i: D[n, g, i] / te.sqrt(V[n, g] / 24 + 1e-5), "Y")
    return [X, Y]


def rms_norm_of_a_sum() -> list[te.Tensor]:
    X, R, g, k = (
        placeholder(5, 40, name="X"),
        placeholder(5, 40, name="R"),
        placeholder(40),
        _over(40),
    )
    S = _compute((5, 40), lambda i, j: X[i, j] + R[i, j], "S")
    Q = _compute((5,), lambda i: te.sum(S[i, k] * S[i, k], axis=k), "Q")
    return [
        X,
        R,
        g,
        _compute((5, 40), lambda i, j: S[i, j] * g[j] / te.sqrt(Q[i] / 40 + 1e-5), "Y"),
    ]


def log_sum_exp() -> list[te.Tensor]:
    X, k, q = placeholder(6, 33, name="X"), _over(33), _over(33, "q")
    M = _compute((6,), lambda i: te.max(X[i, k], axis=k), "M")
    Z = _compute((6,), lambda i: te.sum(te.exp(X[i, q] - M[i]), axis=q), "Z")
    return [X, _compute((6,), lambda i: M[i] + te.log(Z[i]), "Y")]


def softmax_of_columns() -> list[te.Tensor]:
    X, k, q = placeholder(9, 20, name="X"), _over(9), _over(9, "q")
    M = _compute((20,), lambda j: te.max(X[k, j], axis=k), "M")
    E = _compute((9, 20), lambda i, j: te.exp(X[i, j] - M[j]), "E")
    Z = _compute((20,), lambda j: te.sum(E[q, j], axis=q), "Z")
    return [X, _compute((9, 20), lambda i, j: E[i, j] / Z[j], "Y")]


def cross_entropy() -> list[te.Tensor]:
    X, T = placeholder(5, 19, name="X"), placeholder(5, 19, name="T")
    Y, _ = ops.softmax_compute(X, "P")
    k, b = _over(19, "c"), _over(5, "b")
    L = _compute((5,), lambda i: te.sum(T[i, k] * te.log(Y[i, k] + 1.0), axis=k), "L")
    return [X, T, _compute((1,), lambda _: te.sum(L[b], axis=b), "loss")]


def squeeze_and_excite() -> list[te.Tensor]:
    X, W = placeholder(6, 5, 7, name="X"), placeholder(6, 6, name="W")
    y, x, c = _over(5, "y"), _over(7, "x"), _over(6, "c")
    S = _compute((6,), lambda i: te.sum(X[i, y, x], axis=[y, x]), "S")
    G = _compute((6,), lambda i: te.sum(W[i, c] * S[c], axis=c), "G")
    return [X, W, _compute((6, 5, 7), lambda i, a, b: X[i, a, b] * _sigmoid(G[i]), "Y")]


# ---------------------------------------------------------------- convolutions


def conv1d() -> list[te.Tensor]:
    X, W, c, r = (
        placeholder(4, 30, name="X"),
        placeholder(9, 4, 3, name="W"),
        _over(4, "c"),
        _over(3),
    )
    Y = _compute((9, 28), lambda o, x: te.sum(X[c, x + r] * W[o, c, r], axis=[c, r]), "Y")
    return [X, W, Y]


def conv1d_dilated_last() -> list[te.Tensor]:
    X, W, c, r = (
        placeholder(30, 4, name="X"),
        placeholder(3, 4, 9, name="W"),
        _over(4, "c"),
        _over(3),
    )
    Y = _compute((24, 9), lambda x, o: te.sum(X[x + 3 * r, c] * W[r, c, o], axis=[c, r]), "Y")
    return [X, W, Y]


def transposed_conv() -> list[te.Tensor]:
    X, W = placeholder(3, 6, name="X"), placeholder(3, 5, 4, name="W")
    c, r = _over(3, "c"), _over(4)

    def spread(i: Any, x: Any) -> Any:
        at = x - 3
        inside = te.all(at >= 0, te.equal(at % 2, 0), at // 2 < 6)
        return te.if_then_else(inside, X[i, at // 2], 0.0)

    D = _compute((3, 17), spread, "D")
    Y = _compute((5, 14), lambda o, x: te.sum(D[c, x + r] * W[c, o, 3 - r], axis=[c, r]), "Y")
    return [X, W, Y]


def winograd() -> list[te.Tensor]:
    """F(2, 3) in one dimension: 4 products a tile of two outputs."""
    X, U = placeholder(5, 18, name="X"), placeholder(4, 7, 5, name="U")
    B = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
    c = _over(5, "c")

    def chosen(rows: list[list[int]], at: Any, of: Callable[[int], Any]) -> Any:
        parts = [sum(w * of(j) for j, w in enumerate(row) if w) for row in rows]
        value = parts[-1]
        for n in reversed(range(len(parts) - 1)):
            value = te.select(te.equal(at, n), parts[n], value)
        return value

    V = _compute((4, 5, 8), lambda e, i, t: chosen(B, e, lambda j: X[i, 2 * t + j]), "V")
    M = _compute((4, 7, 8), lambda e, o, t: te.sum(U[e, o, c] * V[e, c, t], axis=c), "M")
    A = [[1, 1, 1, 0], [0, 1, -1, -1]]
    Y = _compute((7, 16), lambda o, x: chosen(A, x % 2, lambda j: M[j, o, x // 2]), "Y")
    return [X, U, Y]


def grouped() -> list[te.Tensor]:
    X, W = placeholder(1, 8, 7, 7, name="X"), placeholder(36, 4, 3, 3, name="W")
    return [X, W, ops.conv2d_compute(X, W, pad=(1, 1), groups=2)]


def pointwise() -> list[te.Tensor]:
    X, W = placeholder(1, 5, 6, 20, name="X"), placeholder(18, 5, 1, 1, name="W")
    return [X, W, _mapped(ops.conv2d_compute(X, W), lambda x: te.max(x, 0), "relu")]


# ---------------------------------------------------------------- stencils, images


def blurred_twice() -> list[te.Tensor]:
    X = placeholder(20, 40, name="X")
    A = _compute((20, 38), lambda i, j: X[i, j] + X[i, j + 1] + X[i, j + 2], "A")
    B = _compute((18, 38), lambda i, j: A[i, j] + A[i + 1, j] + A[i + 2, j], "B")
    C = _compute((18, 36), lambda i, j: B[i, j] * B[i, j + 2], "C")
    return [X, _compute((16, 36), lambda i, j: C[i, j] + C[i + 2, j], "D")]


def heat3d() -> list[te.Tensor]:
    X = placeholder(8, 8, 20, name="X")

    def step(t: te.Tensor, n: int, name: str) -> te.Tensor:
        shape = tuple(d - 2 for d in t.static_shape)
        return _compute(
            shape,
            lambda z, y, x: t[z + 1, y + 1, x + 1] + (
                t[z, y + 1, x + 1] + t[z + 2, y + 1, x + 1] + t[z + 1, y, x + 1]
                + t[z + 1, y + 2, x + 1] + t[z + 1, y + 1, x] + t[z + 1, y + 1, x + 2]
            ) * n,
            name,
        )  # fmt: skip

    return [X, step(step(X, 2, "once"), 3, "twice")]


def many_stencils() -> list[te.Tensor]:
    X = placeholder(64, name="X")
    t = X
    for n in range(12):
        t = _shifted(t, n)
    return [X, t]


def _shifted(t: te.Tensor, n: int) -> te.Tensor:
    return _compute((t.static_shape[0] - 1,), lambda i: t[i] - t[i + 1], f"t{n}")


def resized() -> list[te.Tensor]:
    X = placeholder(3, 5, 6, name="X")

    def at(c: Any, y: Any, x: Any) -> Any:
        right = te.min(x // 3 + 1, 5)
        return X[c, y // 2, x // 3] * 2 + X[c, y // 2, right]

    return [X, _compute((3, 10, 18), at, "Y")]


def average_pooled() -> list[te.Tensor]:
    X, r, q = placeholder(3, 9, 12, name="X"), _over(3, "r"), _over(3, "q")
    S = _compute((3, 4, 5), lambda c, y, x: te.sum(X[c, 2 * y + r, 2 * x + q], axis=[r, q]), "S")
    return [X, _mapped(S, lambda x: x * 0.5, "Y")]


def pooled_product() -> list[te.Tensor]:
    A, B, r = placeholder(9, 10), placeholder(10, 18, name="B"), _over(3, "r")
    C = ops.matmul_compute(A, B)
    return [A, B, _compute((3, 18), lambda i, j: te.max(C[3 * i + r, j], axis=r), "P")]


# ---------------------------------------------------------------- algebra


def squared_distances() -> list[te.Tensor]:
    X, Y, k = placeholder(11, 6, name="X"), placeholder(18, 6, name="Y"), _over(6)
    G = ops.matmul_compute(X, Y, trans_b=True, name="G")
    x2 = _compute((11,), lambda i: te.sum(X[i, k] * X[i, k], axis=k), "x2")
    y2 = _compute((18,), lambda i: te.sum(Y[i, k] * Y[i, k], axis=k), "y2")
    return [X, Y, _compute((11, 18), lambda i, j: x2[i] + y2[j] - 2 * G[i, j], "D")]


def dft() -> list[te.Tensor]:
    X = placeholder(4, 16, name="X")
    j = _over(16, "j")
    C = _compute((16, 16), lambda a, b: te.cos((a * b % 16).astype("float32") * (2 * pi / 16)), "C")
    return [X, _compute((4, 16), lambda b, i: te.sum(X[b, j] * C[i, j], axis=j), "Y")]


def power_iteration() -> list[te.Tensor]:
    A, x, k, q = placeholder(21, 21), placeholder(21, name="x"), _over(21), _over(21, "q")
    y = _compute((21,), lambda i: te.sum(A[i, k] * x[k], axis=k), "y")
    n = _compute((1,), lambda _: te.sum(y[q] * y[q], axis=q), "n")
    return [A, x, _compute((21,), lambda i: y[i] / te.sqrt(n[0] + 1.0), "z")]


def bilinear() -> list[te.Tensor]:
    X, W, Y = (
        placeholder(5, 6, name="X"),
        placeholder(7, 6, 4, name="W"),
        placeholder(5, 4, name="Y"),
    )
    a, b = _over(6, "a"), _over(4, "b")
    Z = _compute((5, 7), lambda i, o: te.sum(X[i, a] * W[o, a, b] * Y[i, b], axis=[a, b]), "Z")
    return [X, W, Y, Z]


def small_products() -> list[te.Tensor]:
    A, B = placeholder(20, 3, 4), placeholder(20, 4, 3, name="B")
    return [A, B, ops.matmul_compute(A, B)]


def long_product() -> list[te.Tensor]:
    A, B = placeholder(19, 768), placeholder(768, 35, name="B")
    return [A, B, ops.matmul_compute(A, B)]


def long_product_with_bias() -> list[te.Tensor]:
    A, B, b = placeholder(19, 768), placeholder(768, 35, name="B"), placeholder(35, name="b")
    C = ops.matmul_compute(A, B)
    return [A, B, b, _compute((19, 35), lambda i, j: te.max(C[i, j] + b[j], 0), "D")]


def max_times() -> list[te.Tensor]:
    A, B, k = placeholder(9, 30), placeholder(14, 30, name="B"), _over(30)
    return [A, B, _compute((9, 14), lambda i, j: te.max(A[i, k] * B[j, k], axis=k), "C")]


def chebyshev() -> list[te.Tensor]:
    A, B, k = placeholder(9, 5), placeholder(14, 5, name="B"), _over(5)
    return [A, B, _compute((9, 14), lambda i, j: te.max(te.abs(A[i, k] - B[j, k]), axis=k), "C")]


def contracted_tensors() -> list[te.Tensor]:
    A, B = placeholder(5, 4, 6), placeholder(6, 4, 3, 7, name="B")
    k, q = _over(4), _over(6, "q")
    C = _compute((5, 3, 7), lambda a, b, c: te.sum(A[a, k, q] * B[q, k, b, c], axis=[k, q]), "C")
    return [A, B, C]


# ---------------------------------------------------------------- reductions


def total() -> list[te.Tensor]:
    X, i, j = placeholder(70, 90, name="X"), _over(70, "i"), _over(90, "j")
    return [X, _compute((1,), lambda _: te.sum(X[i, j], axis=[i, j]), "S")]


def long_total() -> list[te.Tensor]:
    X, k = placeholder(5000, name="X"), _over(5000)
    S = _compute((1,), lambda _: te.sum(X[k], axis=k), "S")
    return [X, _mapped(S, lambda x: x * 2, "Y")]


def largest_of_few_columns() -> list[te.Tensor]:
    X, k = placeholder(5000, 3, name="X"), _over(5000)
    return [X, _compute((3,), lambda j: te.max(X[k, j], axis=k), "Y")]


def norm_of_difference() -> list[te.Tensor]:
    X, Y, k = placeholder(6, 50, name="X"), placeholder(6, 50, name="Y"), _over(50)
    D = _compute((6, 50), lambda i, j: X[i, j] - Y[i, j], "D")
    return [X, Y, _compute((6,), lambda i: te.sum(D[i, k] * D[i, k], axis=k), "N")]


def running_sums() -> list[te.Tensor]:
    X, k = placeholder(4, 20, name="X"), _over(20)

    def element(i: Any, j: Any) -> Any:
        return te.sum(te.select(k <= j, X[i, k], 0.0), axis=k)

    return [X, _compute((4, 20), element, "Y")]


def largest_place() -> list[te.Tensor]:
    """The largest element of each row and where it is, as one number."""
    X, k = placeholder(6, 21, name="X"), _over(21)
    key = _compute((6, 21), lambda i, j: X[i, j] * 32 + (31 - j).astype("float32"), "key")
    M = _compute((6,), lambda i: te.max(key[i, k], axis=k), "M")
    return [X, _compute((6,), lambda i: M[i] + 1, "Y")]


def largest_place_of_tuples() -> list[te.Tensor]:
    """The same by a reduction of pairs, which no rule knows."""
    X, k = placeholder(6, 21, name="X"), _over(21)
    better = te.comm_reducer(
        lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.max(a[1], b[1])),
        lambda i, x: (te.const(-1, i), te.min_value(x)),
        name="better",
    )
    at, _ = te.compute((6,), lambda i: better((k.astype("int32"), X[i, k]), axis=k), name="at")
    return [X, _compute((6,), lambda i: at[i] + 1, "Y")]


# ---------------------------------------------------------------- copies, gathers, narrow types


def rank4() -> list[te.Tensor]:
    X = placeholder(2, 5, 6, 18, name="X")
    return [X, _compute((2, 6, 18, 5), lambda n, y, x, c: X[n, c, y, x], "T")]


def heads_split() -> list[te.Tensor]:
    X = placeholder(2, 9, 4, 17, name="X")
    return [X, _compute((2, 4, 17, 9), lambda b, h, d, s: X[b, s, h, d] * 2, "T")]


def gathered() -> list[te.Tensor]:
    X, at = placeholder(9, 20, name="X"), placeholder(7, name="at", dtype="int32")
    return [X, at, _compute((7, 20), lambda i, j: X[te.max(te.min(at[i], 8), 0), j], "G")]


def embedded() -> list[te.Tensor]:
    """A gather whose result is multiplied."""
    X, at = placeholder(9, 12, name="X"), placeholder(7, name="at", dtype="int32")
    W = placeholder(12, 18, name="W")
    G = _compute((7, 12), lambda i, j: X[te.max(te.min(at[i], 8), 0), j], "G")
    return [X, at, W, ops.matmul_compute(G, W)]


def one_hot() -> list[te.Tensor]:
    at, W, k = placeholder(7, name="at", dtype="int32"), placeholder(9, 20, name="W"), _over(9)
    H = _compute((7, 9), lambda i, j: te.select(te.equal(at[i], j), 1.0, 0.0), "H")
    return [at, W, _compute((7, 20), lambda i, j: te.sum(H[i, k] * W[k, j], axis=k), "Y")]


def joined() -> list[te.Tensor]:
    A, B = placeholder(6, 10), placeholder(6, 13, name="B")
    return [A, B, _compute(
        (6, 23),
        lambda i, j: te.if_then_else(j < 10, A[i, te.min(j, 9)], B[i, te.max(j - 10, 0)]),
        "C",
    )]  # fmt: skip


def bytes_product() -> list[te.Tensor]:
    A, B = placeholder(7, 12, dtype="uint8"), placeholder(12, 20, name="B", dtype="uint8")
    return [A, B, ops.matmul_compute(A, B, out_dtype="int32")]


def bf16_product() -> list[te.Tensor]:
    A, B = placeholder(7, 12, dtype="bfloat16"), placeholder(12, 20, name="B", dtype="bfloat16")
    C = ops.matmul_compute(A, B, out_dtype="float32")
    return [A, B, _mapped(C, lambda x: x * 2.0, "Y")]


def half_rows() -> list[te.Tensor]:
    X, k = placeholder(5, 40, name="X", dtype="float16"), _over(40)
    Y = _compute((5,), lambda i: te.sum(X[i, k].astype("float32"), axis=k), "Y")
    return [X, Y]


def double_product() -> list[te.Tensor]:
    A, B = placeholder(9, 7, dtype="float64"), placeholder(7, 20, name="B", dtype="float64")
    return [A, B, ops.matmul_compute(A, B)]


def long_chain() -> list[te.Tensor]:
    X = placeholder(6, 20, name="X")
    t = X
    for n in range(60):
        t = _mapped(t, lambda x: x + 1.0, f"u{n}")
    return [X, t]


#: With whether sums of integers are exact in any order.
COMPOSED: dict[str, tuple[Make, bool]] = {
    f.__name__: (f, exact)
    for f, exact in {
        attention: False, gated_mlp: False, gru_cell: False, separable: True, group_norm: False,
        rms_norm_of_a_sum: False, log_sum_exp: False, softmax_of_columns: False,
        cross_entropy: False, squeeze_and_excite: False, conv1d: True, conv1d_dilated_last: True,
        transposed_conv: True, winograd: True, grouped: True, pointwise: True,
        blurred_twice: True, heat3d: True, many_stencils: True, resized: True,
        average_pooled: True, pooled_product: True, squared_distances: True, dft: False,
        power_iteration: False, bilinear: True, small_products: True, long_product: True,
        long_product_with_bias: True, max_times: True, chebyshev: True, contracted_tensors: True,
        total: True, long_total: True, largest_of_few_columns: True, norm_of_difference: True,
        running_sums: True, largest_place: True, rank4: True, heads_split: True, gathered: True,
        embedded: True, one_hot: True, joined: True, bytes_product: True, bf16_product: True,
        half_rows: True, double_product: True, long_chain: True,
    }.items()
}  # fmt: skip
