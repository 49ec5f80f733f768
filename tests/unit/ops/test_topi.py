"""Records of TVM's operators as points: the nest of each is that of TOPI's schedule.

The schedules of TOPI are written here by their definition (v0.8), in the same primitives; of both
the loops around the multiplication are compared: what they run over, how, and how far.
"""

from __future__ import annotations

import functools
import re

import pytest

import loopwright as lw
from loopwright import te
from loopwright.ops.topi import seed_of

TARGETS = ("llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v4")
LOOP = re.compile(r" *for ([\w.]+) in (\w+)\((\d+)\):")
SUM = re.compile(r" *([\w.]+\[.*?\]) = \1 \+ \(?\w.* \* ")


def record(op, args, config, target="llvm"):
    entity = [[n, "sp" if isinstance(v, list) else "ot", v] for n, v in config.items()]
    line = {
        "input": [target, op, args, {}],
        "config": {"index": 1, "code_hash": None, "entity": entity},
        "result": [[1e-3], 0, 1.0, 1.5e9],
        "version": 0.2,
    }
    return lw.records.load_lines([lw.records.canonical_json(line)]).records[0]


def tensor(*shape, dtype="float32"):
    return ["TENSOR", list(shape), dtype]


def nest(s, args):
    """Loops around the first sum of products, without those of one round; neighbouring loops of the
    same axis are one, and the parallel loop over tasks is of all that it fuses."""
    around = {}
    for line in str(lw.lower(s, args)).splitlines():
        depth = len(line) - len(line.lstrip())
        around = {d: loop for d, loop in around.items() if d < depth}
        if SUM.match(line):
            break
        if match := LOOP.match(line):
            name, kind, extent = match.groups()
            axis = "task" if kind == "parallel" else re.split(r"[._]", name)[0]
            around[depth] = (axis, kind, int(extent))
    else:
        raise AssertionError("there is no sum of products")
    loops = []
    for axis, kind, extent in around.values():
        if extent == 1:
            continue
        if loops and loops[-1][:2] == (axis, kind):
            extent *= loops.pop()[2]
        loops.append((axis, kind, extent))
    return loops


task_of = functools.cache(lw.create_task)


def point_of(name, args, target, *line):
    """The nest of the point that a record names, and the remarks on it."""
    task = task_of(name, args, target)
    config, remarks = seed_of(task, record(*line)).point()
    return None if config is None else nest(*task.instantiate(config)), remarks


# ---------------------------------------------------------------- schedules of TOPI


