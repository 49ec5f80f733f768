"""What the expressions are in PyTorch, as a user writes it: one function each, by name.

Where a library function wants its weights in another layout, `PREPARED` has what brings them into
it, once and outside of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

T = Any


def attention(q: T, k: T, v: T) -> T:
    return functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]


def gated_mlp(x: T, up: T, gate: T, down: T) -> T:
    return (x @ up * functional.silu(x @ gate)) @ down


def gru_cell(x: T, h: T, w: T, r: T) -> T:
    return torch.gru_cell(x, h, w, r)


def _gru_weights(x: T, h: T, *weights: T) -> list[T]:
    wz, wr, wn, rz, rr, rn = (w.T for w in weights)
    return [x, h, torch.cat([wr, wz, wn]).contiguous(), torch.cat([rr, rz, rn]).contiguous()]


def separable(x: T, depthwise: T, pointwise: T) -> T:
    mid = functional.conv2d(x, depthwise, padding=1, groups=x.shape[1])
    return functional.conv2d(functional.relu(mid), pointwise)


def group_norm(x: T) -> T:
    return functional.group_norm(x, x.shape[1])


def rms_norm(x: T, g: T) -> T:
    return functional.rms_norm(x, g.shape, g, 1e-5)


def rms_norm_of_a_sum(x: T, r: T, g: T) -> T:
    return functional.rms_norm(x + r, g.shape, g, 1e-5)


def log_sum_exp(x: T) -> T:
    return torch.logsumexp(x, 1)


def softmax_of_columns(x: T) -> T:
    return functional.softmax(x, 0)


def cross_entropy(x: T, t: T) -> T:
    return functional.cross_entropy(x, t).reshape(1)


def squeeze_and_excite(x: T, w: T) -> T:
    return x * torch.sigmoid(w @ x.sum((1, 2)))[:, None, None]


def masked_softmax(x: T, allowed: T) -> T:
    return functional.softmax(x.masked_fill(allowed, -1e30), -1)


def _mask(x: T) -> list[T]:
    n = x.shape[-1]
    return [x, ~torch.tril(torch.ones(n, n, dtype=torch.bool))]


def gelu_dense(x: T, w: T, b: T) -> T:
    return functional.gelu(torch.addmm(b, x, w), approximate="tanh")


def low_rank(x: T, w: T, a: T, b: T) -> T:
    return torch.addmm(x @ w, x @ a, b)


def rotary(x: T, c: T, s: T) -> T:
    low, high = x.chunk(2, -1)
    return x * c + torch.cat([-high, low], -1) * s


def conv1d(x: T, w: T) -> T:
    return functional.conv1d(x[None], w)[0]


def conv1d_dilated_last(x: T, w: T) -> T:
    return functional.conv1d(x.T[None], w, dilation=3)[0].T


def _taps_last(x: T, w: T) -> list[T]:
    return [x, w.permute(2, 1, 0).contiguous()]


def conv3d(x: T, w: T) -> T:
    return functional.conv3d(x[None], w)[0]


def transposed_conv(x: T, w: T) -> T:
    return functional.conv_transpose1d(x[None], w, stride=2)[0]


def winograd(x: T, u: T) -> T:
    n = x.shape[1] - 2
    a, b, c, d = (x[:, j : j + n : 2] for j in range(4))
    m = torch.bmm(u, torch.stack([a - c, b + c, c - b, b - d]))
    return torch.stack([m[0] + m[1] + m[2], m[1] - m[2] - m[3]], -1).reshape(u.shape[1], -1)


def locally_connected(x: T, w: T) -> T:
    columns = x.unfold(1, 3, 1).permute(1, 0, 2).reshape(len(w), -1, 1)
    return torch.bmm(w.reshape(len(w), w.shape[1], -1), columns)[:, :, 0].T.contiguous()


def cost_volume(a: T, b: T) -> T:
    size = a.shape[2]
    shifts = range(b.shape[2] - size + 1)
    return torch.stack([(a * b[:, :, d : d + size]).sum(0) for d in shifts])


def residual_block(x: T, w: T, b: T, r: T) -> T:
    return functional.relu(functional.conv2d(x, w, b, padding=1) + r)


def blurred_twice(x: T) -> T:
    a = x[:, :-2] + x[:, 1:-1] + x[:, 2:]
    b = a[:-2] + a[1:-1] + a[2:]
    c = b[:, :-2] * b[:, 2:]
    return c[:-2] + c[2:]


def jacobi(x: T) -> T:
    for _ in range(3):
        x = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return x


def heat3d(x: T) -> T:
    i = slice(1, -1)
    for n in (2, 3):
        x = x[i, i, i] + n * (
            x[:-2, i, i] + x[2:, i, i] + x[i, :-2, i] + x[i, 2:, i] + x[i, i, :-2] + x[i, i, 2:]
        )
    return x


def sobel(x: T) -> T:
    d, s = x[:, 2:] - x[:, :-2], x[:, :-2] + 2 * x[:, 1:-1] + x[:, 2:]
    u, v = d[:-2] + 2 * d[1:-1] + d[2:], s[2:] - s[:-2]
    return torch.sqrt(u * u + v * v)


def bilinear_resize(x: T) -> T:
    return functional.interpolate(x[None], scale_factor=2, mode="bilinear")[0]


def nearest_resize(x: T) -> T:
    return functional.interpolate(x[None], scale_factor=2, mode="nearest")[0]


def gray(x: T) -> T:
    return x.float() @ torch.tensor([0.299 / 255, 0.587 / 255, 0.114 / 255])


def global_average(x: T) -> T:
    return x.mean((2, 3))


def distances(x: T, y: T) -> T:
    return torch.cdist(x, y) ** 2


def squared_distances(x: T, y: T) -> T:
    return (x * x).sum(1)[:, None] + (y * y).sum(1) - 2 * (x @ y.T)


def chebyshev(a: T, b: T) -> T:
    return torch.cdist(a, b, p=float("inf"))


def min_plus(a: T, b: T) -> T:
    return (a[:, None] + b.T[None]).amin(-1)


def power_spectrum(x: T, c: T, s: T) -> T:
    return (x @ c) ** 2 + (x @ s) ** 2


def power_iteration(a: T, x: T) -> T:
    y = torch.mv(a, x)
    return y / torch.sqrt(torch.dot(y, y) + 1)


def bilinear(x: T, w: T, y: T) -> T:
    return functional.bilinear(x, y, w)


def small_products(a: T, b: T) -> T:
    return torch.bmm(a, b)


def contracted_tensors(a: T, b: T) -> T:
    return torch.tensordot(a, b, dims=([1, 2], [1, 0]))


def gram(x: T) -> T:
    return torch.mm(x.T, x)


def quadratic_form(x: T, m: T) -> T:
    return (x @ m * x).sum(1)


def kronecker(a: T, b: T) -> T:
    return torch.kron(a, b)


def running_sums(x: T) -> T:
    return torch.cumsum(x, 1)


def largest_of_few_columns(x: T) -> T:
    return x.amax(0)


def norm_of_difference(x: T, y: T) -> T:
    d = x - y
    return (d * d).sum(1)


def variance_of_columns(x: T) -> T:
    return torch.var(x, 0, correction=0)


def sum_of_squares(x: T) -> T:
    flat = x.view(-1)
    return torch.dot(flat, flat).reshape(1)


def rank4(x: T) -> T:
    return x.permute(0, 2, 3, 1).contiguous()


def heads_split(x: T) -> T:
    return x.permute(0, 2, 3, 1).contiguous() * 2


def gathered(x: T, at: T) -> T:
    return functional.embedding(at, x)


def embedded(x: T, at: T, w: T) -> T:
    return functional.embedding(at, x) @ w


def one_hot(at: T, w: T) -> T:
    return functional.one_hot(at.long(), len(w)).float() @ w


def joined(a: T, b: T) -> T:
    return torch.cat([a, b], 1)


def reflect_pad(x: T) -> T:
    return functional.pad(x[None], (1, 1, 1, 1), mode="reflect")[0]


def pixel_shuffle(x: T) -> T:
    return functional.pixel_shuffle(x, 2)[:, 0]


def int8_dense(a: T, b: T, s: T, bias: T) -> T:
    return functional.relu(torch._int_mm(a, b).float() * s + bias)


def bf16_product(a: T, b: T) -> T:
    return (a @ b).float() * 2


def half_rows(x: T) -> T:
    return x.sum(1, dtype=torch.float32)


def double_product(a: T, b: T) -> T:
    return torch.mm(a, b)


#: Brings inputs into the layout that a library function wants.
PREPARED: dict[str, Callable[..., list[Any]]] = {
    "gru_cell": _gru_weights,
    "masked_softmax": _mask,
    "conv1d_dilated_last": _taps_last,
}


def call(name: str) -> Callable[..., Any]:
    """The function of an expression.

    Raises:
        LookupError: there is none.
    """
    found = globals().get(name)
    if name.startswith("_") or found is None:
        raise LookupError(f"PyTorch has no function for {name}")
    return found  # type: ignore[no-any-return]


def prepared(name: str, tensors: Sequence[Any]) -> list[Any]:
    """Inputs as the function of an expression takes them."""
    return PREPARED[name](*tensors) if name in PREPARED else list(tensors)
