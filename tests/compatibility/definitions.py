"""What the stored files are of: operators, programs, schedules, intrinsics and models, all small.

`write_files` wrote the files of these definitions; the tests make them anew and compare.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest

from loopwright import graph, te
from loopwright.graph import IRModule, const, op, var
from loopwright.schedule import Schedule

Array = np.ndarray[Any, Any]
#: A CPU whose instructions every x86-64 machine has.
CPU = "llvm -mcpu=x86-64-v2 -num-threads=1"
GPU = "opencl"
native = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the stored code and schedules are for Linux on x86-64",
)

#: Every workload of ``loopwright workloads``, with its arguments.
OPERATORS: dict[str, tuple[Any, ...]] = {
    "batch_matmul": (2, 8, 16, 8),
    "conv2d": (1, 3, 6, 6, 8, 3, 3, 1, 1),
    "dense": (4, 16, 8),
    "depthwise_conv2d": (1, 4, 6, 6, 3, 3, 1, 1),
    "elementwise": (8, 32, "scale,exp,add"),
    "layer_norm": (4, 32),
    "matmul": (16, 16, 8),
    "matmul_int8": (4, 16, 8),
    "pool2d": (1, 4, 8, 8, 2, 2, 2, 0, "avg"),
    "reduce": (8, 32, "max"),
    "softmax": (4, 32),
    "transpose": (8, 16),
}
#: Those that are templates on CPUs; their expressions have an automatic space as well.
TEMPLATES = ("batch_matmul", "dense", "matmul", "matmul_int8")


# -- programs: the tensors in calling order ------------------------------------------------------


def every_operation() -> list[te.Tensor]:
    A, N = te.placeholder((4, 8), name="A"), te.placeholder((4, 8), "int32", name="N")

    def value(i: Any, j: Any) -> Any:
        x, n = A[i, j], N[i, j]
        whole = te.floordiv(n, 3) + te.floormod(n, 5) - te.truncdiv(n, 2) * te.truncmod(n, 7)
        bits = te.bitwise_xor(n, te.shift_left(te.bitwise_and(n, 7), 2))
        bits = te.bitwise_or(te.bitwise_not(bits), te.shift_right(n, 1))
        real = te.exp(-x) + te.pow(te.abs(x), 1.5) + te.fma(x, 2.0, 0.5) / te.max(x, 0.25)
        inside = te.all(i > 0, te.any(j < 7, te.logical_not(te.isnan(x))))
        near = te.if_then_else(inside, A[te.max(i - 1, 0), te.min(j + 1, 7)], float("-inf"))
        return te.select(near >= x, real, (whole + bits).astype("float32"))

    return [A, N, te.compute((4, 8), value, name="B", tag="elementwise")]


def every_reduction() -> list[te.Tensor]:
    """A sum with a start and a condition, a pair, a reducer of one's own; a constant operand."""
    A, W = te.placeholder((4, 8), name="A"), te.placeholder((8, 4), name="W", constant=True)
    k, m, n = (te.reduce_axis((0, 8), name=name) for name in "kmn")
    C = te.compute(
        (4, 4),
        lambda i, j: te.sum(A[i, k] * W[k, j], axis=k, where=k != j, init=A[i, j]),
        name="C",
    )
    at, most = te.compute((4,), lambda i: te.argmax((m, A[i, m]), axis=m), name="most")
    farther = te.comm_reducer(
        lambda x, y: te.select(te.abs(x) > te.abs(y), x, y), lambda t: te.const(0, t), "farther"
    )
    F = te.compute((4,), lambda i: farther(A[i, n], axis=n), name="F")
    D = te.compute(
        (4, 4), lambda i, j: C[i, j] + at[j].astype("float32") * most[i] - F[i], name="D"
    )
    return [A, W, D]


