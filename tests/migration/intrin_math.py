"""Functions of floats: by their name in C, by their name in TE, by a rule, and one of one's own."""

import numpy as np
import tvm
import tvm.testing
from tvm import te
from tvm.ir import register_intrin_lowering, register_op_attr

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


def rule_for_floats(op):
    assert isinstance(op, tvm.tir.Call)
    name = op.op.name
    assert name.startswith("tir.")
    if op.dtype == "float32":
        return tvm.tir.call_pure_extern("float32", name[4:] + "f", op.args[0])
    if op.dtype == "float64":
        return tvm.tir.call_pure_extern("float64", name[4:], op.args[0])
    return op


register_intrin_lowering("tir.exp", target="llvm", f=rule_for_floats, level=99)
check(B, np.exp, "exp_by_a_rule")


def mylog(x):
    return tvm.tir.call_intrin(x.dtype, "tir.mylog", x)


def rule_for_mylog(op):
    if op.dtype == "float32":
        return tvm.tir.call_pure_extern("float32", "logf", op.args[0])
    if op.dtype == "float64":
        return tvm.tir.call_pure_extern("float64", "log", op.args[0])
    return op


register_op_attr("tir.mylog", "TCallEffectKind", tvm.tir.CallEffectKind.Pure)
register_intrin_lowering("tir.mylog", target="llvm", f=rule_for_mylog, level=99)

B = te.compute(A.shape, lambda *i: mylog(A(*i)), name="B")
check(B, np.log, "a_logarithm_of_ones_own")
print("all functions are right")
