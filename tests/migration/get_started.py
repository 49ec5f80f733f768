"""Add two vectors of any length: declare, schedule, build, run, save, and load again."""

import numpy as np
import tvm
import tvm.testing
from tvm import te

target = tvm.target.Target(target="llvm", host="llvm")
n = te.var("n")
A = te.placeholder((n,), name="A")
B = te.placeholder((n,), name="B")
C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")
print(type(C))

s = te.create_schedule(C.op)
add = tvm.build(s, [A, B, C], target, name="add")
dev = tvm.device(target.kind.name, 0)

length = 1024
a = tvm.nd.array(np.random.uniform(size=length).astype(A.dtype), dev)
b = tvm.nd.array(np.random.uniform(size=length).astype(B.dtype), dev)
c = tvm.nd.array(np.zeros(length, dtype=C.dtype), dev)
add(a, b, c)
tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())


def report(func, name, log):
    evaluator = func.time_evaluator(func.entry_name, dev, number=10)
    mean = evaluator(a, b, c).mean
    print(f"{name}: {mean:.9f} s")
    log.append((name, mean))


log = []
report(add, "plain", log)

s[C].parallel(C.op.axis[0])
print(tvm.lower(s, [A, B, C], simple_mode=True))
add_parallel = tvm.build(s, [A, B, C], target, name="add_parallel")
add_parallel(a, b, c)
tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
report(add_parallel, "parallel", log)

s = te.create_schedule(C.op)
outer, inner = s[C].split(C.op.axis[0], factor=64)
s[C].parallel(outer)
s[C].vectorize(inner)
add_vector = tvm.build(s, [A, B, C], target, name="add_parallel")
add_vector(a, b, c)
tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
report(add_vector, "vector", log)
print(tvm.lower(s, [A, B, C], simple_mode=True))
for name, mean in log:
    print(f"{name:>10} {mean:12.9f} {mean / log[0][1]:8.3f}")

add.export_library("add.so")
loaded = tvm.runtime.load_module("add.so")
loaded(a, b, c)
tvm.testing.assert_allclose(c.numpy(), a.numpy() + b.numpy())
print("the loaded library adds as well")
