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


def attention(b: int = 2, n: int = 9, d: int = 16) -> list[te.Tensor]:
    Q, K, V = (placeholder(b, n, d, name=x) for x in "QKV")
    S = ops.matmul_compute(Q, K, trans_b=True, name="S")
    T = _mapped(S, lambda x: x * d**-0.5, "T")
    k, q = _over(n, "a"), _over(n, "b")
    M = _compute((b, n), lambda h, i: te.max(T[h, i, k], axis=k), "M")
    E = _compute((b, n, n), lambda h, i, j: te.exp(T[h, i, j] - M[h, i]), "E")
    Z = _compute((b, n), lambda h, i: te.sum(E[h, i, q], axis=q), "Z")
    P = _compute((b, n, n), lambda h, i, j: E[h, i, j] / Z[h, i], "P")
    return [Q, K, V, ops.matmul_compute(P, V, name="O")]


def gated_mlp(m: int = 7, d: int = 12, h: int = 20) -> list[te.Tensor]:
    X, U, G = placeholder(m, d, name="X"), placeholder(d, h, name="U"), placeholder(d, h)
    W = placeholder(h, d, name="W")
    up, gate = ops.matmul_compute(X, U, name="up"), ops.matmul_compute(X, G, name="gate")
    H = _compute((m, h), lambda i, j: up[i, j] * gate[i, j] * _sigmoid(gate[i, j]), "H")
    return [X, U, G, W, ops.matmul_compute(H, W, name="Y")]


def gru_cell(m: int = 3, d: int = 10, h: int = 8) -> list[te.Tensor]:
    x, last = placeholder(m, d, name="x"), placeholder(m, h, name="h")
    W = [placeholder(d, h, name=f"W{n}") for n in "zrn"]
    R = [placeholder(h, h, name=f"R{n}") for n in "zrn"]
    a = [ops.matmul_compute(x, w, name=f"a{n}") for n, w in zip("zrn", W, strict=True)]
    b = [ops.matmul_compute(last, r, name=f"b{n}") for n, r in zip("zrn", R, strict=True)]
    z = _compute((m, h), lambda i, j: _sigmoid(a[0][i, j] + b[0][i, j]), "z")
    r = _compute((m, h), lambda i, j: _sigmoid(a[1][i, j] + b[1][i, j]), "r")
    n = _compute((m, h), lambda i, j: te.tanh(a[2][i, j] + r[i, j] * b[2][i, j]), "n")
    Y = _compute((m, h), lambda i, j: (1.0 - z[i, j]) * n[i, j] + z[i, j] * last[i, j], "Y")
    return [x, last, *W, *R, Y]


def separable(c: int = 6, size: int = 9, o: int = 10) -> list[te.Tensor]:
    X, D = placeholder(1, c, size, size, name="X"), placeholder(c, 1, 3, 3, name="D")
    P = placeholder(o, c, 1, 1, name="P")
    mid = ops.depthwise_conv2d_compute(X, D, pad=(1, 1), name="mid")
    return [X, D, P, ops.conv2d_compute(_mapped(mid, lambda x: te.max(x, 0), "relu"), P)]


def group_norm(m: int = 2, groups: int = 4, length: int = 24) -> list[te.Tensor]:
    X, k, q = placeholder(m, groups, length, name="X"), _over(length), _over(length, "q")
    mean = _compute((m, groups), lambda n, g: te.sum(X[n, g, k], axis=k), "total")
    D = _compute((m, groups, length), lambda n, g, i: X[n, g, i] - mean[n, g] / length, "D")
    V = _compute((m, groups), lambda n, g: te.sum(D[n, g, q] * D[n, g, q], axis=q), "V")
    Y = _compute(
        (m, groups, length), lambda n, g, i: D[n, g, i] / te.sqrt(V[n, g] / length + 1e-5), "Y"
    )
    return [X, Y]


def rms_norm_of_a_sum(m: int = 5, n: int = 40) -> list[te.Tensor]:
    X, R, g, k = placeholder(m, n, name="X"), placeholder(m, n, name="R"), placeholder(n), _over(n)
    S = _compute((m, n), lambda i, j: X[i, j] + R[i, j], "S")
    Q = _compute((m,), lambda i: te.sum(S[i, k] * S[i, k], axis=k), "Q")
    Y = _compute((m, n), lambda i, j: S[i, j] * g[j] / te.sqrt(Q[i] / n + 1e-5), "Y")
    return [X, R, g, Y]


