"""Equality and hashes of graphs by what they compute, up to the names of variables.

Graphs are mapped node by node: a value that is read twice differs from one that is computed twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import free_vars, post_order


def structural_equal(
    a: ir.Expr | IRModule, b: ir.Expr | IRModule, map_free_vars: bool = False
) -> bool:
    """Whether two expressions or modules are the same program.

    With ``map_free_vars`` free variables may stand for each other, in the order of their first
    use; without it they must be the same ones.

    Example:
        >>> def double(name):
        ...     x = lw.graph.var(name, (4,))
        ...     return lw.graph.Function((x,), lw.graph.op.add(x, x))
        ...
        >>> print(lw.graph.structural_equal(double("x"), double("y")))
        True
    """
    if isinstance(a, IRModule) and isinstance(b, IRModule):
        same = a.functions.keys() == b.functions.keys()
        return same and all(structural_equal(f, b.functions[n]) for n, f in a.functions.items())
    if isinstance(a, IRModule) or isinstance(b, IRModule):
        return False
    return _numbered(a, map_free_vars) == _numbered(b, map_free_vars)


def structural_hash(
    e: ir.Expr | IRModule, map_free_vars: bool = False, *, values: bool = True
) -> str:
    """A hash that is equal for equal programs, in every process; 32 hexadecimal digits.

    Without ``values`` constants are hashed by their types alone, and Python functions by their
    names, so that the same network with other weights has the same hash.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> relu = lw.graph.op.nn.relu
        >>> print(lw.graph.structural_hash(relu(x)) == lw.graph.structural_hash(relu(x)))
        True
    """
    if isinstance(e, IRModule):
        hashes = {n: structural_hash(f, values=values) for n, f in e.functions.items()}
        text = "".join(f"{name}={hashes[name]};" for name in sorted(hashes))
    else:
        lines = _numbered(e, map_free_vars, in_this_process=False, values=values)
        text = "".join(f"{line!r}\n" for line in lines)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _numbered(
    root: ir.Expr, map_free_vars: bool, in_this_process: bool = True, values: bool = True
) -> list[tuple[Any, ...]]:
    """Each node as its own data and the numbers of its children, in post-order."""
    free = set() if map_free_vars else set(free_vars(root))
    number: dict[ir.Expr, int] = {}
    lines = []
    for e in post_order(root):
        number[e] = len(number)
        data = own_data(e, values)
        if e in free:
            data += (id(e) if in_this_process else getattr(e, "name", ""),)
        lines.append((type(e).__name__, data, tuple(number[c] for c in e.children)))
    return lines


def own_data(e: ir.Expr, values: bool = True) -> tuple[Any, ...]:
    """A node's own data, without its children, and unless ``values`` numbers and functions."""
    match e:
        case ir.Var():
            return (str(e.type),)
        case ir.Constant():
            digest = (hashlib.sha256(e.data.tobytes()).hexdigest(),) if values else ()
            return (str(e.type), *digest)
        case ir.GlobalVar() | ir.OpRef():
            return (e.name,)
        case ir.HostFunction():  # what a Python function computes is known by itself alone
            own = e.name, str(e.result)
            return (*own, id(e.function)) if values else own
        case ir.Call():
            return (attrs_key(e.attrs),)
        case ir.Function():
            return (str(e.result), attrs_key(e.attrs))
        case ir.TupleGetItem():
            return (e.index,)
    return ()


def attrs_key(attrs: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Attributes as text sorted by name; 1, 1.0 and True differ."""
    return tuple(sorted((name, repr(value)) for name, value in attrs.items()))
