"""Classes of stages, and what operands are said to do, against enumeration."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright import ops, te
from loopwright.errors import TensorError
from loopwright.space import StageClass, analyze


def _placeholder(*shape: int, name: str = "A", dtype: str = "float32") -> te.Tensor:
    tensor: te.Tensor = te.placeholder(shape, dtype, name=name)
    return tensor


def _min_plus() -> te.Tensor:
    A, B, k = _placeholder(4, 5), _placeholder(5, 6, name="B"), te.reduce_axis((0, 5), name="k")
    return te.compute((4, 6), lambda i, j: te.min(A[i, k] + B[k, j], axis=k), name="C")


def _conv3d() -> te.Tensor:
    X, W = _placeholder(2, 6, 6, 6), _placeholder(3, 2, 2, 2, 2, name="W")
    c, *r = (te.reduce_axis((0, 2), name=n) for n in "cdhw")
    return te.compute(
        (3, 5, 5, 5),
        lambda o, z, y, x: te.sum(
            X[c, z + r[0], y + r[1], x + r[2]] * W[o, c, r[0], r[1], r[2]], axis=[c, *r]
        ),
        name="Y",
    )


def _distances() -> te.Tensor:
    X, k = _placeholder(7, 3), te.reduce_axis((0, 3), name="k")
    return te.compute(
        (7, 7), lambda i, j: te.sum((X[i, k] - X[j, k]) * (X[i, k] - X[j, k]), axis=k), name="D"
    )


def _grouped() -> te.Tensor:
    X, W, c = _placeholder(8, 9), _placeholder(6, 4, name="W"), te.reduce_axis((0, 4), name="c")
    return te.compute((6, 9), lambda o, x: te.sum(X[o // 3 * 4 + c, x] * W[o, c], axis=c), name="Y")


def _depthwise() -> te.Tensor:
    X, W = _placeholder(1, 4, 8, 8, name="X"), _placeholder(4, 1, 3, 3, name="W")
    return ops.depthwise_conv2d_compute(X, W)


def _pooled() -> te.Tensor:
    X, r = _placeholder(4, 8), te.reduce_axis((0, 2), name="r")
    return te.compute((4, 4), lambda c, x: te.max(X[c, 2 * x + r], axis=r), name="P")


def _matrix_vector() -> te.Tensor:
    A, x, k = _placeholder(4, 5), _placeholder(5, name="x"), te.reduce_axis((0, 5), name="k")
    return te.compute((4,), lambda i: te.sum(A[i, k] * x[k], axis=k), name="y")


def _largest() -> te.Tensor:
    A, i, j = _placeholder(4, 5), te.reduce_axis((0, 4), name="i"), te.reduce_axis((0, 5), name="j")
    return te.compute((1,), lambda _: te.max(A[i, j], axis=[i, j]), name="m")


def _turned() -> te.Tensor:
    A = _placeholder(4, 5, 6)
    return te.compute((6, 4, 5), lambda c, a, b: A[a, b, c], name="T")


def _gathered() -> te.Tensor:
    A, at = _placeholder(9, 4), _placeholder(3, name="at", dtype="int32")
    return te.compute((3, 4), lambda i, j: A[at[i], j], name="G")


def _broadcast() -> te.Tensor:
    A, b = _placeholder(4, 5), _placeholder(5, name="b")
    return te.compute((4, 5), lambda i, j: A[i, j] + b[j], name="S")


@pytest.mark.parametrize(
    ("make", "kind", "combiner"),
    [
        (_min_plus, StageClass.CONTRACTION, "min"),
        (_conv3d, StageClass.CONTRACTION, "sum"),
        (_distances, StageClass.CONTRACTION, "sum"),
        (_grouped, StageClass.CONTRACTION, "sum"),
        (_depthwise, StageClass.WINDOW, "sum"),
        (_pooled, StageClass.WINDOW, "max"),
        (_matrix_vector, StageClass.ROW_REDUCTION, "sum"),
        (_largest, StageClass.WHOLE_REDUCTION, "max"),
        (_turned, StageClass.TRANSPOSE, ""),
        (_gathered, StageClass.GATHER, ""),
        (_broadcast, StageClass.INJECTIVE, ""),
    ],
)
def test_classes_of_expressions(make: object, kind: StageClass, combiner: str) -> None:
    stage = analyze(make())[-1]  # type: ignore[operator]
    assert (stage.kind, stage.combiner) == (kind, combiner)


def test_stages_of_a_chain_stand_in_order_and_once() -> None:
    Y, inner = ops.softmax_compute(_placeholder(4, 8, name="X"))
    found = {s.tensor: s.kind for s in analyze([Y, inner[0]])}
    assert list(found) == [*inner, Y]
    rows = [StageClass.ROW_REDUCTION, StageClass.INJECTIVE]
    assert list(found.values()) == [rows[0], rows[1], rows[0], rows[1], rows[1]]


coefficients = st.lists(st.integers(0, 3), min_size=3, max_size=3)


@given(st.lists(coefficients, min_size=1, max_size=3))
def test_reuse_and_strides_are_those_that_enumeration_finds(dims: list[list[int]]) -> None:
    extents = (4, 3, 5)
    shape = [1 + sum(c * (n - 1) for c, n in zip(d, extents, strict=True)) for d in dims]
    A, k = _placeholder(*shape), te.reduce_axis((0, extents[2]), name="k")

    def index(d: list[int], at: object) -> object:
        pairs = zip(d, at, strict=True)  # type: ignore[call-overload]
        return sum(c * x for c, x in pairs if c)

    out = te.compute(
        extents[:2],
        lambda i, j: te.sum(A[tuple(index(d, (i, j, k)) for d in dims)], axis=k),
        name="out",
    )
    (use,) = analyze(out)[0].operands
    axes = [*out.op.axis, k]

    def place(*at: int) -> int:
        flat = 0
        for d, n in zip(dims, shape, strict=True):
            flat = flat * n + index(d, at)  # type: ignore[operator]
        return flat

    still = []
    for number, x in enumerate(axes):
        steps = set()
        for at in product(*map(range, extents)):
            if at[number] + 1 < extents[number]:
                there = [a + (n == number) for n, a in enumerate(at)]
                steps.add(place(*there) - place(*at))
        (step,) = steps
        assert use.strides.get(x, 0) == step
        still += [extents[number]] if step == 0 else []
    assert use.reuse == prod(still)


def test_what_each_operand_moves_with_alone() -> None:
    stage = analyze(_conv3d())[-1]
    data, weight = stage.operands
    assert [x.name for x in stage.alone(data)] == ["z", "y", "x"]
    assert [x.name for x in stage.alone(weight)] == ["o"]
    assert stage.shared() == []
    assert weight.reuse == 125
    image, _ = analyze(_grouped())[-1].operands
    assert image.reuse == 3
    assert [x.name for x in analyze(_depthwise())[-1].shared()] == ["ch"]


def test_json_and_text_say_the_same() -> None:
    stage = analyze(_min_plus())[-1]
    data = stage.to_json()
    assert (data["class"], data["combiner"]) == ("contraction", "min")
    assert data["operands"][1]["strides"] == {"k": 6, "j": 1}  # type: ignore[index, call-overload]
    assert str(stage).splitlines()[1] == "  loops i 4, j 6; min over k 5"


def test_inputs_and_unknown_sizes_are_refused() -> None:
    with pytest.raises(TensorError, match="expected a computed tensor"):
        analyze(_placeholder(4))
    n = te.size_var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    with pytest.raises(TensorError, match=r"has variables, .*give ints"):
        analyze(B)
