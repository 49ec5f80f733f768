"""Declaring tensor intrinsics: bodies as data, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loopwright import te
from loopwright.errors import LowerError, TensorError
from loopwright.ir.expr import Var
from loopwright.ir.printer import print_stmt
from loopwright.ir.stmt import For, Let, Stmt


def description() -> tuple[te.Tensor, te.Tensor]:
    a = te.placeholder((4, 8), name="a")
    return a, te.compute((4, 8), lambda i, j: a[i, j] + 1.0, name="c")


def declare(statements: Any, **kw: Any) -> te.TensorIntrin:
    return te.decl_tensor_intrin(description()[1].op, statements, name="t", **kw)


def refusal(make: Any) -> str:
    with pytest.raises(TensorError) as e:
        make()
    return str(e.value)


def everything(ins: Any, outs: Any) -> Any:
    ib = te.ir_builder()
    rows, lanes = ib.for_range(4, "i", "unrolled"), ib.for_range(8, "j", "vectorized")
    with ib.allocate((8,), "int32", "t") as t, rows as i, lanes as j:
        ib.emit(t.store(j, te.cast(ins[0][i, j], "int32")))
        with ib.if_scope(t[j] > 3):
            ib.emit(outs[0].store((i, j), te.exp(te.select(t[j] > 5, ins[0][i, j], 2.0))))
    return ib.get()


def test_json_keeps_every_statement() -> None:
    x = declare(everything)
    again = te.TensorIntrin.from_json(json.loads(json.dumps(x.to_json())))
    assert again == x
    assert hash(again) == hash(x)
    assert print_stmt(again.body) == print_stmt(x.body)
    assert x != declare(lambda ins, outs: outs[0].store((0, 0), 0))
    assert repr(x) == "TensorIntrin(t)"


def with_json(make: Any) -> te.TensorIntrin:
    """Declared with the body that ``make`` gives, written, and read again."""
    x = declare(make)
    again = te.TensorIntrin.from_json(json.loads(json.dumps(x.to_json())))
    assert print_stmt(again.body) == print_stmt(x.body)
    return again


def test_json_keeps_definitions() -> None:
    """Also of a value that is defined by another; in its own value a variable is not defined."""
    v, w = Var("v"), Var("w")

    def chained(ins: Any, outs: Any) -> Stmt:
        return Let(v, te.const(1), Let(w, v + 1, outs[0].store((w, v), ins[0][v, w])))

    assert with_json(chained) == declare(chained)

    def of_itself(ins: Any, outs: Any) -> Stmt:
        return Let(v, v + 1, outs[0].store((0, v), ins[0][0, v]))

    assert "uses the variable v, which no loop of it makes" in refusal(lambda: declare(of_itself))


def test_the_extent_of_a_loop_is_a_number() -> None:
    v = Var("v")

    def loop(extent: Any) -> Any:
        return lambda ins, outs: For(v, extent, "serial", outs[0].store((v, 0), ins[0][v, 0]))

    assert with_json(loop(te.const(4))) == declare(loop(4))
    for bad, text in ((te.const(2) + Var("n"), "2 + n"), (te.const(4.0, "float32"), "4")):
        assert f"is a number, not {text}" in refusal(lambda bad=bad: declare(loop(bad)))


def test_json_keeps_instructions() -> None:
    x = te.intrinsics.dot_uint8_int8_int32(8)
    again = te.TensorIntrin.from_json(json.loads(json.dumps(x.to_json())))
    assert again == x
    assert "dot_8x4_u8s8s32(C[0], data[0], kernel[0, 0])" in print_stmt(again.body)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ({"body": None}, "there is no body"),
        ({"body": ["nope"]}, "unknown statement in JSON: ['nope']"),
        ({"body": ["intrin", "dot", []]}, "unknown instruction 'dot'"),
        ({"body": ["store", 9, [], ["const", 1, "int32"]]}, "malformed JSON of a body: KeyError"),
        ({"body": ["store", 1, [], ["const", 1.0, "float32"]]}, "has 2 dimensions, not 0"),
        ({"body": ["for", "v0", "i", 0, "serial", ["seq", []]]}, "extents must be positive"),
        ({"strides": [[8, 1]]}, "strides do not fit the operands"),
        ({"strides": [[8, 1], ["x", 1]]}, "strides are a list of integers and nulls"),
        ({"dag": {}}, "this is not the JSON of a DAG"),
        ({"more": 1}, "the JSON of an intrinsic has the entries"),
    ],
)
def test_damaged_json(damage: dict[str, Any], text: str) -> None:
    data = {**declare(lambda ins, outs: outs[0].store((0, 0), 0)).to_json(), **damage}
    assert text in refusal(lambda: te.TensorIntrin.from_json(data))


def test_what_a_description_must_be() -> None:
    a, c = description()
    store = lambda ins, outs: outs[0].store((0, 0), 0)  # noqa: E731
    assert "the description is a te.compute, got" in refusal(
        lambda: te.decl_tensor_intrin(a.op, store)
    )
    d = te.compute((4, 8), lambda i, j: c[i, j] * 2.0, name="d")
    assert "the description reads what another compute makes" in refusal(
        lambda: te.decl_tensor_intrin(d.op, store)
    )
    e = te.compute((4, 4), lambda i, j: a[i, i + j], name="e")
    assert "each dimension of an input is read at one axis or at a literal" in refusal(
        lambda: te.decl_tensor_intrin(e.op, store)
    )
    f = te.compute((4, 8), lambda i, j: a[i, j] * i.astype("float32"), name="f")
    assert "the description uses the axis 'i' as a value" in refusal(
        lambda: te.decl_tensor_intrin(f.op, store)
    )
    n = te.size_var("n")
    g = te.compute((n, 8), lambda i, j: te.const(1.0), name="g")
    assert "the extents of an intrinsic are numbers" in refusal(
        lambda: te.decl_tensor_intrin(g.op, store)
    )
    both = te.compute((4, 8), lambda i, j: (a[i, j], a[i, j]), name="b")
    assert "one compute of one output" in refusal(lambda: te.decl_tensor_intrin(both[0].op, store))
    r = te.reduce_axis((0, 8), name="r")
    h = te.compute((4,), lambda i: te.sum(a[i, r], axis=r, where=r > 2), name="h")
    assert "where= or init=" in refusal(
        lambda: te.decl_tensor_intrin(h.op, lambda ins, outs: outs[0].store(0, 0))
    )


def test_what_a_function_must_return() -> None:
    assert "returns a statement, or (body, reset, update); got 3" in refusal(
        lambda: declare(lambda ins, outs: 3)
    )
    other = te.BufferView(te.intrinsics.dot_uint8_int8_int32(4).params[0])
    assert "the body touches 'data', which is no operand" in refusal(
        lambda: declare(lambda ins, outs: other.store(0, 1))
    )
    assert "the body uses the variable" in refusal(
        lambda: declare(lambda ins, outs: outs[0].store((te.Var("z"), 0), 1.0))
    )
    assert "the body writes the input 'a'" in refusal(
        lambda: declare(lambda ins, outs: ins[0].store((0, 0), 1.0))
    )
    with pytest.raises(LowerError, match="every iteration of the vectorized loop"):
        declare(same_place)


def same_place(ins: Any, outs: Any) -> Any:
    ib = te.ir_builder()
    with ib.for_range(4, "i", "vectorized"):
        ib.emit(outs[0].store((0, 0), 1.0))
    return ib.get()


def test_binds() -> None:
    a, c = description()
    store = lambda ins, outs: outs[0].store((0, 0), 0)  # noqa: E731
    x = te.decl_tensor_intrin(c.op, store, binds={a: te.decl_buffer((4, 8), strides=[te.var(), 1])})
    assert x.strides == ((None, 1), (8, 1))
    assert "binds names" in refusal(lambda: declare(store, binds={a: te.decl_buffer((4, 8))}))
    assert "the buffer of 'a' is float32[4, 4], the tensor float32[4, 8]" in refusal(
        lambda: te.decl_tensor_intrin(c.op, store, binds={a: te.decl_buffer((4, 4))})
    )
    assert refusal(lambda: te.decl_buffer((4, 8), name="q", strides=[1])) == (
        "decl_buffer 'q': 1 stride(s) for 2 dimension(s)"
    )


def test_an_instruction_wants_its_operands_without_gaps() -> None:
    d, k = te.placeholder((4,), "uint8", name="d"), te.placeholder((8, 4), "int8", name="w")
    r = te.reduce_axis((0, 4), name="r")
    c = te.compute(
        (8,), lambda j: te.sum(d[r].astype("int32") * k[j, r].astype("int32"), axis=r), name="c"
    )
    text = refusal(
        lambda: te.decl_tensor_intrin(
            c.op,
            lambda ins, outs: te.call_intrin(
                "dot_8x4_u8s8s32", outs[0][0], ins[0][0], ins[1][0, 0]
            ),
            binds={k: te.decl_buffer((8, 4), "int8", strides=[None, 1])},
        )
    )
    assert text.endswith(
        "operand 'b' of dot_8x4_u8s8s32 is [8, 4] without gaps; the strides of 'w' are [None, 1]"
    )


def test_calls_of_instructions() -> None:
    data, kernel, c = map(te.BufferView, te.intrinsics.dot_uint8_int8_int32(8).params)
    name = "dot_8x4_u8s8s32"
    assert "unknown instruction 'dot_8x4' (did you mean" in refusal(
        lambda: te.call_intrin("dot_8x4", c[0])
    )
    assert f"{name} takes 3 operands (c, a, b), got 1" in refusal(
        lambda: te.call_intrin(name, c[0])
    )
    assert f"operand 'a' of {name} is uint8, got an element of int8" in refusal(
        lambda: te.call_intrin(name, c[0], kernel[0, 0], data[0])
    )
    assert f"operand 'b' of {name} is the element where it begins" in refusal(
        lambda: te.call_intrin(name, c[0], data[0], 3)
    )
    flat = te.BufferView(type(kernel.buffer)("flat", (32,), "int8"))
    assert f"operand 'b' of {name} is [8, 4], the last dimensions of a buffer; 'flat' has 1" in (
        refusal(lambda: te.call_intrin(name, c[0], data[0], flat[0]))
    )
    with pytest.raises(TensorError, match="3 lanes of uint8 by int8; there are 4, 8 and 16"):
        te.intrinsics.dot_uint8_int8_int32(3)


def test_views_and_builders() -> None:
    a = te.BufferView(te.intrinsics.dot_uint8_int8_int32(8).params[1])
    assert (a.name, a.shape, a.dtype) == ("kernel", (8, 4), "int8")
    assert repr(a) == "BufferView(kernel: int8[8, 4])"
    assert "it was indexed with 1" in refusal(lambda: a[0])
    assert "index 0 has dtype float32" in refusal(lambda: a[te.const(1.0), 0])
    with pytest.raises(AttributeError):
        a.name = "other"  # type: ignore[misc]
    ib = te.ir_builder()
    sized = ib.allocate((te.size_var("n"),), "float32")
    assert "depends on sizes; bind them" in refusal(sized.__enter__)
    assert "emit: expected a statement" in refusal(lambda: ib.emit(3))  # type: ignore[arg-type]
    assert "kind is one of serial, vectorized, unrolled" in refusal(
        lambda: ib.for_range(4, "i", "parallel").__enter__()
    )
    ib.for_range(4, "i").__enter__()
    assert "a loop is still open" in refusal(ib.get)


def test_parameters_of_buffers_that_scripts_of_tvm_give() -> None:
    given = {"offset_factor": 1, "data_alignment": 64}
    assert declare(everything, default_buffer_params=given) == declare(everything)
    text = refusal(lambda: declare(everything, default_buffer_params={"strides": [1]}))
    assert text.endswith("default_buffer_params has 'strides'; say it of each operand in binds")


@pytest.mark.parametrize(
    ("name", "instead"),
    [("access_ptr", "write the statements"), ("strides", "te.decl_buffer"), ("vload", "b[i]")],
)
def test_what_operands_do_not_have_is_said(name: str, instead: str) -> None:
    def statements(ins: Any, outs: Any) -> Any:
        with pytest.raises(AttributeError, match=f"has no attribute '{name}': .*") as e:
            getattr(ins[0], name)
        assert instead in str(e.value)
        assert not hasattr(outs[0], "nothing")
        return everything(ins, outs)

    declare(statements)
