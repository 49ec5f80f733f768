"""FoldRequantize: a division by a scale is folded into the factors before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from loopwright import dtypes
from loopwright.graph.dataflow_pattern import Types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, const
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, post_order, rewrite_each, users
from loopwright.graph.transform.module_pass import module_pass

#: Calls whose result is scaled as their operands are, where the factor is above 0.
_ALIKE = ("add", "subtract", "maximum", "minimum", "nn.relu")


@module_pass(opt_level=1, name="FoldRequantize")
def fold_requantize(module: IRModule) -> IRModule:
    """Write ``round((x * factor + bias) / scale)`` as ``round(x * factor' + bias')``.

    Where whole numbers became real ones by a constant factor, and become whole ones again, by one
    constant scale, after sums and limits by constants, or a sum with other such numbers, and
    nothing else reads what lies between. A division of each element is saved. Rounding differs in
    the last places of the float, so that a result may differ by 1 where it lies between two whole
    numbers; Jacob et al. (2018) have one factor in place of both scales as well.

    Before::

        def @main(%x: int32[4]) {
          %0 = cast(%x, dtype="float32");
          %1 = multiply(%0, 0.5);
          %2 = add(%1, 3.0);
          %3 = divide(%2, 2.0);
          round(%3)
        }

    After::

        def @main(%x: int32[4]) {
          %0 = cast(%x, dtype="float32");
          %1 = multiply(%0, 0.25);
          %2 = add(%1, 1.5);
          round(%2)
        }
    """
    types = Types(module)
    return module.with_functions({n: _folded(f, types) for n, f in module.functions.items()})


def _folded(f: Function, types: Types) -> Function:
    readers = users(post_order(f))

    def scaled(old: Expr, new: Expr, by: float) -> Expr | None:
        """An expression divided by a number; None where that cannot be folded in."""
        if isinstance(new, Constant):
            return _divided(new, by)
        if not isinstance(old, Call) or not isinstance(new, Call) or len(readers[old]) != 1:
            return None
        name = called(new)
        if name == "multiply":
            return _by_factor(new, by, types)
        if name not in _ALIKE:
            return None
        each = [scaled(a, b, by) for a, b in zip(old.args, new.args, strict=True)]
        args = tuple(e for e in each if e is not None)
        return replace(new, args=args) if len(args) == len(each) else None

    def change(old: Expr, new: Expr) -> Expr:
        if called(new) != "round" or not isinstance(old, Call) or not isinstance(new, Call):
            return new
        whole, divided = old.args[0], new.args[0]
        if called(divided) != "divide" or len(readers[whole]) != 1:
            return new
        assert isinstance(whole, Call)
        assert isinstance(divided, Call)
        scale = divided.args[1]
        if not isinstance(scale, Constant) or scale.data.ndim or not scale.data > 0:
            return new
        inner = scaled(whole.args[0], divided.args[0], float(scale.data))
        return new if inner is None else replace(new, args=(inner,))

    made = rewrite_each(f, change)
    assert isinstance(made, Function)
    return made


def _by_factor(product: Call, by: float, types: Types) -> Expr | None:
    whole, factor = product.args
    if called(whole) != "cast" or not isinstance(whole, Call) or not isinstance(factor, Constant):
        return None
    if not dtypes.is_int(types.tensor(whole.args[0]).dtype):
        return None
    less = _divided(factor, by)
    return None if less is None else replace(product, args=(whole, less))


def _divided(c: Constant, by: float) -> Constant | None:
    """A constant divided by a number; None where that overflows its dtype."""
    with np.errstate(over="ignore"):
        found = (c.data.astype("float64") / by).astype(c.data.dtype)
    return const(found) if np.isfinite(found).all() else None
