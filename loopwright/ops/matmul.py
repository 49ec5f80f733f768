"""Matrix products: matmul in its four transpose forms, plain and batched, and dense layers.

Their spaces for CPUs are derived where each byte serves few operations, else a template by hand.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from math import prod
from typing import Any, TypeAlias

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import TensorError
from loopwright.ops import gpu, tiles
from loopwright.ops.gemm import default_tiles, define_matmul_space, matmul_compute, schedule_matmul
from loopwright.ops.operator import Array, Reference, compute, register
from loopwright.ops.topi import seed_of
from loopwright.records import Json
from loopwright.schedule import Schedule
from loopwright.space import AutomaticTask, Workload
from loopwright.task import TargetLike, Task, Template, get_config, resolve_target, template

#: Inputs, and stages: a product first, each elementwise over the one before, the result last.
_Stages: TypeAlias = tuple[list[te.Tensor], list[te.Tensor]]

#: Largest shortest side, and fewest bytes of operands and result, of a product that takes as long
#: as its data. The template packs, or reads across memory, what is used for so few operations: on
#: two threads derived spaces were 1.1 to 3.4 times as fast, and 0.6 where caches hold the data.
_SHORT_SIDE, _STREAMED = 16, 1 << 23


def _scheduled(
    inputs: list[te.Tensor], stages: list[te.Tensor], trans_b: bool
) -> tuple[Schedule, list[te.Tensor]]:
    """The schedule for CPUs under the configuration in force, with its arguments."""
    product, out = stages[0], stages[-1]
    s = te.create_schedule(out.op)
    cfg = get_config()
    *_, m, n = product.static_shape
    define_matmul_space(cfg, m, n, product.op.reduce_axis[0].count, product.dtype, trans_b)
    for stage in stages[1:-1]:
        s[stage].compute_inline()
    acc = s.cache_write(product, "local") if out is product else product
    schedule_matmul(cfg, s, out, acc, inputs[1], trans_b)
    return s, [*inputs, out]


def _enter(by_hand: Template, define: Callable[..., _Stages], summary: str) -> None:
    def on_gpus(*args: Any) -> tuple[Schedule, list[te.Tensor]]:
        inputs, stages = define(*args)
        return gpu.scheduled(stages[-1], inputs)

    @wraps(by_hand.function)
    def tensors(*args: Any) -> list[te.Tensor]:
        inputs, stages = define(*args)
        return [*inputs, stages[-1]]

    derived = Workload(by_hand.name, tensors, make_reference=by_hand.make_reference)
    derived.seed_of, derived.by_hand = seed_of, by_hand
    names = inspect.signature(tensors).parameters

    def make_task(entry: Template, args: Iterable[Json], target: TargetLike) -> Task:
        args, target = entry.bind(args), resolve_target(target)
        with target:
            on_cpus = entry.implementation() is entry.function
        if on_cpus and _is_streamed(dict(zip(names, args, strict=True))):
            return AutomaticTask(derived, args, target)
        return Task(entry, args, target)

    by_hand.register("gpu")(on_gpus)
    by_hand.make_task = make_task
    register(by_hand, summary)


def _is_streamed(parameters: dict[str, Any]) -> bool:
    """Whether reading and writing is what takes the time of a product."""
    batch, *sides = (parameters.get(name, 1) for name in "BMNK")
    dtype = parameters["dtype"]
    if dtype not in dtypes.SUPPORTED or any(type(n) is not int or n < 1 for n in (batch, *sides)):
        return False  # the template says so
    size: int = batch * sum(prod(sides) // n for n in sides) * dtypes.nbytes(dtype)
    return size >= _STREAMED and min(sides) <= _SHORT_SIDE


def _product(*args: Any) -> _Stages:
    """Operands and stages of `matmul`, or with a batch before M of `batch_matmul`."""
    *batch, m, n, k, trans_a, trans_b, dtype = args
    A = te.placeholder((*batch, k, m) if trans_a else (*batch, m, k), dtype, name="A")
    B = te.placeholder((*batch, n, k) if trans_b else (*batch, k, n), dtype, name="B")
    wide, final = tiles.wide_dtype(dtype), tiles.out_dtype(dtype)
    C = matmul_compute(A, B, trans_a, trans_b, out_dtype=wide)
    if final == wide:
        return [A, B], [C]
    return [A, B], [C, compute(C.shape, lambda *i: C[i].astype(final), name="D")]


def _default(*args: Any) -> dict[str, object]:
    *batch, m, n, k, _, trans_b, dtype = args
    for size in batch:
        tiles.check_sizes(dtype, B=size)
    wide = tiles.wide_dtype(dtype)
    return default_tiles(m, n, k, wide, batch=prod(batch), trans_b=trans_b)


def _reference(*args: Any) -> Reference:
    *_, trans_a, trans_b, dtype = args

    def reference(a: Array, b: Array) -> Array:
        x, y = tiles.widen(a, dtype), tiles.widen(b, dtype)
        x = x.swapaxes(-1, -2) if trans_a else x
        y = y.swapaxes(-1, -2) if trans_b else y
        return tiles.narrow(np.matmul(x, y), dtype)

    return reference


@template("matmul", make_reference=_reference, default=_default)
def matmul(
    M: int, N: int, K: int, trans_a: bool = False, trans_b: bool = False, dtype: str = "float32"
) -> tuple[Schedule, list[te.Tensor]]:
    """C (M, N) = A (M, K) @ B (K, N); ``trans_a``: A is (K, M), ``trans_b``: B is (N, K).

    int8 and uint8 operands are accumulated and returned as int32; float16 and bfloat16 ones are
    accumulated as float32 and returned in their own dtype.

    Example:
        >>> s, args = lw.ops.matmul(8, 8, 8)
        >>> f = lw.build(s, args, "llvm")
        >>> a, b = np.eye(8, dtype="float32"), np.full((8, 8), 3, "float32")
        >>> c = np.empty((8, 8), "float32")
        >>> f(a, b, c)
        >>> print(c[0, :4])
        [3. 3. 3. 3.]
    """
    return _scheduled(*_product(M, N, K, trans_a, trans_b, dtype), trans_b)


@template("batch_matmul", make_reference=_reference, default=_default)
def batch_matmul(
    B: int,
    M: int,
    N: int,
    K: int,
    trans_a: bool = False,
    trans_b: bool = False,
    dtype: str = "float32",
) -> tuple[Schedule, list[te.Tensor]]:
    """`matmul` for each of B pairs: C (B, M, N) = A (B, M, K) @ B (B, K, N)."""
    return _scheduled(*_product(B, M, N, K, trans_a, trans_b, dtype), trans_b)


_enter(matmul, _product, "C = A @ B; A (M, K) or (K, M), B (K, N) or (N, K)")
_enter(
    batch_matmul,
    _product,
    "C = A @ B for each of a batch; A (B, M, K) or (B, K, M), B (B, K, N) or (B, N, K)",
)


def _dense_default(*args: Any) -> dict[str, object]:
    m, n, k, _, _, dtype, weight = args
    return default_tiles(m, n, k, tiles.wide_dtype(dtype), trans_b=weight == "NK")


def _dense_reference(*args: Any) -> Reference:
    *_, bias, relu, dtype, weight = args

    def reference(x: Array, w: Array, *b: Array) -> Array:
        x, w = tiles.widen(x, dtype), tiles.widen(w, dtype)
        y = x @ (w.T if weight == "NK" else w)
        y = y + b[0].astype(y.dtype, copy=False) if bias else y
        y = np.maximum(y, y.dtype.type(0)) if relu else y
        return tiles.narrow(y, dtype)

    return reference


@template("dense", make_reference=_dense_reference, default=_dense_default)
def dense(
    M: int,
    N: int,
    K: int,
    bias: bool = True,
    relu: bool = True,
    dtype: str = "float32",
    weight: str = "NK",
) -> tuple[Schedule, list[te.Tensor]]:
    """Y (M, N) = relu(X (M, K) @ W + bias (N)); W is (N, K), or (K, N) with ``weight="KN"``.

    Narrow operands are summed as in `matmul`; the bias has the dtype of the result.
    """
    return _scheduled(*_layer(M, N, K, bias, relu, dtype, weight), weight == "NK")


def _layer(M: int, N: int, K: int, bias: bool, relu: bool, dtype: str, weight: str) -> _Stages:
    if weight not in ("NK", "KN"):
        raise TensorError(f"dense: weight is 'NK' or 'KN', got {weight!r}")
    trans = weight == "NK"
    X = te.placeholder((M, K), dtype, name="X")
    W = te.placeholder((N, K) if trans else (K, N), dtype, name="W")
    inputs = [X, W]
    wide, final = tiles.wide_dtype(dtype), tiles.out_dtype(dtype)
    Z = matmul_compute(X, W, trans_b=trans, name="Z", out_dtype=wide)
    stages = [Z]
    if bias:
        b = te.placeholder((N,), final, name="bias")
        inputs.append(b)
        stages.append(te.compute((M, N), lambda i, j: Z[i, j] + b[j].astype(wide), name="biased"))
    if relu:
        x = stages[-1]
        stages.append(compute(x.shape, lambda i, j: te.max(x[i, j], 0), name="Y"))
    if final != wide:
        y = stages[-1]
        stages.append(compute(y.shape, lambda i, j: y[i, j].astype(final), name="narrow"))
    return inputs, stages


_enter(dense, _layer, "Y = relu(X @ W + bias); X (M, K), W (N, K) or (K, N)")
