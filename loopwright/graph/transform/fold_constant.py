"""FoldConstant: expressions of constants are computed when the model is built."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from loopwright.graph.evaluate import evaluate
from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Constant, Expr, Function, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.types import TensorType, Type
from loopwright.graph.ir.visitor import called, post_order, rewrite, users
from loopwright.graph.transform.module_pass import module_pass

#: A result that is larger than what it is computed from, and than so many elements, stays a
#: computation: a broadcast constant would fill the file of the model.
_LARGE = 1 << 16


@module_pass(opt_level=2, name="FoldConstant")
def fold_constant(module: IRModule) -> IRModule:
    """Replace calls of operators over constants by their values."""
    types = infer_types(module)
    return module.with_functions({n: _folded(f, types) for n, f in module.functions.items()})


def _folded(f: Function, types: Mapping[Expr, Type]) -> Function:
    known: set[Expr] = set()
    order = post_order(f)
    for e in order:
        if isinstance(e, Constant) or (called(e) is not None and _is_known(e, known, types)):
            known.add(e)
    readers = users(order)
    # Values that something else reads; what lies between them needs none.
    wanted = [e for e in order if e in known and not isinstance(e, Constant)]
    wanted = [e for e in wanted if any(r not in known for r in readers[e])]
    if not wanted:
        return f
    values = dict(zip(wanted, map(const, evaluate(wanted)), strict=True))
    made = rewrite(f, lambda e: values.get(e, e))
    assert isinstance(made, Function)
    return made


def _is_known(e: Expr, known: set[Expr], types: Mapping[Expr, Type]) -> bool:
    *args, _ = e.children
    if not all(a in known for a in args):
        return False
    size, largest = _elements(types[e]), max((_elements(types[a]) for a in args), default=0)
    return 0 < size <= max(_LARGE, largest)


def _elements(t: Type) -> int:
    """The number of elements of a tensor; 0 where that is not known, or it is no tensor."""
    if not isinstance(t, TensorType):
        return 0
    return prod(n if isinstance(n, int) else 0 for n in t.shape)
