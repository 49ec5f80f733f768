"""Elementwise and broadcast chains, and transposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from loopwright import dtypes, te
from loopwright.errors import TensorError, did_you_mean
from loopwright.ir.expr import Expr
from loopwright.ops import gpu, tiles
from loopwright.ops.operator import Array, Reference, register
from loopwright.schedule import Schedule
from loopwright.task import get_config, template
from loopwright.task.template_config import TemplateConfig

#: Links of a chain that need nothing else: expression, and NumPy's function.
UNARY: dict[str, tuple[Callable[[Expr], Expr], Callable[[Array], Array]]] = {
    "relu": (lambda x: te.max(x, 0), lambda x: np.maximum(x, x.dtype.type(0))),
    "neg": (lambda x: -x, np.negative),
    "abs": (te.abs, np.abs),
    "exp": (te.exp, np.exp),
    "sqrt": (te.sqrt, np.sqrt),
    "tanh": (te.tanh, np.tanh),
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
}
#: Links that take one more input: its shape as a function of (M, N), and how it is combined.
BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "scale": ("row", lambda x, y: x * y),
    "shift": ("row", lambda x, y: x + y),
    "add": ("full", lambda x, y: x + y),
    "mul": ("full", lambda x, y: x * y),
}
_FLOAT_ONLY = ("exp", "sqrt", "tanh", "sigmoid")


def _links(chain: str | Sequence[str], dtype: str) -> list[str]:
    """The names in a chain: text with commas, or (from the command line) a sequence of names."""
    words = chain.split(",") if isinstance(chain, str) else chain
    links = [x.strip() for x in words if x.strip()]
    known = [*UNARY, *BINARY]
    for x in links:
        if x not in known:
            raise TensorError(
                f"elementwise: unknown link {x!r}{did_you_mean(x, known)}; "
                f"known: {', '.join(known)}"
            )
        if x in _FLOAT_ONLY and not dtypes.is_float(dtype):
            raise TensorError(f"elementwise: {x} is for floats, the dtype is {dtype}")
    if not links:
        raise TensorError("elementwise: the chain is empty; name links such as 'scale,shift,relu'")
    return links


def schedule_injective(cfg: TemplateConfig, s: Schedule, Y: te.Tensor) -> None:
    """Inline everything into ``Y``, and run its last dimension as vectors, the others in parallel.

    Args:
        cfg: a configuration; gets the knobs ``lanes``, ``rows`` and ``together``: so many rows go
            through a loop side by side and share what they read of operands that have no rows.
        s: the schedule, in which every stage but ``Y`` can be inlined.
        Y: the result, two-dimensional.

    Example:
        >>> A = te.placeholder((8, 64), name="A")
        >>> B = te.compute((8, 64), lambda i, j: A[i, j] * 2, name="B")
        >>> C = te.compute((8, 64), lambda i, j: B[i, j] + 1, name="C")
        >>> s = te.create_schedule(C.op)
        >>> space = lw.ConfigSpace()
        >>> lw.ops.schedule_injective(space, s, C)
        >>> print([stage.attach_type for stage in s.stages], list(space.knobs))
        ['root', 'inline', 'root'] ['lanes', 'rows', 'together']
    """
    M, N = Y.shape
    w = tiles.lanes(Y.dtype)
    lanes = [w * v for v in (1, 2, 4, 8) if w * v <= max(N, w)]
    cfg.define_knob("lanes", lanes, default=4 * w if 4 * w in lanes and N % (4 * w) == 0 else w)
    counts = [r for r in (1, 2, 4, 8, 16, 32, 64) if r <= M]
    cfg.define_knob("rows", counts, default=max(r for r in counts if -(-M // r) >= 8 or r == 1))
    leaves = [x.op for x in s.stages if not x.op.input_tensors]
    shares = any(len(op.output(0).shape) < 2 for op in leaves)
    cfg.define_knob(
        "together", [r for r in (1, 2, 4) if r <= M], default=min(M, 2 if shares else 1)
    )
    for stage in s.stages:
        if stage.op.input_tensors and not stage.is_output:
            stage.compute_inline()
    i, j = s[Y].op.axis
    outer, row = s[Y].split(i, factor=cfg["rows"].val)
    column, lane = s[Y].split(j, factor=cfg["lanes"].val)
    rows, row = s[Y].split(row, factor=min(cfg["together"].val, cfg["rows"].val))
    s[Y].reorder(outer, rows, column, row, lane)
    s[Y].parallel(outer)
    s[Y].unroll(row)
    s[Y].vectorize(lane)


def _elementwise_reference(M: int, N: int, chain: str, dtype: str) -> Reference:
    links = _links(chain, dtype)

    def reference(x: Array, *others: Array) -> Array:
        x, more = tiles.widen(x, dtype), iter(others)
        for link in links:
            if link in UNARY:
                x = UNARY[link][1](x)
            else:
                x = BINARY[link][1](x, tiles.widen(next(more), dtype))
        return x.astype(dtype, copy=False)

    return reference


@template("elementwise", make_reference=_elementwise_reference)
def elementwise(
    M: int, N: int, chain: str = "scale,shift,add,relu", dtype: str = "float32"
) -> tuple[Schedule, list[te.Tensor]]:
    """A chain of elementwise steps on (M, N).

    ``chain`` names them, separated by commas: scale and shift take a row (N,) that is broadcast,
    add and mul a full (M, N) operand, relu, neg, abs, exp, sqrt, tanh and sigmoid nothing.

    Example:
        >>> s, args = lw.ops.elementwise(2, 4, "relu")
        >>> f = lw.build(s, args, "llvm")
        >>> y = np.empty((2, 4), "float32")
        >>> f(np.full((2, 4), -1, "float32"), y)
        >>> print(y)
        [[0. 0. 0. 0.]
         [0. 0. 0. 0.]]
    """
    inputs, Y = _chained(M, N, chain, dtype)
    s = te.create_schedule(Y.op)
    schedule_injective(get_config(), s, Y)
    return s, [*inputs, Y]


@elementwise.register("gpu")
def _elementwise_gpu(M: int, N: int, chain: str, dtype: str) -> tuple[Schedule, list[te.Tensor]]:
    inputs, Y = _chained(M, N, chain, dtype)
    return gpu.scheduled(Y, inputs)


def _chained(M: int, N: int, chain: str, dtype: str) -> tuple[list[te.Tensor], te.Tensor]:
    """The inputs and the result of a chain."""
    X = te.placeholder((M, N), dtype, name="X")
    inputs, value, wide = [X], X, tiles.wide_dtype(dtype)
    for at, link in enumerate(_links(chain, dtype)):
        value = _link(link, at, value, inputs, wide)
    return inputs, te.compute((M, N), lambda i, j: value[i, j].astype(dtype), name="Y")


def _link(link: str, at: int, x: te.Tensor, inputs: list[te.Tensor], wide: str) -> te.Tensor:
    """One step of a chain; a further operand is added to ``inputs``."""
    name = f"{link}{at}"
    if link in UNARY:
        f = UNARY[link][0]
        tensor: te.Tensor = te.compute(x.shape, lambda i, j: f(x[i, j].astype(wide)), name=name)
        return tensor
    kind, combine = BINARY[link]
    shape = x.shape[1:] if kind == "row" else x.shape
    other = te.placeholder(shape, inputs[0].dtype, name=f"B{at}")
    inputs.append(other)
    tensor = te.compute(
        x.shape,
        lambda i, j: combine(
            x[i, j].astype(wide), (other[j] if kind == "row" else other[i, j]).astype(wide)
        ),
        name=name,
    )
    return tensor


# ---------------------------------------------------------------- transpose


#: Squares of at most so many elements a side are turned in registers.
_SQUARE = 16


def _transpose_reference(M: int, N: int, dtype: str) -> Reference:
    return lambda x: np.ascontiguousarray(x.T)


@template("transpose", make_reference=_transpose_reference)
def transpose(M: int, N: int, dtype: str = "float32") -> tuple[Schedule, list[te.Tensor]]:
    """Y (N, M) = X (M, N) transposed, by blocks that fit the first-level cache.

    Example:
        >>> s, args = lw.ops.transpose(2, 3)
        >>> f = lw.build(s, args, "llvm")
        >>> y = np.empty((3, 2), "float32")
        >>> f(np.arange(6, dtype="float32").reshape(2, 3), y)
        >>> print(y)
        [[0. 3.]
         [1. 4.]
         [2. 5.]]
    """
    X, Y = _transposed(M, N, dtype)
    s = te.create_schedule(Y.op)
    cfg = get_config()
    w = min(tiles.lanes(dtype), _SQUARE)
    rows = [r for r in (4, 8, 16, 32, 64, 128) if r <= N] or [N]
    cfg.define_knob("rows", rows, default=max(r for r in rows if r <= 32))
    columns = [w * v for v in (1, 2, 4, 8) if w * v <= max(M, w)]
    cfg.define_knob("columns", columns, default=max(c for c in columns if c <= 4 * w))
    cfg.define_knob("block", ["local", "none"])
    i, j = s[Y].op.axis
    io, jo, ii, ji = s[Y].tile(i, j, cfg["rows"].val, cfg["columns"].val)
    s[Y].parallel(io)
    jm, lane = s[Y].split(ji, factor=w)
    s[Y].reorder(jm, ii, lane)
    s[Y].unroll(ii)
    s[Y].vectorize(lane)
    if cfg["block"].val == "local":
        block = s.cache_read(X, "local", [Y])
        s[block].compute_at(s[Y], jo)
        _, inner = s[block].split(s[block].op.axis[1], factor=w)
        s[block].vectorize(inner)
    return s, [X, Y]


def _transposed(M: int, N: int, dtype: str) -> tuple[te.Tensor, te.Tensor]:
    X = te.placeholder((M, N), dtype, name="X")
    return X, te.compute((N, M), lambda i, j: X[j, i], name="Y")


@transpose.register("gpu")
def _transpose_gpu(M: int, N: int, dtype: str) -> tuple[Schedule, list[te.Tensor]]:
    X, Y = _transposed(M, N, dtype)
    return gpu.scheduled(Y, [X])


register(elementwise, "a chain of steps on X (M, N): scale, shift, add, mul, relu, exp, tanh, ...")
register(transpose, "Y (N, M) = X (M, N) transposed")
