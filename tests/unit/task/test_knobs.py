"""Candidates of each kind of knob, against enumerations made in another way."""

from __future__ import annotations

from itertools import pairwise, permutations, product
from math import prod
from types import SimpleNamespace

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import SpaceError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower
from loopwright.task import ConfigSpace, SplitEntity
from loopwright.task.policies import axis


def values(space, name):
    return [entity.value for entity in space.knobs[name].entities]


def split(length, **kwargs):
    space = ConfigSpace()
    space.define_split("s", length, **kwargs)
    return values(space, "s")


@pytest.mark.parametrize(("length", "outputs"), [(1, 2), (12, 2), (12, 3), (36, 4), (7, 3)])
def test_factors_are_all_exact_tilings(length, outputs):
    tiles = product(range(1, length + 1), repeat=outputs)
    truth = sorted([-1, *tile[1:]] for tile in tiles if prod(tile) == length)
    assert sorted(split(length, num_outputs=outputs)) == truth
    assert split(length, num_outputs=outputs) == truth  # and in lexicographic order


@pytest.mark.parametrize("length", [1, 8, 20, 777])
def test_power2_fits_and_may_leave_a_tail(length):
    powers = [1 << n for n in range(12)]
    truth = [[-1, a, b] for a in powers for b in powers if a * b <= length]
    assert split(length, policy="power2", num_outputs=3) == truth
    exact = [size for size in truth if length % prod(size[1:]) == 0]
    assert split(length, policy="power2", num_outputs=3, no_tail=True) == exact


def test_verbose_is_the_union():
    assert split(12, policy="verbose") == [[-1, n] for n in (1, 2, 3, 4, 6, 8, 12)]
    both = split(12, policy="verbose", num_outputs=3)
    assert [-1, 4, 3] in both
    assert [-1, 8, 1] in both
    assert [-1, 8, 2] not in both


def test_limits_of_a_split():
    assert split(64, max_factor=4) == [[-1, 1], [-1, 2], [-1, 4]]
    assert split(64, filter=lambda e: e.size[-1] >= 16) == [[-1, 16], [-1, 32], [-1, 64]]
    assert split(64, num_outputs=1) == [[-1]]
    given = [[-1, 8, 4], [2, 16, 2], [-1, 8, 4]]
    assert split(64, policy="candidate", candidate=given) == [[-1, 8, 4], [-1, 16, 2]]


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"policy": "factor"}, "did you mean 'factors'"),
        ({"filter": lambda e: False}, "no candidate"),
        ({"policy": "candidate"}, "needs candidate="),
        ({"policy": "candidate", "candidate": [[-1, 0]]}, "at least 1"),
        ({"policy": "candidate", "candidate": [[3, 8]]}, "first size is 8"),
        ({"policy": "candidate", "candidate": [[-1, 8], [-1, 8, 2]]}, "different numbers"),
        ({"policy": "candidate", "candidate": [[-1, 2.0]]}, "integers"),
        ({"num_outputs": 0}, "num_outputs"),
        ({"default": [-1, 3]}, "not among its candidates"),
    ],
)
def test_a_split_that_makes_no_sense(kwargs, words):
    with pytest.raises(SpaceError, match=words):
        split(64, **kwargs)


@pytest.mark.parametrize(
    ("length", "outputs", "default"),
    [
        (1024, 2, [-1, 16]),
        (1024, 3, [-1, 4, 16]),
        (1024, 4, [-1, 4, 4, 16]),
        (8, 2, [-1, 8]),
        (1000, 2, [-1, 8]),
        (7, 2, [-1, 7]),
        (1, 3, [-1, 1, 1]),
    ],
)
def test_the_default_of_a_split_is_a_small_balanced_tile(length, outputs, default):
    space = ConfigSpace()
    space.define_split("s", length, num_outputs=outputs)
    assert space["s"].value == default


def test_axes_are_loop_axes_or_lengths():
    assert axis(5).length == 5
    assert axis(SimpleNamespace(extent=6, name="i")) == axis(SimpleNamespace(extent=6, name="i"))
    assert axis(SimpleNamespace(dom=SimpleNamespace(extent=7))).length == 7
    assert ConfigSpace.axis(8) == ConfigSpace.reduce_axis(8) == axis(8)
    for wrong in (0, -3, True, "8", None, 2.5):
        with pytest.raises(SpaceError, match="axis"):
            axis(wrong)
    with pytest.raises(SpaceError, match="axis 'i' has n iterations, and a knob needs a number"):
        axis(SimpleNamespace(extent=te.size_var("n"), name="i"))
    space = ConfigSpace()
    outer, inner = space.define_split("s", 8)
    with pytest.raises(SpaceError, match="num_outputs=3"):
        space.define_split("t", inner)
    assert len(space.define_reorder("r", [outer, inner], "all")) == 2


