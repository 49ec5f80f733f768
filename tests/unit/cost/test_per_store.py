"""Features of stores against counting the same in plain loops over the iterations of a program."""

from __future__ import annotations

import math

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.cost.cpu.machine import machine_of
from loopwright.cost.features import per_store
from loopwright.target import Target

LINE = 64


def found(s, target="llvm -mcpu=skylake-avx512"):
    """The features of a schedule by name, before logarithms."""
    with Target(target) as made:
        values = per_store.FEATURES.values(s.state, machine_of(made))
    return dict(zip(per_store.FEATURES.names, values, strict=True))


def product(shape=(12, 32, 20), tile=(4, 16)):
    """A tiled matrix product: schedule, stage of the product."""
    m, n, k = shape
    a, b = te.placeholder((m, k), "float32", name="A"), te.placeholder((k, n), "float32", name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = te.create_schedule(c.op)
    i, j = s[c].op.axis
    i0, i1 = s[c].split(i, factor=tile[0])
    j0, j1 = s[c].split(j, factor=tile[1])
    s[c].reorder(i0, j0, s[c].op.reduce_axis[0], i1, j1)
    return s, s[c], (i0, i1, j0, j1)


def test_a_store_has_ansors_numbers_in_ansors_groups():
    names = [f.name for f in per_store.STORE]
    assert len(names) == len(set(names)) == 164
    assert names.index("B0.type.read") == 57
    assert names.index("arith_intensity_curve_0") == 57 + 5 * 18
    assert names.index("alloc_size") == 57 + 5 * 18 + 10
    assert names.index("outer_prod") == 164 - 3


def test_marks_are_where_they_stand():
    s, stage, (i0, i1, _, j1) = product()
    stage.vectorize(j1)
    stage.unroll(i1)
    stage.parallel(i0)
    row = found(s)
    expected = {"vec": (16, "inner_spatial"), "unroll": (4, "middle_spatial")}
    expected["parallel"] = (3, "outer_spatial")
    for name, (extent, position) in expected.items():
        assert row[f"store0.{name}_num"] == 1
        assert row[f"store0.{name}_prod"] == row[f"store0.{name}_len"] == extent
        places = {p: row[f"store0.{name}_type.{p}"] for p in per_store.POSITIONS}
        assert {p for p, flag in places.items() if flag} == {position}
    assert row["store0.is_gpu"] == 0
    assert row["store0.num_loops"] == 5
    assert row["store0.outer_prod"] == 12 * 32 * 20
    assert row["store0.float_mad"] == 12 * 32 * 20
    assert row["store0.float_mul"] == row["store0.float_addsub"] == 0


def trips(shape=(12, 32, 20), tile=(4, 16)):
    """Offsets in C, A and B of every iteration of the tiled product, in order."""
    m, n, k = shape
    for i0 in range(m // tile[0]):
        for j0 in range(n // tile[1]):
            for r in range(k):
                for i1 in range(tile[0]):
                    for j1 in range(tile[1]):
                        i, j = i0 * tile[0] + i1, j0 * tile[1] + j1
                        yield i * n + j, i * k + r, r * n + j


def test_accesses_are_those_of_the_iterations():
    s, _, _ = product()
    row = found(s)
    order = list(trips())
    # The innermost loop that does not move C is that of r (20), A that of j1 (16), B that of i1.
    uses = {"C": (20, 4 * 16, 4), "A": (16, 1, 4 * 20), "B": (4, 16, 4 * 32)}
    for number, (name, (count, _, _)) in enumerate(uses.items()):
        offsets = [each[number] for each in order]
        prefix = f"store0.B{number}"
        assert row[f"{prefix}.bytes"] == 4 * len(offsets)
        assert row[f"{prefix}.unique_bytes"] == 4 * len(set(offsets))
        assert row[f"{prefix}.unique_lines"] == pytest.approx(
            len({4 * o // LINE for o in offsets}), abs=1
        )
        assert row[f"{prefix}.reuse_ct"] == count
        # Iterations between two uses of one element, the shortest way there is.
        last, gaps = {}, []
        for at, offset in enumerate(offsets):
            gaps += [at - last[offset]] if offset in last else []
            last[offset] = at
        assert row[f"{prefix}.reuse_dis_iter"] == min(gaps), name
        assert row[f"{prefix}.reuse.loop"] == 1
        assert row[f"{prefix}.bytes_d_reuse_ct"] == row[f"{prefix}.bytes"] / count
    steps = [np.diff([each[n] for each in order[:16]]).tolist() for n in range(3)]
    assert steps[0] == [1] * 15
    assert row["store0.B0.stride"] == row["store0.B2.stride"] == 4
    # A stands still for j1; from one i1 to the next it goes a row further.
    assert row["store0.B1.stride"] == 4 * (order[16][1] - order[0][1])
    assert row["store0.B0.type.read_write"] == row["store0.B1.type.read"] == 1
    assert row["store0.B3.bytes"] == 0


def test_what_another_statement_made_is_used_again_by_it():
    x = te.placeholder((64,), "float32", name="X")
    y = te.compute((64,), lambda i: x[i] + 1.0, name="Y")
    z = te.compute((64,), lambda i: te.exp(y[i]) * 2.0 - 1.0, name="Z")
    row = found(te.create_schedule(z.op))
    # Z has more arithmetic: a function, and one multiply-add.
    assert row["store0.float_math"] == row["store0.float_mad"] == 64
    assert row["store1.float_addsub"] == 64
    assert (row["store0.B1.reuse.serial"], row["store0.B1.reuse_dis_iter"]) == (1, 64)
    assert (row["store1.B1.reuse.none"], row["store1.B1.reuse_dis_iter"]) == (1, 0)
    assert row["store1.B1.bytes_d_reuse_ct"] == 2 * 4 * 64
    assert row["store0.B0.type.write"] == 1


def test_operations_are_told_apart_by_what_they_are_of():
    a, n = te.placeholder((8,), "float32", name="A"), te.placeholder((8,), "int32", name="N")
    c = te.compute(
        (8,),
        lambda i: te.if_then_else(n[i] > 3, a[i] / 2.0, te.max(a[i], 0.0)) + n[i].astype("float32"),
        name="C",
    )
    row = found(te.create_schedule(c.op))
    counted = {k: row[f"store0.{k}"] for k in per_store.OPERATIONS if row[f"store0.{k}"]}
    assert counted == {
        "select_op": 8,
        "int_cmp": 8,
        "float_divmod": 8,
        "float_cmp": 8,
        "float_addsub": 8,
        "float_other": 8,
    }


def test_the_curve_grows_to_the_operations_for_each_byte_of_all():
    s, _, _ = product((64, 64, 64), (8, 16))
    row = found(s)
    curve = [row[f"store0.arith_intensity_curve_{k}"] for k in range(per_store.SAMPLES)]
    whole = 64**3 / (3 * 64 * 64 * 4)
    assert curve[-1] == pytest.approx(whole, rel=0.05)
    assert curve[0] < curve[4] < curve[-1]


def test_further_stores_are_summed_up():
    x = te.placeholder((32,), "float32", name="X")
    stages = [x]
    for number in range(5):
        last, many = stages[-1], 5 - number
        stages.append(
            te.compute(
                (32,),
                lambda i, last=last, many=many: sum((last[i] + k for k in range(many)), last[i]),
                name=f"S{number}",
            )
        )
    row = found(te.create_schedule(stages[-1].op))
    assert row["others.outer_prod"] == 2 * 32
    assert row["others.num_loops"] == 2
    first = [row[f"store{k}.float_addsub"] for k in range(3)]
    assert first == sorted(first, reverse=True)
    # 2 and 1 terms besides the first value, each with an addition of its own but for that of zero.
    assert 0 < row["others.float_addsub"] < first[-1] * 2


def test_a_kernel_tells_its_threads():
    a = te.placeholder((128, 64), "float32", name="A")
    b = te.compute((128, 64), lambda i, j: a[i, j] * 2.0, name="B")
    s = te.create_schedule(b.op)
    i, j = s[b].op.axis
    s[b].bind(i, te.thread_axis("blockIdx.x"))
    s[b].bind(j, te.thread_axis("threadIdx.x"))
    row = found(s, "cuda")
    assert (row["store0.is_gpu"], row["store0.blockIdx_x_len"]) == (1, 128)
    assert (row["store0.threadIdx_x_len"], row["store0.threadIdx_y_len"]) == (64, 1)


def test_a_pragma_is_told():
    s, stage, (i0, *_) = product()
    stage.pragma(i0, "auto_unroll_max_step", 64)
    assert found(s)["store0.auto_unroll_max_step"] == 64


def test_powers_are_those_of_numbers():
    assert per_store._power(3, 4) == 81.0
    assert math.isfinite(per_store._power(2**40, per_store.SAMPLES))


def test_the_learned_tuner_takes_them():
    task = lw.create_task("matmul", (64, 64, 64), "llvm")
    tuner = lw.tuner.XGBTuner(task, feature_type="per_store", seed=0)
    for _ in range(2):
        configs = tuner.ask(16)
        times = [1e-3 * (1 + config.index % 17) for config in configs]
        tuner.tell([(c, lw.MeasureResult(times=(t,))) for c, t in zip(configs, times, strict=True)])
    assert len(tuner.ask(8)) == 8
    assert tuner.model.ready
    assert len(tuner.model.names) == 656
