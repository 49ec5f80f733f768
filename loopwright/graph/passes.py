"""Passes over modules of graphs; contexts, sequences and instruments are those of all passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

from loopwright.errors import GraphError
from loopwright.graph.infer import Types, infer_types
from loopwright.graph.ir.expr import Expr, Function
from loopwright.graph.ir.module import IRModule
from loopwright.lowering import Pass, register_pass


def module_pass(
    opt_level: int, name: str | None = None
) -> Callable[[Callable[[IRModule], IRModule]], Pass]:
    """Turn a function ``IRModule -> IRModule`` into a pass and register its name.

    It runs from a `loopwright.PassContext` of ``opt_level``, 0 to 3, on. The name is by default
    the function's; that of a built-in pass is a UsageError.

    Example:
        >>> @lw.graph.transform.module_pass(opt_level=1)
        ... def count_functions(module):
        ...     print(len(module.functions), "function(s)")
        ...     return module
        ...
        >>> module = lw.graph.IRModule.from_expr(lw.graph.var("x", (4,)))
        >>> _ = lw.transform.Sequential([count_functions])(module)
        1 function(s)
    """

    def decorate(run: Callable[[IRModule], IRModule]) -> Pass:
        return register_pass(Pass(name or run.__name__, opt_level, run, IRModule, check_module))

    return decorate


def function_pass(
    opt_level: int, name: str | None = None
) -> Callable[[Callable[[Function], Expr]], Pass]:
    """Turn a function ``Function -> Function`` into a pass over all functions of a module.

    Arguments are those of `module_pass`.

    Example:
        >>> @lw.graph.transform.function_pass(opt_level=1)
        ... def without_relu(f):
        ...     def change(e):
        ...         relu = isinstance(e, lw.graph.Call) and e.op.name == "nn.relu"
        ...         return e.args[0] if relu else e
        ...     return lw.graph.rewrite(f, change)
        ...
        >>> x = lw.graph.var("x", (4,))
        >>> print(without_relu(lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(x))))
        def @main(%x: float32[4]) {
          %x
        }
    """

    def decorate(run: Callable[[Function], Expr]) -> Pass:

        @wraps(run)  # whose pass it is, decides who may replace it
        def over_all(module: IRModule) -> IRModule:
            return module.with_functions(
                {n: _function(n, run(f)) for n, f in module.functions.items()}
            )

        return module_pass(opt_level, name or run.__name__)(over_all)

    return decorate


def typed_pass(opt_level: int) -> Callable[[Callable[[Function, Types], Function]], Pass]:
    """As `function_pass`, of a function that also gets the types of the nodes of the module."""

    def decorate(run: Callable[[Function, Types], Function]) -> Pass:
        @wraps(run)
        def over_all(module: IRModule) -> IRModule:
            types = Types(module)
            return module.with_functions({n: run(f, types) for n, f in module.functions.items()})

        return module_pass(opt_level)(over_all)

    return decorate


def _function(name: str, function: object) -> Function:
    if isinstance(function, Function):
        return function
    raise GraphError(f"a pass made a {type(function).__name__} of the function {name!r}")


def check_module(module: IRModule, when: str) -> None:
    """Raise GraphError, naming the pass before, where a type does not fit."""
    try:
        infer_types(module)
    except GraphError as exc:
        raise GraphError(f"{when}: {exc}") from exc
