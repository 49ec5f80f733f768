"""Operations with several results: a pair of arrays, an argmax, and what reads only one of them."""

import numpy as np
import tvm
import tvm.testing
from tvm import te

n = te.var("n")
m = te.var("m")
A0 = te.placeholder((m, n), name="A0")
A1 = te.placeholder((m, n), name="A1")
B0, B1 = te.compute((m, n), lambda i, j: (A0[i, j] + 2, A1[i, j] * 3), name="B")
s = te.create_schedule(B0.op)
print(tvm.lower(s, [A0, A1, B0, B1], simple_mode=True))


def fcombine(x, y):
    lhs = tvm.tir.Select((x[1] >= y[1]), x[0], y[0])
    rhs = tvm.tir.Select((x[1] >= y[1]), x[1], y[1])
    return lhs, rhs


def fidentity(t0, t1):
    return tvm.tir.const(-1, t0), tvm.te.min_value(t1)


argmax = te.comm_reducer(fcombine, fidentity, name="argmax")

m = te.var("m")
n = te.var("n")
idx = te.placeholder((m, n), name="idx", dtype="int32")
val = te.placeholder((m, n), name="val", dtype="int32")
k = te.reduce_axis((0, n), "k")
T0, T1 = te.compute((m,), lambda i: argmax((idx[i, k], val[i, k]), axis=k), name="T")
s = te.create_schedule(T0.op)
print(tvm.lower(s, [idx, val, T0, T1], simple_mode=True))

func = tvm.build(s, [idx, val, T0, T1], "llvm", name="argmax")
rows, columns = 6, 17
values = np.random.permutation(rows * columns).reshape(rows, columns).astype("int32")
indices = np.tile(np.arange(columns, dtype="int32"), (rows, 1))
best = tvm.nd.empty((rows,), "int32")
most = tvm.nd.empty((rows,), "int32")
func(tvm.nd.array(indices), tvm.nd.array(values), best, most)
tvm.testing.assert_allclose(best.numpy(), values.argmax(axis=1))
tvm.testing.assert_allclose(most.numpy(), values.max(axis=1))

m = te.var("m")
n = te.var("n")
A0 = te.placeholder((m, n), name="A0")
B0, B1 = te.compute((m, n), lambda i, j: (A0[i, j] + 2, A0[i, j] * 3), name="B")
A1 = te.placeholder((m, n), name="A1")
C = te.compute((m, n), lambda i, j: A1[i, j] + B0[i, j], name="C")
s = te.create_schedule(C.op)
s[B0].compute_at(s[C], C.op.axis[0])
print(tvm.lower(s, [A0, A1, C], simple_mode=True))

func = tvm.build(s, [A0, A1, C], "llvm")
x = np.random.uniform(size=(5, 7)).astype("float32")
y = np.random.uniform(size=(5, 7)).astype("float32")
z = tvm.nd.empty((5, 7))
func(tvm.nd.array(x), tvm.nd.array(y), z)
tvm.testing.assert_allclose(z.numpy(), y + x + 2, rtol=1e-6)
print("all results are right")
