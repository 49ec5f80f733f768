"""Graphs of PyTorch (``torch.fx``), whose calls are of ATen's operators, as expressions.

What cannot be converted is left to PyTorch, or noted, so that a message tells all of it at once.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from loopwright.errors import GraphError, LoopwrightError
from loopwright.graph.frontend.torch.arrays import as_array, dtype_of, torch_package
from loopwright.graph.frontend.torch.fallback import (
    Deferred,
    as_step,
    deferred_call,
    leaves_of,
    part_of,
)
from loopwright.graph.frontend.torch.node import Node, converted
from loopwright.graph.frontend.types import Types
from loopwright.graph.ir.expr import Expr, const
from loopwright.graph.ir.types import TensorType

#: Nodes that a message names, and letters of each reason.
_MOST, _LETTERS = 12, 160
#: Elements of what is made of no tensor, such as ``arange``, that become a constant at most.
_LARGE = 1 << 20
#: Arguments that say where and how a result lies, which its type tells.
_OF_RESULTS = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking")
#: Calls that only check, and give nothing.
_CHECKS = ("_assert", "sym_constrain_range", "_check")


class Left:
    """The value of what could not be converted."""


_LEFT = Left()


class Importer:
    """Converts graphs.

    Args:
        fallback: whether PyTorch computes what cannot be converted.
    """

    def __init__(self, fallback: bool) -> None:
        self.types = Types()
        self._fallback = fallback
        self._refused: list[str] = []
        self._values: dict[Any, Any] = {}

    def outputs(self, module: Any, bound: Mapping[Any, Any]) -> list[Any]:
        """The outputs of a graph.

        Args:
            module: a ``torch.fx.GraphModule`` whose nodes say of which types their values are.
            bound: the values of its placeholders.

        Returns:
            Expressions; what is no tensor as it is.

        Raises:
            GraphError: nodes cannot be converted; all of them are told.
        """
        self._values = dict(bound)
        found: Any = []
        for node in module.graph.nodes:
            if node.op == "output":
                found = self._resolved(node.args[0])
            elif node.op == "get_attr":
                self._values[node] = self._attribute(module, node.target)
            elif node.op == "call_function":
                self._values[node] = self._called(node)
            elif node not in self._values:
                raise GraphError(f"a graph has a {node.op} {node.name!r}, which has no value")
        made = list(found) if isinstance(found, (list, tuple)) else [found]
        for n, value in enumerate(made):
            if isinstance(value, Deferred):
                self._refuse(f"output {n}", f"no program holds it ({value.names[-1]})")
        self._check()
        return made

    def _attribute(self, module: Any, target: str) -> Any:
        found = module
        for name in target.split("."):
            found = getattr(found, name)
        if isinstance(found, torch_package().Tensor):
            return const(as_array(found), name=target)
        return found

    def _resolved(self, value: Any) -> Any:
        """An argument with the values of the nodes in it."""
        torch = torch_package()
        return torch.fx.node.map_arg(value, lambda node: self._values[node])

    def _called(self, node: Any) -> Any:
        label = f"{_label(node.target)} {node.name!r}"
        args, kwargs = self._resolved(node.args), self._resolved(dict(node.kwargs))
        leaves = leaves_of([args, kwargs])
        if any(isinstance(leaf, Left) for leaf in leaves):
            return _LEFT
        if node.target is operator.getitem:
            return self._item(node, *args)
        name = getattr(node.target, "__name__", "")
        if any(name.startswith(prefix) for prefix in _CHECKS):
            return None
        results, several = _results(node.meta.get("val"))
        try:
            found = self._made(node, args, kwargs, leaves, results)
        except LoopwrightError as exc:
            reason = " ".join(str(exc).partition("\n")[0].split())
            if not self._fallback:
                self._refuse(label, reason)
                return _LEFT
            return as_step(
                deferred_call(label, node.target, args, kwargs, reason), results, several
            )
        return found if several else found[0]

    def _item(self, node: Any, whole: Any, index: Any) -> Any:
        if not isinstance(whole, Deferred):
            return whole[index]
        results, several = _results(node.meta.get("val"))
        return as_step(part_of(whole, index), results, several)

    def _made(
        self,
        node: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        leaves: Sequence[Any],
        results: Sequence[TensorType | None],
    ) -> Sequence[Any]:
        """The outputs of a call.

        Raises:
            GraphError: it cannot be converted.
        """
        torch = torch_package()
        if not isinstance(node.target, torch._ops.OpOverload):
            raise GraphError("it is no operator of ATen")
        if any(isinstance(leaf, Deferred) for leaf in leaves):
            raise GraphError("it reads what no program holds")
        tensors = [leaf for leaf in leaves if isinstance(leaf, Expr)]
        random = torch.Tag.nondeterministic_seeded in node.target.tags
        if not tensors and not random and _elements(results) <= _LARGE:
            with torch.no_grad():
                found = node.target(*args, **kwargs)
            return [const(as_array(t)) for t in leaves_of(found)]
        plain = {k: v for k, v in kwargs.items() if k not in _OF_RESULTS}
        used = _used(node, len(results))
        call = Node(_name(node.target), node.name, tuple(results), used, self.types)
        return converted(call, args, plain)

    def _refuse(self, label: str, reason: str) -> None:
        self._refused.append(f"{label} ({reason:.{_LETTERS}})")

    def _check(self) -> None:
        if not self._refused:
            return
        more = len(self._refused) - _MOST
        text = "; ".join(self._refused[:_MOST]) + (f"; and {more} more" if more > 0 else "")
        count = f"{len(self._refused)} node{'s' * (len(self._refused) > 1)}"
        raise GraphError(f"{count} cannot be converted: {text}")


def _name(target: Any) -> str:
    """An operator with its overload, as converters are registered."""
    namespace, _, name = target._schema.name.partition("::")
    overload = target._overloadname
    full = name if overload in ("", "default") else f"{name}.{overload}"
    return full if namespace == "aten" else f"{namespace}::{full}"


def _label(target: Any) -> str:
    """What a node calls, for people."""
    if hasattr(target, "_schema"):
        return f"aten::{_name(target)}" if "::" not in _name(target) else _name(target)
    return str(getattr(target, "__name__", target))


def tensor_type_of(value: Any) -> TensorType | None:
    """The type of a tensor; None where no program holds it: its dtype, or an extent, is unknown.

    Kernels take no tensors without elements, so that programs hold none.
    """
    torch = torch_package()
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    dtype = dtype_of(value)
    if dtype is None or not all(isinstance(n, int) and n > 0 for n in value.shape):
        return None
    return TensorType(tuple(value.shape), dtype)


def _results(value: Any) -> tuple[list[TensorType | None], bool]:
    """The types of what a call gives, and whether it is several values."""
    if isinstance(value, (list, tuple)):
        return [tensor_type_of(v) for v in value], True
    return [tensor_type_of(value)], False


def _elements(results: Sequence[TensorType | None]) -> int:
    found = 0
    for t in results:
        size = 1
        for n in t.shape if t is not None else ():
            size *= n if isinstance(n, int) else 1
        found += size
    return found


def _used(node: Any, count: int) -> tuple[bool, ...]:
    """Which outputs of a node something reads."""
    getters = [u for u in node.users if u.target is operator.getitem and u.args[0] is node]
    if len(getters) < len(node.users) or count == 1:
        return (True,) * count
    read = {u.args[1] for u in getters if u.users}
    return tuple(n in read for n in range(count))
