"""Instructions: their plain form against NumPy, and what verify says of malformed calls."""

from __future__ import annotations

import numpy as np
import pytest

from loopwright.errors import LowerError
from loopwright.ir.buffer import Buffer, Load
from loopwright.ir.expr import const
from loopwright.ir.instructions import INSTRUCTIONS, call_instruction
from loopwright.ir.interp.interpreter import interpret
from loopwright.ir.stmt import Func, IntrinsicCall, Stmt
from loopwright.ir.verify import verify

ZERO = const(0, "int32")


def operands(lanes: int) -> tuple[Load, Load, Load]:
    c, a = Buffer("c", (lanes,), "int32"), Buffer("a", (4,), "uint8")
    b = Buffer("b", (lanes, 4), "int8")
    return tuple(Load(x, (ZERO,) * len(x.shape), x.dtype) for x in (c, a, b))  # type: ignore[return-value]


def function(lanes: int, body: Stmt, given: tuple[Load, ...]) -> Func:
    return Func("f", tuple(x.buffer for x in given), (True, False, False), body)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_dot_products_wrap_as_int32(lanes: int) -> None:
    given = operands(lanes)
    f = function(lanes, call_instruction(f"dot_{lanes}x4_u8s8s32", given), given)
    verify(f)
    rng = np.random.default_rng(lanes)
    a = rng.integers(0, 256, 4, np.uint8)
    b = rng.integers(-128, 128, (lanes, 4), np.int8)
    a[0], b[0] = 255, -128
    c = np.full(lanes, -(2**31) + 5, np.int32)
    want = (c.astype(np.int64) + b.astype(np.int64) @ a.astype(np.int64)).astype(np.int32)
    assert want[0] > 0, "it wraps"
    interpret(f, [c, a, b])
    np.testing.assert_array_equal(c, want)


def test_verify_of_calls() -> None:
    given = operands(4)
    name = "dot_4x4_u8s8s32"
    body = INSTRUCTIONS[name].plain(given)
    with pytest.raises(LowerError, match="the instruction 'dot' is unknown"):
        verify(function(4, IntrinsicCall("dot", given, body), given))
    swapped = (given[0], given[2], given[1])
    with pytest.raises(LowerError) as e:
        verify(function(4, IntrinsicCall(name, swapped, body), given))
    assert f"the operands of {name!r} are int32, int8, uint8, not int32, uint8, int8" in str(
        e.value
    )
