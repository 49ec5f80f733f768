"""Tutorial 05: declare a new intrinsic, and let it do the inner loops of a matrix product.

Run it with ``python tutorials/05_a_new_intrinsic.py``. CPUs have instructions that no loop says:
one of AVX-512 VNNI multiplies 64 pairs of bytes and adds them, four by four, to 16 sums. We tell
loopwright what it computes and how it is written, and replace loops by it. Where the CPU has no
such instruction the same program runs with plain code, and gives the same numbers. Set
``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick run with small matrices.
"""

import json
import os
import platform

import numpy as np

import loopwright as lw
from loopwright import te
from loopwright.ops import pack_int8
from loopwright.runtime.peak import fma_peak
from loopwright.schedule import replay

SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
M = N = K = 64 if SMALL else 512
TARGET = lw.Target("llvm -num-threads=1")

rng = np.random.default_rng(0)
a = rng.integers(0, 256, (M, K), np.uint8)
b = rng.integers(-128, 128, (K, N), np.int8)
# The instruction wants four bytes of a column side by side, and 16 columns after one another.
packed = pack_int8(b)
expected = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int32)


def declare_intrinsic():
    """What the intrinsic computes, and the statements that do it."""
    # 1. The description: a small compute over placeholders.
    data = te.placeholder((4,), "uint8", name="data")
    kernel = te.placeholder((16, 4), "int8", name="kernel")
    k = te.reduce_axis((0, 4), name="k")
    dot = te.compute(
        (16,),
        lambda j: te.sum(data[k].astype("int32") * kernel[j, k].astype("int32"), axis=k),
        name="dot",
    )

    # 2. The statements, over one buffer an operand. `reset` is what a reduction starts from, and
    #    `update` adds to the result: they are used where a part of the reduction stands outside.
    #    `body` does the whole: the one after the other.
    def statements(inputs, outputs):
        (x, y), (c,) = inputs, outputs
        reset = te.ir_builder()
        with reset.for_range(16, "j", "vectorized") as j:
            reset.emit(c.store(j, 0))
        update = te.call_intrin("dot_16x4_u8s8s32", c[0], x[0], y[0, 0])
        body = te.ir_builder()
        body.emit(reset.get())
        body.emit(update)
        return body.get(), reset.get(), update

    # 3. How the operands must lie in memory; without `binds` each is row-major and has no gaps.
    binds = {kernel: te.decl_buffer((16, 4), "int8", name="kernel", strides=[4, 1])}
    return te.decl_tensor_intrin(dot.op, statements, name="my_dot", binds=binds)


def declare(group=4, vectors=False):
    """The matrix product, with a register tile of 8 x 32 whose lanes stand innermost.

    ``group`` elements of the reduction stand inside the lanes, or outside where these are vectors.
    """
    A = te.placeholder((M, K), "uint8", name="A")
    W = te.placeholder(packed.shape, "int8", name="W")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute(
        (M, N),
        lambda i, j: te.sum(
            A[i, k].astype("int32") * W[j // 16, k // 4, j % 16, k % 4].astype("int32"), axis=k
        ),
        name="C",
    )
    s = te.create_schedule(C.op)
    CL = s.cache_write(C, "local")
    io, jo, ii, ji = s[C].tile(*C.op.axis, 8, 32)
    s[C].reorder(jo, io, ii, ji)
    s[C].unroll(ii)
    s[C].vectorize(ji)
    s[CL].compute_at(s[C], io)
    i, j = s[CL].op.axis
    blocks, lanes = s[CL].split(j, factor=16)
    (k,) = s[CL].op.reduce_axis
    groups, four = s[CL].split(k, factor=group)
    s[CL].unroll(i)
    s[CL].unroll(blocks)
    if vectors:
        s[CL].reorder(groups, four, i, blocks, lanes)
        s[CL].vectorize(lanes)
    else:
        s[CL].reorder(groups, i, blocks, lanes, four)
    return s, [A, W, C], CL, lanes


def speed(step, s, args):
    """Build a schedule, check its result exactly, and print its speed."""
    f = lw.build(s, args, TARGET, name="matmul")
    c = np.zeros((M, N), np.int32)
    f(a, packed, c)
    np.testing.assert_array_equal(c, expected)
    times = f.time_evaluator(f.entry_name, lw.cpu(0), number=3, repeat=3)(a, packed, c)
    rate, peak = 2 * M * N * K / times.median, fma_peak(1)
    used = f.get_source("asm").count("vpdpbusd")
    print(
        f"{step:<34} {rate / 1e9:8.1f} GOP/s, {rate / peak:5.2f} times the peak of float32; ",
        end="",
    )
    print(f"vpdpbusd stands {used} times in the code")
    return rate


def main():
    print(f"matmul {M}x{N}x{K}, uint8 x int8 -> int32, one thread\n")
    s, args, _, _ = declare(vectors=True)
    vectors = speed("the best that loops say: vectors", s, args)
    s, args, CL, lanes = declare()
    print("\nBefore: the nest of a register tile, lanes and groups of four innermost.\n")
    print(lw.lower(s, args), "\n")
    speed("loops", s, args)

    # 4. One line: the loop over lanes, and all in it, becomes the intrinsic. loopwright compares
    #    the nest with the description (extents, expression, element types, places in memory).
    my_dot = declare_intrinsic()
    s[CL].tensorize(lanes, my_dot)
    print("\nAfter: reset where the reduction starts, update in the place of two loops.\n")
    print(lw.lower(s, args), "\n")
    fast = speed("tensorized", s, args)
    print(f"\n{fast / vectors:.1f} times as fast as vectors.")

    # 5. A nest that does not match is refused, and the message says where it differs.
    other, other_args, CL, lanes = declare(group=8)
    other[CL].tensorize(lanes, my_dot)
    try:
        lw.lower(other, other_args)
    except lw.LoopwrightError as e:
        print(f"\nGroups of eight are refused:\n  {e}")

    # 6. The intrinsic is data. It is part of the trace: builders in other processes, and whoever
    #    replays a log, need neither this script nor the function above.
    text = json.dumps([step.to_json() for step in s.trace])
    again = replay(s.dag, json.loads(text))
    assert again.trace == s.trace
    print(f"\nThe trace, intrinsic included, is {len(text)} bytes of JSON.")

    # 7. On a CPU without the instruction: the same program, the same numbers.
    if platform.machine() == "x86_64":
        f = lw.build(s, args, "llvm -mcpu=x86-64-v3 -num-threads=1", name="matmul")
        c = np.zeros((M, N), np.int32)
        f(a, packed, c)
        np.testing.assert_array_equal(c, expected)
        used = f.get_source("asm").count("vpdpbusd")
        print(
            f"For x86-64-v3: vpdpbusd stands {used} times in the code, and the result is the same."
        )
    return fast / vectors


if __name__ == "__main__":
    main()
