"""Make a matrix product faster on the CPU, one primitive after the other."""

import timeit

import numpy
import tvm
import tvm.testing
from tvm import te

M = K = N = 128
dtype = "float32"
target = "llvm"
dev = tvm.device(target, 0)

a = tvm.nd.array(numpy.random.rand(M, K).astype(dtype), dev)
b = tvm.nd.array(numpy.random.rand(K, N).astype(dtype), dev)
repeats = 3
setup = (
    "import numpy\n"
    f"a = numpy.random.rand({M}, {K}).astype('{dtype}')\n"
    f"b = numpy.random.rand({K}, {N}).astype('{dtype}')\n"
)
numpy_time = timeit.timeit(setup=setup, stmt="answer = numpy.dot(a, b)", number=repeats)
print(f"numpy: {numpy_time / repeats:f} s")
answer = numpy.dot(a.numpy(), b.numpy())


def measure(schedule, args, what):
    func = tvm.build(schedule, args, target=target, name="mmult")
    assert func
    c = tvm.nd.array(numpy.zeros((M, N), dtype=dtype), dev)
    func(a, b, c)
    tvm.testing.assert_allclose(c.numpy(), answer, rtol=1e-5)
    evaluator = func.time_evaluator(func.entry_name, dev, number=2)
    print(f"{what}: {evaluator(a, b, c).mean:f} s")
    print(tvm.lower(schedule, args, simple_mode=True))


k = te.reduce_axis((0, K), "k")
A = te.placeholder((M, K), name="A")
B = te.placeholder((K, N), name="B")
C = te.compute((M, N), lambda m, n: te.sum(A[m, k] * B[k, n], axis=k), name="C")
s = te.create_schedule(C.op)
measure(s, [A, B, C], "default")

bn = 32
kfactor = 4
s = te.create_schedule(C.op)
mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
(kaxis,) = s[C].op.reduce_axis
ko, ki = s[C].split(kaxis, factor=kfactor)
s[C].reorder(mo, no, ko, ki, mi, ni)
measure(s, [A, B, C], "blocking")

s[C].vectorize(ni)
measure(s, [A, B, C], "vectorization")

s = te.create_schedule(C.op)
mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
(kaxis,) = s[C].op.reduce_axis
ko, ki = s[C].split(kaxis, factor=kfactor)
s[C].reorder(mo, no, ko, mi, ki, ni)
s[C].vectorize(ni)
measure(s, [A, B, C], "another order of loops")

packedB = te.compute(
    (N / bn, K, bn), lambda bigN, k, littleN: B[k, bigN * bn + littleN], name="packedB"
)
C = te.compute(
    (M, N),
    lambda m, n: te.sum(A[m, k] * packedB[n // bn, k, tvm.tir.indexmod(n, bn)], axis=k),
    name="C",
)
s = te.create_schedule(C.op)
mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
(kaxis,) = s[C].op.reduce_axis
ko, ki = s[C].split(kaxis, factor=kfactor)
s[C].reorder(mo, no, ko, mi, ki, ni)
s[C].vectorize(ni)
bigN, _, littleN = s[packedB].op.axis
s[packedB].vectorize(littleN)
s[packedB].parallel(bigN)
measure(s, [A, B, C], "packing")

s = te.create_schedule(C.op)
CC = s.cache_write(C, "global")
mo, no, mi, ni = s[C].tile(C.op.axis[0], C.op.axis[1], bn, bn)
s[CC].compute_at(s[C], no)
mc, nc = s[CC].op.axis
(kaxis,) = s[CC].op.reduce_axis
ko, ki = s[CC].split(kaxis, factor=kfactor)
s[CC].reorder(ko, mc, ki, nc)
s[CC].vectorize(nc)
s[CC].unroll(ki)
bigN, _, littleN = s[packedB].op.axis
s[packedB].vectorize(littleN)
s[packedB].parallel(bigN)
measure(s, [A, B, C], "block caching")

s[C].parallel(mo)
measure(s, [A, B, C], "parallel")
