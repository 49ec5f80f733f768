"""Base classes for passes: visitors look at a program, mutators build another.

A subclass defines a method such as ``visit_Load(self, e)`` for each class of nodes that it cares
about; every other node goes to `generic_visit`. The classes are for passes that keep state. Others
are as well written as functions with ``match``, `map_statements` and ``map_children``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from loopwright.ir.expr import Expr
from loopwright.ir.node import Node
from loopwright.ir.stmt import Stmt

S = TypeVar("S", bound=Stmt)


def map_statements(s: S, f: Callable[[Stmt], Stmt]) -> S:
    """A statement with ``f(child)`` for each statement directly in it; expressions are kept."""
    return s.map_children(lambda c: f(c) if isinstance(c, Stmt) else c)


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
            name = f"visit_{kind.__name__}"
            self._methods[kind] = getattr(self, name, self.generic_visit)
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


class ExprVisitor(Visitor):
    """Visits expressions only.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: te.exp(A[i]) + te.sqrt(A[i]), name="B")
        >>> class Calls(lw.transform.ExprVisitor):
        ...     def visit_Call(self, call):
        ...         print(call.fn)
        ...
        >>> Calls().visit(B.op.body)
        exp
        sqrt
    """

    enters = Expr


class StmtVisitor(Visitor):
    """Visits statements only; their expressions are not entered.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> class Loops(lw.transform.StmtVisitor):
        ...     def visit_For(self, loop):
        ...         print(loop.var.name, loop.extent, loop.kind)
        ...         self.generic_visit(loop)
        ...
        >>> Loops().visit(lw.lower(te.create_schedule(B.op), [A, B]).body)
        i 4 serial
    """

    enters = Stmt


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


class ExprMutator(Mutator):
    """Rebuilds expressions only.

    Example:
        >>> A = te.placeholder((8,), name="A")
        >>> B = te.compute((8,), lambda i: te.exp(A[i]) + 1, name="B")
        >>> class Cheaper(lw.transform.ExprMutator):
        ...     def visit_Call(self, call):
        ...         return call.args[0]
        ...
        >>> print(B.op.body, "becomes", Cheaper().visit(B.op.body))
        exp(A[i]) + 1.0 becomes A[i] + 1.0
    """

    enters = Expr


class StmtMutator(Mutator):
    """Rebuilds statements only; their expressions are kept as they are.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> class Serial(lw.transform.StmtMutator):
        ...     def visit_For(self, loop):
        ...         return self.generic_visit(loop).of_kind("serial")
        ...
        >>> s = te.create_schedule(B.op)
        >>> s[B].parallel(B.op.axis[0])
        >>> f = lw.lower(s, [A, B])
        >>> print(f.with_body(Serial().visit(f.body)))
        def main(A: float32[4], B: out float32[4]):
          for i in range(4):
            B[i] = A[i] + 1.0
    """

    enters = Stmt
