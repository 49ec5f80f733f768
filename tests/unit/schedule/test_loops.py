"""Split, fuse, reorder, marks and pragmas: their effect on the state, and every refusal."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.schedule.state import FuseRel, SplitRel
from tests.unit.schedule.programs import chain, matmul

BAD_FACTORS = [0, -4, 2.0, "4", True]


def stage_of(p: Any, t: te.Tensor) -> Any:
    return p.s.state.stages[p.s[t].id]


# ------------------------------------------------------------------ effects


def test_split() -> None:
    p = matmul(10, 12, 7)
    p.s[p.c].split(p.c.op.axis[0], factor=4)
    stage = stage_of(p, p.c)
    assert stage.leaves == ("0.0", "0.1", "a1", "r0")
    assert stage.relations == (SplitRel("a0", "0.0", "0.1", 4, None, 0),)
    assert p.s.state.loop_list(stage) == "C.i.0, C.i.1, C.j, C.k"


def test_split_by_more_than_there_is() -> None:
    p = matmul(10, 12, 7)
    outer, inner = p.s[p.c].split(p.c.op.axis[0], factor=100)
    assert (outer.extent, inner.extent) == (1, 10)


def test_fuse() -> None:
    p = matmul()
    p.s[p.c].fuse(*p.c.op.axis)
    stage = stage_of(p, p.c)
    assert stage.leaves == ("0.0", "r0")
    assert stage.relations == (FuseRel("a0", "a1", "0.0", 0),)


def test_fuse_of_what_a_reorder_made_adjacent() -> None:
    p = chain()
    i, j = p.d.op.axis
    p.s[p.d].reorder(j, i)
    assert p.s[p.d].fuse(j, i).name == "j.i"


def test_reorder_keeps_the_places_of_the_others() -> None:
    a = te.placeholder((2, 3, 4, 5))
    c = te.compute((2, 3, 4, 5), lambda w, x, y, z: a[w, x, y, z] + 1.0)
    s = te.create_schedule(c)
    w, x, y, z = c.op.axis
    s[c].reorder(z, x)
    assert s[c].leaf_iter_vars == [w, z, y, x]


def test_marks() -> None:
    p = matmul()
    i, j = p.c.op.axis
    p.s[p.c].parallel(i)
    p.s[p.c].vectorize(j)
    p.s[p.c].unroll(p.c.op.reduce_axis[0])
    marks = stage_of(p, p.c).marks
    assert {k: (m.kind, m.step) for k, m in marks.items()} == {
        "a0": ("parallel", 0),
        "a1": ("vectorized", 1),
        "r0": ("unrolled", 2),
    }


def test_the_same_mark_twice_is_no_contradiction() -> None:
    p = chain()
    p.s[p.d].parallel(p.d.op.axis[0])
    p.s[p.d].parallel(p.d.op.axis[0])
    assert len(p.s.trace) == 2


def test_a_later_pragma_replaces_the_earlier() -> None:
    p = chain()
    i, _ = p.d.op.axis
    p.s[p.d].pragma(i, "auto_unroll_max_step", 8)
    p.s[p.d].pragma(i, "unroll_explicit", False)
    p.s[p.d].pragma(i, "auto_unroll_max_step", 16)
    assert stage_of(p, p.d).pragmas == (
        ("a0", "unroll_explicit", False),
        ("a0", "auto_unroll_max_step", 16),
    )


# ------------------------------------------------------------------ refusals


def refused(p: Any, call: Any, text: str) -> None:
    state, trace = p.s.state, p.s.trace
    with pytest.raises(ScheduleError, match=text):
        call()
    assert (p.s.state, p.s.trace) == (state, trace)


@pytest.mark.parametrize("bad", BAD_FACTORS)
@pytest.mark.parametrize("what", ["factor", "nparts"])
def test_split_sizes(what: str, bad: Any) -> None:
    p = matmul()
    refused(
        p,
        lambda: p.s[p.c].split(p.c.op.axis[0], **{what: bad}),
        rf"split \(step 0\): {what} must be a positive integer, got {bad!r}$",
    )


@pytest.mark.parametrize("kwargs", [{}, {"factor": 2, "nparts": 3}])
def test_split_wants_one_size(kwargs: dict[str, int]) -> None:
    p = matmul()
    refused(
        p,
        lambda: p.s[p.c].split(p.c.op.axis[0], **kwargs),
        r"split \(step 0\): give one of factor= and nparts=, got ",
    )


def use(p: Any, name: str, x: Any) -> Any:
    """A call of each primitive that acts on loop ``x`` of C."""
    stage, j = p.s[p.c], p.c.op.axis[1]
    return {
        "split": lambda: stage.split(x, factor=2),
        "fuse": lambda: stage.fuse(x, j),
        "reorder": lambda: stage.reorder(j, x),
        "vectorize": lambda: stage.vectorize(x),
        "unroll": lambda: stage.unroll(x),
        "parallel": lambda: stage.parallel(x),
        "bind": lambda: stage.bind(x, "threadIdx.x"),
        "pragma": lambda: stage.pragma(x, "auto_unroll_max_step", 2),
        "tile": lambda: stage.tile(x, j, 2, 2),
        "compute_at": lambda: p.s[p.s.cache_read(p.a, "local", [p.c])].compute_at(stage, x),
    }[name]


ON_LOOPS = [
    "split", "fuse", "reorder", "vectorize", "unroll", "parallel", "bind", "pragma", "tile",
]  # fmt: skip


@pytest.mark.parametrize("name", ON_LOOPS)
def test_loops_that_a_split_consumed(name: str) -> None:
    p = matmul()
    i = p.c.op.axis[0]
    p.s[p.c].split(i, factor=4)
    verb = "split" if name == "tile" else name
    refused(
        p,
        use(p, name, i),
        rf"{verb} \(step 1\): loop 'C\.i' no longer exists \(step 0 split it into C\.i\.0, "
        r"C\.i\.1\); the loops are now C\.i\.0, C\.i\.1, C\.j, C\.k$",
    )


@pytest.mark.parametrize("name", ["split", "vectorize", "pragma"])
def test_loops_that_a_fuse_consumed(name: str) -> None:
    p = matmul()
    i, j = p.c.op.axis
    p.s[p.c].fuse(i, j)
    refused(
        p,
        use(p, name, i),
        rf"{name} \(step 1\): loop 'C\.i' no longer exists \(step 0 fused it into C\.i\.j\); the "
        r"loops are now C\.i\.j, C\.k$",
    )


def test_compute_at_a_consumed_loop() -> None:
    p = matmul()
    i = p.c.op.axis[0]
    al = p.s.cache_read(p.a, "local", [p.c])
    p.s[p.c].split(i, factor=4)
    refused(
        p,
        lambda: p.s[al].compute_at(p.s[p.c], i),
        r"compute_at \(step 2\): loop 'C\.i' no longer exists \(step 1 split it into",
    )


@pytest.mark.parametrize("name", ["split", "fuse"])
@pytest.mark.parametrize(
    ("verb", "kind"),
    [("vectorize", "vectorized"), ("unroll", "unrolled"), ("parallel", "parallel")],
)
def test_marked_loops_cannot_be_taken_apart(name: str, verb: str, kind: str) -> None:
    p = matmul()
    i = p.c.op.axis[0]
    getattr(p.s[p.c], verb)(i)
    refused(
        p,
        use(p, name, i),
        rf"{name} \(step 1\): loop 'C\.i' is already {kind} \(step 0\); {name} it before that",
    )


def test_fuse_of_one_loop_that_is_gone() -> None:
    p = matmul()
    i = p.c.op.axis[0]
    p.s[p.c].split(i, factor=2)
    refused(p, lambda: p.s[p.c].fuse(i), r"fuse \(step 1\): loop 'C\.i' no longer exists \(step 0")


@pytest.mark.parametrize("parts", [{"factor": 4}, {"nparts": 4}, {"factor": 100}])
def test_an_even_split_may_say_so(parts: Any) -> None:
    p = matmul(12, 12, 7)
    p.s[p.c].split(p.c.op.axis[0], **parts, disable_predication=True)
    assert len(p.s.trace) == 1


@pytest.mark.parametrize("what", ["factor", "nparts"])
def test_a_split_that_is_not_even_keeps_its_test(what: str) -> None:
    p = matmul(10, 12, 7)
    i = p.c.op.axis[0]
    refused(
        p,
        lambda: p.s[p.c].split(i, **{what: 4}, disable_predication=True),
        rf"split \(step 0\): disable_predication needs an even split, and {what} 4 does not divide "
        r"the 10 iterations of 'C\.i'; take one that does, or let a test guard the tail",
    )
    p.s[p.c].split(i, **{what: 4})  # and the axis is still there


def test_an_even_split_of_a_size() -> None:
    n = te.size_var("n")
    a = te.placeholder((n * 8, n), name="A")
    c = te.compute((n * 8, n), lambda i, j: a[i, j] + 1.0, name="C")
    s = te.create_schedule(c)
    i, j = c.op.axis
    s[c].split(i, 8, disable_predication=True)
    with pytest.raises(ScheduleError, match=r"factor 8 does not divide the n iterations of 'C\.j'"):
        s[c].split(j, 8, disable_predication=True)


@pytest.mark.parametrize("name", ["split", "fuse"])
def test_loops_with_a_pragma_cannot_be_taken_apart(name: str) -> None:
    p = matmul()
    i = p.c.op.axis[0]
    p.s[p.c].pragma(i, "auto_unroll_max_step", 4)
    refused(
        p,
        use(p, name, i),
        rf"{name} \(step 1\): loop 'C\.i' carries a pragma; {name} it before that",
    )


@pytest.mark.parametrize("name", ["split", "fuse"])
def test_loops_with_a_stage_inside_cannot_be_taken_apart(name: str) -> None:
    p = matmul()
    i = p.c.op.axis[0]
    p.s[p.s.cache_read(p.a, "local", [p.c])].compute_at(p.s[p.c], i)
    refused(
        p,
        use(p, name, i),
        rf"{name} \(step 2\): stage 'A\.local' is computed at loop 'C\.i'; {name} the loop first "
        "and use compute_at afterwards",
    )


def test_fuse_of_different_kinds() -> None:
    p = matmul()
    refused(
        p,
        lambda: p.s[p.c].fuse(p.c.op.axis[1], p.c.op.reduce_axis[0]),
        r"fuse \(step 0\): 'C\.j' and 'C\.k' are of different kinds \(spatial, reduce\); fuse like",
    )


def test_fuse_of_loops_that_are_not_adjacent() -> None:
    p = matmul()
    i, j = p.c.op.axis
    text = r"fuse \(step {}\): {} are not adjacent, outer first; reorder them \(loops: {}\)"
    refused(
        p,
        lambda: p.s[p.c].fuse(j, i),
        text.format(0, r"'C\.j' and 'C\.i'", r"C\.i, C\.j, C\.k"),
    )
    p.s[p.c].reorder(i, p.c.op.reduce_axis[0], j)
    refused(
        p,
        lambda: p.s[p.c].fuse(i, j),
        text.format(1, r"'C\.i' and 'C\.j'", r"C\.i, C\.k, C\.j"),
    )
    refused(p, lambda: p.s[p.c].fuse(i, i), r"'C\.i' and 'C\.i' are not adjacent")


def test_reorder_of_a_loop_given_twice() -> None:
    p = matmul()
    i, j = p.c.op.axis
    refused(
        p,
        lambda: p.s[p.c].reorder(j, i, j),
        r"reorder \(step 0\): loop 'C\.j' is given twice; name each loop once",
    )


def test_reductions_cannot_run_in_parallel() -> None:
    p = matmul()
    refused(
        p,
        lambda: p.s[p.c].parallel(p.c.op.reduce_axis[0]),
        r"parallel \(step 0\): loop 'C\.k' is a reduction: its iterations add to one element; use "
        "a spatial loop, or rfactor to make the loop one",
    )


def test_reductions_can_be_vectorized() -> None:
    p = matmul()
    p.s[p.c].vectorize(p.c.op.reduce_axis[0])
    assert p.s.state.stages[2].marks["r0"].kind == "vectorized"


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("vectorize", "parallel", "vectorized"),
        ("parallel", "unroll", "parallel"),
        ("unroll", "vectorize", "unrolled"),
        ("parallel", "bind", "parallel"),
        ("bind", "parallel", r"thread threadIdx\.x"),
    ],
)
def test_a_loop_carries_one_mark(first: str, second: str, text: str) -> None:
    p = matmul()
    i = p.c.op.axis[0]
    use(p, first, i)()
    refused(
        p,
        use(p, second, i),
        rf"{second} \(step 1\): loop 'C\.i' is already {text} \(step 0\); split it and mark",
    )


def test_a_loop_is_bound_once() -> None:
    p = matmul()
    i = p.c.op.axis[0]
    p.s[p.c].bind(i, "threadIdx.x")
    refused(
        p,
        lambda: p.s[p.c].bind(i, "threadIdx.y"),
        r"bind \(step 1\): loop 'C\.i' is already thread threadIdx\.x \(step 0\)",
    )


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            "auto_unroll_max_steps",
            4,
            r"unknown pragma 'auto_unroll_max_steps' \(did you mean 'auto_unroll_max_step'\?\); "
            "known: auto_unroll_max_step, unroll_explicit, loop_partition_hint, nontemporal, and "
            r"names of your own that begin with 'user\.'",
        ),
        ("user.", 4, r"unknown pragma 'user\.'"),
        ("user.tag", [1, 2], r"user\.tag takes a number, a text, a bool or None, got \[1, 2\]"),
        ("auto_unroll_max_step", -1, "takes a number of steps, 0 or more, got -1"),
        ("auto_unroll_max_step", "4", "takes a number of steps, 0 or more, got '4'"),
        ("auto_unroll_max_step", True, "takes a number of steps, 0 or more, got True"),
        ("unroll_explicit", "yes", "unroll_explicit takes True or False, got 'yes'"),
        ("loop_partition_hint", -1, "takes True, or the multiple of a short tile, got -1"),
        ("loop_partition_hint", "yes", "takes True, or the multiple of a short tile, got 'yes'"),
    ],
)
def test_pragmas(key: str, value: Any, text: str) -> None:
    p = matmul()
    refused(
        p,
        lambda: p.s[p.c].pragma(p.c.op.axis[0], key, value),
        rf"pragma \(step 0\): .*{text}",
    )


@pytest.mark.parametrize("name", ON_LOOPS)
def test_inputs_have_no_loops(name: str) -> None:
    p = matmul()
    axis = te.reduce_axis(4, "x")
    calls = {
        "bind": lambda: p.s[p.a].bind(axis, "threadIdx.x"),
        "pragma": lambda: p.s[p.a].pragma(axis, "unroll_explicit", True),
        "split": lambda: p.s[p.a].split(axis, factor=2),
        "tile": lambda: p.s[p.a].tile(axis, axis, 2, 2),
    }
    call = calls.get(name, lambda: getattr(p.s[p.a], name)(axis))
    refused(
        p, call, r"\(step 0\): axis 'x' is not known in this schedule; the loops of 'A' are none"
    )


def test_an_axis_that_several_stages_reduce_over_means_the_loop_of_the_stage_that_is_asked() -> (
    None
):
    A, k = te.placeholder((4, 8), name="A"), te.reduce_axis((0, 8), name="k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
    D = te.compute((4,), lambda i: te.max(A[i, k], axis=k), name="D")
    E = te.compute((4,), lambda i: B[i] + D[i], name="E")
    s = te.create_schedule(E.op)
    s[B].split(k, factor=4)
    s[D].split(k, factor=2)
    steps = [(t.stage, t.factor) for t in s.trace]  # type: ignore[attr-defined]
    assert [n for _, n in steps] == [4, 2]
    assert steps[0][0] != steps[1][0]
