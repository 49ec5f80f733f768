"""``intrin_math.py`` as it has to be for loopwright: a function of one's own is one of Python."""

import numpy as np

import loopwright as tvm
import loopwright.testing
from loopwright import te

target = "llvm"
n = te.var("n")
A = te.placeholder((n,), name="A")
a = tvm.nd.array(np.random.uniform(0.5, 2.0, size=100).astype(A.dtype))


def check(result, expected, name):
    s = te.create_schedule(result.op)
    outer, _ = s[result].split(result.op.axis[0], factor=64)
    s[result].parallel(outer)
    print(tvm.lower(s, [A, result], simple_mode=True))
    func = tvm.build(s, [A, result], target, name=name)
    b = tvm.nd.empty(a.shape, result.dtype)
    func(a, b)
    tvm.testing.assert_allclose(b.numpy(), expected(a.numpy()), rtol=1e-5)


B = te.compute(A.shape, lambda i: tvm.tir.call_pure_extern("float32", "expf", A[i]), name="B")
check(B, np.exp, "exp_by_the_name_in_c")

B = te.compute(A.shape, lambda i: te.exp(A[i]), name="B")
check(B, np.exp, "exp_of_te")


def mylog(x):
    if x.dtype == "float32":
        return tvm.tir.call_pure_extern("float32", "logf", x)
    if x.dtype == "float64":
        return tvm.tir.call_pure_extern("float64", "log", x)
    return x


B = te.compute(A.shape, lambda *i: mylog(A(*i)), name="B")
check(B, np.log, "a_logarithm_of_ones_own")
print("all functions are right")
