"""Tensor expressions: what is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from loopwright.errors import no_such_name
from loopwright.ir.expr import Expr, IterVar, Var, cast
from loopwright.lazy import lazy_names
from loopwright.te import intrinsics as intrinsics
from loopwright.te.computes import compute
from loopwright.te.dag import Dag
from loopwright.te.ir_builder import BufferView, IRBuilder, call_intrin, ir_builder
from loopwright.te.math import (
    abs,
    all,
    any,
    atan,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    call,
    ceil,
    const,
    cos,
    cosh,
    div,
    equal,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floordiv,
    floormod,
    fma,
    fmod,
    if_then_else,
    indexdiv,
    indexmod,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    maximum,
    minimum,
    nearbyint,
    not_equal,
    pow,
    power,
    reinterpret,
    round,
    rsqrt,
    select,
    shift_left,
    shift_right,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from loopwright.te.op_node import OpNode
from loopwright.te.reducer import (
    argmax,
    argmin,
    comm_reducer,
    max,
    max_value,
    min,
    min_value,
    prod,
    sum,
)
from loopwright.te.tensor import (
    ComputeOp,
    Operation,
    PlaceholderOp,
    Tensor,
    placeholder,
    reduce_axis,
    size_var,
    thread_axis,
    var,
)
from loopwright.te.tensor_intrin import TensorIntrin, decl_buffer, decl_tensor_intrin

# Imported at their first use, by other rooms.
if TYPE_CHECKING:
    from loopwright.te.dag import ArgId, arg_id, call_work, read_arg_id
    from loopwright.te.error_bounds import Elements, TooMuchWorkError
    from loopwright.te.exact_sums import exactness, sums_are_read, with_wide_sums
    from loopwright.te.index_ranges import Span, index_operands, index_spans, is_data_dependent
    from loopwright.te.intrin_proof import (
        declared_in,
        intrinsic_from_json,
        require_equal,
        vouch_for,
        why_not_harmless,
    )
    from loopwright.te.intrinsics import call_of
    from loopwright.te.op_node import reads_of
    from loopwright.te.reducer_laws import why_in_order
    from loopwright.te.serial import combiner_to_json
    from loopwright.te.source import PythonIdentifiers
    from loopwright.te.tensor import (
        THREAD_TAGS,
        DimLike,
        ShapeLike,
        body_parts,
        shape_of,
        static_shape,
        whole,
    )
    from loopwright.te.tensor_intrin import OperandBuffer


# Any: the schedule's types stand a floor above this package.
def create_schedule(ops: Any) -> Any:
    """A schedule of what ``ops`` compute: `loopwright.create_schedule`, where TE has it."""
    from loopwright.schedule import create_schedule as create

    return create(ops)


__all__ = [
    "BufferView", "ComputeOp", "Dag", "Expr", "IRBuilder", "IterVar", "OpNode", "Operation",
    "PlaceholderOp", "Tensor", "TensorIntrin", "Var", "abs", "all", "any", "argmax", "argmin",
    "atan", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "call", "call_intrin",
    "cast", "ceil", "comm_reducer", "compute", "const", "cos", "cosh", "create_schedule",
    "decl_buffer", "decl_tensor_intrin", "div", "equal", "erf", "exp", "exp2", "expm1", "floor",
    "floordiv", "floormod", "fma", "fmod", "if_then_else", "indexdiv", "indexmod", "intrinsics",
    "ir_builder", "isfinite", "isinf", "isnan", "log", "log1p", "log2", "log10", "logical_not",
    "max", "max_value", "maximum", "min", "min_value", "minimum", "nearbyint", "not_equal",
    "placeholder", "pow", "power", "prod", "reduce_axis", "reinterpret", "round", "rsqrt", "select",
    "shift_left", "shift_right", "sigmoid", "sin", "sinh", "size_var", "sqrt", "sum", "tan", "tanh",
    "thread_axis", "trunc", "truncdiv", "truncmod", "var",
]  # fmt: skip

_FOREIGN = (
    "write te.compute, an intrinsic (tensorize), or a function by hand that calls one of Python: "
    "tir.prim_func with tir.call_packed"
)
_INLINE = "call s[stage].compute_inline() for each stage"
#: Names of TVM that cannot be had, and what takes their place.
_INSTEAD = {
    "AutoInlineElemWise": _INLINE,
    "AutoInlineInjective": _INLINE,
    "create_prim_func": "loopwright.lower(s, args) gives the loop nest of a schedule",
    "extern": _FOREIGN,
    "extern_primfunc": _FOREIGN,
    "gradient": "write the derivative with te.compute",
    "hybrid": "write te.compute, one for each stage of the computation",
    "scan": "write a running sum as te.sum(te.select(k <= j, x[k], 0), axis=k), other scans as one "
    "te.compute for each step that is known beforehand",
    "schedule": "the primitives are methods of te.create_schedule(...) and of its stages",
    "tag_scope": 'give te.compute its tag: te.compute(..., tag="...")',
}

if not TYPE_CHECKING:  # type checkers know the names
    __getattr__, __dir__ = lazy_names(__name__, _INSTEAD)
