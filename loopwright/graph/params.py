"""Binding of weights: parameters of a function become constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import overload

import numpy.typing as npt

from loopwright.errors import GraphError, did_you_mean
from loopwright.graph.ir.expr import Constant, Expr, Function, Var, const
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.types import Type
from loopwright.graph.ir.visitor import substitute


@overload
def bind_params_by_name(model: Function, params: Mapping[str, npt.ArrayLike]) -> Function: ...


@overload
def bind_params_by_name(model: IRModule, params: Mapping[str, npt.ArrayLike]) -> IRModule: ...


def bind_params_by_name(
    model: Function | IRModule, params: Mapping[str, npt.ArrayLike]
) -> Function | IRModule:
    """Replace parameters of a function by constants, as Relay's ``bind_params_by_name`` does.

    Args:
        model: a function, or a module, of whose ``main`` parameters are bound.
        params: an array for each parameter that is bound, by its name; the others remain.

    Returns:
        A function or module, as given.

    Raises:
        GraphError: there is no such parameter, several have its name, or the array is of another
            shape or dtype.

    Example:
        >>> x, w = lw.graph.var("x", (1, 4)), lw.graph.var("w", (2, 4))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.dense(x, w))
        >>> bound = lw.graph.bind_params_by_name(module, {"w": np.ones((2, 4), "float32")})
        >>> print([p.name for p in bound["main"].params])
        ['x']
    """
    if isinstance(model, IRModule):
        return model.with_function(MAIN, bind_params_by_name(model[MAIN], params))
    values: dict[Var, Expr] = {}
    for name, given in params.items():
        found = [p for p in model.params if p.name == name]
        if len(found) != 1:
            names = [p.name for p in model.params]
            why = "there is none" if not found else f"there are {len(found)}"
            raise GraphError(
                f"bind_params_by_name: {why} of the name {name!r}{did_you_mean(name, names)}; the "
                f"parameters are {', '.join(names)}"
            )
        values[found[0]] = _constant(name, given, found[0].type)
    body = substitute(model.body, values)
    params_left = tuple(p for p in model.params if p not in values)
    return Function(params_left, body, model.result, model.attrs, span=model.span)


def _constant(name: str, array: npt.ArrayLike, declared: Type | None) -> Constant:
    made = const(array, name=name)
    if made.type != declared:
        raise GraphError(f"bind_params_by_name: {name!r} is {declared}, got {made.type}")
    return made
