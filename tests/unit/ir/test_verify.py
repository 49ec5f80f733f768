"""`verify` on programs that are broken in one place each."""

from __future__ import annotations

from typing import Any

import pytest

from loopwright.errors import LowerError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import Binary, Cast, Const, IfThenElse, Select, Unary, Var, binary, const
from loopwright.ir.stmt import Allocate, For, Func, If, Let, Seq, Stmt, Store
from loopwright.ir.verify import verify

A, C = Buffer("A", (4, 8), "float32"), Buffer("C", (4, 8), "float32")
T = Buffer("T", (8,), "int32", "local")
N, J, K = Var("i"), Var("j"), Var("k")
ONE, HALF = const(1, "int32"), const(0.5, "float32")
FROM_T = Cast(Load(T, (J,), "int32"), "float32")
LOAD = Load(A, (N, J), "float32")


def put(value: Any = LOAD, indices: Any = (N, J), buffer: Buffer = C) -> Store:
    return Store(buffer, indices, value)


def loops(body: Stmt, kind: str = "serial", extent: Any = 4, tag: str = "") -> Stmt:
    return For(N, extent, kind, For(J, 8, "serial", body), (), tag)


def check(body: Stmt, when: str = "") -> None:
    verify(Func("f", (A, C), (False, True), body), when)


GOOD = {
    "nest": loops(put()),
    "siblings define one variable": Seq((loops(put()), loops(put(HALF)))),
    "let": loops(Let(K, binary("//", J, 2), put(indices=(N, K)))),
    "allocation": loops(Allocate(T, Seq((put(ONE, (J,), T), put(FROM_T))))),
    "parallel": loops(put(), "parallel"),
    "parallel, through a let": loops(Let(K, binary("+", N, 1), put(indices=(K, J))), "parallel"),
    "parallel, one iteration": loops(put(indices=(ONE, J)), "parallel", 1),
    "parallel, guarded": loops(If(binary("==", N, 2), put(indices=(ONE, J))), "parallel"),
    "parallel, its own buffer": loops(Allocate(T, put(ONE, (J,), T)), "parallel"),
    "thread": loops(put(), "thread", 4, "threadIdx.x"),
    "condition": loops(If(binary("<", N, 3), put(), put(HALF))),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_well_formed(name: str) -> None:
    check(GOOD[name])


BAD: dict[str, tuple[Stmt, str]] = {
    "undefined variable": (
        For(N, 4, "serial", put()),
        "variable 'j' is used where it is not defined, in: C[i, j] = A[i, j]",
    ),
    "undefined after its scope": (
        Seq((loops(put()), put())),
        "variable 'i' is used where it is not defined",
    ),
    "let sees itself": (
        loops(Let(K, binary("+", K, 1), put())),
        "variable 'k' is used where it is not defined, in: k = k + 1",
    ),
    "defined twice": (
        For(N, 4, "serial", loops(put())),
        "variable 'i' is defined where it already is, in: for i in range(4):",
    ),
    "no such buffer": (
        loops(put(ONE, (J,), T)),
        "buffer 'T' is touched where it does not exist, in: T[j] = 1",
    ),
    "loaded after its scope": (
        loops(Seq((Allocate(T, put(ONE, (J,), T)), put(FROM_T)))),
        "buffer 'T' is touched where it does not exist",
    ),
    "allocated twice": (
        Allocate(T, Allocate(T, loops(put()))),
        "buffer 'T' is allocated where it already exists",
    ),
    "shape": (
        Allocate(Buffer("N", (-1,), "int32"), loops(put())),
        "buffer 'N' has the shape [-1]",
    ),
    "index count": (
        loops(put(indices=(N,))),
        "'C' has 2 dimensions, an access 1 indices",
    ),
    "index count of a load": (
        loops(put(Load(A, (N, J, J), "float32"))),
        "'A' has 2 dimensions, an access 3 indices",
    ),
    "index dtype": (
        loops(put(indices=(N, HALF))),
        "an index of 'C' is float32: 0.5",
    ),
    "stored dtype": (
        loops(put(ONE)),
        "the value stored in 'C' is int32, not float32: 1, in: C[i, j] = 1",
    ),
    "loaded dtype": (
        loops(put(Load(A, (N, J), "float64"))),
        "an element of 'A' (float32) is loaded as float64",
    ),
    "operands": (
        loops(put(Binary("+", LOAD, ONE, "float32"))),
        "'+' of float32 and int32: A[i, j] + 1",
    ),
    "result": (
        loops(put(Binary("<", LOAD, LOAD, "float32"))),
        "'<' of float32 is marked float32",
    ),
    "operation": (
        loops(put(Binary("**", LOAD, LOAD, "float32"))),
        "the operation '**' is unknown",
    ),
    "logic": (
        loops(If(Binary("and", N, J, "bool"), put())),
        "an operand of 'and' is int32, not bool: i",
    ),
    "not": (
        loops(If(Unary("not", N, "bool"), put())),
        "'not' of int32 is marked bool",
    ),
    "condition": (
        loops(If(N, put())),
        "the condition is int32, not bool: i, in: if i:",
    ),
    "select": (
        loops(put(Select(binary("<", N, 2), LOAD, ONE, "float32"))),
        "what a choice takes is int32, not float32",
    ),
    "choice": (
        loops(put(IfThenElse(N, LOAD, LOAD, "float32"))),
        "the condition is int32, not bool",
    ),
    "cast": (
        loops(put(Cast(LOAD, "float31"))),
        "unknown dtype 'float31'",
    ),
    "literal": (
        loops(put(indices=(N, Const(1 << 40, "int32")))),
        "the literal 1099511627776 is no int32",
    ),
    "let dtype": (
        loops(Let(K, HALF, put())),
        "'k' is int32, its value float32",
    ),
    "extent": (
        loops(put(), extent=0),
        "loop 'i' has the extent 0",
    ),
    "kind": (
        loops(put(), kind="sideways"),
        "loop 'i' is of the unknown kind 'sideways'",
    ),
    "tag": (
        loops(put(), kind="thread"),
        "loop 'i' is thread and has the thread tag ''",
    ),
    "race": (
        loops(put(indices=(ONE, J)), "parallel"),
        "every iteration of the parallel loop 'i' writes the same element of 'C', in: C[1, j]",
    ),
    "vector race": (
        loops(put(indices=(ONE, J)), "vectorized"),
        "every iteration of the vectorized loop 'i' writes the same element of 'C'",
    ),
    "race through a let": (
        loops(Let(K, binary("+", J, 0), put(indices=(ONE, K))), "parallel"),
        "every iteration of the parallel loop 'i' writes the same element of 'C'",
    ),
    "expression as a statement": (
        loops(N),  # type: ignore[arg-type]
        "a Var stands where a statement belongs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_malformed(name: str) -> None:
    body, text = BAD[name]
    with pytest.raises(LowerError) as error:
        check(body)
    assert str(error.value).startswith(f"verify: function 'f': {text}")


def test_the_message_names_the_pass() -> None:
    with pytest.raises(LowerError, match=r"^verify after pass X: function 'f': loop 'i'"):
        check(loops(put(), extent=-1), "after pass X")


def test_parameters_and_their_marks() -> None:
    with pytest.raises(LowerError, match="2 parameters, but 1 output marks"):
        verify(Func("f", (A, C), (True,), Seq(())))
    with pytest.raises(LowerError, match="buffer 'A' is allocated where it already exists"):
        verify(Func("f", (A, A), (True, False), Seq(())))
