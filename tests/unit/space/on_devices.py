"""Expressions that show what structures for devices do, and how their points are checked."""

from __future__ import annotations

from functools import lru_cache

import ml_dtypes  # noqa: F401  (NumPy learns bfloat16 from it)
import numpy as np

import loopwright as lw
from loopwright import ops, te
from loopwright.codegen.gpu.split import split_host_device
from loopwright.ir.stmt import Func
from loopwright.ir.verify import verify
from loopwright.lowering.gpu_limits import limits_of, verify_gpu_limits
from loopwright.space import Structure, structures
from loopwright.te import Tensor, create_schedule
from tests.unit.space.expressions import CONTRACTIONS, OTHERS, Make, placeholder


def turned() -> list[Tensor]:
    X = placeholder(3, 20, 33, name="X")
    return [X, te.compute((33, 3, 20), lambda c, a, b: X[a, b, c] + 1, name="T")]


def attention() -> list[Tensor]:
    Q, K, V = (
        placeholder(9, 8, name="Q"),
        placeholder(11, 8, name="K"),
        placeholder(11, 8, name="V"),
    )
    S = ops.matmul_compute(Q, K, trans_b=True, name="S")
    P = ops.softmax_compute(S)[0]
    return [Q, K, V, ops.matmul_compute(P, V, name="O")]


def whole() -> list[Tensor]:
    X, i, j = placeholder(9, 70, name="X"), te.reduce_axis((0, 9)), te.reduce_axis((0, 70))
    return [X, te.compute((), lambda: te.sum(X[i, j], axis=[i, j]), name="T")]


def scalar() -> list[Tensor]:
    X = placeholder(3, name="X")
    return [X, te.compute((), lambda: X[0] + X[1] * X[2], name="T")]


def long_sum() -> list[Tensor]:
    X, k = placeholder(1 << 15, name="X"), te.reduce_axis((0, 1 << 15), name="k")
    return [X, te.compute((1,), lambda i: te.sum(X[k], axis=k), name="T")]


def arg_max() -> list[Tensor]:
    X, k = placeholder(5, 40, name="X"), te.reduce_axis((0, 40), name="k")
    at, top = te.compute((5,), lambda i: te.argmax((k, X[i, k]), axis=k), name="found")
    return [X, te.compute((5,), lambda i: at[i] + top[i] * 100, name="Y")]


def doubling() -> list[Tensor]:
    """Every stage reads the one before twice: inlined, the last would read the first 2^40 times."""
    X = placeholder(50, name="X")
    t = X
    for n in range(40):
        t = te.compute((50,), lambda i, t=t: te.max(t[i], t[49 - i]) - 1, name=f"t{n}")
    return [X, t]


def gated() -> list[Tensor]:
    """Two products that one stage reads element by element, and a product of that."""
    X, G = placeholder(9, 16, name="X"), placeholder(16, 20, name="G")
    U, D = placeholder(16, 20, name="U"), placeholder(20, 16, name="D")
    g, u = ops.matmul_compute(X, G, name="g"), ops.matmul_compute(X, U, name="u")
    h = te.compute((9, 20), lambda i, j: te.max(g[i, j], 0) * u[i, j], name="h")
    return [X, G, U, D, ops.matmul_compute(h, D, name="O")]


def normalized() -> list[Tensor]:
    """Rows divided by a sum of everything."""
    X, i, j = placeholder(9, 17, name="X"), te.reduce_axis((0, 9)), te.reduce_axis((0, 17))
    S = te.compute((), lambda: te.sum(X[i, j], axis=[i, j]), name="S")
    return [X, te.compute((9, 17), lambda a, b: X[a, b] / (S() + 1000), name="Y")]


def pooled_convolution() -> list[Tensor]:
    X, W = placeholder(1, 4, 12, 12, name="X"), placeholder(8, 4, 3, 3, name="W")
    C = ops.conv2d_compute(X, W, (1, 1), (1, 1))
    R = te.compute(C.shape, lambda *i: te.max(C(*i), 0), name="R")
    a, b = te.reduce_axis((0, 2), name="a"), te.reduce_axis((0, 2), name="b")
    Y = te.compute(
        (1, 8, 6, 6),
        lambda n, c, y, x: te.max(R[n, c, 2 * y + a, 2 * x + b], axis=[a, b]),
        name="Y",
    )
    return [X, W, Y]


def two_of_a_name() -> list[Tensor]:
    X, Y = placeholder(8, 9, 10, name="X"), placeholder(9, 10, 12, name="Y")
    k, q = te.reduce_axis((0, 9), name="k"), te.reduce_axis((0, 10), name="k")
    return [
        X,
        Y,
        te.compute((8, 12), lambda i, j: te.sum(X[i, k, q] * Y[k, q, j], axis=[k, q]), name="C"),
    ]


def narrowed() -> list[Tensor]:
    """Elements of eight bytes that are read for elements of four."""
    X = placeholder(9, 16, name="X", dtype="int64")
    return [X, te.compute((9, 16), lambda i, j: (X[i, j] * 3).astype("int32"), name="Y")]


def narrowed_rows() -> list[Tensor]:
    X, k = placeholder(9, 64, name="X", dtype="float64"), te.reduce_axis((0, 64), name="k")
    M = te.compute((9,), lambda i: te.max(X[i, k], axis=k), name="M")
    return [X, te.compute((9, 64), lambda i, j: (X[i, j] - M[i]).astype("float32"), name="Y")]


