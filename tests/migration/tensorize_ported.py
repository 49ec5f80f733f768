"""``tensorize.py`` as it has to be for loopwright: the function is written in the builder."""

import numpy as np

import loopwright as tvm
import loopwright.testing
from loopwright import te

N, M, L = 64, 32, 48
A = te.placeholder((N, L), name="A")
B = te.placeholder((M, L), name="B")
k = te.reduce_axis((0, L), name="k")
C = te.compute((N, M), lambda i, j: te.sum(A[i, k] * B[j, k], axis=k), name="C")
s = te.create_schedule(C.op)
print(tvm.lower(s, [A, B, C], simple_mode=True))

factor = 16
x, y = C.op.axis
(z,) = C.op.reduce_axis
yo, yi = s[C].split(y, factor=factor)
s[C].reorder(x, yo, yi, z)
print(tvm.lower(s, [A, B, C], simple_mode=True))


def intrin_gemv(m, n):
    a = te.placeholder((n,), name="a")
    b = te.placeholder((m, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    Ab = tvm.tir.decl_buffer(a.shape, a.dtype, name="A", offset_factor=1, strides=[1])
    Bb = tvm.tir.decl_buffer(b.shape, b.dtype, name="B", offset_factor=1, strides=[te.var("s1"), 1])
    Cb = tvm.tir.decl_buffer(c.shape, c.dtype, name="C", offset_factor=1, strides=[1])

    def intrin_func(ins, outs):
        aa, bb = ins
        cc = outs[0]

        def gemv_reset(ib):
            c = ib.buffer_ptr(cc)
            with ib.for_range(0, m, "i") as i:
                c[i] = 0.0

        def gemv_update(ib):
            a, b, c = ib.buffer_ptr(aa), ib.buffer_ptr(bb), ib.buffer_ptr(cc)
            with ib.for_range(0, m, "i") as i, ib.for_range(0, n, "j") as j:
                c[i] += a[j] * b[i, j]

        def body():
            ib = tvm.tir.ir_builder.create()
            gemv_reset(ib)
            gemv_update(ib)
            return ib.get()

        def reset():
            ib = tvm.tir.ir_builder.create()
            gemv_reset(ib)
            return ib.get()

        def update():
            ib = tvm.tir.ir_builder.create()
            gemv_update(ib)
            return ib.get()

        return body(), reset(), update()

    return te.decl_tensor_intrin(c.op, intrin_func, binds={a: Ab, b: Bb, c: Cb})


zo, zi = s[C].split(z, factor=factor)
s[C].reorder(x, yo, zo, yi, zi)
gemv = intrin_gemv(factor, factor)
s[C].tensorize(yi, gemv)
print(tvm.lower(s, [A, B, C], simple_mode=True))

func = tvm.build(s, [A, B, C], target="llvm", name="gemv")
a = np.random.uniform(size=(N, L)).astype(A.dtype)
b = np.random.uniform(size=(M, L)).astype(B.dtype)
dev = tvm.device("llvm", 0)
c = tvm.nd.array(np.zeros((N, M), dtype=C.dtype), dev)
func(tvm.nd.array(a, dev), tvm.nd.array(b, dev), c)
tvm.testing.assert_allclose(c.numpy(), np.dot(a, b.T), rtol=1e-3)
print("the tensorized product is right")
