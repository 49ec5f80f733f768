"""Walks over programs, substitution, and base classes for passes that keep state."""

# A subclass of `Visitor`, which looks at a program, or `Mutator`, which builds another, defines a
# method such as ``visit_Load(self, e)`` for each class of nodes that it cares about; every other
# node goes to `generic_visit`. Passes without state are as well written as functions with
# ``match``, ``map_children`` and `loopwright.ir.stmt.map_statements`.

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from loopwright.ir.expr import Expr, Var
from loopwright.ir.node import Node

N = TypeVar("N", bound=Node)
K = TypeVar("K", bound=Node)


class _Dispatch:
    #: Classes of the nodes that are entered.
    enters: ClassVar[type | tuple[type, ...]] = Node

    def __init__(self) -> None:
        self._methods: dict[type, Callable[[Any], Any]] = {}

    # Any: a method for a class of nodes takes that class and says what it returns.
    def visit(self, n: Node) -> Any:
        """Call the method for a node's class, or `generic_visit`."""
        kind = type(n)
        if kind not in self._methods:
            self._methods[kind] = getattr(self, f"visit_{kind.__name__}", self.generic_visit)
        return self._methods[kind](n)

    def generic_visit(self, n: Node) -> Any:
        """Handle a node whose class has no method of its own."""
        raise NotImplementedError


class Visitor(_Dispatch):
    """Visits every expression and statement, parents first.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> class CountLoads(lw.transform.Visitor):
        ...     loads = 0
        ...     def visit_Load(self, load):
        ...         self.loads += 1
        ...         self.generic_visit(load)
        ...
        >>> counter = CountLoads()
        >>> counter.visit(lw.lower(te.create_schedule(B.op), [A, B]))
        >>> print(counter.loads)
        1
    """

    def generic_visit(self, n: Node) -> Any:
        """Visit the children."""
        for c in n.children():
            if isinstance(c, self.enters):
                self.visit(c)


class Mutator(_Dispatch):
    """Rebuilds every expression and statement; what did not change stays the same object.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> class Serial(lw.transform.Mutator):
        ...     def visit_For(self, loop):
        ...         return self.generic_visit(loop).of_kind("serial")
        ...
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel(B.op.axis[0])
        >>> print(Serial().visit(lw.lower(s, [A, B])))
        def main(A: float32[4], B: out float32[4]):
          for i in range(4):
            B[i] = A[i] + 1.0
    """

    def generic_visit(self, n: Node) -> Any:
        """The node with its children rebuilt."""
        enters = self.enters
        return n.map_children(lambda c: self.visit(c) if isinstance(c, enters) else c)


def substitute(n: N, env: Mapping[Var, Expr]) -> N:
    # A node that is used several times is rebuilt once, and stays one.
    rebuilt: dict[int, Any] = {}

    # Any: an expression gives an expression and a statement a statement.
    def go(n: Any) -> Any:
        if isinstance(n, Var):
            return env.get(n, n)
        new = rebuilt.get(id(n))
        if new is None:
            new = rebuilt[id(n)] = n.map_children(go)
        return new

    out: N = go(n) if env else n
    return out


def map_nodes(n: N, kind: type[K], f: Callable[[K], Node]) -> N:
    """``n`` with ``f(x)`` for each node ``x`` of a class, those below ``x`` first."""

    def go(n: Any) -> Any:
        new = n.map_children(go)
        return f(new) if isinstance(new, kind) else new

    out: N = go(n)
    return out


def nodes(n: Node) -> Iterator[Node]:
    """A node and everything below it, parents first."""
    waiting = [n]
    while waiting:
        x = waiting.pop()
        yield x
        below = x.children()
        if below:
            below.reverse()
            waiting += below


def distinct_nodes(n: Node) -> Iterator[Node]:
    """As `nodes`, each object once, however often it is used."""
    seen: set[int] = set()
    waiting = [n]
    while waiting:
        x = waiting.pop()
        if id(x) not in seen:
            seen.add(id(x))
            yield x
            waiting += reversed(x.children())


def contains(n: Node, kind: type[Node] | tuple[type[Node], ...]) -> bool:
    return any(isinstance(x, kind) for x in distinct_nodes(n))


def free_vars(n: Node) -> set[Var]:
    out: set[Var] = set()
    waiting = [n]
    while waiting:  # by hand, as lowering asks very often
        x = waiting.pop()
        if isinstance(x, Var):
            out.add(x)
        else:
            waiting += x.children()
    return out
