"""Conversion of models of other systems: types of expressions, and nodes without a converter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from loopwright import dtypes
from loopwright.errors import GraphError
from loopwright.graph.infer import Types
from loopwright.graph.ir.expr import Call, Constant, Expr, TensorType, const
from loopwright.graph.ir.module import IRModule
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
    shown = [f"{node} ({reason:.{_LETTERS}})" for node, reason in nodes[:_MOST_NODES]]
    more = len(nodes) - len(shown)
    text = "; ".join(shown) + (f"; and {more} more" if more else "")
    return f"{len(nodes)} node{'s' * (len(nodes) > 1)} cannot be converted: {text}"


def listed(outputs: Expr | Sequence[E]) -> list[Expr | E]:
    """Outputs of a converter, which returns one or several, as a list."""
    return [outputs] if isinstance(outputs, Expr) else list(outputs)


def last_step(extent: int, reach: int, stride: int, low: int, high: int) -> int:
    """Elements missing for the last window, unless it would begin behind the padded image."""
    missing = -(extent + low + high - reach) % stride
    begin = extent + low + high + missing - reach
    return missing if begin < extent + low else 0


class ExprTypes(Types):
    """Types of imported expressions, and which of them stand for narrow dtypes."""

    def __init__(self) -> None:
        super().__init__(IRModule({}))
        self._narrow: dict[Expr, str] = {}

    def mark(self, e: Expr, dtype: str) -> Expr:
        """Note that the elements of an expression are those of a narrow dtype, as stored."""
        self._narrow[e] = dtype
        return e

    def narrow(self, e: Expr) -> str | None:
        return self._narrow.get(e)

    def round_once(self, outputs: Iterable[Expr], inputs: Iterable[Expr]) -> bool:
        """Whether outputs are rounded to 16 bits at most once on the way from inputs. Where they
        are not, an operator that is converted to several calls is to be converted again, from
        inputs in float32. A constant that is no whole number counts, as it was rounded.
        """
        seen, waiting, count = set(inputs), list(outputs), 0
        while waiting and count < 2:
            e = waiting.pop()
            if e in seen:
                continue
            seen.add(e)
            waiting.extend(e.args if isinstance(e, Call) else e.children)
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


def _calling(name: str) -> Callable[..., Call]:
    """A method of `ImportedNode` that calls an operator."""

    def method(node: ImportedNode, *args: Any, **attrs: Any) -> Call:
        return node.call(name, *args, **attrs)

    return method


class ImportedNode:
    """A node of a model of another system, with the types of the expressions that it reads."""

    types: ExprTypes

    def call(self, name: str, first: Expr, *args: Any, **attrs: Any) -> Call:
        """A call of an operator of graphs, whose ``span`` names this node. Numbers among the
        arguments become constants of the first one's dtype, arrays of their own.
        """
        exprs = [a if isinstance(a, Expr) else self._constant(a, first) for a in args]
        return get_op(name)(first, *exprs, span=str(self), **attrs)

    #: Calls of the operators that most converters make.
    add = _calling("add")
    subtract = _calling("subtract")
    multiply = _calling("multiply")
    divide = _calling("divide")
    where = _calling("where")
    reshape = _calling("reshape")

    def _constant(self, value: Any, beside: Expr) -> Constant:
        is_array = isinstance(value, (np.ndarray, np.generic))
        return const(value) if is_array else self.number(value, self.dtype(beside))

    def number(self, value: Any, dtype: str) -> Constant:
        """A constant; OverflowError where a Python integer is beyond the dtype."""
        return const(value, dtype)

    def moments(self, x: Expr, axes: tuple[int, ...]) -> tuple[Expr, Expr, Expr]:
        """The mean of a tensor over some axes, the tensor minus that mean, and the variance."""
        mean = self.call("mean", x, axis=axes, keepdims=True)
        centred = self.subtract(x, mean)
        squares = self.multiply(centred, centred)
        return mean, centred, self.call("mean", squares, axis=axes, keepdims=True)

    def standardised(self, x: Expr, axes: tuple[int, ...], epsilon: float) -> Expr:
        """A tensor minus its mean over some axes, divided by its standard deviation."""
        _, centred, variance = self.moments(x, axes)
        return self.multiply(centred, self.call("rsqrt", self.add(variance, epsilon)))

    def type_of(self, e: Expr) -> TensorType:
        t = self.types[e]
        if not isinstance(t, TensorType):
            raise GraphError(f"it reads {t}, where a tensor is needed")
        return t

    def dtype(self, e: Expr) -> str:
        return self.type_of(e).dtype

    def rank(self, e: Expr) -> int:
        return len(self.type_of(e).shape)

    def shape(self, e: Expr, begin: int = 0) -> tuple[int, ...]:
        """The extents of an expression from an axis on; GraphError where one is no number."""
        shape = self.type_of(e).shape[begin:]
        extents = tuple(n for n in shape if isinstance(n, int))
        if len(extents) < len(shape):
            raise GraphError(f"it needs extents that are known, got {list(map(str, shape))}")
        return extents
