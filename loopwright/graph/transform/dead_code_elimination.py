"""DeadCodeElimination: removes unread bindings, and tuples of which single parts are read.

Other unused values are not part of a graph to begin with.
"""

from __future__ import annotations

from loopwright.graph.ir.expr import Expr, Function, Let, Tuple, TupleGetItem, Var
from loopwright.graph.ir.visitor import post_order, rewrite, users
from loopwright.graph.transform.module_pass import function_pass


@function_pass(opt_level=1, name="DeadCodeElimination")
def dead_code_elimination(f: Function) -> Expr:
    """Remove unread bindings, and read parts of tuples where they are made, until none is left."""
    made = _once(f)
    while made is not f and isinstance(made, Function):
        f, made = made, _once(made)
    return made


def _once(f: Function) -> Expr:
    readers = users(post_order(f))

    def change(e: Expr) -> Expr:
        match e:
            case TupleGetItem(tuple_value=Tuple(fields=fields), index=index):
                return fields[index]
            case Let(var=var, body=body) if _unread(var, readers):
                return body
        return e

    return rewrite(f, change)


def _unread(var: Var, readers: dict[Expr, list[Expr]]) -> bool:
    """Whether only the binding of a variable has it as a child."""
    return len(readers.get(var, ())) <= 1
