"""Operators of graphs: called with expressions, they make calls.

`loopwright.graph.op.nn` has those of neural networks, named without their ``nn.``.
"""

from __future__ import annotations

from types import SimpleNamespace

from loopwright.graph.op import elementwise, reductions, transforms
from loopwright.graph.op import nn as _nn
from loopwright.graph.registry import Op, get_op, op_names

_MODULES = (elementwise, _nn, reductions, transforms)
#: Those whose names begin with ``nn.``.
nn = SimpleNamespace(
    **{name.removeprefix("nn."): get_op(name) for name in op_names() if name.startswith("nn.")}
)


def __getattr__(name: str) -> Op:
    """An operator by its name."""
    if name in op_names():
        return get_op(name)
    raise AttributeError(f"there is no operator {name!r}; see loopwright.graph.op_names()")


def __dir__() -> list[str]:
    return sorted([*(n for n in op_names() if "." not in n), "nn"])
