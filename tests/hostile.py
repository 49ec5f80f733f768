"""Traces as somebody would write them into a log to do harm.

They are for ``C = A @ B`` of 32 x 32 x 32, whose stages A, B and C have the numbers 0 to 2.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from loopwright import te

SIZE = 32
Json = Any


def product() -> list[te.Tensor]:
    """A, B and C, computed as the operator ``matmul`` does."""
    A = te.placeholder((SIZE, SIZE), name="A")
    B = te.placeholder((SIZE, SIZE), name="B")
    k = te.reduce_axis((0, SIZE), name="k")
    C = te.compute((SIZE, SIZE), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return [A, B, C]


def honest() -> Json:
    """An intrinsic for the loop k, under a name that no process has declared."""
    a, b = te.placeholder((1, SIZE), name="a"), te.placeholder((SIZE, 1), name="b")
    k = te.reduce_axis((0, SIZE), name="k")
    c = te.compute((1, 1), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    binds = {t: te.decl_buffer(t.shape, t.dtype, t.name, [None, None]) for t in (a, b, c)}

    def statements(ins: Any, outs: Any) -> Any:
        (x, y), (z,) = ins, outs
        ib = te.ir_builder()
        ib.emit(z.store((0, 0), 0.0))
        with ib.for_range(SIZE, "k") as k:
            ib.emit(z.store((0, 0), z[0, 0] + x[0, k] * y[k, 0]))
        return ib.get()

    out = te.decl_tensor_intrin(c.op, statements, name="dot", binds=binds).to_json()
    return {**out, "name": "dot of a log"}


def _edit(*path: Any, to: Json) -> Callable[[Json], None]:
    def change(x: Json) -> None:
        for key in path[:-1]:
            x = x[key]
        x[path[-1]] = to

    return change


_STORE = ("body", 1, 1, 5)
_FAR = ["const", 100000, "int32"]
_CALL = ["call", "system", [["const", 1.0, "float32"]], "float32"]
#: An element of an operand that lies at a place which another operand says.
_BY_DATA = ["cast", ["read", 0, [["var", "v0"], ["var", "v0"]], "float32"], "int32"]
_TEXT = 'int32); __import__("os").system("id"); (int32'

#: What is changed in the honest intrinsic, and what the refusal says.
ATTACKS: dict[str, tuple[Callable[[Json], None], str]] = {
    "writes out of bounds": (_edit(*_STORE, 2, 0, to=_FAR), "outside c: index [100000, 0]"),
    "writes before its buffer": (
        _edit(*_STORE, 2, 0, to=["const", -9, "int32"]),
        "outside c: index [-9, 0]",
    ),
    "reads out of bounds": (
        _edit(*_STORE, 3, 3, 2, 2, 1, to=["bin", "*", ["var", "v0"], _FAR, "int32"]),
        "outside a: index [0, 100000]",
    ),
    "a place from data": (_edit(*_STORE, 2, 0, to=_BY_DATA), "an index depends on data"),
    "an index that wraps": (
        _edit(
            *_STORE, 2, 0, to=["bin", "*", ["var", "v0"], ["const", 2**31 - 1, "int32"], "int32"]
        ),
        "leaves the range of int32",
    ),
    "calls system": (_edit(*_STORE, 3, to=_CALL), "unknown intrinsic 'system'"),
    "an instruction of its own": (
        _edit("body", to=["intrin", "syscall", [["read", 0, [_FAR, _FAR], "float32"]]]),
        "unknown instruction 'syscall'",
    ),
    "source text for a dtype": (_edit(*_STORE, 3, 4, to=_TEXT), "the result of '+'"),
    "source text for an operation": (
        _edit(*_STORE, 3, to=["un", "asm(''); -", ["const", 1.0, "float32"]]),
        "unknown operation",
    ),
    "the description lies": (
        _edit("dag", "ops", 2, "body", 3, 1, to="max"),
        "does not give what its description gives",
    ),
    "the description is of less": (
        _edit("dag", "ops", 0, "shape", to=[1, 10**9]),
        "has elements that its description does not read",
    ),
    "runs 10**12 times": (_edit("body", 1, 1, 3, to=10**12), "more than 131072 operations"),
    "an index that takes long to look at": (
        lambda x: _edit(*_STORE, 2, 0, to=_halves(8))(x),
        "operations, and at most 256 are proved",
    ),
    "long indices, often": (
        lambda x: _edit(
            *("body", 1, 1),
            to=[
                "for",
                "v0",
                "k",
                900,
                "serial",
                [
                    "store",
                    2,
                    [["bin", "-", *[_halves(4)] * 2, "int32"], ["const", 0, "int32"]],
                    ["const", 0.0, "float32"],
                ],
            ],
        )(x),
        "more than 131072 operations",
    ),
    "takes a terabyte": (
        _edit("body", to=["alloc", 3, "t", [10**12], "int8", ["seq", []]]),
        "at most 65536 are proved",
    ),
    "nests 5000 deep": (
        lambda x: _edit("body", to=_nested(5000))(x),
        "nest deeper than 200",
    ),
    "a number of 400 digits": (_edit("body", 1, 1, 3, to=10**400), "a number of more than"),
    "not a number": (_edit(*_STORE, 3, to=["const", float("inf"), "float32"]), "the number inf"),
}


def _nested(depth: int) -> Json:
    out: Json = ["seq", []]
    for _ in range(depth):
        out = ["seq", [out]]
    return out


def _halves(times: int) -> Json:
    """An index that is what it is made of: half of it and the rest, and so on."""
    out: Json = ["var", "v0"]
    two = ["const", 2, "int32"]
    for _ in range(times):
        half, rest = (["bin", op, out, two, "int32"] for op in ("//", "%"))
        out = ["bin", "+", half, rest, "int32"]
    return out


def attack(name: str) -> Json:
    """The trace of an attack."""
    intrin = copy.deepcopy(honest())
    ATTACKS[name][0](intrin)
    return trace(intrin)


def trace(intrin: Json) -> Json:
    """A trace that lets an intrinsic do the loop k of the product."""
    return [["tensorize", 2, "r0", intrin]]
