"""Operators of graphs: called with expressions, they make calls.

`loopwright.graph.op.nn` has those of neural networks, named without their ``nn.``, and `qnn` those
of quantised tensors.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from loopwright.graph.registry import Op, get_op, op_names

# Importing the modules registers what they define.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


class _Namespace:
    """Operators whose names begin with a prefix, those registered later among them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Op:
        return _named(f"{self._prefix}{name}")

    def __dir__(self) -> list[str]:
        names = (n for n in op_names() if n.startswith(self._prefix))
        return [name.removeprefix(self._prefix) for name in names]


nn, qnn = _Namespace("nn."), _Namespace("qnn.")


def _named(name: str) -> Op:
    if name in op_names():
        return get_op(name)
    raise AttributeError(f"there is no operator {name!r}; see loopwright.graph.op_names()")


__getattr__ = _named


def __dir__() -> list[str]:
    return sorted([*(n for n in op_names() if "." not in n), "nn", "qnn"])
