"""A program printed as Python gives the same program again."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from fuzzing.random.expr import Draw
from fuzzing.random.program import random_program
from loopwright import te
from loopwright.te.dag import Dag


def dag_of(*outputs: te.Tensor) -> Dag:
    dag: Dag = te.create_schedule(list(outputs)).dag
    return dag


def executed(source: str) -> Dag:
    scope: dict[str, Any] = {}
    exec(compile(source, "<program>", "exec"), scope)
    return dag_of(*scope["outputs"])


def check(*outputs: te.Tensor) -> str:
    """The source of a program, which gives this program again."""
    dag = dag_of(*outputs)
    source = dag.as_python()
    assert executed(source).hash == dag.hash, source
    assert Dag.from_json(json.loads(json.dumps(dag.to_json()))).as_python() == source
    return source


def test_golden_source() -> None:
    A = te.placeholder((64, 128), name="A")
    B = te.placeholder((128, 32), name="B")
    k = te.reduce_axis((0, 128), name="k")
    C = te.compute((64, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    R = te.compute((64, 32), lambda i, j: te.max(C[i, j] + 0.5, 0.0), name="R", tag="relu")
    assert check(R) == (
        "from loopwright import te\n"
        "\n"
        'A = te.placeholder((64, 128), "float32", name="A")\n'
        'B = te.placeholder((128, 32), "float32", name="B")\n'
        'k = te.reduce_axis((0, 128), name="k")\n'
        'C = te.compute((64, 32), lambda i, j: te.sum(A[i, k] * B[k, j], axis=[k]), name="C")\n'
        'R = te.compute((64, 32), lambda i, j: te.max(C[i, j] + 0.5, 0.0), name="R", tag="relu")\n'
        "outputs = [R]\n"
    )


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_random_programs_come_back(first: int) -> None:
    for seed in range(first, first + 50):
        check(*random_program(Draw.random(random.Random(seed))).outputs)


def test_size_variables() -> None:
    n, m = te.var("n"), te.size_var("m", "int64")
    A = te.placeholder((n * 2 + 1, m // 4), "float64", name="A")
    k = te.reduce_axis((0, m // 4), name="k")
    B = te.compute((n,), lambda i: te.sum(A[i * 2, k] * n.astype("float64"), axis=k), name="B")
    source = check(B)
    assert 'n = te.var("n", "int32")\n' in source
    assert 'm = te.size_var("m", "int64")\n' in source
    assert executed(source).bind({"n": 3, "m": 8}).hash == dag_of(B).bind({"n": 3, "m": 8}).hash


def test_reducers_of_the_user_and_of_tuples() -> None:
    A = te.placeholder((3, 5), name="A")
    k = te.reduce_axis((0, 5), name="k")
    own = te.comm_reducer(lambda x, y: x * y + 1, lambda t: te.const(0.1, t), name="own")
    pair = te.comm_reducer(
        lambda x, y: (x[0] + y[0], te.max(x[1], y[1])),
        lambda *ts: (te.const(0, ts[0]), te.min_value(ts[1])),
        name="sum",
    )
    S = te.compute((3,), lambda i: own(A[i, k], axis=k, where=A[i, k] > 0, init=0.25), name="S")
    at, top = te.compute((3,), lambda i: te.argmax((k, A[i, k]), axis=k), name="T")
    P, Q = te.compute((3,), lambda i: pair((k.var, A[i, k]), axis=k, init=(1, 2)), name="P")
    source = check(S, at, P)
    assert (
        "own = te.comm_reducer(\n    lambda x, y: x * y + 1.0,\n    lambda *_: te.const(0.1"
        in source
    )
    assert "T_v0, T_v1 = te.compute((3,), lambda i: te.argmax((k_1, A[i, k_1])" in source
    assert "sum = te.comm_reducer(" in source
    U = te.compute((3,), lambda i: top[i] + Q[i], name="U")
    assert "T_v1[i] + P_v1[i]" in check(U)


def test_several_outputs_of_one_value_each() -> None:
    A = te.placeholder((4,), "int8", name="A")
    X, Y = te.compute((4,), lambda i: (A[i] + 1, A[i].astype("float64") / 3.0), name="X")
    assert "lambda i: (A[i] + 1, te.cast(A[i], " in check(X)
    assert check(te.compute((4,), lambda i: X[i] * Y[i], name="Z")).count("te.compute") == 2


def test_dimensions_none_and_one() -> None:
    A = te.placeholder((), "int32", name="A")
    assert "te.compute((), lambda: A[()] + 1, " in check(te.compute((), lambda: A[()] + 1))
    assert "te.compute((1,), lambda i: A[()] - i, " in check(te.compute((1,), lambda i: A[()] - i))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda a, k: a - (k - 2), "A[i] - (k - 2)"),
        (lambda a, k: a - k - 2, "A[i] - k - 2"),
        (lambda a, k: -(a * 3) // -k, "-(A[i] * 3) // -k"),
        (lambda a, k: (a + 1) * -2, "(A[i] + 1) * -2"),
        (lambda a, k: te.min(a, k.var), "te.min(A[i], k.var)"),
        (lambda a, k: te.max(k.var, a), "te.max(k, A[i])"),
        (lambda a, k: ~a & (k << 2) | a ^ 1, "~A[i] & k << 2 | A[i] ^ 1"),
        (lambda a, k: te.truncdiv(a, 3) % te.truncmod(k, 2), "te.truncdiv(A[i], 3) % te.truncmod"),
        (
            lambda a, k: te.select(te.const(1, "int32") < a, 2, k),
            "te.select(te.const(1, \"int32\") < A[i], 2, k.var)",
        ),
        (
            lambda a, k: te.if_then_else(te.all(te.equal(a, 1), te.logical_not(k > 2)), a, 0),
            "te.if_then_else(te.all(te.equal(A[i], 1), te.logical_not(k > 2)), A[i], 0)",
        ),
        (
            lambda a, k: te.select(te.not_equal(a > 1, k < 2), a, te.const(7, "int32")),
            "te.select(te.not_equal(A[i] > 1, k < 2), A[i], 7)",
        ),
        (
            lambda a, k: te.select(te.any(a >= 1, te.const(True)), a.astype("int64"), 1 << 40),
            "te.any(A[i] >= 1, te.const(True, \"bool\"))",
        ),
        (lambda a, k: te.reinterpret("float32", a) * 0.5, 'te.reinterpret("float32", A[i]) * 0.5'),
        (lambda a, k: te.fma(a, 2.5, k), "te.fma(te.cast(A[i], "),
        (lambda a, k: te.power(a, 1.5), "te.pow(te.cast(A[i], "),
        (lambda a, k: te.const(math.inf, "float32") - a, 'te.const(float("inf"), "float32") - te'),
        (lambda a, k: te.max(a.astype("float16"), math.nan), 'te.const(float("nan"), "float16")'),
        (lambda a, k: te.const(1.0) + te.const(2.0), '1.0, "float32") + te.const(2.0, "float32")'),
        (lambda a, k: 1 / a.astype("float64"), "1.0 / te.cast(A[i], "),
    ],
)  # fmt: skip
def test_expressions(make: Any, text: str) -> None:
    A = te.placeholder((4,), "int32", name="A")
    k = te.reduce_axis((0, 3), name="k")
    source = check(te.compute((4,), lambda i: te.sum(make(A[i], k), axis=k), name="B"))
    assert text in source


def test_names_that_clash_or_are_no_identifiers() -> None:
    A = te.placeholder((4,), name="A")
    A2 = te.placeholder((4,), name="A")
    te_ = te.compute((4,), lambda A: A2[A] * 2, name="te")
    kw = te.compute((4,), lambda i: te_[i] + A[i], name="for", tag='a "tag"')
    out = te.compute((4,), lambda te: kw[te] - A2[te], name="3 x.y")
    source = check(out)
    assert "te_1 = te.compute((4,), lambda A_2: A[A_2] * 2.0, " in source
    assert "for_1 = te.compute(" in source
    assert r'tag="a \"tag\""' in source
    assert "_3_x_y = te.compute((4,), lambda te_2: " in source
    assert [op.name for op in executed(source).ops] == ["A", "te", "A", "for", "3 x.y"]


def test_a_float_is_rounded_once_to_its_own_dtype() -> None:
    assert te.const(0.1, "float64").value == 0.1
    assert te.const(1e300, "float64").value == 1e300
    assert te.cast(0.1, "float64").value == 0.1
    assert te.const(0.1).value == te.const(0.1, "float32").value != 0.1
    assert te.const(16777217.7, "int32").value == 16777217
    A = te.placeholder((2,), "float64", name="A")
    k = te.reduce_axis((0, 2), name="k")
    assert "init=te.const(0.1, " in check(
        te.compute((), lambda: te.sum(A[k], axis=k, init=0.1), name="B")
    )


@pytest.mark.parametrize(
    "pair",
    [("ﬁ", "fi"), ("x²", "x2"), ("a", "\uff41"), ("\ud800", "_"), ("a\u202eb", "a_b"), ("1", "_1")],
)
def test_names_that_python_takes_for_one_are_told_apart(pair: tuple[str, str]) -> None:
    first, second = pair
    A = te.placeholder((4,), name=first)
    B = te.placeholder((4,), name=second)
    source = check(te.compute((4,), lambda i: A[i] - B[i], name=first))
    assert source.encode().isascii() or all(line.isprintable() for line in source.splitlines())
