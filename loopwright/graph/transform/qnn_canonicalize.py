"""QnnCanonicalize: quantisation and dequantisation become arithmetic, which fuses as such."""

from __future__ import annotations

from typing import Any

from loopwright.graph.dataflow_pattern import Match, Rule, is_op, rewrite, wildcard
from loopwright.graph.ir.expr import Constant, Expr, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.registry import get_op
from loopwright.graph.transform.module_pass import module_pass

_DATA, _SCALE, _ZERO = wildcard(), wildcard(), wildcard()


def _spread(m: Match, e: Expr) -> Expr:
    """A scale or a zero point in a shape that is broadcast over the data."""
    if not m.type(e).shape:
        return e
    rank = len(m.type(_DATA).shape)
    inner = rank - 1 - m.attrs()["axis"] % rank
    if isinstance(e, Constant):
        return const(e.data.reshape(-1, *(1,) * inner))
    return get_op("reshape")(e, newshape=(-1, *(1,) * inner)) if inner else e


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Constant) and not e.data.any()


def _call(name: str, *args: Any, **attrs: Any) -> Expr:
    return get_op(name)(*args, **attrs)


def _quantized(m: Match) -> Expr:
    scale, dtype = _spread(m, m[_SCALE]), m.attrs()["out_dtype"]
    whole = _call("round", _call("divide", m[_DATA], scale))
    if not _is_zero(m[_ZERO]):
        whole = _call("add", whole, _call("cast", _spread(m, m[_ZERO]), dtype="float32"))
    return _call("cast", whole, dtype=dtype)  # a cast holds numbers in the range of its dtype


def _dequantized(m: Match) -> Expr:
    whole = m[_DATA]
    if not _is_zero(m[_ZERO]):
        wide = _call("cast", whole, dtype="int32")
        whole = _call("subtract", wide, _spread(m, m[_ZERO]))
    real = _call("cast", whole, dtype="float32")
    return _call("multiply", real, _spread(m, m[_SCALE]))


RULES = (
    Rule(is_op("qnn.quantize")(_DATA, _SCALE, _ZERO), _quantized),
    Rule(is_op("qnn.dequantize")(_DATA, _SCALE, _ZERO), _dequantized),
)


@module_pass(opt_level=0, name="QnnCanonicalize")
def qnn_canonicalize(module: IRModule) -> IRModule:
    """Write ``qnn.quantize`` and ``qnn.dequantize`` as the arithmetic that they are.

    The name is that of TVM's pass.

    Before::

        def @main(%x: float32[8]) {
          qnn.quantize(%x, 0.5, 3:int32, axis=-1, out_dtype="uint8")
        }

    After::

        def @main(%x: float32[8]) {
          %0 = divide(%x, 0.5);
          %1 = round(%0);
          %2 = cast(3:int32, dtype="float32");
          %3 = add(%1, %2);
          cast(%3, dtype="uint8")
        }
    """
    return rewrite(RULES, module)
