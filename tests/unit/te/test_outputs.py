"""Operations with several outputs: tensors, JSON, hash, FLOP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import Read
from loopwright.ir.printer import print_expr
from loopwright.te.dag import arg_id, read_arg_id


def program() -> te.Dag:
    """A pair of values, argmax over one of them, and a stage that reads both results."""
    A = te.placeholder((4, 6), name="A")
    S, B = te.compute((4, 6), lambda i, j: (A[i, j] * 2.0, A[i, j] > 0.0), name="S")
    k = te.reduce_axis((0, 6), name="k")
    at, top = te.compute(
        (4,), lambda i: te.argmax((k, S[i, k]), axis=k, where=B[i, k], init=(i, 0.5)), name="T"
    )
    C = te.compute((4,), lambda i: top[i] + at[i].astype("float32"), name="C")
    return te.Dag.from_ops([C.op])[0]


def test_the_tensors_of_an_operation() -> None:
    A = te.placeholder((4,), name="A")
    made = te.compute((4,), lambda i: [A[i], A[i] > 0.0, i], name="S", attrs={"x": 1})
    assert isinstance(made, tuple)
    op = made[0].op
    assert op.num_outputs == 3
    assert [t.value_index for t in made] == [0, 1, 2]
    assert [t.name for t in made] == ["S.v0", "S.v1", "S.v2"]
    assert [t.dtype for t in made] == ["float32", "bool", "int32"]
    assert all(t.shape == (4,) and t.op is op and op.output(k) is t for k, t in enumerate(made))
    assert op.input_tensors == [A]
    assert made[1][0] == Read(made[1], (te.const(0),), "bool", 1)
    with pytest.raises(TensorError, match=r"S has 3 outputs; there is no output\(3\)"):
        op.output(3)


def test_one_value_in_a_tuple_is_one_tensor() -> None:
    A = te.placeholder((4,), name="A")
    t = te.compute((4,), lambda i: (A[i],), name="S")
    assert isinstance(t, te.Tensor)
    assert t.name == "S"


def test_json_round_trip() -> None:
    dag = program()
    data = json.loads(json.dumps(dag.to_json(), allow_nan=False))
    back = te.Dag.from_json(data)
    assert back.to_json() == dag.to_json()
    assert back.hash == dag.hash
    assert [op.dtypes for op in back.ops] == [op.dtypes for op in dag.ops]
    assert back.ops[2].dtypes == ("int32", "float32")
    assert [(r.source, r.value_index) for r in back.ops[2].reads()] == [(1, 0), (1, 1)]
    assert [(r.source, r.value_index) for r in back.ops[3].reads()] == [(2, 1), (2, 0)]


def test_which_output_is_read_counts_in_the_hash() -> None:
    A = te.placeholder((4,), name="A")
    P = te.compute((4,), lambda i: (A[i] + 1, A[i] + 2), name="P")
    hashes = {te.Dag.from_ops([te.compute((4,), lambda i, p=p: p[i]).op])[0].hash for p in P}
    assert len(hashes) == 2


def test_text() -> None:
    dag = program()
    assert print_expr(dag.ops[1].body) == "(0[i, j] * 2.0, 0[i, j] > 0.0)"
    assert print_expr(dag.ops[2].body) == "argmax((k, 1[i, k]), over k)"
    assert print_expr(dag.ops[3].body) == "2.v1[i] + float32(2[i])"


def test_flop_counts_all_outputs() -> None:
    A = te.placeholder((4, 6), name="A")
    two = te.compute((4, 6), lambda i, j: (A[i, j] + 1.0, A[i, j] * 2.0 + 3.0))
    assert te.Dag.from_ops([two[0].op])[0].flop == 24 * 3
    k = te.reduce_axis((0, 6))
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], te.max(x[1], y[1])),
        lambda t, u: (te.const(0, t), te.min_value(u)),
    )
    pair = te.compute((4,), lambda i: both((A[i, k] * 2.0, A[i, k]), axis=k))
    assert te.Dag.from_ops([pair[1].op])[0].flop == 24 * 3


@pytest.mark.parametrize(
    ("op", "change", "text"),
    [
        (2, lambda b: b[3][1].append(2), "operation 2 reads output 2 of 1"),
        (2, lambda b: b[3][1].append("x"), "a whole number was expected, not 'x'"),
        (2, lambda b: b[2][0].pop(), "a reduction of 2 values has 1 of a kind"),
        (2, lambda b: b[3].pop(), "a reduction of 2 values has 1 of a kind"),
        (2, lambda b: b[6].append(b[6][0]), "a reduction of 2 values has 3 of a kind"),
        (2, lambda b: b[7].pop(), "malformed JSON of a DAG: KeyError"),
        (1, lambda b: b[1].clear(), "unknown expression in JSON"),
        (1, lambda b: b[1].pop(), "unknown expression in JSON"),
    ],
)
def test_damaged_json_is_refused(op: int, change: Any, text: str) -> None:
    data = json.loads(json.dumps(program().to_json()))
    change(data["ops"][op]["body"])
    with pytest.raises(TensorError, match=text):
        te.Dag.from_json(data)


def test_argument_ids() -> None:
    assert (arg_id(3), arg_id(3, 1)) == (3, (3, 1))
    assert [read_arg_id(x) for x in (3, (3, 1), [3, 1])] == [(3, 0), (3, 1), (3, 1)]
    for bad in ("3", [1], [1, 2, 3], True, [1, "x"], None):
        with pytest.raises(TensorError, match="an argument is the index of an operation, or"):
            read_arg_id(bad)


def test_sizes_are_bound_in_all_outputs() -> None:
    n, m = te.size_var("n"), te.size_var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    at, _ = te.compute((n,), lambda i: te.argmax((k, A[i, k]), axis=k), name="T")
    S = te.compute((n,), lambda i: (at[i] + n, at[i] - m), name="S")
    whole = te.Dag.from_ops([S[0].op])[0]
    bound = te.Dag.from_json(whole.to_json()).bind({"n": 4, "m": 6})
    assert [op.shape for op in bound.ops] == [(4, 6), (4,), (4,)]
    assert print_expr(bound.ops[1].body) == "argmax((k, 0[i, k]), over k)"
    assert print_expr(bound.ops[2].body) == "(1[i] + 4, 1[i] - 6)"
