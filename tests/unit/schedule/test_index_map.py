"""Index maps against brute force: verdicts, bounds, texts, and maps read from functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hst

from loopwright import te
from loopwright.errors import ScheduleError
from loopwright.lowering import lower
from loopwright.schedule import create_schedule, replay
from loopwright.schedule.primitives import index_map as im
from loopwright.schedule.primitives.layout import TransformLayout, expression, trace_map
from tests.unit.schedule.programs import chain


def collides(exprs: Any, shape: tuple[int, ...]) -> bool:
    points = np.indices(shape).reshape(len(shape), -1).T
    new = im.places(exprs, points)
    return len({tuple(p) for p in new.tolist()}) < len(points)


def exprs_of(index_map: Any, ndim: int) -> tuple[Any, ...]:
    return tuple(expression(x) for x in trace_map(index_map, ndim, "test"))


@pytest.mark.parametrize(
    ("index_map", "shape"),
    [
        (lambda i, j: i * 6 + j, (8, 6)),
        (lambda i, j: ((i * 6 + j) // 4, (i * 6 + j) % 4), (8, 6)),
        (lambda i, j: (i * 6 + j) % 48, (8, 6)),
        (lambda i, j: i * 10 + j + 3, (8, 6)),
        (lambda i, j: (7 - i, 5 - j), (8, 6)),
        (lambda i, j: (47 - (i * 6 + j)) // 5 * 5 + (47 - (i * 6 + j)) % 5, (8, 6)),
        (lambda i: (i // 4 % 3, i % 4, i // 12), (100,)),
        (lambda i: (i % 12 // 4, i % 12 % 4, i // 12), (100,)),
        (lambda i: (i % 10 // 4, i % 10 % 4, i // 10), (100,)),
        (lambda i, j, k: (j // 4, i * 3 + k, j % 4), (2, 10, 3)),
        (lambda i, j: (i // 2 * 6 + j, i % 2), (7, 6)),
        (lambda i, j: (j, i + 2), (1, 6)),
    ],
)
def test_bijections_are_proved(index_map: Any, shape: tuple[int, ...]) -> None:
    exprs = exprs_of(index_map, len(shape))
    assert im.judge(exprs, shape) == "one to one"
    assert not collides(exprs, shape)


@pytest.mark.parametrize(
    ("index_map", "shape", "verdict"),
    [
        (lambda i, j: i * 5 + j, (8, 6), "unknown"),
        (lambda i, j: ((i * 6 + j) // 4, (i * 6 + j) % 3), (8, 6), "unknown"),
        (lambda i, j: (i, i, j), (8, 6), "redundant"),
        (lambda i, j: (i, i // 2, j), (8, 6), "redundant"),
        (lambda i, j: (i + j, j), (8, 6), "unknown"),
    ],
)
def test_maps_that_are_not_proved(index_map: Any, shape: tuple[int, ...], verdict: str) -> None:
    assert im.judge(exprs_of(index_map, len(shape)), shape) == verdict


@hst.composite
def maps(draw: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    shape = tuple(draw(hst.lists(hst.integers(1, 9), min_size=1, max_size=3)))
    leaf = hst.sampled_from([f"i{d}" for d in range(len(shape))]) | hst.integers(-3, 9)
    inner = hst.recursive(
        leaf,
        lambda e: (
            hst.tuples(hst.just("+"), e, e)
            | hst.tuples(hst.just("*"), e, hst.integers(-2, 9))
            | hst.tuples(hst.sampled_from(["//", "%"]), e, hst.integers(1, 9))
        ),
        max_leaves=5,
    )
    return shape, tuple(draw(hst.lists(inner, min_size=1, max_size=3)))


@given(maps())
def test_verdicts_bounds_and_texts_against_brute_force(case: Any) -> None:
    shape, exprs = case
    points = np.indices(shape).reshape(len(shape), -1).T
    new = im.places(exprs, points)
    if im.judge(exprs, shape) != "unknown":
        assert not collides(exprs, shape)
    hit = im.collision(exprs, shape)
    assert (hit is not None) == collides(exprs, shape)
    if hit is not None:
        a, b, to = (np.array([p]) for p in hit)
        assert hit[0] != hit[1]
        assert im.places(exprs, a).tolist() == im.places(exprs, b).tolist() == to.tolist()
    for e, column in zip(exprs, new.T, strict=True):
        lo, hi = im.index_bounds(e, shape)
        assert lo <= column.min()
        assert column.max() <= hi
        names = {f"i{d}": points[:, d] for d in range(len(shape))}
        np.testing.assert_array_equal(eval(im.text(e), {}, names) + 0 * points[:, 0], column)
        simple = im.simplified(e)
        assert im.simplified(simple) == simple
        np.testing.assert_array_equal(im.places((simple,), points)[:, 0], column)


def test_numbers_that_make_operations_void() -> None:
    """Points of a space have them; the text of a schedule, which loses them, gives the same."""
    step = TransformLayout(1, ((0, 1, None), ("//", ("*", "i1", 1), 1), (0, 1, 1), ("*", "i0", 0)))
    assert step.dims == ((0, 1, None), "i1", 0, 0)
    p = chain()
    again = replay(
        p.s.dag, [["transform_layout", 1, [[0, 1, None], [1, 4, None], [1, 1, 4], [0, 1, 1]]]]
    )
    scope: dict[str, Any] = {"te": te}
    exec(again.as_python(), scope)
    scope["schedule"](p.s, *p.s.tensors)
    assert p.s.trace == again.trace
    assert "float32[8, 2, 4, 1]" in str(lower(p.s, [p.a, p.d]))
    b = te.compute((te.size_var("n"), 8), lambda i, j: i + j, name="B")
    digits = create_schedule(te.compute(b.shape, lambda i, j: b[i, j] + 1, name="C"))
    digits.apply_step(TransformLayout(0, ((0, 1, None), (1, 1, None), (0, 1, 1))))
    assert digits.state.stages[0].layout == ((0, 1, None), (1, 1, None), 0)


def test_the_trace_of_a_general_map() -> None:
    p = chain()
    p.s[p.b].transform_layout(
        lambda i, j: ((i * 6 + (5 - j)) // 16, (i * 6 + (5 - j)) % 16), pad_value=0.5
    )
    flat = ["+", ["*", "i0", 6], ["+", 5, ["*", "i1", -1]]]
    assert p.s.trace_json() == [
        [
            "transform_layout",
            1,
            [["//", flat, 16], ["%", flat, 16]],
            0.5,
        ]
    ]
    assert replay(p.s.dag, p.s.trace_json()).trace == p.s.trace
    assert (
        "transform_layout(lambda i0, i1: ((i0 * 6 + (5 + i1 * (-1))) // 16, "
        "(i0 * 6 + (5 + i1 * (-1))) % 16), pad_value=0.5)"
    ) in p.s.as_python()
    assert "float32[3, 16]" in str(lower(p.s, [p.a, p.d]))


def test_a_map_for_the_tensor_that_does_not_fit_what_is_covered() -> None:
    """Tiles of 4 columns over-run the 6 columns of the tensor: a row of 6 is too short."""
    p = chain()
    jo, _ = p.s[p.d].split(p.d.op.axis[1], factor=6)
    p.s[p.c].compute_at(p.s[p.d], jo)
    p.s[p.c].split(p.c.op.axis[1], factor=4)
    p.s[p.c].transform_layout(lambda i, j: i * 6 + j)
    p.s[p.c].compute_at(p.s[p.d], p.s[p.d].leaf_iter_vars[0])
    p.s.validate()
    p.s[p.c].compute_root()
    p.s.validate()
    p.s[p.c].compute_at(p.s[p.d], jo)
    p.s[p.d].reorder(jo, p.d.op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"transform_layout \(step 3\): the map \(i0 \* 6 \+ i1,\) is no bijection on the "
        r"\[8, 8\] elements that 'C' covers: \[0, 6\] and \[1, 0\] both go to \[6\]",
    ):
        p.s.validate()


def test_a_large_map_that_is_not_proved() -> None:
    p = chain(1000, 1000)
    with pytest.raises(
        ScheduleError,
        match=r"transform_layout \(step 0\): the map \(i0 \+ i1, i1\) could not be proved a "
        r"bijection on \[1000, 1000\]; write it with splits i // f and i % f and sums i \* m \+ j "
        "in which m is the extent of j",
    ):
        p.s[p.b].transform_layout(lambda i, j: (i + j, j))
    q = chain()
    q.s[q.b].transform_layout(lambda i, j: (i + j, j))
    assert len(q.s.trace) == 1


@pytest.mark.parametrize(
    ("index_map", "pad", "text"),
    [
        (
            lambda i, j: i * 8 + j,
            None,
            r"the map \(i0 \* 8 \+ i1,\) is judged by extents, and those of 'B' are variables; use "
            r"digits only \(i, i // f, i % f\)",
        ),
        (lambda i, j: (i // 4, j, i % 4), 1, "extents of 'B' are variables: it takes no pad_value"),
    ],
)
def test_extents_that_are_variables(index_map: Any, pad: Any, text: str) -> None:
    n = te.size_var("n")
    a = te.placeholder((n, 8), name="A")
    b = te.compute((n, 8), lambda i, j: a[i, j] * 2.0, name="B")
    s = create_schedule(te.compute((n, 8), lambda i, j: b[i, j] + 1.0, name="C"))
    with pytest.raises(ScheduleError, match=rf"transform_layout \(step 0\): {text}"):
        s[b].transform_layout(index_map, pad_value=pad)
