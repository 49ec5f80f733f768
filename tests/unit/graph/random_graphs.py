"""Random small graphs of one shape, for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from loopwright import graph
from loopwright.graph import op

SHAPE = (2, 3)
_UNARY = (op.tanh, op.nn.relu, op.negative, op.exp)
_BINARY = (op.add, op.multiply, op.maximum)


@st.composite
def functions(draw: st.DrawFn, nodes: int = 8) -> graph.Function:
    """A function of two inputs over calls, constants, lets, tuples and branches, with sharing."""
    inputs = (graph.var("x", SHAPE), graph.var("y", SHAPE))
    flag = graph.var("flag", (), "bool")
    values: list[graph.Expr] = [*inputs, graph.const([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])]
    for n in range(draw(st.integers(1, nodes))):
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        kind = draw(st.sampled_from(["unary", "binary", "let", "tuple", "if"]))
        if kind == "unary":
            values.append(draw(st.sampled_from(_UNARY))(a))
        elif kind == "binary":
            values.append(draw(st.sampled_from(_BINARY))(a, b))
        elif kind == "let":
            v = graph.Var(f"v{n}")
            values.append(graph.Let(v, a, op.add(v, b)))
        elif kind == "tuple":
            values.append(graph.TupleGetItem(graph.Tuple((a, b)), draw(st.integers(0, 1))))
        else:
            values.append(graph.If(flag, a, b))
    return graph.Function((*inputs, flag), values[-1])