def log_sum_exp(m: int = 6, n: int = 33) -> list[te.Tensor]:
    X, k, q = placeholder(m, n, name="X"), _over(n), _over(n, "q")
    M = _compute((m,), lambda i: te.max(X[i, k], axis=k), "M")
    Z = _compute((m,), lambda i: te.sum(te.exp(X[i, q] - M[i]), axis=q), "Z")
    return [X, _compute((m,), lambda i: M[i] + te.log(Z[i]), "Y")]


def softmax_of_columns(m: int = 9, n: int = 20) -> list[te.Tensor]:
    X, k, q = placeholder(m, n, name="X"), _over(m), _over(m, "q")
    M = _compute((n,), lambda j: te.max(X[k, j], axis=k), "M")
    E = _compute((m, n), lambda i, j: te.exp(X[i, j] - M[j]), "E")
    Z = _compute((n,), lambda j: te.sum(E[q, j], axis=q), "Z")
    return [X, _compute((m, n), lambda i, j: E[i, j] / Z[j], "Y")]


def cross_entropy() -> list[te.Tensor]:
    X, T = placeholder(5, 19, name="X"), placeholder(5, 19, name="T")
    Y, _ = ops.softmax_compute(X, "P")
    k, b = _over(19, "c"), _over(5, "b")
    L = _compute((5,), lambda i: te.sum(T[i, k] * te.log(Y[i, k] + 1.0), axis=k), "L")
    return [X, T, _compute((1,), lambda _: te.sum(L[b], axis=b), "loss")]


def squeeze_and_excite(n: int = 6, h: int = 5, w: int = 7) -> list[te.Tensor]:
    X, W = placeholder(n, h, w, name="X"), placeholder(n, n, name="W")
    y, x, c = _over(h, "y"), _over(w, "x"), _over(n, "c")
    S = _compute((n,), lambda i: te.sum(X[i, y, x], axis=[y, x]), "S")
    G = _compute((n,), lambda i: te.sum(W[i, c] * S[c], axis=c), "G")
    return [X, W, _compute((n, h, w), lambda i, a, b: X[i, a, b] * _sigmoid(G[i]), "Y")]


# ---------------------------------------------------------------- convolutions


def conv1d(n: int = 4, o: int = 9, size: int = 30) -> list[te.Tensor]:
    X, W = placeholder(n, size, name="X"), placeholder(o, n, 3, name="W")
    c, r = _over(n, "c"), _over(3)
    Y = _compute((o, size - 2), lambda b, x: te.sum(X[c, x + r] * W[b, c, r], axis=[c, r]), "Y")
    return [X, W, Y]


def conv1d_dilated_last(n: int = 4, o: int = 9, size: int = 30) -> list[te.Tensor]:
    X, W = placeholder(size, n, name="X"), placeholder(3, n, o, name="W")
    c, r = _over(n, "c"), _over(3)
    Y = _compute((size - 6, o), lambda x, b: te.sum(X[x + 3 * r, c] * W[r, c, b], axis=[c, r]), "Y")
    return [X, W, Y]


