"""Operations as LLVM text: literals, types, division that cannot trap."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopwright.codegen.code import C_FUNCTIONS
from loopwright.codegen.llvm.emitter import Emitter, ModuleWriter, Value, literal, llvm_type
from loopwright.target import Target


class Recorder(Emitter):
    """An emitter whose lines are the instructions alone."""

    def __init__(self) -> None:
        super().__init__(ModuleWriter("main", Target("llvm")))

    def pure(self, text: str) -> str:
        self.lines.append(text)
        return f"%{len(self.lines)}"

    def splat(self, v: Value, lanes: int) -> Value:
        return Value(f"splat({v.ref})", v.dtype, lanes)


@pytest.mark.parametrize(
    ("dtype", "lanes", "text"),
    [
        ("float32", 1, "float"),
        ("float64", 1, "double"),
        ("bool", 1, "i1"),
        ("uint8", 1, "i8"),
        ("int64", 4, "<4 x i64>"),
        ("float32", 16, "<16 x float>"),
    ],
)
def test_types(dtype: str, lanes: int, text: str) -> None:
    assert llvm_type(dtype, lanes) == text


@given(st.floats(width=32))
def test_float_literals_are_exact(x: float) -> None:
    bits = int(literal(x, "float32"), 16)
    back = struct.unpack("<d", struct.pack("<Q", bits))[0]
    assert back == x or (math.isnan(back) and math.isnan(x))
    assert math.copysign(1.0, back) == math.copysign(1.0, x) or math.isnan(x)


def test_other_literals() -> None:
    assert literal(True, "bool") == "true"
    assert literal(0, "bool") == "false"
    assert literal(-3, "int8") == "-3"


@pytest.mark.parametrize("op", ["//", "%", "tdiv", "tmod"])
@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_a_division_by_something_unknown_is_made_safe(op: str, dtype: str) -> None:
    r = Recorder()
    r.ops.binary(op, Value("%a", dtype), Value("%b", dtype), dtype)
    divisions = [x for x in r.lines if "div " in x or "rem " in x]
    assert divisions
    assert all("%b" not in x.split(",")[1] for x in divisions), "the divisor was replaced"


@pytest.mark.parametrize(
    ("divisor", "safe"), [("4", True), ("-3", True), ("-1", False), ("0", False)]
)
def test_a_known_divisor_needs_no_test(divisor: str, safe: bool) -> None:
    r = Recorder()
    r.ops.binary("tdiv", Value("%a", "int32"), Value(divisor, "int32"), "int32")
    assert (len(r.lines) == 1) == safe


def test_scalars_are_broadcast_beside_vectors() -> None:
    r = Recorder()
    out = r.ops.binary("+", Value("%v", "float32", 8), Value("%s", "float32"), "float32")
    assert out.lanes == 8
    assert r.lines == ["fadd contract <8 x float> %v, splat(%s)"]


def test_comparisons_with_nan_are_false_but_for_not_equal() -> None:
    r = Recorder()
    for op in ("==", "!=", "<"):
        r.ops.compare(op, Value("%a", "float32"), Value("%b", "float32"))
    assert [x.split()[1] for x in r.lines] == ["oeq", "une", "olt"]


def test_unsigned_comparisons_and_divisions() -> None:
    r = Recorder()
    r.ops.compare("<", Value("%a", "uint8"), Value("%b", "uint8"))
    r.ops.binary("tdiv", Value("%a", "uint8"), Value("3", "uint8"), "uint8")
    assert r.lines == ["icmp ult i8 %a, %b", "udiv i8 %a, 3"]


def test_names_that_code_may_call_are_known() -> None:
    assert {"exp", "expf", "pow", "fmodf", "memset", "memcpy"} <= C_FUNCTIONS
