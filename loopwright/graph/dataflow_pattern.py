"""Patterns of graphs in Relay's vocabulary (`tvm.relay.dataflow_pattern`), and rewriting by them.

A match maps the parts of a pattern to expressions, from which a rule builds the replacement::

    x, relu = wildcard(), is_op("nn.relu")
    rule = Rule(relu(relu(x)), lambda m: lw.graph.op.nn.relu(m[x]))
    module = rewrite([rule], module)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, permutations
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
#: From an expression, the parts that were matched before, and types to all ways to match it.
_Ways = Callable[[ir.Expr, _Places, Types | None], Iterable[_Places]]


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
        constant = self.places[part]
        assert isinstance(constant, ir.Constant)
        return constant.data

    def attrs(self, part: DFPattern | None = None) -> Mapping[str, Any]:
        """All attributes of a part that is a call of an operator; None is the root."""
        call = self.call(part)
        name = called(call)
        assert name is not None
        return get_op(name).complete(call.attrs)

    def call(self, part: DFPattern | None = None) -> ir.Call:
        """A part that is a call; None is the root."""
        call = self.root if part is None else self.places[part]
        assert isinstance(call, ir.Call)
        return call

    def type(self, part: DFPattern | ir.Expr) -> ir.TensorType:
        """The type of a part, or an expression, that is a tensor; GraphError for all else."""
        if self.types is None:
            raise GraphError("types are asked of a match without any; give `match` a module")
        return self.types.tensor(self.places[part] if isinstance(part, DFPattern) else part)


@dataclass(frozen=True, eq=False)
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

    _ways: _Ways
    _roots: frozenset[str] | None = None

    def roots(self) -> frozenset[str] | None:
        """Operators whose calls alone can match; None where other expressions can, too."""
        return self._roots

    def match(self, e: ir.Expr, module: IRModule | None = None) -> Match | None:
        """Match an expression of a module; None where it does not match.

        A pattern of types without the module is a GraphError.
        """
        return self.match_typed(e, None if module is None else Types(module))

    def match_typed(self, e: ir.Expr, types: Types | None) -> Match | None:
        """As `match`, with the types known."""
        places = next(self.places(e, {}, types), None)
        return None if places is None else Match(e, places, types)

    def places(self, e: ir.Expr, before: _Places, types: Types | None) -> Iterator[_Places]:
        """All ways to match an expression, given the parts that were matched before."""
        if self in before:
            if before[self] is e:
                yield before
            return
        for places in self._ways(e, before, types):
            yield {**places, self: e}

    def optional(self, around: Callable[[DFPattern], DFPattern]) -> DFPattern:
        """Match the pattern, or what ``around`` makes of it."""
        return around(self) | self

    def has_attr(self, **attrs: Any) -> DFPattern:
        """The pattern, where the call has these attributes, defaults included."""

        def holds(e: ir.Expr, _: Types | None) -> bool:
            name = called(e)
            if name is None or not isinstance(e, ir.Call):
                return False
            every = get_op(name).complete(e.attrs)
            return all(n in every and every[n] == value for n, value in attrs.items())

        return self._where(holds)

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

        return self._where(holds)

    def _where(self, holds: Callable[[ir.Expr, Types | None], bool]) -> DFPattern:
        """The pattern, where a condition of the expression and the types holds."""

        def ways(e: ir.Expr, before: _Places, types: Types | None) -> Iterable[_Places]:
            return self.places(e, before, types) if holds(e, types) else ()

        return DFPattern(ways, self._roots)

    def __or__(self, other: DFPattern) -> DFPattern:
        def ways(*match: Any) -> Iterable[_Places]:
            return chain(self.places(*match), other.places(*match))

        left, right = self.roots(), other.roots()
        return DFPattern(ways, None if left is None or right is None else left | right)

    def __add__(self, other: DFPattern) -> DFPattern:
        return is_op("add")(self, other)

    def __sub__(self, other: DFPattern) -> DFPattern:
        return is_op("subtract")(self, other)

    def __mul__(self, other: DFPattern) -> DFPattern:
        return is_op("multiply")(self, other)

    def __truediv__(self, other: DFPattern) -> DFPattern:
        return is_op("divide")(self, other)


def _single(holds: Callable[[ir.Expr], bool]) -> DFPattern:
    return DFPattern(lambda e, before, _: [before] if holds(e) else ())


def _in_order(
    patterns: Sequence[DFPattern], exprs: Sequence[ir.Expr], before: _Places, types: Types | None
) -> Iterator[_Places]:
    """All ways to match expressions with as many patterns, one each."""
    if len(patterns) != len(exprs):
        return
    if not patterns:
        yield before
        return
    for first in patterns[0].places(exprs[0], before, types):
        yield from _in_order(patterns[1:], exprs[1:], first, types)


def wildcard() -> DFPattern:
    """Any expression."""
    return _single(lambda _: True)


def is_var(name: str | None = None) -> DFPattern:
    """A variable, of a name where one is given."""
    return _single(lambda e: isinstance(e, ir.Var) and name in (None, e.name))


def is_constant(fits: Callable[[Any], bool] | None = None) -> DFPattern:
    """A constant whose array fits, by default any: ``is_constant(lambda a: (a == 1).all())``."""
    return _single(lambda e: isinstance(e, ir.Constant) and (fits is None or fits(e.data)))


def is_tuple(fields: Sequence[DFPattern] | None = None) -> DFPattern:
    """A tuple of some patterns; None: of any."""
    if fields is None:
        return _single(lambda e: isinstance(e, ir.Tuple))
    parts = tuple(fields)

    def ways(e: ir.Expr, before: _Places, types: Types | None) -> Iterable[_Places]:
        return _in_order(parts, e.fields, before, types) if isinstance(e, ir.Tuple) else ()

    return DFPattern(ways)


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> DFPattern:
    """A part of a tuple; ``index`` None: any of them."""

    def ways(e: ir.Expr, before: _Places, types: Types | None) -> Iterable[_Places]:
        if isinstance(e, ir.TupleGetItem) and index in (None, e.index):
            return tuple_value.places(e.tuple_value, before, types)
        return ()

    return DFPattern(ways)


def is_op(*names: str) -> Callable[..., DFPattern]:
    """An operator, or one of some; called with patterns of its inputs, a pattern of its calls.

    The inputs of ``add``, ``multiply``, ``maximum``, ``minimum``, ``equal`` and ``not_equal`` match
    in both orders. ``is_op(...)(...)`` with the three dots matches calls of any inputs. Unknown
    names are a GraphError.
    """
    for name in names:
        get_op(name)

    def calls(*args: Any) -> DFPattern:
        def ways(e: ir.Expr, before: _Places, types: Types | None) -> Iterable[_Places]:
            name = called(e)
            if name not in names or not isinstance(e, ir.Call):
                return
            if args == (...,):
                yield before
                return
            for inputs in permutations(e.args) if name in _COMMUTATIVE else [e.args]:
                yield from _in_order(args, inputs, before, types)

        return DFPattern(ways, frozenset(names))

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
        functions = {
            n: f if f.primitive else rewrite_function(f, rewriting.at)
            for n, f in module.functions.items()
        }
        changed = any(f is not module.functions[n] for n, f in functions.items())
        module = IRModule(functions) if changed else module
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
            result = self._once(new)
            if result is None:
                return new
            if self.types[result] != wanted:
                raise GraphError(f"a rule makes {self.types[result]} of {wanted}: {_told(new)}")
            new = result
        raise GraphError(f"rules undo each other without end at {_told(new)}")

    def _once(self, e: ir.Expr) -> ir.Expr | None:
        """Apply the first rule that fits to a node; None where none does."""
        name = called(e)
        named = self.rules.get(name, ()) if name is not None else ()
        for rule in (*named, *self.rules.get(None, ())):
            match = rule.pattern.match_typed(e, self.types)
            result: ir.Expr | None = None if match is None else rule.build(match)
            if result is not None and result is not e:
                return result
        return None


def _told(e: ir.Expr) -> str:
    where = f" ({e.span})" if e.span else ""
    return f"{called(e) or type(e).__name__}{where}"
