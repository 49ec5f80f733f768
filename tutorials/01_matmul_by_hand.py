"""Tutorial 01: schedule a matrix multiplication by hand, and watch the speed at each step.

Run it with ``python tutorials/01_matmul_by_hand.py``. Every step is checked against NumPy, runs on
one thread, and is printed as a share of the machine's peak, which is measured beside it. Set
``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run with small matrices.
"""

import os

import numpy as np

import loopwright as lw
from loopwright import te
from loopwright.runtime.peak import fma_peak

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
M = N = K = 128 if SMALL else 1024
TARGET = lw.Target("llvm -num-threads=1")

rng = np.random.default_rng(0)
a = rng.standard_normal((M, K), dtype=np.float32)
b = rng.standard_normal((K, N), dtype=np.float32)
expected = a @ b


def declare():
    """The definition: what is computed, and nothing about how."""
    A = te.placeholder((M, K), "float32", name="A")
    B = te.placeholder((K, N), "float32", name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C, te.create_schedule(C.op)


def show(step, s, args, print_nest=False):
    """Build a schedule, check its result, and print its speed."""
    if print_nest:
        print(lw.lower(s, args))
    f = lw.build(s, args, TARGET, name="matmul")
    c = np.full((M, N), np.nan, np.float32)
    f(a, b, c)
    np.testing.assert_allclose(c, expected, rtol=1e-3, atol=1e-2)
    times = f.time_evaluator(f.entry_name, lw.cpu(0), number=1, repeat=3)(a, b, c)
    speed, peak = 2 * M * N * K / times.median, fma_peak(1)
    print(f"{step:<58} {speed / 1e9:8.2f} GFLOP/s  {speed / peak:6.1%} of the peak")
    return speed / peak


def main():
    print(f"matmul {M}x{N}x{K}, float32, one thread")

    # 1. Nothing said: three loops in the order of the definition. B is read down its columns, so
    #    nearly every access misses the cache.
    A, B, C, s = declare()
    show("1. as defined: i, j, k", s, [A, B, C])

    # 2. Put k between i and j, and the innermost loop walks along rows of B and C. Vectorize it.
    A, B, C, s = declare()
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    jo, ji = s[C].split(j, factor=16)
    s[C].reorder(i, k, jo, ji)
    s[C].vectorize(ji)
    show("2. reorder to i, k, j and vectorize j", s, [A, B, C])

    # 3. Tile: a 4 x 64 block of C accumulates over all of k in registers. cache_write gives the
    #    accumulators a buffer of their own; unrolled and vectorized, it becomes registers.
    A, B, C, s = declare()
    CL = s.cache_write(C, "local")
    i, j = C.op.axis
    io, jo, ii, ji = s[C].tile(i, j, 4, 64)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    s[CL].compute_at(s[C], jo)
    ci, cj = s[CL].op.axis
    (k,) = s[CL].op.reduce_axis
    s[CL].reorder(k, ci, cj)
    s[CL].unroll(ci)
    s[CL].vectorize(cj)
    show("3. a register tile of 4 x 64 accumulators", s, [A, B, C])

    # 4. Pack B: the tile reads 64 columns of a row, then jumps a whole row ahead, a page of memory
    #    each time. A copy of the panel [K][64], made once for all rows of A, lies in one piece.
    s[C].reorder(jo, io, ii, ji)
    s[CL].compute_at(s[C], io)
    BP = s.cache_read(B, "local", [CL])
    s[BP].compute_at(s[C], jo)
    s[BP].vectorize(s[BP].op.axis[1])
    show("4. a packed panel of B, used by all rows of A", s, [A, B, C])

    # 5. Unroll k a little: fewer loop tests and address updates a multiplication.
    ko, ki = s[CL].split(k, factor=4)
    s[CL].reorder(ko, ki, ci, cj)
    s[CL].unroll(ki)
    best = show("5. unroll k by 4", s, [A, B, C])

    print("\nThe final nest:\n")
    print(lw.lower(s, [A, B, C]))
    print("\nand the steps that made it, as Python:\n")
    print(s.as_python())
    return best


if __name__ == "__main__":
    main()
