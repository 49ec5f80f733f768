"""What the expressions are in NumPy, as a user writes it: one function each, by name.

Given arrays of float64 they are the answers that all are compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view as windows

Array = Any


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _wide(x: Array) -> Array:
    return x.astype(np.promote_types(x.dtype, "float32"), copy=False)


def _softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def _log_sum_exp(x: Array) -> Array:
    top = x.max(-1)
    return top + np.log(np.exp(x - top[:, None]).sum(-1))


def attention(q: Array, k: Array, v: Array) -> Array:
    return _softmax(q @ k.transpose(0, 2, 1) * q.shape[-1] ** -0.5) @ v


def gated_mlp(x: Array, up: Array, gate: Array, down: Array) -> Array:
    g = x @ gate
    return (x @ up * g * _sigmoid(g)) @ down


def gru_cell(x: Array, h: Array, *weights: Array) -> Array:
    wz, wr, wn, rz, rr, rn = weights
    z, r = _sigmoid(x @ wz + h @ rz), _sigmoid(x @ wr + h @ rr)
    return (1 - z) * np.tanh(x @ wn + r * (h @ rn)) + z * h


def separable(x: Array, depthwise: Array, pointwise: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    mid = np.einsum("ncyxrs,crs->ncyx", windows(padded, (3, 3), (2, 3)), depthwise[:, 0])
    mid = np.maximum(mid, 0)
    return (pointwise[:, :, 0, 0] @ mid.reshape(mid.shape[1], -1)).reshape(1, -1, *x.shape[2:])


def group_norm(x: Array) -> Array:
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5)


def rms_norm(x: Array, g: Array) -> Array:
    return x * g / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)


def rms_norm_of_a_sum(x: Array, r: Array, g: Array) -> Array:
    return rms_norm(x + r, g)


def log_sum_exp(x: Array) -> Array:
    return _log_sum_exp(x)


def softmax_of_columns(x: Array) -> Array:
    return _softmax(x, 0)


def cross_entropy(x: Array, t: Array) -> Array:
    return np.array([(t * (_log_sum_exp(x)[:, None] - x)).sum(-1).mean()])


def squeeze_and_excite(x: Array, w: Array) -> Array:
    return x * _sigmoid(w @ x.sum((1, 2)))[:, None, None]


def masked_softmax(x: Array) -> Array:
    allowed = np.tri(x.shape[-1], dtype=bool)
    return _softmax(np.where(allowed, x, np.asarray(-1e30, x.dtype)))


def gelu_dense(x: Array, w: Array, b: Array) -> Array:
    y = x @ w + b
    return 0.5 * y * (1 + np.tanh(0.7978845608028654 * (y + 0.044715 * y * y * y)))


def low_rank(x: Array, w: Array, a: Array, b: Array) -> Array:
    return x @ w + x @ a @ b


def rotary(x: Array, c: Array, s: Array) -> Array:
    low, high = np.split(x, 2, -1)
    return x * c + np.concatenate([-high, low], -1) * s


def conv1d(x: Array, w: Array) -> Array:
    columns = windows(x, 3, 1).transpose(0, 2, 1).reshape(-1, x.shape[1] - 2)
    return w.reshape(len(w), -1) @ columns


def conv1d_dilated_last(x: Array, w: Array) -> Array:
    size = len(x) - 6
    return sum(x[3 * r : 3 * r + size] @ w[r] for r in range(3))


def conv3d(x: Array, w: Array) -> Array:
    at = windows(x, w.shape[2:], (1, 2, 3))
    columns = at.transpose(0, 4, 5, 6, 1, 2, 3).reshape(w[0].size, -1)
    return (w.reshape(len(w), -1) @ columns).reshape(len(w), *at.shape[1:4])


def transposed_conv(x: Array, w: Array) -> Array:
    size = x.shape[1]
    out = np.zeros((w.shape[1], 2 * size + 2), x.dtype)
    for r in range(4):
        out[:, r : r + 2 * size : 2] += w[:, :, r].T @ x
    return out


def winograd(x: Array, u: Array) -> Array:
    tiles = (x.shape[1] - 2) // 2
    a, b, c, d = (x[:, j : j + 2 * tiles : 2] for j in range(4))
    m = u @ np.stack([a - c, b + c, c - b, b - d])
    return np.stack([m[0] + m[1] + m[2], m[1] - m[2] - m[3]], -1).reshape(u.shape[1], -1)


def locally_connected(x: Array, w: Array) -> Array:
    columns = windows(x, 3, 1).transpose(1, 0, 2).reshape(len(w), -1, 1)
    return (w.reshape(len(w), w.shape[1], -1) @ columns)[:, :, 0].T


def cost_volume(a: Array, b: Array) -> Array:
    size = a.shape[2]
    shifts = range(b.shape[2] - size + 1)
    return np.stack([(a * b[:, :, d : d + size]).sum(0) for d in shifts])


def residual_block(x: Array, w: Array, b: Array, r: Array) -> Array:
    n = len(w)
    at = windows(np.pad(x[0], ((0, 0), (1, 1), (1, 1))), (3, 3), (1, 2))
    columns = at.transpose(0, 3, 4, 1, 2).reshape(9 * n, -1)
    return np.maximum((w.reshape(n, -1) @ columns).reshape(r.shape) + b[:, None, None] + r, 0)


def blurred_twice(x: Array) -> Array:
    a = x[:, :-2] + x[:, 1:-1] + x[:, 2:]
    b = a[:-2] + a[1:-1] + a[2:]
    c = b[:, :-2] * b[:, 2:]
    return c[:-2] + c[2:]


def jacobi(x: Array) -> Array:
    for _ in range(3):
        x = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return x


def heat3d(x: Array) -> Array:
    for n in (2, 3):
        i = slice(1, -1)
        x = x[i, i, i] + n * (
            x[:-2, i, i] + x[2:, i, i] + x[i, :-2, i] + x[i, 2:, i] + x[i, i, :-2] + x[i, i, 2:]
        )
    return x


def sobel(x: Array) -> Array:
    d, s = x[:, 2:] - x[:, :-2], x[:, :-2] + 2 * x[:, 1:-1] + x[:, 2:]
    u, v = d[:-2] + 2 * d[1:-1] + d[2:], s[2:] - s[:-2]
    return np.sqrt(u * u + v * v)


def bilinear_resize(x: Array) -> Array:
    for axis in (2, 1):
        x = _twice(x, axis)
    return x


def _twice(x: Array, axis: int) -> Array:
    n = x.shape[axis]
    at = np.arange(2 * n)
    low, weight = (at + 1) // 2 - 1, np.where(at % 2, 0.25, 0.75).astype(x.dtype)
    weight = weight.reshape([-1 if a == axis else 1 for a in range(3)])
    first, second = (np.take(x, np.clip(i, 0, n - 1), axis) for i in (low, low + 1))
    return first * (1 - weight) + second * weight


def nearest_resize(x: Array) -> Array:
    return x.repeat(2, 1).repeat(2, 2)


def gray(x: Array) -> Array:
    return x @ (np.array([0.299, 0.587, 0.114], "float32") * np.float32(1 / 255))


def global_average(x: Array) -> Array:
    return x.mean((2, 3))


def distances(x: Array, y: Array) -> Array:
    d = x[:, None] - y[None]
    return np.einsum("ijk,ijk->ij", d, d)


def squared_distances(x: Array, y: Array) -> Array:
    return (x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * (x @ y.T)


def chebyshev(a: Array, b: Array) -> Array:
    return np.abs(a[:, None] - b[None]).max(-1)


def min_plus(a: Array, b: Array) -> Array:
    out = np.full((len(a), b.shape[1]), np.inf, a.dtype)
    for k in range(len(b)):
        np.minimum(out, a[:, k, None] + b[k], out=out)
    return out


def power_spectrum(x: Array, c: Array, s: Array) -> Array:
    return (x @ c) ** 2 + (x @ s) ** 2


def power_iteration(a: Array, x: Array) -> Array:
    y = a @ x
    return y / np.sqrt(y @ y + 1)


def bilinear(x: Array, w: Array, y: Array) -> Array:
    xw = x @ w.transpose(1, 0, 2).reshape(x.shape[1], -1)
    return (xw.reshape(len(x), len(w), -1) * y[:, None]).sum(-1)


def small_products(a: Array, b: Array) -> Array:
    return a @ b


def contracted_tensors(a: Array, b: Array) -> Array:
    return np.tensordot(a, b, ([1, 2], [1, 0]))


def gram(x: Array) -> Array:
    return x.T @ x


def quadratic_form(x: Array, m: Array) -> Array:
    return (x @ m * x).sum(1)


def kronecker(a: Array, b: Array) -> Array:
    return np.kron(a, b)


def running_sums(x: Array) -> Array:
    return np.cumsum(x, 1)


def largest_of_few_columns(x: Array) -> Array:
    return x.max(0)


def norm_of_difference(x: Array, y: Array) -> Array:
    d = x - y
    return (d * d).sum(1)


def variance_of_columns(x: Array) -> Array:
    return x.var(0)


def sum_of_squares(x: Array) -> Array:
    return np.vdot(x, x).reshape(1)


def rank4(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def heads_split(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) * 2


def gathered(x: Array, at: Array) -> Array:
    return x[at]


def embedded(x: Array, at: Array, w: Array) -> Array:
    return x[at] @ w


def one_hot(at: Array, w: Array) -> Array:
    return np.eye(len(w), dtype=w.dtype)[at] @ w


def joined(a: Array, b: Array) -> Array:
    return np.concatenate([a, b], 1)


def reflect_pad(x: Array) -> Array:
    return np.pad(x, ((0, 0), (1, 1), (1, 1)), "reflect")


def pixel_shuffle(x: Array) -> Array:
    n, _, h, w = x.shape
    return x.reshape(n, 2, 2, h, w).transpose(0, 3, 1, 4, 2).reshape(n, 2 * h, 2 * w)


def int8_dense(a: Array, b: Array, s: Array, bias: Array) -> Array:
    # Sums of so few bytes are exact in float32, for which there is a fast product.
    c = a.astype(s.dtype) @ b.astype(s.dtype)
    return np.maximum(c * s + bias, 0)


def bf16_product(a: Array, b: Array) -> Array:
    return _wide(a) @ _wide(b) * 2


def half_rows(x: Array) -> Array:
    return _wide(x).sum(1)


def double_product(a: Array, b: Array) -> Array:
    return a @ b


def call(name: str) -> Callable[..., Array]:
    """The function of an expression.

    Raises:
        LookupError: there is none.
    """
    found = globals().get(name)
    if name.startswith("_") or found is None:
        raise LookupError(f"NumPy has no function for {name}")
    return found  # type: ignore[no-any-return]
