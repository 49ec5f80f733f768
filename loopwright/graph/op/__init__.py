"""Operators of graphs: called with expressions, they make calls.

`loopwright.graph.op.nn` has those of neural networks, named without their ``nn.``.
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


class _OpsOfNetworks:
    """Operators whose names begin with ``nn.``, those registered later among them."""

    def __getattr__(self, name: str) -> Op:
        if f"nn.{name}" in op_names():
            return get_op(f"nn.{name}")
        raise AttributeError(f"there is no operator 'nn.{name}'; see loopwright.graph.op_names()")

    def __dir__(self) -> list[str]:
        return [name.removeprefix("nn.") for name in op_names() if name.startswith("nn.")]


nn = _OpsOfNetworks()


def __getattr__(name: str) -> Op:
    """An operator by its name."""
    if name in op_names():
        return get_op(name)
    raise AttributeError(f"there is no operator {name!r}; see loopwright.graph.op_names()")


def __dir__() -> list[str]:
    return sorted([*(n for n in op_names() if "." not in n), "nn"])
