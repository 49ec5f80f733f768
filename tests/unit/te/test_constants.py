"""Constant placeholders: a part of a program's identity, written only where there are some."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import TensorError
from loopwright.schedule import replay
from loopwright.te.dag import Dag


def product(constant: bool) -> Dag:
    a = te.placeholder((4, 8), name="A")
    w = te.placeholder((8, 4), name="W", constant=constant)
    k = te.reduce_axis(8, name="k")
    c = te.compute((4, 4), lambda i, j: te.sum(a[i, k] * w[k, j], axis=k), name="C")
    return Dag.from_ops([c.op])[0]


def test_the_mark_is_written_only_where_it_is_true() -> None:
    assert "constant" not in json.dumps(product(False).to_json())
    assert "constant" not in product(False).as_python()
    placeholders = product(True).to_json()["ops"][:2]
    assert [op.get("constant") for op in placeholders] == [None, True]


def test_it_belongs_to_the_hash() -> None:
    assert product(True).hash != product(False).hash
    assert product(True).hash == product(True).hash


def test_it_survives_json_source_and_binding_of_sizes() -> None:
    dag = product(True)
    again = Dag.from_json(json.loads(json.dumps(dag.to_json())))
    assert again.constants == dag.constants == (1,)
    assert again.hash == dag.hash
    scope: dict[str, Any] = {}
    exec(dag.as_python(), scope)
    assert Dag.from_ops([t.op for t in scope["outputs"]])[0].hash == dag.hash
    n = te.var("n")
    w = te.placeholder((n,), name="W", constant=True)
    b = te.compute((n,), lambda i: w[i] + 1, name="B")
    assert Dag.from_ops([b.op])[0].bind({"n": 4}).constants == (0,)


def test_a_replayed_schedule_keeps_it() -> None:
    s = replay(product(True), [])
    assert [t.op.constant for t in s.tensors[:2]] == [False, True]
    assert s.dag.constants == (1,)


def test_a_constant_is_no_output() -> None:
    w = te.placeholder((4,), name="W", constant=True)
    with pytest.raises(TensorError, match="constant tensor 'W' is an output; compute a copy"):
        Dag.from_ops([w.op])
    data = product(True).to_json() | {"outputs": [1]}
    with pytest.raises(TensorError, match="'W' is an output"):
        Dag.from_json(data)


def test_what_is_no_bool_is_refused() -> None:
    with pytest.raises(TensorError, match="constant is True or False, got 1"):
        te.placeholder((4,), name="W", constant=1)  # type: ignore[arg-type]
    data = product(True).to_json()
    data["ops"][1]["constant"] = "yes"
    with pytest.raises(TensorError, match="constant is true or false, not 'yes'"):
        Dag.from_json(data)
