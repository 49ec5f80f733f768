"""Conversion of models of other systems: types of expressions, and nodes without a converter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.ir.expr import (
    Call,
    Constant,
    Expr,
    HostFunction,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
)
from loopwright.graph.ir.visitor import called
from loopwright.graph.registry import Pattern, get_op

E = TypeVar("E")
#: Operators whose results are among their operands, or of a format that has them.
_EXACT = (
    *("maximum", "minimum", "clip", "nn.relu", "negative", "abs", "where", "max", "min", "topk"),
    *("floor", "ceil", "trunc", "round", "sign", "nn.max_pool"),
)


#: Nodes that a message names, and letters of each reason.
_MOST_NODES, _LETTERS = 12, 160


class Unconverted:
    """Placeholder for a value that could not be converted."""


UNCONVERTED = Unconverted()


def refusal(nodes: Sequence[tuple[str, str]]) -> str:
    """Message about nodes that cannot be converted, each with its reason."""
    shown = [f"{node} ({reason:.{_LETTERS}})" for node, reason in nodes[:_MOST_NODES]]
    more = len(nodes) - len(shown)
    text = "; ".join(shown) + (f"; and {more} more" if more else "")
    return f"{len(nodes)} node{'s' * (len(nodes) > 1)} cannot be converted: {text}"


def listed(outputs: Expr | Sequence[E]) -> list[Expr | E]:
    """Outputs of a converter, which returns one or several, as a list."""
    return [outputs] if isinstance(outputs, Expr) else list(outputs)


def standardised(call: Callable[..., Expr], x: Expr, axes: tuple[int, ...], epsilon: float) -> Expr:
    """A tensor minus its mean, divided by its standard deviation, over some axes.

    ``call`` makes calls of operators, as `Node.call` does.
    """
    centred = call("subtract", x, call("mean", x, axis=axes, keepdims=True))
    variance = call("mean", call("multiply", centred, centred), axis=axes, keepdims=True)
    return call("multiply", centred, call("rsqrt", call("add", variance, epsilon)))


class ExprTypes:
    """Types of variables, constants, calls, and tuples, each inferred when first asked for."""

    def __init__(self) -> None:
        self._known: dict[Expr, Type] = {}
        self._narrow: dict[Expr, str] = {}

    def mark(self, e: Expr, dtype: str) -> Expr:
        """Note that the elements of an expression are those of a narrow dtype, as stored."""
        self._narrow[e] = dtype
        return e

    def narrow(self, e: Expr) -> str | None:
        """The narrow dtype of an expression; None where it has none."""
        return self._narrow.get(e)

    def __getitem__(self, root: Expr) -> Type:
        waiting = [root]
        while waiting:
            e = waiting[-1]
            unknown = [c for c in _parts(e) if c not in self._known]
            if e not in self._known and not unknown:
                self._known[e] = self._type(e)
            if e in self._known:
                waiting.pop()
            waiting.extend(unknown)
        return self._known[root]

    def tensor(self, e: Expr) -> TensorType:
        """The type of a tensor; GraphError where it is something else."""
        t = self[e]
        if not isinstance(t, TensorType):
            raise GraphError(f"{t} stands where a tensor is needed")
        return t

    def round_once(self, outputs: Iterable[Expr], inputs: Iterable[Expr]) -> bool:
        """Whether outputs are rounded to 16 bits at most once on the way from inputs.

        Where they are not, an operator that is converted to several calls is to be converted again,
        from inputs in float32. A constant that is no whole number counts, as it was rounded.
        """
        seen, waiting, count = set(inputs), list(outputs), 0
        while waiting and count < 2:
            e = waiting.pop()
            if e in seen:
                continue
            seen.add(e)
            waiting.extend(_parts(e))
            count += self._rounds(e)
        return count < 2

    def _rounds(self, e: Expr) -> bool:
        if isinstance(e, Constant) and e.type.dtype in dtypes.HALVES:
            return bool((np.trunc(wide := e.data.astype("float32")) != wide).any())
        name = called(e)
        if name is None or name in _EXACT or get_op(name).pattern is Pattern.INJECTIVE:
            return False
        result = self[e]
        return isinstance(result, TensorType) and result.dtype in dtypes.HALVES

    def _type(self, e: Expr) -> Type:
        match e:
            case Var(type=t) if t is not None:
                return t
            case Constant():
                return e.type
            case Tuple():
                return TupleType(tuple(self._known[f] for f in e.fields))
            case TupleGetItem():
                whole = self._known[e.tuple_value]
                if isinstance(whole, TupleType):
                    return whole.fields[e.index]
            case Call(op=HostFunction() as f):
                return f.result
            case Call() if called(e) is not None:
                op = get_op(called(e) or "")
                return op.type_of([self._known[a] for a in e.args], op.complete(e.attrs))
        raise GraphError(f"an imported model has no {type(e).__name__}")


def _parts(e: Expr) -> tuple[Expr, ...]:
    return e.args if isinstance(e, Call) else e.children