def topi_conv2d(c, h, o, k, stride, pad, ic, oc, ow, unroll_kw=True, oh=1, depthwise=False):
    side = h + 2 * pad
    n = (side - k) // stride + 1
    X = te.placeholder((1, c // ic, side, side, ic), name="X")
    W = te.placeholder((o // oc, 1 if depthwise else c // ic, k, k, ic, oc), name="W")
    r, s_ = te.reduce_axis((0, k), name="r"), te.reduce_axis((0, k), name="s")
    cc = te.reduce_axis((0, c), name="c")

    def value(b, fc, y, x, f):
        at = (y * stride + r, x * stride + s_)
        if depthwise:
            return te.sum(X[b, fc, *at, f] * W[fc, 0, r, s_, 0, f], axis=[r, s_])
        element = X[b, te.indexdiv(cc, ic), *at, te.indexmod(cc, ic)]
        weight = W[fc, te.indexdiv(cc, ic), r, s_, te.indexmod(cc, ic), f]
        return te.sum(element * weight, axis=[cc, r, s_])

    C = te.compute((1, o // oc, n, n, oc), value, name="C")
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    b, fc, y, x, f = s[C].op.axis
    yo, yi = s[C].split(y, factor=oh)
    xo, xi = s[C].split(x, factor=ow)
    s[C].reorder(fc, yo, xo, yi, xi, f)
    task = s[C].fuse(fc, yo) if depthwise else s[C].fuse(b, fc, yo)
    s[C].vectorize(f)
    s[C].parallel(task)
    s[CC].compute_at(s[C], task if k == 1 else xo)
    _, fc, y, x, f = s[CC].op.axis
    if depthwise:
        r, s_ = s[CC].op.reduce_axis
        s[CC].reorder(fc, y, r, s_, x, f)
        loops = [s_] if unroll_kw else []
    elif k == 1:
        ci, *_ = s[CC].op.reduce_axis
        co, ci = s[CC].split(ci, factor=ic)
        yo, yi = s[CC].split(y, factor=oh)
        xo, x = s[CC].split(x, factor=ow)
        s[CC].reorder(fc, yo, xo, co, ci, yi, x, f)
        loops = [yi]
    else:
        ci, r, s_ = s[CC].op.reduce_axis
        co, ci = s[CC].split(ci, factor=ic)
        taps = [ci, s_] if unroll_kw else [s_, ci]
        s[CC].reorder(fc, y, co, r, *taps, x, f)
        loops = [s_] if unroll_kw else []
    for loop in [*loops, x]:
        s[CC].unroll(loop)
    s[CC].vectorize(f)
    return nest(s, [X, W, C])


def topi_dense_nopack(m, n, k, y, x, lanes):
    X, W = te.placeholder((m, k), name="X"), te.placeholder((n, k), name="W")
    kk = te.reduce_axis((0, k // lanes), name="k")
    parts = te.compute(
        (m, n, lanes),
        lambda i, j, k: te.sum(X[i, kk * lanes + k] * W[j, kk * lanes + k], axis=kk),
        name="parts",
    )
    lane = te.reduce_axis((0, lanes), name="lane")
    C = te.compute((m, n), lambda i, j: te.sum(parts[i, j, lane], axis=lane), name="C")
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    io, ii = s[C].split(i, factor=y)
    jo, ji = s[C].split(j, factor=x)
    s[C].reorder(io, jo, ii, ji)
    task = s[C].fuse(io, jo)
    s[C].parallel(task)
    s[parts].compute_at(s[C], task)
    i, j, lane = s[parts].op.axis
    s[parts].reorder(s[parts].op.reduce_axis[0], i, j, lane)
    for loop in (i, j):
        s[parts].unroll(loop)
    s[parts].vectorize(lane)
    return nest(s, [X, W, C])


def topi_dense_pack(m, n, k, tile_y, tile_x, ki):
    (y, rows), (x, columns) = tile_y, tile_x
    X = te.placeholder((m, k), name="X")
    W = te.placeholder((n // columns, k, columns), name="W")
    kk = te.reduce_axis((0, k), name="k")
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(X[i, kk] * W[te.indexdiv(j, columns), kk, te.indexmod(j, columns)], kk),
        name="C",
    )
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    i, j = s[C].op.axis
    i1, i2 = s[C].split(i, factor=rows)
    i0, i1 = s[C].split(i1, factor=y)
    j1, j2 = s[C].split(j, factor=columns)
    j0, j1 = s[C].split(j1, factor=x)
    s[C].reorder(j0, i0, i1, j1, i2, j2)
    s[C].parallel(s[C].fuse(j0, i0))
    s[CC].compute_at(s[C], j1)
    i, j = s[CC].op.axis
    k0, k1 = s[CC].split(s[CC].op.reduce_axis[0], factor=ki)
    s[CC].reorder(k0, k1, i, j)
    for loop in (k1, i):
        s[CC].unroll(loop)
    s[CC].vectorize(j)
    return nest(s, [X, W, C])


# ---------------------------------------------------------------- the same nests here


def conv2d(c, h, o, k, stride=1, pad=0, kind="conv2d_NCHWc.x86", **config):
    weight = (c, 1, k, k) if "depthwise" in kind else (o, c, k, k)
    args = [tensor(1, c, h, h), tensor(*weight), [stride] * 2, [pad] * 4, [1, 1]]
    return kind, [*args, "NCHW", "NCHW", "float32"], config


CONVOLUTIONS = [  # c, h, o, k, stride, pad, and the sizes ic, oc, ow
    ("NCHW", (16, 14, 64, 3, 1, 1, 1, 32, 7)),
    ("NHWC", (3, 29, 32, 7, 2, 3, 1, 16, 5)),
    ("NCHW", (32, 15, 48, 3, 2, 0, 1, 16, 7)),
    # Of one tap: blocks of channels are the order of all of them.
    ("NHWC", (32, 14, 64, 1, 1, 0, 8, 32, 4)),
    ("NCHW", (8, 30, 32, 1, 2, 0, 8, 16, 15)),
    ("NCHW", (64, 14, 256, 1, 1, 0, 64, 16, 14)),
]


@pytest.mark.parametrize(("layout", "shape"), CONVOLUTIONS)
def test_a_convolution_in_blocks_of_channels_has_the_nest_of_topi(layout, shape):
    c, h, o, k, stride, pad, ic, oc, ow = shape
    n = (h + 2 * pad - k) // stride + 1
    config = {"tile_ic": [c // ic, ic], "tile_oc": [o // oc, oc], "tile_ow": [-1, ow]}
    config |= {"tile_oh": 1} if k == 1 else {"unroll_kw": True}
    line = conv2d(c, h, o, k, stride, pad, **config)
    args = (1, c, h, h, o, k, k, stride, pad, "float32", 1, 1, layout)
    loops, remarks = point_of("conv2d", args, TARGETS[1], *line)
    assert remarks == ()
    assert loops == topi_conv2d(c, h, o, k, stride, pad, ic, oc, ow)
    assert loops[0] == ("task", "parallel", o // oc * n)
    assert loops[-2:] == [("x", "unrolled", ow), ("f", "vectorized", oc)]


def test_dense_layers_have_the_nests_of_topi():
    for target, lanes in zip(TARGETS, (8, 16), strict=True):
        for m, n, k, y, x in ((8, 30, 64, 2, 3), (1, 24, 128, 1, 6), (12, 8, 48, 4, 1)):
            config = {"tile_y": [m // y, y], "tile_x": [n // x, x], "tile_k": [k // lanes, lanes]}
            arguments = [tensor(m, k), tensor(n, k), None, "float32"]
            args = (m, n, k, False, False)
            loops, remarks = point_of("dense", args, target, "dense_nopack.x86", arguments, config)
            assert remarks == ()
            assert loops == topi_dense_nopack(m, n, k, y, x, lanes)
        for m, n, k, tile_y, tile_x, ki in (
            (16, 64, 64, (2, 4), (1, 16), 2),
            (24, 128, 48, (1, 6), (4, 16), 1),
            (4, 32, 32, (1, 2), (1, 16), 8),
        ):
            config = {"tile_y": [-1, *tile_y], "tile_x": [-1, *tile_x], "tile_k": [k // ki, ki]}
            config["tile_inner"] = [tile_y[1], 1]
            weight = tensor(n, k) if ki > 1 else tensor(n // 16, k, 16)
            arguments = [tensor(m, k), weight, None, "float32"]
            args = (m, n, k, False, True)
            loops, remarks = point_of("matmul", args, target, "dense_pack.x86", arguments, config)
            assert remarks == ()
            assert loops == topi_dense_pack(m, n, k, tile_y, tile_x, ki)


def topi_batch_matmul(batch, m, n, k, y, x, lanes):
    A, B = te.placeholder((batch, m, k), name="A"), te.placeholder((batch, n, k), name="B")
    kk = te.reduce_axis((0, k), name="k")
    C = te.compute(
        (batch, m, n), lambda b, i, j: te.sum(A[b, i, kk] * B[b, j, kk], axis=kk), name="C"
    )
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    b, i, j = s[C].op.axis
    io, ii = s[C].split(i, factor=y)
    jo, ji = s[C].split(j, factor=x)
    s[C].reorder(b, io, jo, ii, ji)
    task = s[C].fuse(b, io, jo)
    s[C].parallel(task)
    s[CC].compute_at(s[C], task)
    _, lane = s[CC].split(s[CC].op.reduce_axis[0], factor=lanes)
    parts = s.rfactor(CC, lane)
    s[parts].compute_at(s[CC], s[CC].op.axis[0])
    lane, *_ = s[parts].op.axis
    # A loop that is made vectors stands for vectors around all that is in it.
    s[parts].reorder(*s[parts].op.axis[1:], s[parts].op.reduce_axis[0], lane)
    s[parts].vectorize(lane)
    return nest(s, [A, B, C])


def test_batched_products_have_the_nest_of_topi():
    for target, lanes in zip(TARGETS, (8, 16), strict=True):
        for batch, m, n, k, y, x in ((3, 16, 8, 64, 4, 1), (2, 4, 24, 32, 1, 8)):
            config = {"tile_y": [m // y, y], "tile_x": [n // x, x], "tile_k": [k // lanes, lanes]}
            line = ("batch_matmul.x86", [tensor(batch, m, k), tensor(batch, n, k)], config)
            args = (batch, m, n, k, False, True)
            loops, remarks = point_of("batch_matmul", args, target, *line)
            assert remarks == ()
            # The name of the axis of vectors differs, which are of partial sums in both.
            theirs = topi_batch_matmul(batch, m, n, k, y, x, lanes)
            assert [loop[1:] for loop in loops] == [loop[1:] for loop in theirs]


def test_depthwise_convolutions_have_the_nest_of_topi_where_channels_lie_side_by_side():
    config = {"tile_ic": [1, 16], "tile_oc": [1, 16], "tile_ow": [2, 6], "unroll_kw": True}
    for kind in ("depthwise_conv2d_NCHWc.x86", "depthwise_conv2d_nchw.x86"):
        line = conv2d(16, 14, 16, 3, kind=kind, **config)
        args = (1, 16, 14, 14, 3, 3, 1, 0, "float32", 1)
        loops, remarks = point_of("depthwise_conv2d", (*args, "NHWC"), TARGETS[1], *line)
        assert remarks == ()
        theirs = topi_conv2d(16, 14, 16, 3, 1, 0, 16, 16, 6, depthwise=True)
        assert loops == [*theirs[:-1], ("ch", "vectorized", 16)]
        assert point_of("depthwise_conv2d", (*args, "NCHW"), TARGETS[1], *line) == (
            None,
            (
                f"{kind}: vectors go along channels, one tile of columns after the other; this "
                "workload has no such structure, it has one with layout=NHWC",
            ),
        )


OLD = {  # templates of AutoTVM 0.1: their names in 0.2, a workload here, and knobs
    "topi_x86_conv2d_NCHWc": ("conv2d_NCHWc.x86", "conv2d", (1, 16, 14, 14, 64, 3, 3, 1, 1)),
    "topi_x86_depthwise_conv2d_NCHWc_from_nchw": (
        "depthwise_conv2d_NCHWc.x86", "depthwise_conv2d",
        (1, 16, 14, 14, 3, 3, 1, 0, "float32", 1, "NHWC"),
    ),
    "topi_nn_dense": ("dense_nopack.x86", "dense", (8, 30, 64, False, False)),
    "topi_nn_batch_matmul": ("batch_matmul.x86", "batch_matmul", (3, 16, 8, 64, False, True)),
}  # fmt: skip


def old_record(op, args, config, target="llvm"):
    entity = [[n, "sp" if isinstance(v, list) else "ot", v] for n, v in config.items()]
    point = {"i": 1, "t": "direct", "c": None, "e": entity}
    line = {"i": [target, op, args, {}, None, point], "r": [[1e-3], 0, 1.0, 1.5e9], "v": 0.1}
    return lw.records.load_lines([lw.records.canonical_json(line)]).records[0]


def test_lines_of_autotvm_0_1_name_the_points_of_those_of_0_2():
    tiles = {"tile_ic": [1, 16], "tile_oc": [-1, 16], "tile_ow": [-1, 6], "unroll_kw": True}
    product = {"tile_y": [-1, 2], "tile_x": [-1, 3], "tile_k": [-1, 16]}
    packed = {"tile_y": [-1, 2, 4], "tile_x": [-1, 1, 16], "tile_k": [-1, 2], "tile_inner": [4, 1]}
    cases = []
    for old, (op, name, args) in OLD.items():
        if "conv2d" in op:
            channels = 16 if "depthwise" in op else 64
            cases.append(
                (old, name, args, conv2d(16, 14, channels, 3, 1, int(args[-1] == 1), op, **tiles))
            )
        else:
            shapes = [(3, 16, 64), (3, 8, 64)] if "batch" in op else [(8, 64), (30, 64)]
            cases.append((old, name, args, (op, [tensor(*s) for s in shapes], product)))
    dense = [tensor(16, 64), tensor(64, 64), None, "float32"]
    wide = (16, 64, 64, False, True)
    cases.append(("topi_nn_dense", "matmul", wide, ("dense_pack.x86", dense, packed)))
    for old, name, args, (op, arguments, config) in cases:
        task = task_of(name, args, TARGETS[1])
        point, remarks = seed_of(task, record(op, arguments, config)).point()
        same, said = seed_of(task, old_record(old, arguments, config)).point()
        assert point is not None, remarks
        assert (same.index, said) == (point.index, remarks), old
        for target in ("cuda", "llvm -device=arm_cpu"):
            none, (why,) = seed_of(task, old_record(old, arguments, config, target)).point()
            assert none is None
            assert why.endswith("its knobs are of a schedule that no space here has")
    images = conv2d(16, 14, 64, 3)[1]
    images[5] = "NHWC"
    seed = seed_of(task_of("conv2d", OLD["topi_x86_conv2d_NCHWc"][2], TARGETS[1]),
                   old_record("topi_nn_conv2d", images, {}))  # fmt: skip
    assert (seed.read, seed.point()[1]) == (False, ("topi_nn_conv2d: its layout is NHWC",))


# ---------------------------------------------------------------- what a point leaves out


def said(name, args, *line, target=TARGETS[1]):
    config, remarks = seed_of(task_of(name, args, target), record(*line)).point()
    return config, "; ".join(remarks)


def test_a_product_whose_space_is_derived_has_the_points_of_its_template():
    config = {"tile_y": [1, 2], "tile_x": [1024, 4], "tile_k": [64, 16]}
    arguments = [tensor(2, 1024), tensor(4096, 1024), None, "float32"]
    point, text = said("dense", (2, 4096, 1024), "dense_nopack.x86", arguments, config)
    assert point["structure"].val.startswith("template dense(2, 4096, 1024")
    assert (point["pack"].val, point["tile_j"].size, text) == ("dot", (-1, 1, 4), "")


def test_what_a_point_leaves_out_is_said():
    config = {"tile_ic": [4, 4], "tile_oc": [2, 24], "tile_ow": [2, 7], "unroll_kw": False}
    point, text = said(
        "conv2d", (1, 16, 14, 14, 48, 3, 3, 1, 1), *conv2d(16, 14, 48, 3, 1, 1, **config)
    )
    assert point["tile"].val == (7, 32)
    assert "tile_ic: all taps of one channel follow each other here" in text
    assert "unroll_kw=False: the taps of a line are written out here" in text
    assert "tile_ow=[2, 7], tile_oc=[2, 24]: tile=[7, 24] is no choice of this space" in text
    config = {"tile_ic": [4, 4], "tile_oc": [3, 16], "tile_ow": [7, 2], "tile_oh": 2}
    point, text = said("conv2d", (1, 16, 14, 14, 48, 1, 1), *conv2d(16, 14, 48, 1, **config))
    assert (point["tile"].val, point["beside"].val) == ((4, 16), 2)
    assert text == (
        "tile_oh=2: a register tile here lies in one line, and has 4 columns of it; a task has 2 "
        "lines"
    )
    config = {"tile_ic": [3, 1], "tile_oc": [1, 16], "tile_ow": [1, 7], "unroll_kw": True}
    _, text = said("conv2d", (1, 3, 17, 17, 16, 11, 11), *conv2d(3, 17, 16, 11, **config))
    assert text == "unroll_kw=True: unroll=11 is no choice of this space, in whose place 8 is taken"
    config = {"tile_y": [2, 4], "tile_x": [8, 3], "tile_k": [4, 16]}
    arguments = [tensor(8, 64), tensor(24, 64), tensor(24), "float32"]
    narrow = [tensor(8, 64, dtype="float16"), tensor(24, 64, dtype="float16")]
    point, text = said(
        "dense", (8, 24, 64, True, True, "float16"), "dense_nopack.x86", narrow, config
    )
    assert (point["tile_i"].size, point["tile_j"].size, text) == ((-1, 1, 4), (-1, 1, 3), "")
    _, text = said("dense", (8, 24, 64), "dense_nopack.x86", arguments, config, target=TARGETS[0])
    assert text == "tile_k=[4, 16]: partial sums here are whole vectors, of 8"
    point, text = said(
        "dense", (8, 24, 64, True, True, "float32", "KN"), "dense_nopack.x86", arguments, config
    )
    assert point is None
    assert text.endswith("vectors go along the reduction, which is not how this operand lies")
    config = {"tile_y": [1, 2, 4], "tile_x": [1, 2, 16], "tile_k": [32, 2], "tile_inner": [4, 2]}
    arguments = [tensor(8, 64), tensor(32, 64), None, "float32"]
    _, text = said("dense", (8, 32, 64), "dense_pack.x86", arguments, config)
    assert "first, in TOPI through those of its rows" in text
    assert "tile_inner=[4, 2]: each step of the reduction is for all rows of a tile here" in text
    config = {"tile_y": [4, 4], "tile_x": [2, 8], "tile_k": [4, 16]}
    arguments = [tensor(2, 16, 64), tensor(2, 16, 64)]
    _, text = said(
        "batch_matmul", (2, 16, 16, 64, False, True), "batch_matmul.x86", arguments, config
    )
    assert text.endswith("a task here goes through its elements by columns, in TOPI by rows")


def test_blocks_of_a_line_fit_the_tile_that_was_taken():
    """Where the nearest tile has fewer columns, a task still has the whole line."""
    config = {"tile_ic": [3, 1], "tile_oc": [1, 64], "tile_ow": [4, 7], "unroll_kw": True}
    point, _ = said("conv2d", (1, 3, 28, 28, 64, 3, 3, 1, 1), *conv2d(3, 28, 64, 3, 1, 1, **config))
    assert (point["tile"].val, point["row_block"].val) == ((6, 64), 8)


@pytest.mark.parametrize(
    ("op", "args", "workload"),
    [
        (
            "conv2d_nchw.cuda",
            [tensor(1, 64, 56, 56), tensor(128, 64, 3, 3), [2, 2], [1, 1, 1, 1], [1, 1]],
            "conv2d N=1 C=64 H=56 W=56 O=128 KH=3 KW=3 stride=2 pad=1",
        ),
        (
            "conv2d_nchw_spatial_pack.mali",
            [tensor(1, 8, 9, 7), tensor(4, 8, 1, 3), [2, 1], [0, 1, 0, 1], [1, 2], "float32"],
            "conv2d N=1 C=8 H=9 W=7 O=4 KH=1 KW=3 stride=2,1 pad=0,1 dilation=1,2",
        ),
        (
            "depthwise_conv2d_nchw.arm_cpu",
            [tensor(1, 960, 7, 7), tensor(960, 1, 3, 3), 1, 1, 1, "float32"],
            "depthwise_conv2d N=1 C=960 H=7 W=7 KH=3 KW=3 pad=1",
        ),
        (
            "conv2d_NCHWc.x86",  # as a network holds it that was packed
            [tensor(1, 4, 8, 8, 16), tensor(2, 4, 1, 1, 16, 32), [1, 1], "VALID", [1, 1]],
            "conv2d N=1 C=64 H=8 W=8 O=64 KH=1 KW=1",
        ),
        (
            "batch_matmul.cuda",
            [tensor(4, 64, 32), tensor(4, 64, 48), None, None, True, False],
            "batch_matmul B=4 M=32 N=48 K=64 trans_a=True",
        ),
        ("dense_pack.x86", [tensor(8, 64), tensor(2, 64, 16)], "dense M=8 N=32 K=64"),
    ],
)
def test_workloads_of_any_device_are_read(op, args, workload):
    other = task_of("matmul", (8, 8, 8), "llvm")
    seed = seed_of(other, record(op, args, {}))
    assert (seed.workload, seed.point) == (workload, None)
    operator = lw.ops.WORKLOADS[workload.split()[0]]
    words = dict(word.split("=") for word in workload.split()[1:])
    assert set(words) <= set(operator.params)


def test_records_that_name_no_point_say_why():
    args = (1, 16, 14, 14, 48, 3, 3, 1, 1)
    name, arguments, _ = conv2d(16, 14, 48, 3, 1, 1)
    config = {"tile_ic": [4, 4], "tile_oc": [2, 24], "tile_ow": [2, 7], "unroll_kw": False}
    cuda = ("conv2d_nchw.cuda", arguments, {"tile_f": [1, 3, 16, 1]})
    for line, reason in (
        (cuda, "its knobs are of a schedule that no space here has"),
        ((name, arguments, {**config, "tile_oc": "24"}), "tile_oc is '24', no split"),
        ((name, arguments, {**config, "tile_oc": 24}), "tile_oc is 24, no split into 2 loops"),
        ((name, arguments, {**config, "tile_ow": [2, 0]}), "tile_ow is [2, 0], no split"),
        ((name, arguments, {}), "tile_ic is None, no split into 2 loops"),
        ((name, arguments[:3], config), "its arguments are others than are known"),
        ((name, [*arguments[:2], "11", *arguments[3:]], config), "its arguments are others"),
        ((name, ["x", *arguments[1:]], config), "its arguments are others than are known"),
        ((name, [["TENSOR", [1, 16, 14, None], "float32"], *arguments[1:]], config), "arguments"),
        ((name, [*arguments[:3], [0, 0, 1, 1], [1, 1]], config), "its padding [0, 0, 1, 1] is"),
        ((name, [*arguments[:3], "SAME", [1, 1]], config), "its padding is 'SAME'"),
        ((name, [arguments[0], tensor(48, 4, 3, 3), *arguments[2:]], config), "it has groups"),
    ):
        point, text = said("conv2d", args, *line)
        assert point is None
        assert text.startswith(line[0])
        assert reason in text
    line = ("dense_nopack.x86", [tensor(8, 64), tensor(32, 64)], {})
    point, text = said("matmul", (8, 32, 64, False, True), *line, target="opencl")
    assert (point, text) == (None, "dense_nopack.x86: it is scheduled for a CPU, not for opencl")
    task = task_of("conv2d", args, TARGETS[1])
    assert seed_of(task, record("matmul", [8, 8, 8], {})) is None
    assert seed_of(task, record("conv2d_hwcn.cuda", [], {})) is None
    dense = task_of("matmul", (8, 32, 64, False, True), "opencl")
    for op, *shapes in (("dense_pack.x86", (8, 64), (32, 63)), ("dense_nopack.x86", (8, 64))):
        _, remarks = seed_of(dense, record(op, [tensor(*shape) for shape in shapes], {})).point()
        assert remarks == (f"{op}: its arguments are others than are known here",)
    # The groups of another operator are no concern of this one.
    depthwise = conv2d(16, 14, 48, 3, 1, 1, kind="depthwise_conv2d_NCHWc.x86", **config)
    assert seed_of(task, record(*depthwise)).point is None


JUNK = [None, True, -1, 0, 10**20, 1.5, "SAME", [], [1, 2], [0] * 4, [[]], {"a": 1}, [None, None]]
X, W = tensor(1, 16, 14, 14), tensor(48, 16, 3, 3)
GOOD = [
    (
        ("conv2d", (1, 16, 14, 14, 48, 3, 3, 1, 1)),
        ("conv2d_NCHWc.x86", [X, W, [1, 1], [1, 1], [1, 1]]),
        {"tile_ic": [16, 1], "tile_oc": [3, 16], "tile_ow": [2, 7], "unroll_kw": True},
    ),
    (
        ("conv2d", (1, 16, 14, 14, 48, 1, 1)),
        ("conv2d_NCHWc.x86", [X, tensor(48, 16, 1, 1), [1, 1], 0, [1, 1]]),
        {"tile_ic": [4, 4], "tile_oc": [3, 16], "tile_ow": [2, 7], "tile_oh": 1},
    ),
    (
        ("dense", (8, 32, 64)),
        ("dense_pack.x86", [tensor(8, 64), tensor(32, 64)]),
        {"tile_y": [1, 2, 4], "tile_x": [2, 1, 16], "tile_k": [32, 2], "tile_inner": [8, 1]},
    ),
    (
        ("batch_matmul", (2, 8, 32, 64, False, True)),
        ("batch_matmul.x86", [tensor(2, 8, 64), tensor(2, 32, 64)]),
        {"tile_y": [8, 1], "tile_x": [4, 8], "tile_k": [4, 16]},
    ),
]


@pytest.mark.parametrize(("task", "line", "config"), GOOD)
def test_whatever_a_line_holds_is_a_point_or_a_reason(task, line, config):
    own, (op, args) = task_of(*task, TARGETS[1]), line
    point, remarks = seed_of(own, record(op, args, config)).point()
    assert point is not None
    assert remarks == ()
    for junk in JUNK:
        others = [(args, {**config, name: junk}) for name in config]
        others += [([*args[:n], junk, *args[n + 1 :]], config) for n in range(len(args))]
        tensors = [n for n, arg in enumerate(args) if isinstance(arg, list) and "TENSOR" in arg]
        for n in tensors:
            others += [([*args[:n], ["TENSOR", junk, "float32"], *args[n + 1 :]], config)]
        for arguments, knobs in others:
            seed = seed_of(own, record(op, arguments, knobs))
            if seed.point is not None:
                point, remarks = seed.point()
                assert point is not None or remarks
