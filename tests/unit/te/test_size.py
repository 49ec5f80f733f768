"""Size variables: declaring them, shapes made of them, JSON, hash, and binding to numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import TensorError
from loopwright.te.dag import Dag


def product(n: Any, m: Any, k: Any) -> te.Tensor:
    A = te.placeholder((n, k), name="A")
    B = te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")


def symbolic() -> Dag:
    return te.create_schedule(product(te.var("n"), te.size_var("m"), te.var("k")).op).dag


def test_tensors_print_their_expressions() -> None:
    n, m = te.var("n"), te.size_var("m")
    assert repr(te.placeholder((n, m * 2 + 1), name="A")) == "Tensor(A: float32[n, m * 2 + 1])"
    assert repr(te.placeholder(n // 2, "int8", name="B")) == "Tensor(B: int8[n // 2])"


def test_a_constant_expression_is_a_number() -> None:
    assert te.placeholder((te.const(4, "int32"),), name="A").shape == (4,)


def test_axes_have_symbolic_extents() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    assert s[B].op.axis[0].dom.extent is n
    outer, inner = s[B].split(B.op.axis[0], factor=8)
    assert (str(outer.dom.extent), inner.dom.extent) == ("(n + 7) // 8", 8)
    a, b = s[B].split(outer, nparts=3)
    assert (a.dom.extent, str(b.dom.extent)) == (3, "((n + 7) // 8 + 2) // 3")


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        (lambda n, i: (n * 1.5,), "placeholder 'A': an extent is an integer, got one of dtype flo"),
        (lambda n, i: (i,), "placeholder 'A': 'i' is a loop axis or a plain variable"),
        (lambda n, i: (te.min(n, 4),), "'min' cannot be in it"),
        (lambda n, i: (n // n,), "positive constants; '//' cannot be in it"),
        (lambda n, i: (te.const(0, "int32"),), "placeholder 'A': extents must be positive, got 0"),
    ],
)
def test_what_is_no_extent(shape: Any, text: str) -> None:
    with pytest.raises(TensorError) as e:
        te.placeholder(shape(te.var("n"), te.Var("i")), name="A")
    assert text in str(e.value)


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TensorError, match="var 'x': size variables are int32 or int64, got float"):
        te.var("x", "float32")


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (lambda i, n, m: i + 1, "index 0 of A runs from 1 to n, the dimension has n elements"),
        (lambda i, n, m: i - 1, "index 0 of A runs from -1 to n - 2, the dimension has n"),
        (lambda i, n, m: n - i, "index 0 of A runs from 1 to n, the dimension has n elements"),
        (lambda i, n, m: n - 1 - i, None),
        (lambda i, n, m: i + m, None),
        (lambda i, n, m: (i * 5) // 3, None),
    ],
)
def test_reads_that_leave_for_every_size(index: Any, text: str | None) -> None:
    """What may stay inside for some sizes is checked when they are known."""
    n, m = te.var("n"), te.size_var("m")
    A = te.placeholder((n,), name="A")
    if text is None:
        assert te.compute((n,), lambda i: A[index(i, n, m)]).shape == (n,)
        return
    with pytest.raises(TensorError) as e:
        te.compute((n,), lambda i: A[index(i, n, m)], name="B")
    assert text in str(e.value)


def test_a_size_may_be_part_of_a_value() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), name="k")
    total = te.compute((), lambda: te.sum(A[k], axis=k), name="T")
    mean = te.compute((), lambda: total[()] / te.cast(n, "float32"), name="mean")
    assert te.create_schedule(mean.op).dag.sizes == (n,)


# ------------------------------------------------------------------ the DAG


def test_json_keeps_sizes_and_hash() -> None:
    dag = symbolic()
    text = json.dumps(dag.to_json())
    again = Dag.from_json(json.loads(text))
    assert json.dumps(again.to_json()) == text
    assert again.hash == dag.hash
    assert [(v.name, v.dtype, v.nonnegative) for v in again.sizes] == [
        ("n", "int32", False),
        ("k", "int32", False),
        ("m", "int32", True),
    ]


def test_the_hash_knows_no_names_but_which_extents_are_equal() -> None:
    a, b, c = te.var("a"), te.size_var("b"), te.var("c")
    renamed = te.create_schedule(product(a, b, c).op).dag
    assert renamed.hash == symbolic().hash
    square = te.create_schedule(product(a, a, a).op).dag
    assert square.hash != renamed.hash


def test_programs_without_sizes_have_the_json_that_they_had() -> None:
    dag = te.create_schedule(product(4, 5, 6).op).dag
    assert sorted(dag.to_json()) == ["ops", "outputs", "v"]
    assert dag.to_json()["ops"][0]["shape"] == [4, 6]


def test_bind_gives_the_program_of_those_sizes() -> None:
    concrete = te.create_schedule(product(4, 5, 6).op).dag
    bound = symbolic().bind({"n": 4, "m": 5, "k": 6})
    assert bound.to_json() == concrete.to_json()
    assert bound.bind({}) is bound


def test_bind_by_variable() -> None:
    n = te.var("n")
    A = te.placeholder((n + 1,), name="A")
    B = te.compute((n,), lambda i: A[i + 1] * te.cast(n, "float32"), name="B")
    dag = te.create_schedule(B.op).dag.bind({n: 3})
    assert [op.shape for op in dag.ops] == [(4,), (3,)]
    assert str(dag.ops[1].body) == "0[i + 1] * float32(3)"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"n": 4, "m": 5}, "bind: the size variable 'k' has no value"),
        ({"n": 4, "m": 5, "k": 0}, "bind: the extent k of 'A' is 0 for n = 4, k = 0, m = 5"),
    ],
)
def test_bind_refuses(values: dict[str, int], text: str) -> None:
    with pytest.raises(TensorError) as e:
        symbolic().bind(values)
    assert text in str(e.value)


def test_flop_needs_numbers() -> None:
    with pytest.raises(TensorError, match=r"size variables \(n, k, m\); give their values with"):
        _ = symbolic().flop
    assert symbolic().bind({"n": 4, "m": 5, "k": 6}).flop == 2 * 4 * 5 * 6
