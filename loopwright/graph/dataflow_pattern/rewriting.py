"""Rewriting rules: the replacement of what a pattern matches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from loopwright.errors import GraphError
from loopwright.graph.dataflow_pattern.patterns import DFPattern, Match, Types
from loopwright.graph.ir.expr import Expr, Function, GlobalVar, HostFunction, OpRef
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, rewrite_each

#: Rules applied one after the other at one node; rules that undo each other would never end.
_MOST = 100


@dataclass(frozen=True, eq=False)
class Rule:
    """A replacement for what a pattern matches.

    Attributes:
        pattern: of the root.
        build: from a match to an expression of the same type; None where the rule does not fit.
    """

    pattern: DFPattern
    build: Callable[[Match], Expr | None]


def rewrite(rules: Iterable[Rule], module: IRModule) -> IRModule:
    """Apply rules wherever they match, from the inputs to the results, until none matches.

    Args:
        rules: the first that matches a node is applied, then its result is matched again.
        module: the functions; those that are one kernel already stay as they are.

    Returns:
        The module; itself where nothing matched.

    Raises:
        GraphError: a rule builds an expression of another type, or rules undo each other endlessly.
    """
    rewriting = _Rewriting(Types(module))
    for rule in rules:
        rewriting.add(rule)
    changed = True
    while changed:
        made = {n: rewriting.function(f) for n, f in module.functions.items()}
        changed = any(f is not module.functions[n] for n, f in made.items())
        module = IRModule(made) if changed else module
    return module


@dataclass(eq=False)
class _Rewriting:
    types: Types
    by_root: dict[str, list[Rule]] = field(default_factory=dict)
    others: list[Rule] = field(default_factory=list)

    def add(self, rule: Rule) -> None:
        roots = rule.pattern.roots()
        if roots is None:
            self.others.append(rule)
        for name in roots or ():
            self.by_root.setdefault(name, []).append(rule)

    def function(self, f: Function) -> Function:
        if f.primitive:
            return f
        made = rewrite_each(f, self._at)
        assert isinstance(made, Function)
        return made

    def _at(self, old: Expr, new: Expr) -> Expr:
        if isinstance(new, (OpRef, GlobalVar, HostFunction)):
            return new
        wanted = self.types[old]
        self.types.keep(new, wanted)
        for _ in range(_MOST):
            made = self._once(new)
            if made is None:
                return new
            if self.types[made] != wanted:
                raise GraphError(f"a rule makes {self.types[made]} of {wanted}: {_told(new)}")
            new = made
        raise GraphError(f"rules undo each other without end at {_told(new)}")

    def _once(self, e: Expr) -> Expr | None:
        """Apply the first rule that fits to a node; None where none does."""
        for rule in (*self.by_root.get(called(e) or "", ()), *self.others):
            match = rule.pattern.match_typed(e, self.types)
            made: Expr | None = None if match is None else rule.build(match)
            if made is not None and made is not e:
                return made
        return None


def _told(e: Expr) -> str:
    """A node's text for messages."""
    where = f" ({e.span})" if e.span else ""
    return f"{called(e) or type(e).__name__}{where}"