def transposed_conv(n: int = 3, o: int = 5, size: int = 6) -> list[te.Tensor]:
    X, W = placeholder(n, size, name="X"), placeholder(n, o, 4, name="W")
    c, r = _over(n, "c"), _over(4)

    def spread(i: Any, x: Any) -> Any:
        at = x - 3
        inside = te.all(at >= 0, te.equal(at % 2, 0), at // 2 < size)
        return te.if_then_else(inside, X[i, at // 2], 0.0)

    D = _compute((n, 2 * size + 5), spread, "D")
    Y = _compute(
        (o, 2 * size + 2), lambda b, x: te.sum(D[c, x + r] * W[c, b, 3 - r], axis=[c, r]), "Y"
    )
    return [X, W, Y]


def winograd(n: int = 5, o: int = 7, tiles: int = 8) -> list[te.Tensor]:
    """F(2, 3) in one dimension: 4 products a tile of two outputs."""
    X, U = placeholder(n, 2 * tiles + 2, name="X"), placeholder(4, o, n, name="U")
    B = [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]]
    c = _over(n, "c")

    def chosen(rows: list[list[int]], at: Any, of: Callable[[int], Any]) -> Any:
        parts = [sum(w * of(j) for j, w in enumerate(row) if w) for row in rows]
        value = parts[-1]
        for n in reversed(range(len(parts) - 1)):
            value = te.select(te.equal(at, n), parts[n], value)
        return value

    V = _compute((4, n, tiles), lambda e, i, t: chosen(B, e, lambda j: X[i, 2 * t + j]), "V")
    M = _compute((4, o, tiles), lambda e, b, t: te.sum(U[e, b, c] * V[e, c, t], axis=c), "M")
    A = [[1, 1, 1, 0], [0, 1, -1, -1]]
    Y = _compute((o, 2 * tiles), lambda b, x: chosen(A, x % 2, lambda j: M[j, b, x // 2]), "Y")
    return [X, U, Y]


def grouped() -> list[te.Tensor]:
    X, W = placeholder(1, 8, 7, 7, name="X"), placeholder(36, 4, 3, 3, name="W")
    return [X, W, ops.conv2d_compute(X, W, pad=(1, 1), groups=2)]


def pointwise() -> list[te.Tensor]:
    X, W = placeholder(1, 5, 6, 20, name="X"), placeholder(18, 5, 1, 1, name="W")
    return [X, W, _mapped(ops.conv2d_compute(X, W), lambda x: te.max(x, 0), "relu")]


# ---------------------------------------------------------------- stencils, images


def blurred_twice(m: int = 20, n: int = 40) -> list[te.Tensor]:
    X = placeholder(m, n, name="X")
    A = _compute((m, n - 2), lambda i, j: X[i, j] + X[i, j + 1] + X[i, j + 2], "A")
    B = _compute((m - 2, n - 2), lambda i, j: A[i, j] + A[i + 1, j] + A[i + 2, j], "B")
    C = _compute((m - 2, n - 4), lambda i, j: B[i, j] * B[i, j + 2], "C")
    return [X, _compute((m - 4, n - 4), lambda i, j: C[i, j] + C[i + 2, j], "D")]


def heat3d(depth: int = 8, m: int = 8, n: int = 20) -> list[te.Tensor]:
    X = placeholder(depth, m, n, name="X")

    def step(t: te.Tensor, factor: int, name: str) -> te.Tensor:
        shape = tuple(d - 2 for d in t.static_shape)
        return _compute(
            shape,
            lambda z, y, x: t[z + 1, y + 1, x + 1] + (
                t[z, y + 1, x + 1] + t[z + 2, y + 1, x + 1] + t[z + 1, y, x + 1]
                + t[z + 1, y + 2, x + 1] + t[z + 1, y + 1, x] + t[z + 1, y + 1, x + 2]
            ) * factor,
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


def squared_distances(m: int = 11, n: int = 18, d: int = 6) -> list[te.Tensor]:
    X, Y, k = placeholder(m, d, name="X"), placeholder(n, d, name="Y"), _over(d)
    G = ops.matmul_compute(X, Y, trans_b=True, name="G")
    x2 = _compute((m,), lambda i: te.sum(X[i, k] * X[i, k], axis=k), "x2")
    y2 = _compute((n,), lambda i: te.sum(Y[i, k] * Y[i, k], axis=k), "y2")
    return [X, Y, _compute((m, n), lambda i, j: x2[i] + y2[j] - 2 * G[i, j], "D")]


def dft() -> list[te.Tensor]:
    X = placeholder(4, 16, name="X")
    j = _over(16, "j")
    C = _compute((16, 16), lambda a, b: te.cos((a * b % 16).astype("float32") * (2 * pi / 16)), "C")
    return [X, _compute((4, 16), lambda b, i: te.sum(X[b, j] * C[i, j], axis=j), "Y")]


def power_iteration(n: int = 21) -> list[te.Tensor]:
    A, x, k, q = placeholder(n, n), placeholder(n, name="x"), _over(n), _over(n, "q")
    y = _compute((n,), lambda i: te.sum(A[i, k] * x[k], axis=k), "y")
    size = _compute((1,), lambda _: te.sum(y[q] * y[q], axis=q), "size")
    return [A, x, _compute((n,), lambda i: y[i] / te.sqrt(size[0] + 1.0), "z")]


def bilinear(m: int = 5, n: int = 7, p: int = 6, q: int = 4) -> list[te.Tensor]:
    X, W = placeholder(m, p, name="X"), placeholder(n, p, q, name="W")
    Y, a, b = placeholder(m, q, name="Y"), _over(p, "a"), _over(q, "b")
    Z = _compute((m, n), lambda i, o: te.sum(X[i, a] * W[o, a, b] * Y[i, b], axis=[a, b]), "Z")
    return [X, W, Y, Z]


def small_products(b: int = 20, m: int = 3, n: int = 4) -> list[te.Tensor]:
    A, B = placeholder(b, m, n), placeholder(b, n, m, name="B")
    return [A, B, ops.matmul_compute(A, B)]


def long_product() -> list[te.Tensor]:
    A, B = placeholder(19, 768), placeholder(768, 35, name="B")
    return [A, B, ops.matmul_compute(A, B)]


def long_product_with_bias() -> list[te.Tensor]:
    A, B, b = placeholder(19, 768), placeholder(768, 35, name="B"), placeholder(35, name="b")
    C = ops.matmul_compute(A, B)
    return [A, B, b, _compute((19, 35), lambda i, j: te.max(C[i, j] + b[j], 0), "D")]


def gram(m: int = 768, n: int = 35) -> list[te.Tensor]:
    """A product of one operand with itself, long enough for blocks."""
    X, k = placeholder(m, n, name="X"), _over(m)
    return [X, _compute((n, n), lambda i, j: te.sum(X[k, i] * X[k, j], axis=k), "G")]


def max_times() -> list[te.Tensor]:
    A, B, k = placeholder(9, 30), placeholder(14, 30, name="B"), _over(30)
    return [A, B, _compute((9, 14), lambda i, j: te.max(A[i, k] * B[j, k], axis=k), "C")]


def chebyshev(m: int = 9, n: int = 14, d: int = 5) -> list[te.Tensor]:
    A, B, k = placeholder(m, d), placeholder(n, d, name="B"), _over(d)
    return [A, B, _compute((m, n), lambda i, j: te.max(te.abs(A[i, k] - B[j, k]), axis=k), "C")]


def contracted_tensors(
    m: int = 5, p: int = 4, q: int = 6, n: int = 3, w: int = 7
) -> list[te.Tensor]:
    A, B = placeholder(m, p, q), placeholder(q, p, n, w, name="B")
    k, r = _over(p), _over(q, "q")
    C = _compute((m, n, w), lambda a, b, c: te.sum(A[a, k, r] * B[r, k, b, c], axis=[k, r]), "C")
    return [A, B, C]


# ---------------------------------------------------------------- reductions


def total() -> list[te.Tensor]:
    X, i, j = placeholder(70, 90, name="X"), _over(70, "i"), _over(90, "j")
    return [X, _compute((1,), lambda _: te.sum(X[i, j], axis=[i, j]), "S")]


def long_total() -> list[te.Tensor]:
    X, k = placeholder(5000, name="X"), _over(5000)
    S = _compute((1,), lambda _: te.sum(X[k], axis=k), "S")
    return [X, _mapped(S, lambda x: x * 2, "Y")]


def largest_of_few_columns(m: int = 5000, n: int = 3) -> list[te.Tensor]:
    X, k = placeholder(m, n, name="X"), _over(m)
    return [X, _compute((n,), lambda j: te.max(X[k, j], axis=k), "Y")]


def norm_of_difference(m: int = 6, n: int = 50) -> list[te.Tensor]:
    X, Y, k = placeholder(m, n, name="X"), placeholder(m, n, name="Y"), _over(n)
    D = _compute((m, n), lambda i, j: X[i, j] - Y[i, j], "D")
    return [X, Y, _compute((m,), lambda i: te.sum(D[i, k] * D[i, k], axis=k), "N")]


def running_sums(m: int = 4, n: int = 20) -> list[te.Tensor]:
    X, k = placeholder(m, n, name="X"), _over(n)

    def element(i: Any, j: Any) -> Any:
        return te.sum(te.select(k <= j, X[i, k], 0.0), axis=k)

    return [X, _compute((m, n), element, "Y")]


def counted_values(m: int = 5, n: int = 40, values: int = 19) -> list[te.Tensor]:
    """How often each value is in a row."""
    X, k = placeholder(m, n, name="X", dtype="int32"), _over(n)
    one = te.const(1, "int32")

    def element(i: Any, j: Any) -> Any:
        return te.sum(te.select(te.equal(X[i, k], j), one, te.const(0, "int32")), axis=k)

    return [X, _compute((m, values), element, "H")]


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


def rank4(n: int = 2, c: int = 5, h: int = 6, w: int = 18) -> list[te.Tensor]:
    X = placeholder(n, c, h, w, name="X")
    return [X, _compute((n, h, w, c), lambda b, y, x, a: X[b, a, y, x], "T")]


def heads_split(b: int = 2, n: int = 9, heads: int = 4, d: int = 17) -> list[te.Tensor]:
    X = placeholder(b, n, heads, d, name="X")
    return [X, _compute((b, heads, d, n), lambda a, h, e, s: X[a, s, h, e] * 2, "T")]


def gathered(rows: int = 9, n: int = 20, m: int = 7) -> list[te.Tensor]:
    X, at = placeholder(rows, n, name="X"), placeholder(m, name="at", dtype="int32")
    return [X, at, _compute((m, n), lambda i, j: X[te.max(te.min(at[i], rows - 1), 0), j], "G")]


def embedded(rows: int = 9, d: int = 12, n: int = 18, m: int = 7) -> list[te.Tensor]:
    """A gather whose result is multiplied."""
    X, at = placeholder(rows, d, name="X"), placeholder(m, name="at", dtype="int32")
    W = placeholder(d, n, name="W")
    G = _compute((m, d), lambda i, j: X[te.max(te.min(at[i], rows - 1), 0), j], "G")
    return [X, at, W, ops.matmul_compute(G, W)]


def one_hot(rows: int = 9, n: int = 20, m: int = 7) -> list[te.Tensor]:
    at, W = placeholder(m, name="at", dtype="int32"), placeholder(rows, n, name="W")
    k = _over(rows)
    H = _compute((m, rows), lambda i, j: te.select(te.equal(at[i], j), 1.0, 0.0), "H")
    return [at, W, _compute((m, n), lambda i, j: te.sum(H[i, k] * W[k, j], axis=k), "Y")]


def joined(m: int = 6, n: int = 10, w: int = 13) -> list[te.Tensor]:
    A, B = placeholder(m, n), placeholder(m, w, name="B")
    return [A, B, _compute(
        (m, n + w),
        lambda i, j: te.if_then_else(j < n, A[i, te.min(j, n - 1)], B[i, te.max(j - n, 0)]),
        "C",
    )]  # fmt: skip


def bytes_product() -> list[te.Tensor]:
    A, B = placeholder(7, 12, dtype="uint8"), placeholder(12, 20, name="B", dtype="uint8")
    return [A, B, ops.matmul_compute(A, B, out_dtype="int32")]


def bf16_product(m: int = 7, n: int = 20, k: int = 12) -> list[te.Tensor]:
    A, B = placeholder(m, k, dtype="bfloat16"), placeholder(k, n, name="B", dtype="bfloat16")
    C = ops.matmul_compute(A, B, out_dtype="float32")
    return [A, B, _mapped(C, lambda x: x * 2.0, "Y")]


def half_rows(m: int = 5, n: int = 40) -> list[te.Tensor]:
    X, k = placeholder(m, n, name="X", dtype="float16"), _over(n)
    Y = _compute((m,), lambda i: te.sum(X[i, k].astype("float32"), axis=k), "Y")
    return [X, Y]


def double_product(m: int = 9, n: int = 20, k: int = 7) -> list[te.Tensor]:
    A, B = placeholder(m, k, dtype="float64"), placeholder(k, n, name="B", dtype="float64")
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
        transposed_conv: True, winograd: True, grouped: True, pointwise: True, blurred_twice: True,
        heat3d: True, many_stencils: True, resized: True, average_pooled: True,
        pooled_product: True, squared_distances: True, dft: False, power_iteration: False,
        bilinear: True, small_products: True, long_product: True, long_product_with_bias: True,
        gram: True, max_times: True, chebyshev: True, contracted_tensors: True, total: True,
        long_total: True, largest_of_few_columns: True, norm_of_difference: True,
        running_sums: True, counted_values: True, largest_place: True, rank4: True,
        heads_split: True, gathered: True, embedded: True, one_hot: True, joined: True,
        bytes_product: True, bf16_product: True, half_rows: True, double_product: True,
        long_chain: True,
    }.items()
}  # fmt: skip
