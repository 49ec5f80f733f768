"""Tutorial 04: every schedule primitive, with the loop nest before and after.

Run it with ``python tutorials/04_primitives.py``, or with the names of some primitives to see
these only: ``python tutorials/04_primitives.py split rfactor``. Every nest is built, run, and
compared with NumPy: a primitive changes how something is computed and never what. The primitives
for GPU threads are in ``21_threads.py``.
"""

import sys

import numpy as np

import loopwright as lw
from loopwright import te

rng = np.random.default_rng(0)


# ---------------------------------------------------------------------- the programs
# Each returns a schedule in which nothing is said yet, its arguments, and what NumPy makes of it.


def line(n):
    """B = 2 A + 1 over one dimension."""
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2 + 1, name="B")
    return te.create_schedule(B.op), [A, B], lambda a: a * 2 + 1


def plane(m, n):
    """The same over two dimensions."""
    A = te.placeholder((m, n), name="A")
    B = te.compute((m, n), lambda i, j: A[i, j] * 2 + 1, name="B")
    return te.create_schedule(B.op), [A, B], lambda a: a * 2 + 1


def stencil(m, n):
    """Two stages: B = 2 A, and C adds two neighbours in a row of B."""
    A = te.placeholder((m, n + 1), name="A")
    B = te.compute((m, n + 1), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((m, n), lambda i, j: B[i, j] + B[i, j + 1], name="C")
    return te.create_schedule(C.op), [A, C], B, lambda a: 2 * (a[:, :-1] + a[:, 1:])


def row_sum(m, n):
    """C[i] = the sum of row i."""
    A = te.placeholder((m, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((m,), lambda i: te.sum(A[i, k], axis=k), name="C")
    return te.create_schedule(C.op), [A, C], lambda a: a.sum(axis=1)


def running_sum(n):
    """B[j] = the sum of A up to j."""
    A = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), name="k")
    B = te.compute((n,), lambda j: te.sum(A[k], axis=k, where=k <= j), name="B")
    return te.create_schedule(B.op), [A, B], lambda a: np.cumsum(a)


def matmul(m, n, p):
    """C = A @ B."""
    A = te.placeholder((m, p), name="A")
    B = te.placeholder((p, n), name="B")
    k = te.reduce_axis((0, p), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_schedule(C.op), [A, B, C], lambda a, b: a @ b


def pair(m, n):
    """One stage with two outputs: P = A + 1 and Q = 2 A."""
    A = te.placeholder((m, n), name="A")
    P, Q = te.compute((m, n), lambda i, j: (A[i, j] + 1, A[i, j] * 2), name="PQ")
    return te.create_schedule(P.op), [A, P, Q], lambda a: (a + 1, a * 2)


def show(what, s, args, reference, target="llvm"):
    """Print the nest, build it, and compare its results with those of NumPy."""
    print(f"-- {what}\n{lw.lower(s, args)}\n")
    f = lw.build(s, args, target)
    arrays = [rng.integers(-9, 10, t.shape).astype(t.dtype) for t in args]
    outputs = [x for x, t in zip(arrays, args, strict=True) if t.op in s.outputs]
    expected = reference(*arrays[: len(arrays) - len(outputs)])
    f(*arrays)
    for x, y in zip(outputs, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_array_equal(x, y)


# ---------------------------------------------------------------------- loops


def split():
    """One loop becomes two. Where the factor does not divide, the tail is guarded."""
    s, (A, B), ref = line(10)
    show("before", s, [A, B], ref)
    outer, inner = s[B].split(B.op.axis[0], factor=4)
    show(f"after: {outer.name}, {inner.name} = s[B].split(i, factor=4)", s, [A, B], ref)
    s, (A, B), ref = line(10)
    s[B].split(B.op.axis[0], nparts=2)
    show("after: split(i, nparts=2), which divides", s, [A, B], ref)


def follow_split():
    """A loop is split as another one was, and again when that one's factor changes."""
    s, (A, C), B, ref = stencil(4, 16)
    s[C].split(C.op.axis[1], factor=4)
    show("before: C is split by 4", s, [A, C], ref)
    s[B].follow_split(B.op.axis[1], C.op.axis[1])
    show("after: s[B].follow_split(j of B, j of C)", s, [A, C], ref)


def follow_fused_split():
    """A loop is split by what several loops have together that were fused."""
    s, (A, C), B, ref = stencil(4, 16)
    *_, ii, ji = s[C].tile(*C.op.axis, 2, 4)
    s[C].fuse(ii, ji)
    fused = s[B].fuse(*B.op.axis)
    show("before: tiles of C are fused to 8 elements, B is one loop", s, [A, C], ref)
    s[B].follow_fused_split(fused, C.op.axis, level=0)
    show("after: s[B].follow_fused_split(fused, [i, j], level=0)", s, [A, C], ref)


def sample_categorical():
    """A factor is chosen; the trace knows that the split takes it, so that it can be another."""
    s, (A, B), ref = line(16)
    factor = s[B].sample_categorical([2, 4, 8], decision=4)
    s[B].split(B.op.axis[0], factor=factor)
    show("after: split by s[B].sample_categorical([2, 4, 8]), which chose 4", s, [A, B], ref)
    trace = s.trace_json()
    trace[0][3] = 8
    again = lw.schedule.replay(s.dag, trace)
    show("after: the trace, with 8 in its place", again, again.tensors, ref)


def sample_perfect_tile():
    """Factors of a loop are chosen whose product is its extent."""
    s, (A, B), ref = line(24)
    _outer, middle, inner = s[B].sample_perfect_tile(B.op.axis[0], 3, max_innermost_factor=4)
    rest, _ = s[B].split(B.op.axis[0], factor=inner)
    s[B].split(rest, factor=middle)
    show(f"after: {B.op.axis[0].name} split by {inner} and {middle}", s, [A, B], ref)


def sample_compute_location():
    """A place to compute a stage is chosen among all that are legal."""
    s, (A, C), B, ref = stencil(4, 8)
    s.seed(3)
    s[B].sample_compute_location()
    show(f"after: {s.trace[0]}", s, [A, C], ref)


def fuse():
    """Adjacent loops become one; the indices are computed back with // and %."""
    s, (A, B), ref = plane(3, 4)
    show("before", s, [A, B], ref)
    s[B].fuse(*B.op.axis)
    show("after: s[B].fuse(i, j)", s, [A, B], ref)


def reorder():
    """Loops change places. The ones that are not named keep theirs."""
    s, (A, B, C), ref = matmul(2, 3, 4)
    show("before", s, [A, B, C], ref)
    (i, j), (k,) = C.op.axis, C.op.reduce_axis
    s[C].reorder(k, i, j)
    show("after: s[C].reorder(k, i, j)", s, [A, B, C], ref)


def tile():
    """Two splits and a reorder: the loops over blocks outside, those within a block inside."""
    s, (A, B), ref = plane(4, 6)
    show("before", s, [A, B], ref)
    s[B].tile(*B.op.axis, x_factor=2, y_factor=3)
    show("after: s[B].tile(i, j, 2, 3)", s, [A, B], ref)


def vectorize():
    """The iterations of a loop become the lanes of vectors."""
    s, (A, B), ref = line(32)
    _, inner = s[B].split(B.op.axis[0], factor=8)
    show("before", s, [A, B], ref)
    s[B].vectorize(inner)
    show("after: s[B].vectorize(i.1)", s, [A, B], ref)

    # A reduction gets an accumulator a lane; the lanes are added up once, at the end.
    s, (A, C), ref = row_sum(2, 32)
    _, lanes = s[C].split(C.op.reduce_axis[0], factor=8)
    show("before, a reduction", s, [A, C], ref)
    s[C].vectorize(lanes)
    show("after: s[C].vectorize(k.1)", s, [A, C], ref)


def unroll():
    """The body is written out for each iteration when code is generated."""
    s, (A, B), ref = plane(3, 4)
    show("before", s, [A, B], ref)
    s[B].unroll(B.op.axis[1])
    show("after: s[B].unroll(j)", s, [A, B], ref)


def parallel():
    """The iterations are shared out among the threads of a pool."""
    s, (A, B), ref = plane(3, 4)
    show("before", s, [A, B], ref)
    s[B].parallel(B.op.axis[0])
    show("after: s[B].parallel(i)", s, [A, B], ref)


def pragma():
    """A hint at a loop. auto_unroll_max_step unrolls inner loops up to that many copies."""
    s, (A, B), ref = plane(3, 4)
    show("before", s, [A, B], ref)
    s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 4)
    show('after: s[B].pragma(i, "auto_unroll_max_step", 4)', s, [A, B], ref)
    # Pragmas that begin with "user." mean nothing to loopwright; a pass of yours may look for them.
    s[B].pragma(B.op.axis[0], "user.note", "rows")
    show('after: s[B].pragma(i, "user.note", "rows")', s, [A, B], ref)


# ---------------------------------------------------------------------- where a stage is computed


def compute_at():
    """A stage is computed inside a loop of its reader: as much as one iteration needs."""
    s, (A, C), B, ref = stencil(4, 8)
    show("before: each stage at root", s, [A, C], ref)
    s[B].compute_at(s[C], C.op.axis[0])
    show("after: s[B].compute_at(s[C], i)", s, [A, C], ref)


def compute_inline():
    """A stage has no buffer at all: its expression is written where it is read."""
    s, (A, C), B, ref = stencil(4, 8)
    show("before", s, [A, C], ref)
    s[B].compute_inline()
    show("after: s[B].compute_inline()", s, [A, C], ref)


def compute_root():
    """Takes compute_at and compute_inline back."""
    s, (A, C), B, ref = stencil(4, 8)
    s[B].compute_at(s[C], C.op.axis[0])
    show("before", s, [A, C], ref)
    s[B].compute_root()
    show("after: s[B].compute_root()", s, [A, C], ref)


def store_at():
    """The buffer lives longer than one iteration of the loop in which the stage is computed."""
    s, (A, C), B, ref = stencil(4, 8)
    s[B].compute_at(s[C], C.op.axis[1])
    show("before: s[B].compute_at(s[C], j)", s, [A, C], ref)
    s[B].store_at(s[C], C.op.axis[0])
    show("after: s[B].store_at(s[C], i), a row of B", s, [A, C], ref)
    s[B].store_root()
    show("after: s[B].store_root(), all of B", s, [A, C], ref)


def create_group():
    """The stages between some tensors are moved together."""
    s, (A, C), _, ref = stencil(4, 8)
    CL = s.cache_write(C, "local")
    group = s.create_group(outputs=CL, inputs=A)
    show("before: group = s.create_group(outputs=CL, inputs=A): B and C.local", s, [A, C], ref)
    group.compute_at(s[C], C.op.axis[0])
    show("after: group.compute_at(s[C], i)", s, [A, C], ref)


# ---------------------------------------------------------------------- stages that copy


def cache_read():
    """A copy of a tensor, which the readers that are named use instead. Here there are two."""
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((4, 8), lambda i, j: A[i, 0] + B[i, j], name="C")
    s = te.create_schedule(C.op)

    def ref(a):
        return a[:, :1] + 2 * a

    s[B].compute_at(s[C], C.op.axis[0])
    show("before", s, [A, C], ref)
    AL = s.cache_read(A, "local", [B, C])
    s[AL].compute_at(s[C], C.op.axis[0])
    show('after: AL = s.cache_read(A, "local", [B, C]), computed at i', s, [A, C], ref)


def cache_write():
    """The stage computes into a buffer; what it was becomes the copy out of it."""
    s, (A, B, C), ref = matmul(4, 8, 3)
    show("before", s, [A, B, C], ref)
    CL = s.cache_write(C, "local")
    s[CL].compute_at(s[C], C.op.axis[0])
    show('after: CL = s.cache_write(C, "local"), computed at i', s, [A, B, C], ref)

    # All outputs of a stage are cached together.
    s, (A, P, Q), ref = pair(3, 4)
    show("before, a stage with two outputs", s, [A, P, Q], ref)
    PL, _ = s.cache_write([P, Q], "local")
    s[PL].compute_at(s[P], P.op.axis[0])
    show('after: PL, QL = s.cache_write([P, Q], "local"), computed at i', s, [A, P, Q], ref)


def rfactor():
    """A reduction in two steps: partial results along one of its loops, then their sum."""
    s, (A, C), ref = row_sum(2, 32)
    _, ki = s[C].split(C.op.reduce_axis[0], factor=8)
    show("before", s, [A, C], ref)
    CF = s.rfactor(C, ki)
    show("after: CF = s.rfactor(C, k.1)", s, [A, C], ref)
    # The partial sums are a stage like any other. Their loops may be vectorized, run in parallel,
    # or computed where they are needed.
    s[CF].compute_at(s[C], C.op.axis[0])
    s[CF].reorder(s[CF].op.reduce_axis[0], s[CF].op.axis[0])
    s[CF].vectorize(s[CF].op.axis[0])
    show("and then, say: vectorized, and computed at i", s, [A, C], ref)


# ---------------------------------------------------------------------- how a buffer lies in memory


def blocked_scan():
    """Running sums by blocks: totals of blocks, running totals, and what is left in each block."""
    s, (A, B), ref = running_sum(32)
    show("before", s, [A, B], ref)
    s.blocked_scan(B, B.op.reduce_axis[0], 8)
    show("after: running, totals = s.blocked_scan(B, k, 8)", s, [A, B], ref)


def transform_layout():
    """A bijection of indices says where the elements of a buffer lie."""
    s, (A, B, C), ref = matmul(4, 8, 3)
    BL = s.cache_read(B, "global", [C])
    show("before", s, [A, B, C], ref)
    s[BL].transform_layout(lambda k, j: (j // 4, k, j % 4))
    show("after: s[BL].transform_layout(lambda k, j: (j // 4, k, j % 4))", s, [A, B, C], ref)
    # Blocks of 3 do not divide 8 columns: the last block is padded, here with zeros.
    s, (A, B, C), ref = matmul(4, 8, 3)
    BL = s.cache_read(B, "global", [C])
    s[BL].transform_layout(lambda k, j: (j // 3, k, j % 3), pad_value=0)
    show("after: lambda k, j: (j // 3, k, j % 3), pad_value=0", s, [A, B, C], ref)


def storage_align():
    """Gaps between rows, so that equal columns fall into different sets of a cache, or banks."""
    s, (A, C), B, ref = stencil(4, 15)
    show("before", s, [A, C], ref)
    s[B].storage_align(B.op.axis[0], factor=16, offset=2)
    show("after: s[B].storage_align(i, 16, 2)", s, [A, C], ref)


def double_buffer():
    """A buffer of two halves, or more places: some are filled for later iterations in advance."""
    s, (A, C), B, ref = stencil(4, 8)
    s[B].compute_at(s[C], C.op.axis[0])
    show("before", s, [A, C], ref)
    s[B].double_buffer()
    show("after: s[B].double_buffer()", s, [A, C], ref)
    s[B].double_buffer(stages=3)
    show("after: s[B].double_buffer(stages=3)", s, [A, C], ref)


def prefetch():
    """What a later iteration will read is brought nearer; no value depends on it."""
    s, (A, B, C), ref = matmul(4, 32, 8)
    k = C.op.reduce_axis[0]
    s[C].reorder(C.op.axis[0], k, C.op.axis[1])
    show("before", s, [A, B, C], ref)
    s[C].prefetch(B, k, 4)
    show("after: s[C].prefetch(B, k, 4), two lines of 16 floats a row", s, [A, B, C], ref)


def prefetch_next():
    """What a loop further out reads next is brought nearer, a share in each iteration inside."""
    s, (A, B, C), ref = matmul(4, 32, 8)
    jo, ji = s[C].split(C.op.axis[1], factor=16)
    k = C.op.reduce_axis[0]
    s[C].reorder(jo, C.op.axis[0], k, ji)
    task = s[C].fuse(jo, C.op.axis[0])
    show("before: 16 columns of B are read for each of 4 rows", s, [A, B, C], ref)
    s[C].prefetch_next(B, k, C, task)
    show(
        "after: s[C].prefetch_next(B, k, C, task), each of 32 iterations has a share",
        s,
        [A, B, C],
        ref,
    )


def set_scope():
    """The kind of memory: global, shared (of a thread block) or local (of a thread)."""
    s, (A, C), B, ref = stencil(4, 8)
    s[B].compute_at(s[C], C.op.axis[0])
    show("before", s, [A, C], ref)
    s[B].set_scope("local")
    show('after: s[B].set_scope("local")', s, [A, C], ref)


# ---------------------------------------------------------------------- instructions of your own


def tensorize():
    """An intrinsic takes the place of a nest that computes the same. More of it in tutorial 05."""
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] * 2 + 1, name="y")

    def statement(inputs, outputs):
        builder = te.ir_builder()
        with builder.for_range(8, "lane", "vectorized") as lane:
            builder.emit(outputs[0].store(lane, te.fma(inputs[0][lane], 2, 1)))
        return builder.get()

    eight = te.decl_tensor_intrin(y.op, statement, name="eight")
    s, (A, B), ref = line(16)
    _, inner = s[B].split(B.op.axis[0], factor=8)
    show("before", s, [A, B], ref)
    s[B].tensorize(inner, eight)
    show("after: s[B].tensorize(i.1, eight)", s, [A, B], ref)


# ---------------------------------------------------------------------- other programs


def tuples():
    """Reductions of tuples are scheduled as others are: argmax, mean and variance, ..."""
    A = te.placeholder((3, 16), name="A")
    k = te.reduce_axis((0, 16), name="k")
    W, V = te.compute((3,), lambda i: te.argmax((te.cast(k, "int32"), A[i, k]), axis=k), name="M")
    s = te.create_schedule(W.op)

    def argmax(a):
        return a.argmax(axis=1), a.max(axis=1)

    show("before", s, [A, W, V], argmax)
    s[W].reorder(k, W.op.axis[0])
    s[W].vectorize(W.op.axis[0])
    show("after: argmax of all rows at once, one a lane", s, [A, W, V], argmax)

    # A reducer of your own: the sum of a row and the sum of its squares, side by side.
    sums = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1]), lambda t0, t1: (te.const(0, t0), te.const(0, t1))
    )
    S, Q = te.compute((3,), lambda i: sums((A[i, k], A[i, k] * A[i, k]), axis=k), name="S")
    s = te.create_schedule(S.op)
    _, lanes = s[S].split(k, factor=4)
    s[S].vectorize(lanes)
    show("after: both sums in four lanes", s, [A, S, Q], lambda a: (a.sum(1), (a * a).sum(1)))


def sizes():
    """A size that is known only when the function runs: te.var. One built function serves all."""
    n = te.var("n")
    s, (A, B), ref = line(n)
    print(f"-- before\n{lw.lower(s, [A, B])}\n")
    _, inner = s[B].split(B.op.axis[0], factor=8)
    s[B].vectorize(inner)
    print(f"-- after: split by 8, vectorized\n{lw.lower(s, [A, B])}\n")
    f = lw.build(s, [A, B])
    for size in (1, 8, 13):
        a, b = np.arange(size, dtype="float32"), np.empty(size, "float32")
        f(a, b)
        np.testing.assert_array_equal(b, ref(a))


FOLLOWING = [follow_split, follow_fused_split]
SAMPLING = [sample_categorical, sample_perfect_tile, sample_compute_location]
LOOPS = [split, *FOLLOWING, fuse, reorder, tile, vectorize, unroll, parallel, pragma]
PLACES = [compute_at, compute_inline, compute_root, store_at, create_group]
COPIES = [cache_read, cache_write, rfactor, blocked_scan]
MEMORY = [transform_layout, storage_align, double_buffer, prefetch, prefetch_next, set_scope]
SECTIONS = [*LOOPS, *PLACES, *COPIES, *MEMORY, *SAMPLING, tensorize, tuples, sizes]
PRIMITIVES = {f.__name__: f for f in SECTIONS}


def main(*names):
    for name in names or PRIMITIVES:
        if name not in PRIMITIVES:
            sys.exit(f"there is no section {name!r}; there are {', '.join(PRIMITIVES)}")
        print(f"\n======== {name}: {PRIMITIVES[name].__doc__}\n")
        PRIMITIVES[name]()


if __name__ == "__main__":
    main(*sys.argv[1:])