def reorder(count, policy, **kwargs):
    space = ConfigSpace()
    axes = [space.axis(n + 1) for n in range(count)]
    space.define_reorder("r", axes, policy, **kwargs)
    return values(space, "r")


def test_reorder_policies():
    assert reorder(3, "identity") == [[0, 1, 2]]
    assert sorted(reorder(4, "all")) == sorted(map(list, permutations(range(4))))
    assert reorder(4, "interval_all", interval=(1, 3)) == [[0, 1, 2, 3], [0, 2, 1, 3]]
    assert reorder(3, "candidate", candidate=[[2, 0, 1], [0, 1, 2]]) == [[2, 0, 1], [0, 1, 2]]


def test_interleave_keeps_the_order_within_each_chain():
    found = reorder(7, "interleave", spatial=[[0, 1, 2], [3, 4]], reduce=[[5, 6]])

    def rank(perm, *chain):
        return all(perm.index(a) < perm.index(b) for a, b in pairwise(chain))

    truth = [
        list(perm)
        for perm in permutations(range(7))
        if rank(perm, 0, 1, 2)
        and rank(perm, 3, 4)
        and rank(perm, 5, 6)
        and set(perm[:3]) == {0, 1, 3}
    ]
    assert sorted(found) == sorted(truth)
    assert len(found) == 3 * 12


def test_interleave_cuda_puts_the_innermost_loops_inside_the_reductions():
    found = reorder(6, "interleave_cuda", spatial=[[0, 1], [2, 3]], reduce=[[4], [5]])
    outer, inner = ([0, 2], [2, 0]), ([4, 5], [5, 4])
    assert sorted(found) == sorted([*o, *r, 1, 3] for o in outer for r in inner)


def test_the_default_of_a_reorder_is_to_leave_it():
    space = ConfigSpace()
    space.define_reorder("r", [1, 2], "candidate", candidate=[[1, 0], [0, 1]])
    space.define_reorder("q", [1, 2], "all", default=[1, 0])
    assert space["r"].perm == (0, 1)
    assert space["q"].perm == (1, 0)


@pytest.mark.parametrize(
    ("policy", "kwargs", "words"),
    [
        ("some", {}, "unknown reorder policy"),
        ("interval_all", {}, "interval="),
        ("interval_all", {"interval": (2, 9)}, "interval="),
        ("candidate", {}, "needs candidate="),
        ("candidate", {"candidate": [[0, 0, 1]]}, "no permutation"),
        ("candidate", {"candidate": [["x", 0, 1]]}, "not one of its 3 axes"),
        ("interleave", {}, "spatial="),
        ("interleave_cuda", {}, "policy 'interleave_cuda' needs spatial="),
        ("interleave", {"spatial": [[0, 1]]}, "no permutation"),
    ],
)
def test_a_reorder_that_makes_no_sense(policy, kwargs, words):
    with pytest.raises(SpaceError, match=words):
        reorder(3, policy, **kwargs)


@pytest.mark.parametrize(
    ("policy", "outer", "inner"),
    [
        ("none", ["none"], ["none"]),
        ("unroll", ["unroll"], ["unroll"]),
        ("try_unroll", ["none", "unroll"], ["none", "unroll"]),
        ("vec", ["none"], ["vec"]),
        ("try_vec", ["none"], ["none", "vec"]),
        ("unroll_vec", ["unroll"], ["unroll", "vec"]),
        ("try_unroll_vec", ["none", "unroll"], ["none", "unroll", "vec"]),
    ],
)
def test_annotations_vectorize_at_most_the_innermost(policy, outer, inner):
    space = ConfigSpace()
    space.define_annotate("a", [1, 2, 3], policy)
    assert values(space, "a") == [list(p) for p in product(outer, outer, inner)]


def test_locate_cache_and_wrong_annotations():
    space = ConfigSpace()
    space.define_annotate("a", [1, 2, 3], "locate_cache", num_anchor=2)
    assert values(space, "a") == [list(p) for p in product(range(3), repeat=2)]
    for policy, axes, words in [
        ("vectorize", [1], "unknown annotate policy"),
        ("locate_cache", [1], "num_anchor"),
        ("vec", [], "no axis"),
    ]:
        with pytest.raises(SpaceError, match=words):
            space.define_annotate("b", axes, policy)


