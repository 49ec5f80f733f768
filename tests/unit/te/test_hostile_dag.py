"""Expressions from files: texts that would end up in the source of programs, and damage."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopwright import te
from loopwright.errors import LoopwrightError, TensorError
from loopwright.lowering import lower_ids
from loopwright.schedule import replay
from loopwright.te.dag import Dag
from tests.covering import examples

Json = Any
#: What a code generator of C, or the interpreter, would have run where it wrote out a dtype.
SOURCE = 'int32_t x; __attribute__((constructor)) f() { system("id"); } int32'
ODD = (0, -1, 10**400, 0.5, float("inf"), True, None, "", "a9", "x" * 100, SOURCE, [], {}, [[]])


def program() -> Json:
    n = te.size_var("n")
    A, B = te.placeholder((n, 8), name="A"), te.placeholder((8,), "int32", name="B")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((n,), lambda i: te.sum(A[i, k] * te.exp(A[i, 7 - k]), axis=k), name="C")
    D = te.compute((8,), lambda i: te.select(B[i] > 3, -B[i], B[7 - i] % 5), name="D")
    E = te.compute((n,), lambda i: C[i] + te.cast(D[i % 8], "float32"), name="E")
    return json.loads(json.dumps(te.create_schedule(E.op).dag.to_json()))


def found(x: Json, head: str) -> Json:
    """The first expression of a kind."""
    stack = [x]
    while stack:
        y = stack.pop()
        if isinstance(y, list) and y and y[0] == head:
            return y
        stack += y if isinstance(y, list) else y.values() if isinstance(y, dict) else []
    raise AssertionError(head)


def _set(head: str, at: int, value: Json) -> Callable[[Json], None]:
    def change(data: Json) -> None:
        found(data["ops"], head)[at] = value

    return change


def _nested(data: Json) -> None:
    e: Json = ["const", 1.0, "float32"]
    for _ in range(20_000):
        e = ["un", "-", e]
    data["ops"][-1]["body"] = e


def _in_it(data: Json) -> None:
    reduce = found(data["ops"], "reduce")
    op = next(op for op in data["ops"] if op.get("body") == reduce)
    op["body"] = ["un", "-", reduce]


def _far(data: Json) -> None:
    (op,) = (op for op in data["ops"] if op["name"] == "D")
    found(op["body"], "read")[2] = [["const", 99, "int32"]]


HARM: dict[str, tuple[Callable[[Json], None], str]] = {
    "a dtype of a sum": (_set("bin", 4, SOURCE), "the result of"),
    "a dtype of a call": (_set("call", 3, SOURCE), "unknown dtype"),
    "a dtype of a read": (_set("read", 3, SOURCE), "unknown dtype"),
    "a dtype of a size": (lambda x: x["sizes"][0].__setitem__(1, SOURCE), "unknown dtype"),
    "a size that is a float": (lambda x: x["sizes"][0].__setitem__(1, "float32"), "is float32"),
    "a dtype of a reduction": (_set("reduce", 7, SOURCE), "unknown dtype"),
    "a function": (_set("call", 1, "system"), "unknown intrinsic 'system'"),
    "no operand": (_set("call", 2, []), "exp in the JSON of a DAG has 0 operands"),
    "an operation": (_set("un", 1, "f();-"), "unknown operation"),
    "a literal": (_set("const", 1, "__import__('os')"), "could not convert string to float"),
    "a literal that is a list": (_set("const", 1, [1]), "a number was expected"),
    "a read of another dtype": (_set("read", 3, "int8"), "malformed JSON of a DAG"),
    "a read outside": (_far, "runs from 99 to 99, the dimension has 8 elements"),
    "a name that is none": (lambda x: x["ops"][0].__setitem__("name", 5), "a name was expected"),
    "no end": (_nested, "nests too deeply"),
    "a reduction inside": (_in_it, "inside of an expression"),
    "an extent of 400 digits": (
        lambda x: x["ops"][1].__setitem__("shape", [float("inf")]),
        "a whole number was expected",
    ),
}


@pytest.mark.parametrize("kind", HARM)
def test_what_would_do_harm_is_refused(kind: str) -> None:
    change, text = HARM[kind]
    data = program()
    change(data)
    with pytest.raises(TensorError) as error:
        Dag.from_json(data)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def places(x: Json, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    items = enumerate(x) if isinstance(x, list) else x.items() if isinstance(x, dict) else ()
    for key, value in items:
        yield from places(value, (*at, key))


def get(x: Json, at: tuple[Any, ...]) -> Json:
    for key in at:
        x = x[key]
    return x


@st.composite
def damaged(draw: st.DrawFn) -> Json:
    data = program()
    for _ in range(draw(st.integers(1, 2))):
        all_places = list(places(data))
        at = draw(st.sampled_from(all_places))
        parent, old = get(data, at[:-1]), get(data, at)
        alike = [v for v in (get(data, p) for p in all_places) if type(v) is type(old)]
        match draw(st.sampled_from(["alike", "odd", "drop"])):
            case "alike":
                parent[at[-1]] = copy.deepcopy(draw(st.sampled_from(alike)))
            case "odd":
                parent[at[-1]] = copy.deepcopy(draw(st.sampled_from(ODD)))
            case "drop":
                del parent[at[-1]]
    return data


@settings(max_examples=examples(80), deadline=None)
@given(damaged())
def test_damage_is_refused_or_makes_a_program(data: Json) -> None:
    try:
        dag = Dag.from_json(data)
    except TensorError:
        return
    assert dag.hash
    dag.as_python()
    s = replay(dag, [])
    inputs = [i for i, op in enumerate(dag.ops) if op.is_placeholder]
    with suppress(LoopwrightError):
        lower_ids(s, [*inputs, *dict.fromkeys(dag.outputs)])
