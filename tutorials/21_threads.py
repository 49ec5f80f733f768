"""Tutorial 21: the schedule primitives for GPU threads.

Run it with ``python tutorials/21_threads.py``, or with the names of some sections. The target
``interp`` runs the kernels, block by block and thread by thread, which needs no GPU; where there is
an OpenCL device, that runs them too. Every result is compared with NumPy. A target for CPUs refuses
such kernels. ``11_gpu_matmul.py`` makes a fast one. Set ``LOOPWRIGHT_TUTORIAL_SMALL=1`` for a quick
run, which leaves the device out.
"""

import os
import sys

import numpy as np

import loopwright as lw
from loopwright import te

rng = np.random.default_rng(0)
SMALL = bool(os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL"))
DEVICE = lw.opencl(0)


def line(n):
    """B = 2 A + 1."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2 + 1, name="B")
    return te.create_schedule(B.op), A, B, lambda a: a * 2 + 1


def row_sum(m, n):
    """C[i] = the sum of row i."""
    A = te.placeholder((m, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((m,), lambda i: te.sum(A[i, k], axis=k), name="C")
    return te.create_schedule(C.op), A, C, lambda a: a.sum(axis=1)


def show(what, s, args, reference):
    """Print the nest, run it, and compare its results with those of NumPy."""
    print(f"-- {what}\n{lw.lower(s, args)}\n")
    f = lw.build(s, args, "interp")
    arrays = [rng.integers(-9, 10, t.shape).astype(t.dtype) for t in args]
    f(*arrays)
    expected = reference(*arrays[:-1])
    np.testing.assert_array_equal(arrays[-1], expected)
    if DEVICE.exist and not SMALL:
        there = [lw.nd.array(x, device=DEVICE) for x in (*arrays[:-1], np.zeros_like(expected))]
        lw.build(s, args, "opencl")(*there)
        np.testing.assert_array_equal(there[-1].numpy(), expected)
        print(f"(equal on {DEVICE})\n")


def bind():
    """Iterations become the blocks and threads of a kernel."""
    s, A, B, ref = line(60)
    block, thread = s[B].split(B.op.axis[0], factor=16)
    show("before", s, [A, B], ref)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    show("after: s[B].bind(i.0, blockIdx.x), s[B].bind(i.1, threadIdx.x)", s, [A, B], ref)
    try:
        lw.build(s, [A, B], "llvm")
    except lw.LoopwrightError as error:
        print(f"on a CPU: {error}")


def reduction():
    """Threads that share a reduction add up what they have, in shared memory, with barriers."""
    s, A, C, ref = row_sum(2, 32)
    _, thread = s[C].split(C.op.reduce_axis[0], factor=4)
    tx = te.thread_axis("threadIdx.x")
    show("before", s, [A, C], ref)
    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    s[C].bind(thread, tx)
    show("after: s[C].bind(k.1, tx)", s, [A, C], ref)
    # Thread 0 stores the sum, unless you say otherwise.
    s[C].set_store_predicate(tx.var.equal(3))
    show("after: s[C].set_store_predicate(tx.var.equal(3))", s, [A, C], ref)


def vthread():
    """Virtual threads: one thread does the work of several, and what they share once."""
    s, A, B, ref = line(64)
    block, rest = s[B].split(B.op.axis[0], nparts=2)
    virtual, thread = s[B].split(rest, nparts=2)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    show("before", s, [A, B], ref)
    s[B].bind(virtual, te.thread_axis("vthread"))
    show('after: s[B].bind(i.1.0, te.thread_axis("vthread"))', s, [A, B], ref)


def env_threads():
    """The kernel has threads that its own loops do not use, but a stage inside it does."""
    A = te.placeholder((4, 16), name="A")
    B = te.compute((4, 16), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((4, 15), lambda i, j: B[i, j] + B[i, j + 1], name="C")
    s = te.create_schedule(C.op)

    def ref(a):
        return 2 * (a[:, :-1] + a[:, 1:])

    s[C].bind(C.op.axis[0], te.thread_axis("blockIdx.x"))
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].set_scope("shared")
    show("before", s, [A, C], ref)
    tx = te.thread_axis((0, 16), "threadIdx.x")
    s[C].env_threads([tx])
    s[B].bind(B.op.axis[1], tx)
    show("after: s[C].env_threads([tx]), s[B].bind(j, tx)", s, [A, C], ref)


def shared():
    """A matmul whose blocks copy tiles into shared memory, all threads together."""
    m, n, p = 16, 16, 32
    A = te.placeholder((m, p), name="A")
    B = te.placeholder((p, n), name="B")
    k = te.reduce_axis((0, p), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)

    def ref(a, b):
        return a @ b

    show("before", s, [A, B, C], ref)
    tx, ty = te.thread_axis("threadIdx.x"), te.thread_axis("threadIdx.y")
    tile = s.cache_read(A, "shared", [C])
    CL = s.cache_write(C, "local")
    i, j = C.op.axis
    io, jo, ii, ji = s[C].tile(i, j, 4, 8)
    s[C].bind(io, te.thread_axis("blockIdx.y"))
    s[C].bind(jo, te.thread_axis("blockIdx.x"))
    s[C].bind(ii, ty)
    s[C].bind(ji, tx)
    s[CL].compute_at(s[C], ji)
    ko, _ = s[CL].split(k, factor=16)
    # The tile of A: rows that do not fall into the same banks, two elements a thread at once.
    s[tile].compute_at(s[CL], ko)
    s[tile].storage_align(s[tile].op.axis[0], 16, 1)
    rest = s[tile].fuse(*s[tile].op.axis)
    rest, lanes = s[tile].split(rest, factor=2)
    rest, x = s[tile].split(rest, factor=8)
    rest, y = s[tile].split(rest, factor=4)
    s[tile].bind(y, ty)
    s[tile].bind(x, tx)
    s[tile].vectorize(lanes)
    show("after", s, [A, B, C], ref)


SECTIONS = {f.__name__: f for f in [bind, reduction, vthread, env_threads, shared]}


def main(*names):
    for name in names or SECTIONS:
        if name not in SECTIONS:
            sys.exit(f"there is no section {name!r}; there are {', '.join(SECTIONS)}")
        print(f"\n======== {name}: {SECTIONS[name].__doc__}\n")
        SECTIONS[name]()


if __name__ == "__main__":
    main(*sys.argv[1:])