def test_other_options_are_json_values():
    space = ConfigSpace()
    space.define_knob("k", [True, 1, 1.0, "1", None, (1, 2), 1], default="1")
    assert values(space, "k") == [True, 1, 1.0, "1", None, [1, 2]]
    assert space["k"].val == "1"
    knob = space.knobs["k"]
    assert [knob.position(v) for v in (True, 1, 1.0, [1, 2], 2)] == [0, 1, 2, 5, None]
    assert knob.entities[5].val == (1, 2)
    for wrong in ([object()], [float("nan")], [], "text", 5):
        with pytest.raises(SpaceError):
            space.define_knob("w", wrong)


def test_a_split_found_by_value_ignores_the_derived_size():
    space = ConfigSpace()
    space.define_split("s", 64, num_outputs=3)
    knob = space.knobs["s"]
    assert knob.entities[knob.position([2, 8, 4])] == SplitEntity([-1, 8, 4])
    assert knob.position([-1, 3, 3]) is None
    assert knob.entity([-1, 3, 3]).size == (-1, 3, 3)
    for wrong in ([-1, 8], "x", [-1, 0, 1], [-1, 2.5, 1]):
        with pytest.raises(SpaceError):
            knob.entity(wrong)


B, V, T = (f"{part}.{{}}".format for part in ("blockIdx", "vthread", "threadIdx"))


@pytest.mark.parametrize(
    ("policy", "count", "wanted"),
    [
        ("bind_gpu", 2, [B("x"), T("x")]),
        ("bind_gpu", 3, ["fuse", B("x"), T("x")]),
        ("bind_gpu", 5, ["fuse", B("y"), B("x"), T("y"), T("x")]),
        ("bind_gpu", 7, ["fuse", *map(B, "zyx"), *map(T, "zyx")]),
        ("bind_gpu_virtual", 3, [B("x"), "vthread", T("x")]),
        ("bind_gpu_virtual", 8, ["fuse"] * 2 + [B("y"), B("x"), *["vthread"] * 2, T("y"), T("x")]),
        ("bind_gpu_virtual", 9, [*map(B, "zyx"), *["vthread"] * 3, *map(T, "zyx")]),
    ],
)
def test_loops_are_bound_to_as_many_dimensions_as_there_are(policy, count, wanted):
    space = ConfigSpace()
    space.define_annotate("bind", [4] * count, policy)
    assert values(space, "bind") == [wanted]
    names = [name for name, _ in space.knobs["bind"].columns()]
    assert len(names) == count


@pytest.mark.parametrize(("policy", "count"), [("bind_gpu", 1), ("bind_gpu_virtual", 2)])
def test_too_few_loops_to_bind_are_refused(policy, count):
    with pytest.raises(SpaceError, match=f"needs at least {count + 1} axes.*it has {count}"):
        ConfigSpace().define_annotate("bind", [4] * count, policy)


def test_a_space_of_threads_is_sampled_and_every_point_lowers():
    """Orders of ``interleave_cuda`` and bindings of ``bind_gpu_virtual``, as AutoTVM's templates
    use them together."""
    A = te.placeholder((32, 16), name="A")
    k = te.reduce_axis((0, 16), name="k")
    C = te.compute((32, 24), lambda i, j: te.sum(A[i, k] * A[j, k], axis=k), name="C")
    space = ConfigSpace()
    i, j = C.op.axis
    ti = space.define_split("i", i, num_outputs=4, max_factor=2)
    tj = space.define_split("j", j, num_outputs=4, max_factor=2)
    tk = space.define_split("k", k, num_outputs=2, max_factor=8)
    loops = [*ti, *tj, *tk]
    space.define_reorder("order", loops, "interleave_cuda", spatial=[ti, tj], reduce=[tk])
    space.define_annotate("bind", loops[:6], "bind_gpu_virtual")
    space.freeze()
    assert len(space.knobs["order"]) == 20, "merges of three and three outer loops"
    indices = space.sample_ints(6, rng=0)
    assert len(set(indices)) == 6
    columns = [c for knob in space.knobs.values() for c in knob.columns()]
    assert all(np.isfinite(values).all() for _, values in columns)
    for index in indices:
        config = space.get(index)
        s = te.create_schedule(C.op)
        pi, pj = config["i"].apply(s, C, i), config["j"].apply(s, C, j)
        pk = config["k"].apply(s, C, k)
        ordered = config["order"].apply(s, C, [*pi, *pj, *pk])
        config["bind"].apply(s, C, ordered[:6])
        f = lower(s, [A, C])
        a = np.random.default_rng(0).standard_normal((32, 16)).astype("float32")
        c = np.full((32, 24), np.nan, "float32")
        interpret(f, [a, c], races=True)
        np.testing.assert_allclose(c, a @ a.T[:, :24], rtol=1e-4, atol=1e-4)
        assert "blockIdx.y" in str(f)
