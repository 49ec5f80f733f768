"""Let a part of a matrix product be done by a function of one's own: a product with a vector."""

import numpy as np
import tvm
import tvm.testing
from tvm import te
from tvm.contrib import clang, utils

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

        def body():
            ib = tvm.tir.ir_builder.create()
            ib.emit(tvm.tir.call_extern("int32", "gemv_reset", cc.access_ptr("w"), m))
            ib.emit(
                tvm.tir.call_extern(
                    "int32",
                    "gemv_update",
                    cc.access_ptr("w"),
                    aa.access_ptr("r"),
                    bb.access_ptr("r"),
                    m,
                    n,
                    bb.strides[0],
                )
            )
            return ib.get()

        def reset():
            ib = tvm.tir.ir_builder.create()
            ib.emit(tvm.tir.call_extern("int32", "gemv_reset", cc.access_ptr("w"), m))
            return ib.get()

        def update():
            ib = tvm.tir.ir_builder.create()
            ib.emit(
                tvm.tir.call_extern(
                    "int32",
                    "gemv_update",
                    cc.access_ptr("w"),
                    aa.access_ptr("r"),
                    bb.access_ptr("r"),
                    m,
                    n,
                    bb.strides[0],
                )
            )
            return ib.get()

        return body(), reset(), update()

    return te.decl_tensor_intrin(c.op, intrin_func, binds={a: Ab, b: Bb, c: Cb})


def gemv_impl():
    code = """
      extern "C" int gemv_reset(float *c, int m) {
        for (int i = 0; i < m; ++i) c[i] = 0.0f;
        return 0;
      }
      extern "C" int gemv_update(float *c, float *a, float *b, int m, int l, int stride) {
        for (int i = 0; i < m; ++i)
          for (int j = 0; j < l; ++j) c[i] += a[j] * b[i * stride + j];
        return 0;
      }
    """
    ll_path = utils.tempdir().relpath("gemv.ll")
    return clang.create_llvm(code, output=ll_path)


zo, zi = s[C].split(z, factor=factor)
s[C].reorder(x, yo, zo, yi, zi)
gemv = intrin_gemv(factor, factor)
s[C].tensorize(yi, gemv)
s[C].pragma(yo, "import_llvm", gemv_impl())
print(tvm.lower(s, [A, B, C], simple_mode=True))

func = tvm.build(s, [A, B, C], target="llvm", name="gemv")
a = np.random.uniform(size=(N, L)).astype(A.dtype)
b = np.random.uniform(size=(M, L)).astype(B.dtype)
dev = tvm.device("llvm", 0)
c = tvm.nd.array(np.zeros((N, M), dtype=C.dtype), dev)
func(tvm.nd.array(a, dev), tvm.nd.array(b, dev), c)
tvm.testing.assert_allclose(c.numpy(), np.dot(a, b.T), rtol=1e-3)
print("the tensorized product is right")
