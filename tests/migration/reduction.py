"""Sum the rows of a matrix: split, factor out partial sums, use threads; reducers of one's own."""

import numpy as np
import tvm
import tvm.testing
from tvm import te

n = te.var("n")
m = te.var("m")
A = te.placeholder((n, m), name="A")
k = te.reduce_axis((0, m), "k")
B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")

s = te.create_schedule(B.op)
print(tvm.lower(s, [A, B], simple_mode=True))

ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
xo, xi = s[B].split(B.op.axis[0], factor=32)
print(tvm.lower(s, [A, B], simple_mode=True))

s[B].bind(xo, te.thread_axis("blockIdx.x"))
s[B].bind(xi, te.thread_axis("threadIdx.x"))
print(tvm.lower(s, [A, B], simple_mode=True))

s = te.create_schedule(B.op)
ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
BF = s.rfactor(B, ki)
print(tvm.lower(s, [A, B], simple_mode=True))
print(s[B].op.body)

func = tvm.build(s, [A, B], "llvm")
rows, columns = 9, 50
a = tvm.nd.array(np.random.uniform(size=(rows, columns)).astype("float32"))
b = tvm.nd.array(np.zeros(rows, dtype="float32"))
func(a, b)
tvm.testing.assert_allclose(b.numpy(), np.sum(a.numpy(), axis=1), rtol=1e-4)

s = te.create_schedule(B.op)
ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
BF = s.rfactor(B, ki)
xo, xi = s[B].split(s[B].op.axis[0], factor=32)
s[B].bind(xo, te.thread_axis("blockIdx.x"))
s[B].bind(xi, te.thread_axis("threadIdx.y"))
tx = te.thread_axis("threadIdx.x")
s[B].bind(s[B].op.reduce_axis[0], tx)
s[BF].compute_at(s[B], s[B].op.reduce_axis[0])
s[B].set_store_predicate(tx.var.equal(0))
print(tvm.lower(s, [A, B], simple_mode=True))

size = te.var("size")
image = te.placeholder((size, size), name="image")
weight = te.placeholder((3, 3), name="weight")
di = te.reduce_axis((0, 3), name="di")
dj = te.reduce_axis((0, 3), name="dj")
smooth = te.compute(
    (size - 2, size - 2),
    lambda i, j: te.sum(image[i + di, j + dj] * weight[di, dj], axis=[di, dj]),
    name="smooth",
)
s = te.create_schedule(smooth.op)
print(tvm.lower(s, [image, weight, smooth], simple_mode=True))

product = te.comm_reducer(lambda x, y: x * y, lambda t: tvm.tir.const(1, dtype=t), name="product")
n = te.var("n")
m = te.var("m")
A = te.placeholder((n, m), name="A")
k = te.reduce_axis((0, m), name="k")
B = te.compute((n,), lambda i: product(A[i, k], axis=k), name="B")
func = tvm.build(te.create_schedule(B.op), [A, B], "llvm")
func(a, b)
tvm.testing.assert_allclose(b.numpy(), np.prod(a.numpy(), axis=1), rtol=1e-4)
print("sums and products are right")
