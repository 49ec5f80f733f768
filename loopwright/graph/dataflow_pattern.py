"""Patterns of graphs in Relay's vocabulary (`tvm.relay.dataflow_pattern`), and rewriting by them.

A match maps the parts of a pattern to expressions, from which a rule builds the replacement::

    x, relu = wildcard(), is_op("nn.relu")
    rule = Rule(relu(relu(x)), lambda m: lw.graph.op.nn.relu(m[x]))
    module = rewrite([rule], module)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from loopwright.errors import GraphError
from loopwright.graph.infer import Types
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import called, rewrite_function
from loopwright.graph.registry import get_op

__all__ = [
    "DFPattern", "Match", "Rule", "Types", "is_constant", "is_op", "is_tuple",
    "is_tuple_get_item", "is_var", "rewrite", "wildcard",
]  # fmt: skip

#: Operators whose two inputs may stand the other way round.
_COMMUTATIVE = frozenset(["add", "multiply", "maximum", "minimum", "equal", "not_equal"])
#: Expressions that the parts of a pattern matched.
_Places = Mapping["DFPattern", ir.Expr]


@dataclass(frozen=True, eq=False)
class Match:
    """The expressions that the parts of a pattern matched."""

    root: ir.Expr  #: matches the whole pattern
    places: _Places  #: by parts of the pattern, without those of alternatives not taken
    types: Types | None = None

    def __getitem__(self, part: DFPattern) -> ir.Expr:
        return self.places[part]

    def __contains__(self, part: DFPattern) -> bool:
        return part in self.places

    def constant(self, part: DFPattern) -> Any:
        """The array of a part that is a constant."""
        found = self.places[part]
        assert isinstance(found, ir.Constant)
        return found.data

    def attrs(self, part: DFPattern | None = None) -> Mapping[str, Any]:
        """All attributes of a part that is a call of an operator; None is the root."""
        call = self.call(part)
        name = called(call)
        assert name is not None
        return get_op(name).complete(call.attrs)

    def call(self, part: DFPattern | None = None) -> ir.Call:
        """A part that is a call; None is the root."""
        found = self.root if part is None else self.places[part]
        assert isinstance(found, ir.Call)
        return found

    def type(self, part: DFPattern | ir.Expr) -> ir.TensorType:
        """The type of a part, or an expression, that is a tensor; GraphError for all else."""
        if self.types is None:
            raise GraphError("types are asked of a match without any; give `match` a module")
        return self.types.tensor(self.places[part] if isinstance(part, DFPattern) else part)


class DFPattern:
    """A pattern of expressions, such as ``is_op("nn.softmax")(x).has_attr(axis=-1)``.

    One pattern object that occurs twice in a pattern matches one and the same expression.

    Example:
        >>> from loopwright.graph.dataflow_pattern import is_constant, wildcard
        >>> x, factor = wildcard(), is_constant()
        >>> found = (x * factor).match(lw.graph.op.multiply(2.0, lw.graph.var("x", (4,))))
        >>> print(found.constant(factor))
        2.0
    """

    def match(self, e: ir.Expr, module: IRModule | None = None) -> Match | None:
        """Match an expression of a module; None where it does not match.

        A pattern of types without the module is a GraphError.
        """
        return self.match_typed(e, None if module is None else Types(module))

    def match_typed(self, e: ir.Expr, types: Types | None) -> Match | None:
        """As `match`, with the types known."""
        places = next(self.places(e, {}, types), None)
        return None if places is None else Match(e, places, types)

    def places(self, e: ir.Expr, known: _Places, types: Types | None) -> Iterator[_Places]:
        """All ways to match an expression, given the parts that are matched already."""
        if self in known:
            if known[self] is e:
                yield known
            return
        for found in self._inner(e, known, types):
            yield {**found, self: e}

    def _inner(self, e: ir.Expr, known: _Places, types: Types | None) -> Iterator[_Places]:
        raise NotImplementedError

    def roots(self) -> frozenset[str] | None:
        """Operators whose calls alone can match; None where other expressions can, too."""
        return None

    def optional(self, around: Callable[[DFPattern], DFPattern]) -> DFPattern:
        """Match the pattern, or what ``around`` makes of it."""
        return around(self) | self

    def has_attr(self, **attrs: Any) -> DFPattern:
        """The pattern, where the call has these attributes, defaults included."""

        def holds(e: ir.Expr, _: Types | None) -> bool:
            name = called(e)
            if name is None or not isinstance(e, ir.Call):
                return False
            known = get_op(name).complete(e.attrs)
            return all(n in known and known[n] == value for n, value in attrs.items())

        return _Where(self, holds)

    def has_dtype(self, dtype: str) -> DFPattern:
        """The pattern, where the expression is a tensor of this dtype."""
        return self._of_tensor(lambda t: t.dtype == dtype)

    def has_shape(self, shape: Sequence[int]) -> DFPattern:
        """The pattern, where the expression is a tensor of this shape."""
        return self._of_tensor(lambda t: t.shape == tuple(shape))

    def _of_tensor(self, fits: Callable[[ir.TensorType], bool]) -> DFPattern:
        def holds(e: ir.Expr, types: Types | None) -> bool:
            if types is None:
                raise GraphError("a pattern of types is matched; give `match` the module")
            t = types[e]
            return isinstance(t, ir.TensorType) and fits(t)

        return _Where(self, holds)

    def __or__(self, other: DFPattern) -> DFPattern:
        return _Either(self, other)

    def __add__(self, other: DFPattern) -> DFPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> DFPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> DFPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> DFPattern:
        return is_op("divide")(self, other)


@dataclass(frozen=True, eq=False)
class _Single(DFPattern):
    holds: Callable[[ir.Expr], bool]

    def _inner(self, e: ir.Expr, known: _Places, types: Types | None) -> Iterator[_Places]:
        if self.holds(e):
            yield known


@dataclass(frozen=True, eq=False)
class _Parts(DFPattern):
    fields: tuple[DFPattern, ...]

    def _inner(self, e: ir.Expr, known: _Places, types: Types | None) -> Iterator[_Places]:
        if isinstance(e, ir.Tuple):
            yield from _in_order(self.fields, e.fields, known, types)


@dataclass(frozen=True, eq=False)
class _Item(DFPattern):
    tuple_value: DFPattern
    index: int | None

    def _inner(self, e: ir.Expr, known: _Places, types: Types | None) -> Iterator[_Places]:
        if isinstance(e, ir.TupleGetItem) and self.index in (None, e.index):
            yield from self.tuple_value.places(e.tuple_value, known, types)


@dataclass(frozen=True, eq=False)
class _Calls(DFPattern):
    """A call of one of some operators; ``args`` None matches any arguments."""

    names: frozenset[str]
    args: tuple[DFPattern, ...] | None

    def roots(self) -> frozenset[str]:
        return self.names

    def _inner(self, e: ir.Expr, known: _Places, types: Types | None) -> Iterator[_Places]:
        name = called(e)
        if name not in self.names or not isinstance(e, ir.Call):
            return
        if self.args is None:
            yield known
            return
        orders = permutations(e.args) if name in _COMMUTATIVE else [e.args]
        for args in orders:
            yield from _in_order(self.args, args, known, types)


@dataclass(frozen=True, eq=False)
class _Where(DFPattern):
    """A pattern, where a condition of the expression and the types holds."""

    inner: DFPattern
    holds: Callable[[ir.Expr, Types | None], bool]

    def roots(self) -> frozenset[str] | None:
        return self.inner.roots()

    def _inner(self, e: ir.Expr, known: _Places, types: Types | None) -> Iterator[_Places]:
        if self.holds(e, types):
            yield from self.inner.places(e, known, types)


@dataclass(frozen=True, eq=False)
class _Either(DFPattern):
    left: DFPattern
    right: DFPattern

    def roots(self) -> frozenset[str] | None:
        left, right = self.left.roots(), self.right.roots()
        return None if left is None or right is None else left | right

    def _inner(self, e: ir.Expr, known: _Places, types: Types | None) -> Iterator[_Places]:
        yield from self.left.places(e, known, types)
        yield from self.right.places(e, known, types)


def _in_order(
    patterns: Sequence[DFPattern], exprs: Sequence[ir.Expr], known: _Places, types: Types | None
) -> Iterator[_Places]:
    """All ways to match expressions with as many patterns, one each."""
    if len(patterns) != len(exprs):
        return
    if not patterns:
        yield known
        return
    for first in patterns[0].places(exprs[0], known, types):
        yield from _in_order(patterns[1:], exprs[1:], first, types)


def wildcard() -> DFPattern:
    """Any expression."""
    return _Single(lambda _: True)


def is_var(name: str | None = None) -> DFPattern:
    """A variable, of a name where one is given."""
    return _Single(lambda e: isinstance(e, ir.Var) and name in (None, e.name))


def is_constant(fits: Callable[[Any], bool] | None = None) -> DFPattern:
    """A constant whose array fits, by default any: ``is_constant(lambda a: (a == 1).all())``."""
    return _Single(lambda e: isinstance(e, ir.Constant) and (fits is None or fits(e.data)))


def is_tuple(fields: Sequence[DFPattern] | None = None) -> DFPattern:
    """A tuple of some patterns; None: of any."""
    if fields is None:
        return _Single(lambda e: isinstance(e, ir.Tuple))
    return _Parts(tuple(fields))


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> DFPattern:
    """A part of a tuple; ``index`` None: any of them."""
    return _Item(tuple_value, index)


def is_op(*names: str) -> Callable[..., DFPattern]:
    """An operator, or one of some; called with patterns of its inputs, a pattern of its calls.

    The inputs of ``add``, ``multiply``, ``maximum``, ``minimum``, ``equal`` and ``not_equal`` match
    in both orders. ``is_op(...)(...)`` with the three dots matches calls of any inputs. Unknown
    names are a GraphError.
    """
    for name in names:
        get_op(name)

    def calls(*args: Any) -> DFPattern:
        return _Calls(frozenset(names), None if args == (...,) else args)

    return calls


#: Rules applied one after the other at one node; rules that undo each other would never end.
_MOST = 100


@dataclass(frozen=True, eq=False)
class Rule:
    """A replacement for what a pattern matches."""

    pattern: DFPattern
    #: makes an expression of the same type from a match; None where the rule does not fit
    build: Callable[[Match], ir.Expr | None]


def rewrite(rules: Iterable[Rule], module: IRModule) -> IRModule:
    """Apply rules wherever they match, from the inputs to the results, until none matches.

    The first rule that matches a node is applied, then its result is matched again. Functions that
    are one kernel already stay as they are, and the module itself where nothing matches.

    Raises:
        GraphError: a rule builds an expression of another type, or rules undo each other endlessly.
    """
    by_root: dict[str | None, list[Rule]] = {}
    for rule in rules:
        roots = rule.pattern.roots()
        for name in (None,) if roots is None else roots:
            by_root.setdefault(name, []).append(rule)
    rewriting = _Rewriting(Types(module), by_root)
    changed = True
    while changed:
        made = {
            n: f if f.primitive else rewrite_function(f, rewriting.at)
            for n, f in module.functions.items()
        }
        changed = any(f is not module.functions[n] for n, f in made.items())
        module = IRModule(made) if changed else module
    return module


@dataclass(frozen=True, eq=False)
class _Rewriting:
    types: Types
    rules: Mapping[str | None, Sequence[Rule]]  # by operator of the root; None: of any root

    def at(self, old: ir.Expr, new: ir.Expr) -> ir.Expr:
        if isinstance(new, (ir.OpRef, ir.GlobalVar, ir.HostFunction)):
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

    def _once(self, e: ir.Expr) -> ir.Expr | None:
        """Apply the first rule that fits to a node; None where none does."""
        name = called(e)
        named = self.rules.get(name, ()) if name is not None else ()
        for rule in (*named, *self.rules.get(None, ())):
            match = rule.pattern.match_typed(e, self.types)
            made: ir.Expr | None = None if match is None else rule.build(match)
            if made is not None and made is not e:
                return made
        return None


def _told(e: ir.Expr) -> str:
    where = f" ({e.span})" if e.span else ""
    return f"{called(e) or type(e).__name__}{where}"
