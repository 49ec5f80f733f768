"""How choices act on a schedule."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright import build, lower, te
from loopwright.errors import InstantiationError, SpaceError
from loopwright.task import AnnotateEntity, ConfigSpace, ReorderEntity, SplitEntity


def test_split_goes_from_the_outside_in(fakes):
    s = fakes.Schedule()
    axes = SplitEntity([-1, 8, 4]).apply(s, "C", "i")
    assert s.steps == [["split", "C", "i", 32], ["split", "C", "i.i", 4]]
    assert axes == ["i.o", "i.i.o", "i.i.i"]
    assert SplitEntity([-1]).apply(s, "C", "j") == ["j"]
    assert len(s.steps) == 2


def test_reorder(fakes):
    s = fakes.Schedule()
    assert ReorderEntity([2, 0, 1]).apply(s, "C", ["a", "b", "c"]) == ["c", "a", "b"]
    assert s.steps == [["reorder", "C", "c", "a", "b"]]
    with pytest.raises(SpaceError, match="3 axes was applied to 2"):
        ReorderEntity([2, 0, 1]).apply(s, "C", ["a", "b"])


def test_annotate(fakes):
    s = fakes.Schedule()
    AnnotateEntity(["none", "unroll", "vec"]).apply(s, "C", ["a", "b", "c"])
    assert s.steps == [["unroll", "C", "b"], ["vectorize", "C", "c"]]


def test_annotate_limits_refuse_the_configuration(fakes):
    s = fakes.Schedule()
    entity = AnnotateEntity(["unroll", "vec"])
    entity.apply(s, "C", ["a", "b"], axis_lens=[4, 8], max_unroll=4, vec_size=[8, 16])
    assert len(s.steps) == 2
    with pytest.raises(InstantiationError, match="length 5 is too long to unroll"):
        entity.apply(s, "C", ["a", "b"], axis_lens=[5, 8], max_unroll=4)
    with pytest.raises(InstantiationError, match="length 9 is not among"):
        entity.apply(s, "C", ["a", "b"], axis_lens=[4, 9], vec_size=[8, 16])
    with pytest.raises(SpaceError, match="need axis_lens"):
        entity.apply(s, "C", ["a", "b"], max_unroll=4)
    with pytest.raises(SpaceError, match="2 axes was applied to 1"):
        entity.apply(s, "C", ["a"])
    collecting = ConfigSpace()
    entity.apply(s, "C", ["a", "b"], axis_lens=[5, 8], max_unroll=4, cfg=collecting)
    assert collecting.errors == ["length 5 is too long to unroll (at most 4)"]
    assert not collecting.valid()


def test_locate_cache(fakes):
    s = fakes.Schedule()
    AnnotateEntity([1, 0]).apply(s, "C", ["a", "b"], source=[["AA", "BB"], ["CC"]])
    assert s.steps == [
        ["compute_at", "AA", "C", "b"],
        ["compute_at", "BB", "C", "b"],
        ["compute_at", "CC", "C", "a"],
    ]
    with pytest.raises(SpaceError, match="2 anchors, but 1"):
        AnnotateEntity([1, 0]).apply(s, "C", ["a", "b"], source=[["AA"]])


def test_entities_compare_and_print_by_value():
    assert SplitEntity((-1, 8)) == SplitEntity([-1, 8])
    assert hash(SplitEntity((-1, 8))) == hash(SplitEntity([-1, 8]))
    assert SplitEntity([-1, 8]) != SplitEntity([-1, 4])
    assert str(SplitEntity([-1, 8])) == "[-1, 8]"
    assert SplitEntity([-1, 8]).size[-1] == 8


def test_loops_bound_to_a_launch_compute_the_same():
    """On the interpreter, which runs blocks and threads."""
    a = te.placeholder((4, 6, 8), "int32", name="a")
    b = te.compute((4, 6, 8), lambda i, j, k: a[i, j, k] * 3, name="b")
    s = te.create_schedule(b.op)
    loops = AnnotateEntity(["fuse", "blockIdx.x", "threadIdx.x"]).apply(s, b, b.op.axis)
    assert loops[0] is loops[1]
    assert [loop.extent for loop in loops] == [24, 24, 8]
    text = str(lower(s, [a, b]))
    assert "blockIdx.x" in text
    assert "threadIdx.x" in text
    data = np.arange(192, dtype="int32").reshape(4, 6, 8)
    out = np.zeros_like(data)
    build(s, [a, b], "interp")(data, out)
    np.testing.assert_array_equal(out, data * 3)
