"""The DAG: order, JSON, hash, FLOP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.interp.interpreter import interpret
from loopwright.lowering import lower_ids
from loopwright.schedule import replay

ROOT = Path(__file__).parents[3]


def matmul(
    m: int = 3, n: int = 4, k: int = 5, names: str = "ABCkij", dtype: str = "float32"
) -> te.Dag:
    a = te.placeholder((m, k), dtype, name=names[0])
    b = te.placeholder((k, n), dtype, name=names[1])
    r = te.reduce_axis((0, k), names[3])
    space: dict[str, Any] = {"te": te, "a": a, "b": b, "r": r}
    element = eval(
        f"lambda {names[4]}, {names[5]}: te.sum(a[{names[4]}, r] * b[r, {names[5]}], r)", space
    )
    c = te.compute((m, n), element, name=names[2])
    return te.Dag.from_ops([c.op])[0]


def everything() -> te.Dag:
    """Every kind of expression that a body can hold."""
    a = te.placeholder((6, 6), name="A")
    n = te.placeholder((6,), "int32", name="N")
    u = te.placeholder((6,), "uint8", name="U")
    r = te.reduce_axis((0, 6), "r")
    pad = te.compute(
        (8, 6),
        lambda i, j: te.if_then_else(
            te.all(i >= 1, te.logical_not(i >= 7)), a[i - 1, j], float("-inf")
        ),
        name="pad",
        tag="pad",
    )
    mix = te.compute(
        (6, 6),
        lambda i, j: te.select(n[i] % 3 < 1, te.exp(-a[i, j]), te.power(a[j, i], 2) / (u[i] + 1)),
    )
    gather = te.compute(
        (6,), lambda i: a[te.min(te.max(n[i], 0), 5), i] + te.cast(i * 2, "float32")
    )
    odd = te.comm_reducer(lambda x, y: te.max(x, y) + 0.0, lambda t: te.min_value(t), name="odd")
    red = te.compute((6,), lambda i: odd(pad[i + 1, r], axis=r, where=r < n[i], init=gather[i]))
    out = te.compute((6,), lambda i: red[i] + mix[i, i] + te.const(0.1, "float32"))
    return te.Dag.from_ops([out.op, gather.op])[0]


def inputs(dag: te.Dag) -> list[int]:
    return [i for i, op in enumerate(dag.ops) if op.is_placeholder]


# ------------------------------------------------------------------ order


def test_operations_stand_in_topological_order() -> None:
    dag = everything()
    assert sorted(op.name for op in dag.ops if op.is_placeholder) == ["A", "N", "U"]
    for i, op in enumerate(dag.ops):
        assert all(r.source < i for r in op.reads())
    assert [dag.ops[i].name for i in dag.outputs] == ["compute", "compute"]


def test_from_ops_tells_where_each_operation_went() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1, name="B")
    dag, index = te.Dag.from_ops([b.op])
    assert [dag.ops[index[t.op]].name for t in (a, b)] == ["A", "B"]
    assert dag.consumers(index[a.op]) == [index[b.op]]
    assert dag.consumers(index[b.op]) == []


def test_deep_chains_are_no_problem() -> None:
    t = te.placeholder((2,))
    for _ in range(3000):
        t = te.compute((2,), lambda i, t=t: t[i] + 1.0)
    dag, _ = te.Dag.from_ops([t.op])
    assert len(dag.ops) == 3001
    assert te.Dag.from_json(dag.to_json()).hash == dag.hash


# ------------------------------------------------------------------ JSON


@pytest.mark.parametrize("make", [matmul, everything])
def test_json_round_trip(make: Any) -> None:
    dag = make()
    text = json.dumps(dag.to_json())
    back = te.Dag.from_json(json.loads(text))
    assert json.dumps(back.to_json()) == text
    assert back.hash == dag.hash
    assert back.flop == dag.flop
    assert [op.shape for op in back.ops] == [op.shape for op in dag.ops]


def test_json_holds_no_extensions_of_the_standard() -> None:
    text = json.dumps(everything().to_json(), allow_nan=False)
    assert "-inf" in text


def test_a_dag_read_back_computes_the_same() -> None:
    dag = everything()
    back = te.Dag.from_json(json.loads(json.dumps(dag.to_json())))
    ids = [*inputs(dag), *dag.outputs]
    rng = np.random.default_rng(0)
    results = []
    data = [
        rng.random((6, 6), "float32") if dag.ops[i].dtype == "float32" else rng.integers(0, 6, 6)
        for i in inputs(dag)
    ]
    for d in (dag, back):
        arrays = [x.astype(d.ops[i].dtype) for i, x in zip(inputs(d), data, strict=True)]
        outs = [np.full(d.ops[i].shape, np.nan, d.ops[i].dtype) for i in d.outputs]
        interpret(lower_ids(replay(d, []), ids), [*arrays, *outs])
        results.append(outs)
    for x, y in zip(*results, strict=True):
        np.testing.assert_array_equal(x, y)
        assert np.isfinite(x).all()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({}, "this is not the JSON of a DAG in version 1"),
        ([], "this is not the JSON of a DAG in version 1"),
        ({"v": 2, "ops": [], "outputs": []}, "not the JSON of a DAG in version 1"),
        ({"v": 1, "ops": [{"name": "a"}], "outputs": [0]}, "malformed JSON of a DAG: KeyError"),
        ({"v": 1, "ops": [], "outputs": None}, "malformed JSON of a DAG: TypeError"),
        ({"v": 1, "ops": [], "outputs": [0]}, "malformed JSON of a DAG: output 0 is no operation"),
    ],
)
def test_foreign_json_is_refused(data: Any, text: str) -> None:
    with pytest.raises(TensorError, match=text):
        te.Dag.from_json(data)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda op: op.update(dtype="float23"), "unknown dtype 'float23'"),
        (lambda op: op.update(shape=[0, 4]), "extents must be positive"),
        (lambda op: op.update(body=["what", 1]), "unknown expression in JSON"),
        (lambda op: op.update(body=["var", "a7"]), "malformed JSON of a DAG: KeyError"),
        (lambda op: op.update(body=["read", 2, [], "float32"]), "operation 2 reads 2"),
        (lambda op: op.update(body=["read", 0, [["var", "a0"]], "float32"]), "with 1 indices"),
        (lambda op: op.update(axes=["i"]), "malformed JSON of a DAG: ValueError"),
        (
            lambda op: op.update(body=["bin", "**", ["var", "a0"], ["var", "a1"], "int32"]),
            r"unknown operation '\*\*'",
        ),
        (
            lambda op: op.update(body=["call", "system", [["var", "a0"]], "float32"]),
            "unknown intrinsic 'system'",
        ),
    ],
)
def test_damaged_json_is_refused(change: Any, text: str) -> None:
    data = json.loads(json.dumps(matmul().to_json()))
    change(data["ops"][2])
    with pytest.raises(TensorError, match=text):
        te.Dag.from_json(data)


# ------------------------------------------------------------------ hash


def test_hash_is_short_and_of_the_content() -> None:
    assert len(matmul().hash) == 16
    assert int(matmul().hash, 16) >= 0
    assert matmul().hash == matmul().hash


def test_names_do_not_count() -> None:
    assert matmul(names="ABCkij").hash == matmul(names="XYZrpq").hash


def test_the_name_of_a_reducer_and_a_tag_do_not_count() -> None:
    def make(name: str, tag: str) -> str:
        a = te.placeholder((4,))
        k = te.reduce_axis(4)
        r = te.comm_reducer(lambda x, y: x + y, lambda t: te.const(0, t), name=name)
        c = te.compute((1,), lambda i: r(a[k], axis=k), tag=tag)
        return te.Dag.from_ops([c.op])[0].hash

    assert make("one", "x") == make("two", "y")


@pytest.mark.parametrize(
    "other",
    [
        {"m": 4},
        {"n": 5},
        {"k": 6},
        {"dtype": "float64"},
    ],
)
def test_sizes_and_types_count(other: dict[str, Any]) -> None:
    assert matmul(**other).hash != matmul().hash


def test_what_is_computed_counts() -> None:
    a = te.placeholder((4, 4))
    k, m = te.reduce_axis(4), te.reduce_axis(4)
    bodies = [
        lambda i, j: a[i, j] + 1.0,
        lambda i, j: a[j, i] + 1.0,
        lambda i, j: a[i, j] + 2.0,
        lambda i, j: a[i, j] - 1.0,
        lambda i, j: 1.0 + a[i, j],
        lambda i, j: te.exp(a[i, j]),
        lambda i, j: te.log(a[i, j]),
        lambda i, j: te.select(i < j, a[i, j], 0.0),
        lambda i, j: te.if_then_else(i < j, a[i, j], 0.0),
        lambda i, j: te.sum(a[i, k], axis=k),
        lambda i, j: te.max(a[i, k], axis=k),
        lambda i, j: te.sum(a[i, k], axis=k, init=1.0),
        lambda i, j: te.sum(a[i, k], axis=k, where=k < 2),
        lambda i, j: te.sum(a[m, k], axis=[m, k]),
        lambda i, j: te.sum(a[m, k], axis=[k, m]),
    ]
    hashes = [te.Dag.from_ops([te.compute((4, 4), b).op])[0].hash for b in bodies]
    assert len(set(hashes)) == len(hashes)


def test_the_choice_of_outputs_counts() -> None:
    a = te.placeholder((4,))
    b = te.compute((4,), lambda i: a[i] + 1)
    c = te.compute((4,), lambda i: b[i] * 2)
    one = te.Dag.from_ops([c.op])[0].hash
    two = te.Dag.from_ops([b.op, c.op])[0].hash
    assert one != two


def test_hash_is_the_same_in_another_process() -> None:
    code = (
        "from tests.unit.te.test_dag import everything, matmul\n"
        "print(everything().hash, matmul().hash)"
    )
    for seed in ("0", "12345"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
        )
        assert done.stdout.split() == [everything().hash, matmul().hash]


def test_hash_is_the_same_as_ever() -> None:
    """Records are found by it: a change of the JSON needs a new version and a note."""
    assert matmul(64, 64, 64).hash == "ddfa1230279f5a90"


# ------------------------------------------------------------------ FLOP


def flop(*outs: te.Tensor) -> int:
    return te.Dag.from_ops([t.op for t in outs])[0].flop


@pytest.mark.parametrize(("m", "n", "k"), [(3, 4, 5), (64, 64, 64), (1, 7, 1)])
def test_flop_of_a_matmul(m: int, n: int, k: int) -> None:
    assert matmul(m, n, k).flop == 2 * m * n * k


def test_flop_of_a_convolution_leaves_padding_out() -> None:
    n, ci, h, w, co, r = 2, 3, 8, 9, 4, 3
    x = te.placeholder((n, ci, h, w))
    f = te.placeholder((co, ci, r, r))
    rc, ry, rx = te.reduce_axis(ci), te.reduce_axis(r), te.reduce_axis(r)
    p = te.compute(
        (n, ci, h + 2, w + 2),
        lambda b, c, y, z: te.if_then_else(
            te.all(y >= 1, y < h + 1, z >= 1, z < w + 1), x[b, c, y - 1, z - 1], 0.0
        ),
    )
    c = te.compute(
        (n, co, h, w),
        lambda b, o, y, z: te.sum(p[b, rc, y + ry, z + rx] * f[o, rc, ry, rx], axis=[rc, ry, rx]),
    )
    assert flop(c) == 2 * n * co * h * w * ci * r * r


def test_flop_of_elementwise_and_other_reductions() -> None:
    a = te.placeholder((10, 10))
    k = te.reduce_axis(10)
    relu = te.compute((10, 10), lambda i, j: te.max(a[i, j] + 1.0, 0.0))
    assert flop(relu) == 200
    assert flop(te.compute((10,), lambda i: te.max(a[i, k], axis=k))) == 100
    assert flop(te.compute((10, 10), lambda i, j: a[j, i])) == 0
    assert flop(te.compute((10,), lambda i: te.exp(a[i, 0]) / 2.0)) == 20
    assert flop(te.compute((10,), lambda i: te.select(i < 5, a[i, 0] * 2, a[i, 0]))) == 10
    top = te.compute((10, 10), lambda i, j: relu[i, j] * 2)
    assert flop(top) == 300
    assert flop(te.compute((10,), lambda i: a[i * 1, (i + 1) % 10])) == 0