def any_size() -> list[te.Tensor]:
    n, m = te.size_var("n"), te.size_var("m")
    A = te.placeholder((n, m + 1), name="A")
    k = te.reduce_axis((0, m), name="k")
    return [A, te.compute((n * 2,), lambda i: te.sum(A[i // 2, k + i % 2], axis=k), name="B")]


def every_spelling() -> list[te.Tensor]:
    """Numbers and letters that writers of JSON spell in different ways."""
    A = te.placeholder((2,), "float64", name="Größe")
    numbers = (1e-7, 1e16, 0.1, -0.0, 5e-324, float("inf"), float("nan"))
    most = te.const(2**64 - 1, "uint64")
    W = te.compute((2,), lambda i: te.bitwise_xor(most, i.astype("uint64")), name="W")

    def value(i: Any) -> Any:
        least = te.min(A[i], W[i].astype("float64"))
        for x in numbers:
            least = te.min(least, te.const(x, "float64"))
        return least

    return [A, te.compute((2,), value, name="min\n\u2028🙂")]


PROGRAMS: dict[str, Callable[[], list[te.Tensor]]] = {
    f.__name__: f for f in (every_operation, every_reduction, any_size, every_spelling)
}


# -- schedules: all primitives -------------------------------------------------------------------


def product(m: int, n: int, k: int) -> list[te.Tensor]:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")]


def chain(*shape: int) -> list[te.Tensor]:
    """``A``, ``B = 2 A``, ``C = B + 1``, ``D = C C``."""
    A = te.placeholder(shape, name="A")
    B = te.compute(shape, lambda *i: A(*i) * 2, name="B")
    C = te.compute(shape, lambda *i: B(*i) + 1, name="C")
    return [A, B, C, te.compute(shape, lambda *i: C(*i) * C(*i), name="D")]


def blocked() -> tuple[Schedule, list[te.Tensor]]:
    A, B, C = product(16, 16, 12)
    s = te.create_schedule(C.op)
    local = s.cache_write(C, "local")
    packed = s.cache_read(B, "global", [local])
    io, jo, ii, ji = s[C].tile(*C.op.axis, 4, 8)
    s[C].reorder(io, jo, ji, ii)
    s[C].parallel(s[C].fuse(io, jo))
    s[C].vectorize(ii)
    s[local].compute_at(s[C], s[C].leaf_iter_vars[0])
    ko, ki = s[local].split(s[local].op.reduce_axis[0], nparts=3)
    s[local].reorder(ko, *s[local].op.axis, ki)
    s[local].unroll(ki)
    s[local].pragma(ko, "auto_unroll_max_step", 4)
    s[packed].transform_layout(lambda k, j: (j // 4, k, j % 4))
    s[local].prefetch(A, ko, 1)
    s[local].prefetch_next(A, ki, C, s[C].leaf_iter_vars[0])
    return s, [A, B, C]


def rings() -> tuple[Schedule, list[te.Tensor]]:
    """Storage: its place, scope, strides and halves."""
    A, B, C, D = chain(8, 6)
    s = te.create_schedule(D.op)
    s[B].compute_at(s[C], C.op.axis[1])
    s[B].store_at(s[C], C.op.axis[0])
    s[B].storage_align(B.op.axis[0], 16, 1)
    s[B].set_scope("local")
    s[C].compute_at(s[D], D.op.axis[0])
    s[C].double_buffer(stages=3)
    return s, [A, D]


def moved() -> tuple[Schedule, list[te.Tensor]]:
    """Places: inline, at a loop and back, a group; storage that outlives its loop."""
    A, B, _, D = chain(8, 6)
    E = te.compute((8, 6), lambda i, j: D[i, j] - A[i, j], name="E")
    F = te.compute((8, 4), lambda i, j: E[i, j] + E[i, j + 2], name="F")
    s = te.create_schedule(F.op)
    s[B].compute_inline()
    group = s.create_group(outputs=D, inputs=B)
    group.compute_at(s[E], E.op.axis[0])
    group.compute_root()
    s[E].compute_at(s[F], F.op.axis[0])
    s[E].store_root()
    return s, [A, F]


def followed() -> tuple[Schedule, list[te.Tensor]]:
    """Splits as of another stage, and numbers that a step of the trace chose."""
    A, B, C, D = chain(8, 16)
    s = te.create_schedule(D.op)
    factor = s[D].sample_categorical([2, 4], decision=4)
    _, _, inner = s[D].sample_perfect_tile(D.op.axis[1], 3, decision=[4, 1, 4])
    s[D].split(D.op.axis[0], factor=factor)
    s[D].split(D.op.axis[1], factor=inner)
    s[C].follow_split(C.op.axis[0], D.op.axis[0], n_split=1)
    s[B].follow_fused_split(s[B].fuse(*B.op.axis), D.op.axis, level=0)
    s[C].sample_compute_location(decision=(s[D], s[D].leaf_iter_vars[0]))
    return s, [A, D]


def factored() -> tuple[Schedule, list[te.Tensor]]:
    """Reductions taken apart: partial sums, running sums by blocks, an intrinsic."""
    A, B, C = product(4, 8, 32)
    k = te.reduce_axis((0, 8), name="k")
    D = te.compute((4, 8), lambda i, j: te.sum(C[i, k], axis=k, where=k <= j), name="D")
    s = te.create_schedule(D.op)
    _, ki = s[C].split(C.op.reduce_axis[0], factor=4)
    s.rfactor(C, ki)
    s.blocked_scan(D, k, 4)
    return s, [A, B, D]


def dots() -> tuple[Schedule, list[te.Tensor]]:
    A = te.placeholder((2, 4), "uint8", name="A")
    B = te.placeholder((16, 4), "int8", name="B")
    k = te.reduce_axis((0, 4), name="k")

    def dot(i: Any, j: Any) -> Any:
        return te.sum(A[i, k].astype("int32") * B[j, k].astype("int32"), axis=k)

    C = te.compute((2, 16), dot, name="C")
    s = te.create_schedule(C.op)
    _, ji = s[C].split(C.op.axis[1], factor=4)
    s[C].tensorize(ji, te.intrinsics.dot_uint8_int8_int32(4))
    return s, [A, B, C]


def in_threads() -> tuple[Schedule, list[te.Tensor]]:
    A = te.placeholder((4, 16), name="A")
    k = te.reduce_axis((0, 16), name="k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    thread = te.thread_axis((0, 16), "threadIdx.x")
    s[B].bind(B.op.axis[0], te.thread_axis("blockIdx.x"))
    s[B].bind(k, thread)
    s[B].set_store_predicate(thread.var.equal(3))
    s[B].env_threads([te.thread_axis((0, 16), "threadIdx.x")])
    return s, [A, B]


SCHEDULES: dict[str, Callable[[], tuple[Schedule, list[te.Tensor]]]] = {
    f.__name__: f for f in (blocked, rings, moved, followed, factored, dots, in_threads)
}


# -- tensor intrinsics: statements as data -------------------------------------------------------


def relu_of_products() -> te.TensorIntrin:
    """Loops of each kind, a buffer, a branch, and stores over operands with strides."""
    a, b = te.placeholder((4, 8), name="a"), te.placeholder((4, 8), name="b")
    c = te.compute((4, 8), lambda i, j: te.max(a[i, j] * b[i, j], 0.0), name="c")

    def statements(inputs: Any, outputs: Any) -> Any:
        ib = te.ir_builder()
        rows, lanes = ib.for_range(4, "i", "unrolled"), ib.for_range(8, "j", "vectorized")
        with rows as i, lanes as j, ib.allocate((1,), "float32", "t") as t:
            ib.emit(t.store(0, inputs[0][i, j] * inputs[1][i, j]))
            ib.emit(outputs[0].store((i, j), 0))
            with ib.if_scope(t[0] > 0.0):
                ib.emit(outputs[0].store((i, j), t[0]))
        return ib.get()

    rows = {x: te.decl_buffer((4, 8), "float32", strides=[None, 1]) for x in (a, b, c)}
    return te.decl_tensor_intrin(c.op, statements, "relu_of_products", binds=rows)


INTRINSICS: dict[str, Callable[[], te.TensorIntrin]] = {
    "relu_of_products": relu_of_products,
    "dot_uint8_int8_int32": lambda: te.intrinsics.dot_uint8_int8_int32(4),
    "mma_m16n8k8": te.intrinsics.mma_m16n8k8,
}


# -- models --------------------------------------------------------------------------------------


def every_node() -> IRModule:
    """A module with each kind of node, and an extent that is a size variable."""
    x = var("x", (te.size_var("batch"), 4))
    flag, kept = var("flag", (), "bool"), var("kept")
    weight = const(np.arange(8, dtype="float32").reshape(2, 4) / 4, name="w")
    y = op.nn.dense(x, weight)
    pair = graph.Tuple((op.nn.relu(y), op.negative(y)))
    chosen = graph.If(flag, graph.TupleGetItem(pair, 0), graph.TupleGetItem(pair, 1))
    body = graph.Let(kept, chosen, op.add(kept, np.float32(1)))
    return IRModule({"main": graph.Function((x, flag), body)})


def _weights(seed: int, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(shape) / 2).astype("float32") for shape in shapes]


#: Of the convolution and the dense layer of `images`.
KERNEL, DENSE, BIAS = _weights(1, (4, 2, 3, 3), (5, 16), (5,))


def images() -> bytes:
    """An ONNX model: a convolution, a rectifier, a pool, a dense layer and a softmax."""
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "dense", "bias"], ["e"], transB=1),
        helper.make_node("Softmax", ["e"], ["y"], axis=-1),
    ]
    values = {"kernel": KERNEL, "dense": DENSE, "bias": BIAS}
    weights = [numpy_helper.from_array(a, name) for name, a in values.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2, 4, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])
    g = helper.make_graph(nodes, "images", [x], [y], weights)
    opset = helper.make_opsetid("", 17)
    return bytes(helper.make_model(g, opset_imports=[opset], ir_version=8).SerializeToString())


def images_by_numpy(x: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    a = np.maximum(np.einsum("nchwrs,ocrs->nohw", windows, KERNEL), 0)
    c = a.reshape(len(x), 4, 2, 2, 2, 2).max((3, 5))
    return softmax(c.reshape(len(x), -1) @ DENSE.T + BIAS)


def softmax(x: Array) -> Array:
    exps = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(exps / exps.sum(-1, keepdims=True))


#: Of the normalisation and the two layers of `torch_block`.
SCALE, SHIFT, UP, UP_BIAS, DOWN, DOWN_BIAS = _weights(2, (8,), (8,), (16, 8), (16,), (8, 16), (8,))


def torch_block() -> IRModule:
    """A block of a transformer from PyTorch: normalisation, two layers, what goes around them."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(8)
            self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
            values = (SCALE, SHIFT, UP, UP_BIAS, DOWN, DOWN_BIAS)
            for parameter, value in zip(self.parameters(), values, strict=True):
                parameter.data = torch.from_numpy(value)

        def forward(self, x: Any) -> Any:
            y = torch.nn.functional.gelu(self.up(self.norm(x)))
            return torch.softmax(x + self.down(y), -1)

    x = torch.zeros(3, 8)
    return graph.from_torch(torch.export.export(Block().eval(), (x,)))


def torch_block_by_numpy(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * SCALE + SHIFT
    y = normal @ UP.T + UP_BIAS
    y = y * (1 + np.vectorize(erf)(y / np.sqrt(2))) / 2
    return softmax(x + y @ DOWN.T + DOWN_BIAS)
