"""Patterns of graphs in Relay's vocabulary (`tvm.relay.dataflow_pattern`), and rewriting by them.

A pattern describes the form of an expression. A match maps the parts of the pattern to expressions,
from which a rule builds the replacement:

    >>> x = lw.graph.dataflow_pattern.wildcard()
    >>> twice = lw.graph.dataflow_pattern.is_op("nn.relu")(
    ...     lw.graph.dataflow_pattern.is_op("nn.relu")(x)
    ... )
    >>> rule = lw.graph.dataflow_pattern.Rule(twice, lambda m: lw.graph.op.nn.relu(m[x]))
    >>> data = lw.graph.var("data", (4,))
    >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(lw.graph.op.nn.relu(data)))
    >>> print(lw.graph.dataflow_pattern.rewrite([rule], module))
    def @main(%data: float32[4]) {
      nn.relu(%data)
    }
"""

from __future__ import annotations

from loopwright.graph.dataflow_pattern.patterns import (
    DFPattern,
    Match,
    Types,
    is_constant,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from loopwright.graph.dataflow_pattern.rewriting import Rule, rewrite

__all__ = [
    "DFPattern",
    "Match",
    "Rule",
    "Types",
    "is_constant",
    "is_op",
    "is_tuple",
    "is_tuple_get_item",
    "is_var",
    "rewrite",
    "wildcard",
]
