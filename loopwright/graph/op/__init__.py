"""Operators of graphs: called with expressions, they make calls.

`loopwright.graph.op.nn` has those of neural networks, named without their ``nn.``, and `qnn` those
of quantised tensors.
"""

from __future__ import annotations

from loopwright.graph.op import (
    elementwise,
    indexing,
    narrow,
    products,
    reductions,
    sampling,
    transforms,
    windows,
    winograd,
)
from loopwright.graph.op import nn as _nn
from loopwright.graph.registry import Op, get_op, op_names

#: Importing these registers what comes along.
_MODULES = (
    elementwise,
    indexing,
    _nn,
    narrow,
    products,
    reductions,
    sampling,
    transforms,
    windows,
    winograd,
)


class _Namespace:
    """Operators whose names begin with a prefix, those registered later among them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Op:
        whole = f"{self._prefix}{name}"
        if whole in op_names():
            return get_op(whole)
        raise AttributeError(f"there is no operator {whole!r}; see loopwright.graph.op_names()")

    def __dir__(self) -> list[str]:
        names = (n for n in op_names() if n.startswith(self._prefix))
        return [name.removeprefix(self._prefix) for name in names]


nn, qnn = _Namespace("nn."), _Namespace("qnn.")


def __getattr__(name: str) -> Op:
    """An operator by its name."""
    if name in op_names():
        return get_op(name)
    raise AttributeError(f"there is no operator {name!r}; see loopwright.graph.op_names()")


def __dir__() -> list[str]:
    return sorted([*(n for n in op_names() if "." not in n), "nn", "qnn"])
