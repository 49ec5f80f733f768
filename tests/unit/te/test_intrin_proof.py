"""Intrinsics from files: which are proved harmless, which are refused, and what vouching does."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.driver import build
from loopwright.errors import ScheduleError, TensorError
from loopwright.schedule import replay
from loopwright.te import intrin_proof
from loopwright.te.intrin_proof import declared_in, intrinsic_from_json, vouch_for, why_not_harmless
from loopwright.te.tensor_intrin import DECLARED, TensorIntrin
from tests import hostile


def refusal(trace: Any) -> str:
    dag = te.create_schedule(hostile.product()[2].op).dag
    with pytest.raises(ScheduleError) as error:
        replay(dag, trace)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


@pytest.mark.parametrize("name", hostile.ATTACKS)
def test_attacks_are_refused(name: str) -> None:
    assert hostile.ATTACKS[name][1] in refusal(hostile.attack(name))


def test_the_refusal_says_what_to_do() -> None:
    text = refusal(hostile.attack("writes out of bounds"))
    assert text.startswith("trace: tensorize: intrinsic 'dot of a log' was not declared by this")
    assert "declare it with te.decl_tensor_intrin before the trace is read" in text


def test_an_honest_intrinsic_of_a_log_runs() -> None:
    args = hostile.product()
    s = te.create_schedule(args[2].op)
    fresh = replay(s.dag, hostile.trace(hostile.honest()))
    f = build(fresh, [fresh.tensor(a) for a in s.arg_ids(args)], "llvm")
    a, b = (np.random.default_rng(k).integers(-9, 9, (32, 32)).astype("float32") for k in (0, 1))
    c = np.empty((32, 32), "float32")
    f(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_the_intrinsics_of_loopwright_are_proved(lanes: int) -> None:
    assert why_not_harmless(te.intrinsics.dot_uint8_int8_int32(lanes)) == ""


def test_every_body_is_compared() -> None:
    data = te.intrinsics.dot_uint8_int8_int32(4).to_json()
    for part in ("reset", "update"):
        wrong = {**data, part: ["store", 2, [["const", 0, "int32"]], ["const", 1, "int32"]]}
        with pytest.raises(TensorError, match=f"its {part} does not give"):
            intrinsic_from_json(wrong)


def test_a_body_that_leaves_elements_is_noticed() -> None:
    data = te.intrinsics.dot_uint8_int8_int32(4).to_json()
    with pytest.raises(TensorError, match="its body does not give"):
        intrinsic_from_json({**data, "body": ["seq", []]})


def test_data_may_not_decide_what_is_touched() -> None:
    data = copy.deepcopy(hostile.honest())
    inner = data["body"][1][1][5]
    load = ["read", 0, [["const", 0, "int32"], ["const", 0, "int32"]], "float32"]
    positive = ["bin", ">", load, ["const", 0.0, "float32"], "bool"]
    data["body"][1][1][5] = ["when", positive, inner, None]
    with pytest.raises(TensorError, match="in its body a branch depends on data"):
        intrinsic_from_json(data)
    inner[3] = ["if", positive, inner[3], inner[3]]
    data["body"][1][1][5] = inner
    with pytest.raises(TensorError, match="in its body data decide what is read"):
        intrinsic_from_json(data)


def test_work_of_the_description_is_limited() -> None:
    data = copy.deepcopy(hostile.honest())
    for op, shape in zip(data["dag"]["ops"], ([1, 60000], [60000, 1], [1, 1]), strict=True):
        op["shape"] = shape
    data["dag"]["ops"][2]["reduce_extents"] = [60000]
    with pytest.raises(TensorError, match="at most 65536 are proved"):
        intrinsic_from_json(data)
    data["dag"]["ops"][1]["shape"] = data["dag"]["ops"][0]["shape"] = [1, 30000]
    data["dag"]["ops"][2]["body"][3][3][2].reverse()
    data["dag"]["ops"][2]["reduce_extents"] = [30000]
    with pytest.raises(TensorError, match="its description has more than 131072 operations"):
        intrinsic_from_json(data)


def test_what_this_process_declared_needs_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    data = hostile.attack("the description lies")[0][3]
    monkeypatch.setattr(intrin_proof, "DECLARED", set(DECLARED))
    digest = TensorIntrin.from_json(data).digest
    trace = hostile.trace(data)
    assert declared_in(trace) == []
    with pytest.raises(TensorError):
        intrinsic_from_json(data)
    vouch_for([digest])
    assert intrinsic_from_json(data).digest == digest
    assert declared_in([["split", 2, "a0", 4, None], *trace]) == [digest]


def test_a_verdict_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    real = intrin_proof.interpret
    monkeypatch.setattr(intrin_proof, "interpret", lambda *a: (runs.append(1), real(*a)))
    monkeypatch.setattr(intrin_proof, "_verdicts", {})
    for _ in range(3):
        intrinsic_from_json(hostile.honest())
    assert len(runs) == 8, "four kinds of data, each once for the body and once for the description"


def squares(body: Any, **options: Any) -> te.TensorIntrin:
    x = te.placeholder((4,), "int16", name="x")
    y = te.compute((4,), lambda i: x[i].astype("int32") * x[i].astype("int32"), name="y")

    def statements(ins: Any, outs: Any) -> Any:
        ib = te.ir_builder()
        with ib.for_range(4, "l") as j:
            ib.emit(outs[0].store(j, body(ins[0][j], outs[0][j])))
        return ib.get()

    return te.decl_tensor_intrin(y.op, statements, name="squares", **options)


def use(intrin: te.TensorIntrin) -> None:
    x = te.placeholder((16,), "int16", name="X")
    y = te.compute((16,), lambda i: x[i].astype("int32") * x[i].astype("int32"), name="Y")
    s = te.create_schedule(y.op)
    _, inner = s[y].split(y.op.axis[0], factor=4)
    s[y].tensorize(inner, intrin)


def test_an_intrinsic_of_this_program_is_compared_where_it_is_used() -> None:
    use(squares(lambda x, _: x.astype("int32") * x.astype("int32")))
    wrong = {
        "on random data": lambda x, _: (x * x).astype("int32"),
        "on zeros and limits": lambda x, _: te.select(
            te.equal(x, 32767), te.const(0, "int32"), x.astype("int32") * x.astype("int32")
        ),
        "on random data its body does not give what its description gives: element [0] is": (
            lambda x, y: te.select(te.equal(y, 42), te.const(0, "int32"), x.astype("int32") * x)
        ),
    }
    for words, body in wrong.items():
        with pytest.raises(TensorError) as error:
            use(squares(body))
        text = str(error.value)
        assert words in text
        assert "intrinsic 'squares' does not do what its description says" in text
        assert "\n" not in text


def test_an_approximate_intrinsic_is_left_to_the_check_of_kernels() -> None:
    use(squares(lambda x, _: (x * x).astype("int32") + 1, approximate=True))