def several_behind() -> list[Tensor]:
    """A sum that only a stage with several results reads, element by element."""
    X, k = placeholder(31, 5, name="X"), te.reduce_axis((0, 5), name="k")
    S = te.compute((31,), lambda i: te.sum(X[i, k], axis=k), name="S")
    a, b = te.compute((31,), lambda i: (S[i] + 1, S[i] * 2), name="both")
    return [X, te.compute((30,), lambda i: a[i] - b[i + 1], name="Y")]


def scaled() -> list[Tensor]:
    """A product with a number that lies in memory."""
    A, B, q = placeholder(13, 20), placeholder(20, 9, name="B"), te.reduce_axis((0, 20), name="k")
    z = placeholder(name="z")
    return [A, B, z, te.compute((13, 9), lambda i, j: te.sum(A[i, q] * B[q, j] * z(), axis=q))]


def gram() -> list[Tensor]:
    """An input that is read for rows and for columns goes through no shared memory."""
    A, q = placeholder(13, 20), te.reduce_axis((0, 20), name="k")
    return [A, te.compute((13, 13), lambda i, j: te.sum(A[i, q] * A[j, q], axis=q), name="G")]


def started() -> list[Tensor]:
    """A product that starts from what is read before the loops of the sum."""
    A, B, b = placeholder(13, 20), placeholder(20, 9, name="B"), placeholder(9, name="b")
    q = te.reduce_axis((0, 20), name="k")

    def element(i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        return te.sum(A[i, q] * B[q, j], axis=q, init=b[j])

    return [A, B, b, te.compute((13, 9), element, name="C")]


def started_twice() -> list[Tensor]:
    """The sum starts from one of its operands."""
    A, B, q = placeholder(13, 13), placeholder(13, 9, name="B"), te.reduce_axis((0, 13), name="k")

    def element(i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        return te.sum(A[i, q] * B[q, j], axis=q, init=B[i, j])

    return [A, B, te.compute((13, 9), element, name="C")]


def halves(m: int, n: int, k: int, trans_b: bool, dtype: str = "float16") -> list[Tensor]:
    A = placeholder(m, k, dtype=dtype)
    B = placeholder(*((n, k) if trans_b else (k, n)), name="B", dtype=dtype)
    q = te.reduce_axis((0, k), name="k")

    def element(i: te.IterVar, j: te.IterVar) -> te.PrimExpr:
        x, y = A[i, q], B[j, q] if trans_b else B[q, j]
        return te.sum(x.astype("float32") * y.astype("float32"), axis=q)

    return [A, B, te.compute((m, n), element, name="C")]


#: Beside those of the tests for CPUs, with whether sums of integers are exact in any order.
DEVICES: dict[str, tuple[Make, bool]] = {
    "turned": (turned, True),
    "attention": (attention, False),
    "whole": (whole, True),
    "scalar": (scalar, True),
    "long sum": (long_sum, True),
    "argmax": (arg_max, True),
    "doubling": (doubling, True),
    "two loops of a name": (two_of_a_name, True),
    "gated": (gated, True),
    "normalized": (normalized, False),
    "pooled convolution": (pooled_convolution, True),
    "narrowed": (narrowed, True),
    "narrowed rows": (narrowed_rows, True),
    "scaled": (scaled, True),
    "gram": (gram, True),
    "started": (started, True),
    "started from an operand": (started_twice, True),
    "several behind a sum": (several_behind, True),
}
ALL = {
    **{name: (make, name != "tanh behind") for name, make in CONTRACTIONS.items()},
    **OTHERS,
    **DEVICES,
}


@lru_cache(maxsize=8)
def derived(name: str, target: str) -> tuple[list[Tensor], list[Structure]]:
    args = ALL[name][0]()
    with lw.Target(target):
        return args, structures(args[-1], args)


def lowered(structure: Structure, index: int) -> Func:
    """What a point becomes: verified, within the limits of its target, and all of it bound."""
    s, args = structure.instantiate(structure.config_space.get(index))
    with structure.target:
        f = lw.lower(s, args)
    verify(f)
    verify_gpu_limits(f, limits_of(structure.target.options), s)
    assert all(k.threads for k in split_host_device(f, structure.target.kind.name).kernels), (
        f"something runs unbound in {f}"
    )
    return f


def arrays_of(args: list[Tensor]) -> list[np.ndarray]:
    """Small integers, whose sums are exact in any order; the result is poisoned."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, t.static_shape).astype(t.dtype) for t in args]
    arrays[-1][...] = np.nan if arrays[-1].dtype.kind == "f" else 77
    return arrays


@lru_cache(maxsize=64)
def right(name: str) -> np.ndarray:
    args = ALL[name][0]()
    arrays = arrays_of(args)
    lw.build(create_schedule(args[-1].op), args, "llvm -num-threads=1")(*arrays)
    return arrays[-1]


def assert_right(name: str, answer: np.ndarray, structure: Structure, index: int) -> None:
    message = f"{structure}: {structure.config_space.get(index)}"
    loose = 0 if ALL[name][1] else 1e-5
    np.testing.assert_allclose(answer, right(name), rtol=loose, atol=loose, err_msg=message)
