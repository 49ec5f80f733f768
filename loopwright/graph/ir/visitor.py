"""Walks over graphs: each node once, children first, by no recursion: models are long chains.

The branches of an `If` and the body of a `Function` are blocks of their own. A node is computed in
the innermost block that encloses all its uses: before the `If` where both branches read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from loopwright.graph.ir.expr import Call, Expr, Function, GlobalVar, If, Let, OpRef, Var


def post_order(*roots: Expr) -> list[Expr]:
    """All nodes of some expressions, each once, after its children.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> print([type(e).__name__ for e in lw.graph.post_order(lw.graph.op.nn.relu(x))])
        ['Var', 'OpRef', 'Call']
    """
    order: dict[Expr, None] = {}
    waiting = [(root, False) for root in reversed(roots)]
    while waiting:
        e, ready = waiting.pop()
        if e in order:
            continue
        if ready:
            order[e] = None
            continue
        waiting.append((e, True))
        waiting.extend((c, False) for c in reversed(e.children) if c not in order)
    return list(order)


def rewrite(root: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with every node replaced, children first.

    ``change`` is called once for each node, over children that are replaced already, and returns
    the node itself to keep it. Unchanged parts are shared with the old expression.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> y = lw.graph.op.nn.relu(lw.graph.op.nn.relu(x))
        >>> def once(e):
        ...     inner = e.args[0] if isinstance(e, lw.graph.Call) else None
        ...     return inner if isinstance(inner, lw.graph.Call) else e
        ...
        >>> print(lw.graph.IRModule.from_expr(lw.graph.rewrite(y, once)))
        def @main(%x: float32[4]) {
          nn.relu(%x)
        }
    """
    return rewrite_each(root, lambda _, e: change(e))


def rewrite_each(root: Expr, change: Callable[[Expr, Expr], Expr]) -> Expr:
    """As `rewrite`; ``change`` also gets the old node first, for facts such as its type."""
    new: dict[Expr, Expr] = {}
    for e in post_order(root):
        new[e] = change(e, e.with_children(tuple(new[c] for c in e.children)))
    return new[root]


def rewrite_function(f: Function, change: Callable[[Expr, Expr], Expr]) -> Function:
    """As `rewrite_each`, of a function that stays one."""
    new = rewrite_each(f, change)
    assert isinstance(new, Function)
    return new


def substitute(root: Expr, values: dict[Var, Expr]) -> Expr:
    """The expression with some of its free variables replaced.

    Variables are identified by object, so that none can be captured by a binding of the same name.

    Example:
        >>> x, y = lw.graph.var("x", (4,)), lw.graph.var("y", (4,))
        >>> print(lw.graph.free_vars(lw.graph.substitute(lw.graph.op.exp(x), {x: y}))[0].name)
        y
    """
    return rewrite(root, lambda e: values.get(e, e) if isinstance(e, Var) else e)


def free_vars(root: Expr) -> list[Var]:
    """Variables that an expression reads and does not bind, in the order of their first use.

    A variable is bound by a function or a `Let`; as variables are identified by object, one that is
    bound somewhere in the expression is not free elsewhere.

    Example:
        >>> x, y = lw.graph.var("x"), lw.graph.var("y")
        >>> print([v.name for v in lw.graph.free_vars(lw.graph.op.subtract(y, x))])
        ['y', 'x']
    """
    nodes = post_order(root)
    bound = {p for e in nodes if isinstance(e, Function) for p in e.params}
    bound |= {e.var for e in nodes if isinstance(e, Let)}
    return [e for e in nodes if isinstance(e, Var) and e not in bound]


def users(nodes: Iterable[Expr]) -> dict[Expr, list[Expr]]:
    """For each node its readers, once for each time they have it as a child."""
    readers: dict[Expr, list[Expr]] = {}
    for e in nodes:
        readers.setdefault(e, [])
        for child in e.children:
            readers.setdefault(child, []).append(e)
    return readers


def called(e: Expr) -> str | None:
    """The name of the operator that a node calls; None where it is no call of an operator."""
    return e.op.name if isinstance(e, Call) and isinstance(e.op, OpRef) else None


def globals_of(root: Expr) -> list[str]:
    """Names of the functions that an expression calls, each once."""
    names = [e.name for e in post_order(root) if isinstance(e, GlobalVar)]
    return list(dict.fromkeys(names))


@dataclass(eq=False)
class Block:
    result: Expr  # its value
    outer: Block | None = None  # the enclosing block
    #: computed in it, in order, without those of inner blocks
    nodes: list[Expr] = field(default_factory=list)
    #: the blocks of its nodes: one of a function, two of an `If`
    inner: dict[Expr, list[Block]] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else 1 + self.outer.depth


def blocks(root: Expr) -> Block:
    """The block of an expression, with inner ones; pass a function's body, not the function."""
    top = Block(root)
    place: dict[Expr, Block] = {root: top}
    order = post_order(root)
    for e in reversed(order):  # users before what they use
        for child, block in _uses(e, place[e]):
            before = place.get(child)
            place[child] = block if before is None else _common(before, block)
    for e in order:
        place[e].nodes.append(e)
    return top


def _uses(e: Expr, at: Block) -> list[tuple[Expr, Block]]:
    """The children of a node with the blocks in which it reads them."""
    if isinstance(e, If):
        then, otherwise = Block(e.then, at), Block(e.otherwise, at)
        at.inner[e] = [then, otherwise]
        return [(e.condition, at), (e.then, then), (e.otherwise, otherwise)]
    if isinstance(e, Function):
        body = Block(e.body, at)
        at.inner[e] = [body]
        return [*((p, body) for p in e.params), (e.body, body)]
    return [(c, at) for c in e.children]


def _common(a: Block, b: Block) -> Block:
    """The innermost block that encloses both."""
    while a is not b:
        deeper = a if a.depth >= b.depth else b
        outer = deeper.outer
        assert outer is not None  # all lie in one
        a, b = (outer, b) if deeper is a else (a, outer)
    return a
