"""ToMixedPrecision: products in 16 bits, calls that need the precision of float32 in float32."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.infer import Types
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, rewrite_function
from loopwright.graph.passes import check_module
from loopwright.graph.registry import get_op
from loopwright.graph.transform.pipeline import FOLDING
from loopwright.lowering import Pass

#: List that an operator is in.
Category: TypeAlias = Literal["always", "follow", "never"]
_WIDE = "float32"

#: Products: instructions take 16 bits, sums are of float32.
ALWAYS = ("nn.conv", "nn.dense", "matmul")
#: Operators that lose nothing, or little, on inputs of 16 bits. All others stay float32:
#: exponentials, functions that are steep somewhere, and sums of many elements.
FOLLOW = (
    *("add", "subtract", "multiply", "maximum", "minimum", "negative", "abs", "where"),
    *("nn.relu", "nn.leaky_relu", "nn.prelu", "clip", "nn.bias_add"),
    *("nn.max_pool", "nn.avg_pool", "nn.pad", "concatenate", "strided_slice", "broadcast_to"),
    *("reshape", "transpose", "squeeze", "expand_dims", "nn.batch_flatten", "take"),
)


def ToMixedPrecision(
    dtype: str = "bfloat16",
    *,
    always: Iterable[str] = (),
    follow: Iterable[str] = (),
    never: Iterable[str] = (),
) -> Pass:
    """A pass that lets products take operands of 16 bits; the name and the lists are TVM's.

    Operators of the first list always get operands of the dtype and give it, with sums in float32.
    Those of the second list follow: they work in the dtype where all that they read, constants left
    out, has it. All others work in float32. Parameters and results of functions stay as they are.
    Batch normalisation and factors of channels are folded into weights before.

    Args:
        dtype: ``"bfloat16"``, for which CPUs have instructions, or ``"float16"``.
        always: operators for the first list, beside products.
        follow: for the second list, beside elementwise arithmetic, pools and moves.
        never: operators that are taken from both lists.

    Raises:
        GraphError: the dtype has not 16 bits, or there is no operator of a name.

    Example:
        >>> x, w = lw.graph.var("x", (2, 4)), np.ones((3, 4), "float32")
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.op.nn.dense(x, w)))
        >>> print(lw.graph.transform.ToMixedPrecision()(module))
        def @main(%x: float32[2, 4]) -> float32[2, 3] {
          %0 = cast(%x, dtype="bfloat16");
          %1 = nn.dense(%0, const[unnamed: bfloat16[3, 4]], out_dtype="");
          %2 = nn.relu(%1);
          cast(%2, dtype="float32")
        }
    """
    if dtype not in dtypes.HALVES:
        raise GraphError(f"mixed precision is of {' or '.join(dtypes.HALVES)}, not {dtype}")
    lists: dict[str, Category] = {}
    for category, names in (("follow", FOLLOW), ("always", ALWAYS)):
        lists |= dict.fromkeys(names, category)  # type: ignore[arg-type]
    for category, operators in (("follow", follow), ("always", always), ("never", never)):
        lists |= {get_op(name).name: category for name in operators}  # type: ignore[misc]

    def run(module: IRModule) -> IRModule:
        module = FOLDING(module)
        types = Types(module)
        functions = {
            name: rewrite_function(f, _Mixing(types, dtype, lists).change)
            for name, f in module.functions.items()
        }
        return IRModule(functions)

    return Pass("ToMixedPrecision", 2, run, IRModule, check_module)


@dataclass(eq=False)
class _Mixing:
    types: Types
    dtype: str
    lists: Mapping[str, Category]
    casts: dict[tuple[ir.Expr, str], ir.Expr] = field(default_factory=dict)

    def change(self, old: ir.Expr, new: ir.Expr) -> ir.Expr:
        if isinstance(new, (ir.Constant, ir.Var, ir.OpRef, ir.GlobalVar, ir.HostFunction)):
            return new
        name = called(new)
        if name is None or not isinstance(new, ir.Call):
            kept = new.with_children(tuple(self._as(c, _WIDE) for c in new.children))
            self.types.keep(kept, self.types[old])
            return kept
        dtype = self._precision(name, new)
        return new.with_children((*(self._as(a, dtype) for a in new.args), new.op))

    def _precision(self, name: str, call: ir.Call) -> str:
        """The dtype of the floats that a call reads."""
        category = self.lists.get(name, "never")
        own = [self._dtype(a) for a in call.args if not isinstance(a, ir.Constant)]
        floats = [d for d in own if d is not None and dtypes.is_float(d)]
        if category == "never" or any(d not in (_WIDE, self.dtype) for d in floats):
            return _WIDE
        if category == "always":
            return self.dtype
        return self.dtype if floats and all(d == self.dtype for d in floats) else _WIDE

    def _dtype(self, e: ir.Expr) -> str | None:
        """The dtype of a tensor; None where an expression is none."""
        t = None if isinstance(e, (ir.OpRef, ir.GlobalVar, ir.HostFunction)) else self.types[e]
        return t.dtype if isinstance(t, ir.TensorType) else None

    def _as(self, e: ir.Expr, dtype: str) -> ir.Expr:
        """A float tensor in one of the two dtypes; other values stay."""
        own = self._dtype(e)
        if own == dtype or own not in (_WIDE, self.dtype):
            return e
        if (e, dtype) not in self.casts:
            self.casts[e, dtype] = (
                ir.const(e.data, dtypes.check(dtype), name=e.name)
                if isinstance(e, ir.Constant)
                else get_op("cast")(e, dtype=dtype, span=e.span)
            )
        return self.casts[e, dtype]
