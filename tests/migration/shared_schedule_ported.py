"""A batched product whose blocks copy both operands to shared memory, as schedules for CUDA do it:
computed at the outer reduction loop, rows apart, fused, split four times, bound, vectorized."""

import numpy as np

import loopwright as tvm
from loopwright import te

TARGET = "interp"

batch, M, N, K = 2, 64, 64, 48
block_row_warps, block_col_warps, warp_size = 2, 2, 8
tile, chunk, offset, vec = 4, 16, 8, 4

A = te.placeholder((batch, M, K), name="A")
B = te.placeholder((batch, N, K), name="B")
k = te.reduce_axis((0, K), name="k")
C = te.compute((batch, M, N), lambda b, i, j: te.sum(A[b, i, k] * B[b, j, k], axis=k), name="C")

s = te.create_schedule(C.op)
CF = s.cache_write(C, "local")
AS = s.cache_read(A, "shared", [CF])
BS = s.cache_read(B, "shared", [CF])

block_x, block_y, block_z = (te.thread_axis("blockIdx." + c) for c in "xyz")
thread_x, thread_y, thread_z = (te.thread_axis("threadIdx." + c) for c in "xyz")

b, i, j = C.op.axis
block_i, i = s[C].split(i, factor=block_row_warps * tile)
block_j, j = s[C].split(j, factor=block_col_warps * warp_size)
row_warp, i = s[C].split(i, factor=tile)
col_warp, lane = s[C].split(j, factor=warp_size)
s[C].reorder(b, block_i, block_j, col_warp, row_warp, lane, i)
s[C].bind(b, block_z)
s[C].bind(block_i, block_y)
s[C].bind(block_j, block_x)
s[C].bind(col_warp, thread_z)
s[C].bind(row_warp, thread_y)
s[C].bind(lane, thread_x)

s[CF].compute_at(s[C], lane)
ko, ki = s[CF].split(s[CF].op.reduce_axis[0], factor=chunk)
s[CF].reorder(ko, ki, *s[CF].op.axis)


# Schedule for A's(B's) shared memory load
def shared_schedule(stage, strides):
    s[stage].compute_at(s[CF], ko)
    bs, xo, yo = stage.op.axis  # noqa: RUF059
    s[stage].storage_align(xo, strides - 1, strides)
    t = s[stage].fuse(xo, yo)
    t, vi = s[stage].split(t, factor=vec)
    t, tx = s[stage].split(t, factor=warp_size)
    t, ty = s[stage].split(t, factor=block_row_warps)
    _, tz = s[stage].split(t, factor=block_col_warps)
    s[stage].bind(ty, thread_y)
    s[stage].bind(tz, thread_z)
    s[stage].bind(tx, thread_x)
    s[stage].vectorize(vi)


shared_schedule(AS, chunk + offset)
shared_schedule(BS, chunk + offset)

print(tvm.lower(s, [A, B, C], simple_mode=True))
f = tvm.build(s, [A, B, C], TARGET)
dev = tvm.device(TARGET, 0)
rng = np.random.default_rng(0)
a = tvm.nd.array(rng.standard_normal((batch, M, K)).astype("float32"), dev)
w = tvm.nd.array(rng.standard_normal((batch, N, K)).astype("float32"), dev)
c = tvm.nd.array(np.zeros((batch, M, N), "float32"), dev)
f(a, w, c)
wanted = np.matmul(a.numpy(), w.numpy().transpose(0, 2, 1))
np.testing.assert_allclose(c.numpy(), wanted, rtol=1e-4, atol=1e-4)
print("the product of shared tiles is right")
