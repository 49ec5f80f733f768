"""Inputs of small integers, of which sums are exact, and whether answers are right.

Products are checked as a whole without being made again: the answer times a vector must be the
operands times that vector (Freivalds, "Probabilistic machines can use less running time", 1977),
to the bit, since every number is an integer that its type holds. Rows are checked against NumPy
where they are sampled, and all of them by what their sums must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.gpu.cases import Case, Sizes

Array = npt.NDArray[Any]
#: Integers go from minus this to this.
_LARGEST = 3
#: Rows that are compared with NumPy's.
_ROWS = 256
#: What float32 kernels may differ by, and sums over a row.
_CLOSE, _CLOSE_SUM = 2e-5, 1e-3
_EPS = 1e-5
#: Vectors that a product is checked with.
_VECTORS = 2


def inputs(case: Case, sizes: Sizes, seed: int = 0) -> list[Array]:
    """The inputs of a case, in the order of its kernel's arguments."""
    rng = np.random.default_rng(seed)
    shapes = _shapes(case, sizes)
    arrays = [_integers(rng, shape, case.dtype) for shape in shapes]
    if case.template == "layer_norm":
        arrays[1] = np.abs(arrays[1]) + np.float32(1)
    return arrays


def _integers(rng: np.random.Generator, shape: Sizes, dtype: str) -> Array:
    return rng.integers(-_LARGEST, _LARGEST + 1, shape, np.int8).astype(dtype)


def _shapes(case: Case, sizes: Sizes) -> list[Sizes]:
    """Shapes of the inputs."""
    match case.template:
        case "matmul" | "matmul_tensor_core":
            m, n, k = sizes
            return [(m, k), (k, n)]
        case "batch_matmul":
            b, m, n, k = sizes
            return [(b, m, k), (b, k, n)]
        case "conv2d":
            n, c, h, w, o, kh, kw, _, _ = sizes
            return [(n, c, h, w), (o, c, kh, kw)]
        case "layer_norm":
            return [sizes, sizes[1:], sizes[1:]]
        case "":
            return []
    return [sizes]


def problem(case: Case, given: Sequence[Array], answer: Array, close: float = 0.0) -> str:
    """What is wrong with an answer, in one line; empty: nothing.

    Args:
        case: what was computed; not one without a template.
        given: the inputs.
        answer: the output.
        close: by which share of the largest value products may differ. Libraries make convolutions
            by transforms, which round.
    """
    if not np.isfinite(answer).all():
        return f"{int((~np.isfinite(answer)).sum())} of {answer.size} elements are not finite"
    match case.template:
        case "matmul" | "matmul_tensor_core" | "batch_matmul":
            return _product_problem(given[0], given[1], answer, close)
        case "conv2d":
            return _convolution_problem(given[0], given[1], answer, close)
        case "softmax":
            return _softmax_problem(given[0], answer)
        case "layer_norm":
            return _layer_norm_problem(given, answer)
    return _difference(answer, given[0], 0.0, "elements")


def _scaled_difference(answer: Array, expected: Array, close: float, what: str) -> str:
    """Where two arrays differ by more than a share of the largest value."""
    if not close:  # to the bit
        return _difference(answer, expected, 0.0, what)
    scale = max(1.0, float(np.abs(expected).max()))
    return _difference(answer / scale, expected / scale, close, what)


def _difference(answer: Array, expected: Array, close: float, what: str) -> str:
    """Where two arrays differ by more than may be, relative to one or the expected value."""
    wrong = np.abs(answer - expected) > close * np.maximum(1, np.abs(expected))
    if not wrong.any():
        return ""
    first = tuple(int(n) for n in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} {what} are wrong, the first at {first}: "
        f"{answer[first]!s}, expected {expected[first]!s}"
    )


def _vectors(length: int) -> Array:
    """Columns without a zero, so that one wrong element is always noticed."""
    rng = np.random.default_rng(length)
    return rng.integers(1, 8, (length, _VECTORS)).astype(np.float64)


def _product_problem(a: Array, b: Array, answer: Array, close: float) -> str:
    by = _vectors(answer.shape[-1])
    expected = a.astype(np.float64) @ (b.astype(np.float64) @ by)
    found = answer.astype(np.float64) @ by
    return _scaled_difference(found, expected, close, "sums over a row")


def _convolution_problem(x: Array, weight: Array, answer: Array, close: float) -> str:
    """Padding 1, stride 1, windows of 3: what all cases have."""
    by = _vectors(answer.shape[1])
    mixed = np.einsum("ockl,ov->vckl", weight.astype(np.float64), by)
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = answer.shape[2:]
    expected = sum(
        np.einsum("nchw,vc->nvhw", wide[:, :, k : k + height, j : j + width], mixed[:, :, k, j],
                  optimize=True)
        for k in range(weight.shape[2])
        for j in range(weight.shape[3])
    )  # fmt: skip
    found = np.einsum("nohw,ov->nvhw", answer.astype(np.float64), by, optimize=True)
    return _scaled_difference(found, np.asarray(expected), close, "sums over channels")


def _sampled(rows: int) -> Array:
    """Numbers of some rows, the first and the last among them."""
    some = np.random.default_rng(rows).choice(rows, min(rows, _ROWS), replace=False)
    return np.unique(np.concatenate([some, [0, rows - 1]]))


def _softmax_problem(x: Array, answer: Array) -> str:
    at = _sampled(len(x))
    e = np.exp(x[at].astype(np.float64) - x[at].max(1, keepdims=True))
    found = _difference(answer[at], e / e.sum(1, keepdims=True), _CLOSE / x.shape[1], "elements")
    sums = answer.sum(1, dtype=np.float64)
    return found or _difference(sums, np.ones(len(x)), _CLOSE_SUM, "sums over a row")


def _layer_norm_problem(given: Sequence[Array], answer: Array) -> str:
    x, gamma, beta = given
    at = _sampled(len(x))
    d = x[at].astype(np.float64)
    d -= d.mean(1, keepdims=True)
    expected = d / np.sqrt((d * d).mean(1, keepdims=True) + _EPS) * gamma + beta
    found = _difference(answer[at], expected, _CLOSE, "elements")
    # What is left without gamma and beta has the mean 0.
    weights = 1.0 / gamma
    means = (answer @ weights - float((beta * weights).sum())) / x.shape[1]
    return found or _difference(means, np.zeros(len(x)), _CLOSE_SUM, "means of a row")
