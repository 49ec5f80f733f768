"""Conversion of graphs of PyTorch (``torch.fx``), whose calls are of ATen's operators. What cannot
be converted is left to PyTorch, or noted, so that one message tells all of it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any

from loopwright.errors import GraphError, LoopwrightError
from loopwright.graph.frontend.conversion import UNCONVERTED, ExprTypes, Unconverted, refusal
from loopwright.graph.frontend.torch import fallback
from loopwright.graph.frontend.torch.fallback import Carried, Deferred, TensorRead, Turn
from loopwright.graph.frontend.torch.memory import (
    TensorLayout,
    dtype_of,
    is_tensor,
    shared_base,
    torch_package,
)
from loopwright.graph.frontend.torch.node import Node, converted, converter_of
from loopwright.graph.ir.expr import Expr, TensorType, const

#: The most elements of results without tensor inputs, such as ``arange``, that become constants.
_LARGE = 1 << 20
#: Arguments about the dtype and memory of a result, which its type has.
_OF_RESULTS = ("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking")
#: Calls that only check, and have no result.
_CHECKS = ("_assert", "sym_constrain_range", "_check")


class TorchImporter:
    """Converts graphs; with ``fallback``, PyTorch computes what cannot be converted."""

    def __init__(self, fallback: bool) -> None:
        self.types = ExprTypes()
        self._fallback = fallback
        self.values: dict[Any, Any] = {}  # by nodes
        self.turn = Turn()  # of the steps whose order counts
        self._bases: dict[Any, Any] = {}
        self._refused: list[tuple[str, str]] = []  # nodes and reasons

    def outputs(self, module: Any, bound: Mapping[Any, Any]) -> list[Any]:
        """The outputs of a ``torch.fx.GraphModule`` whose nodes declare the types of their values.
        ``bound`` has the values of its placeholders, and of calls that need not be converted.
        Tensors are returned as expressions, `Carried` or `Deferred`, other values as they are.
        """
        self.values = dict(bound)
        returned: Any = []
        for node in module.graph.nodes:
            if node.op == "output":
                returned = self._resolved(node.args[0])
            elif node.op == "get_attr":
                value = attribute(module, node.target)
                self.values[node] = constant_of(value, node.target) if is_tensor(value) else value
            elif node.op == "call_function" and node not in bound:
                self.values[node] = self._called(node)
            elif node not in bound:
                raise GraphError(f"a graph has a {node.op} {node.name!r}, which has no value")
            base = node if node in bound else shared_base(node, self._bases)
            if base is not node or isinstance(self.values.get(node), (Expr, Carried)):
                self._bases[node] = base
        if self._refused:
            raise GraphError(refusal(self._refused))
        return list(returned) if isinstance(returned, (list, tuple)) else [returned]

    def base_of(self, node: Any) -> Any:
        """The node whose value holds the storage of a node's tensor: itself, or a view's base."""
        return self._bases.get(node, node)

    def _resolved(self, value: Any) -> Any:
        """An argument with the values of the nodes in it."""
        return torch_package().fx.node.map_arg(value, self.values.__getitem__)

    def _read(self, node: Any) -> Any:
        """The value of a node for PyTorch: a tensor with the layout it would have there."""
        value, memory = self.values[node], TensorLayout.of(node.meta.get("val"))
        if not isinstance(value, (Expr, Carried)) or memory is None:
            return value
        base = node if memory.plain else self.base_of(node)
        around = TensorLayout.of(base.meta["val"])
        assert around is not None
        return TensorRead(self.values[base], around, memory.after(around))

    def _called(self, node: Any) -> Any:
        args, kwargs = self._resolved(node.args), self._resolved(dict(node.kwargs))
        leaves = fallback.leaves_of([args, kwargs])
        if any(isinstance(leaf, Unconverted) for leaf in leaves):
            return UNCONVERTED
        if node.target is operator.getitem:
            whole, index = args
            if not isinstance(whole, Deferred):
                return whole[index]
            return fallback.as_step(fallback.part_of(whole, index), *_results(node.meta.get("val")))
        name = getattr(node.target, "__name__", "")
        if name.startswith(_CHECKS) or name == "with_effects":
            return self._effect(node) if name == "with_effects" else None
        results, several = _results(node.meta.get("val"))
        if results and all(map(fallback.is_empty, results)):
            empties = [memory.empty() for memory in map(TensorLayout.of, results) if memory]
            return empties if several else empties[0]
        try:
            outputs = self._made(node, args, kwargs, leaves, results)
        except LoopwrightError as exc:
            reason = " ".join(str(exc).partition("\n")[0].split())
            return self._fallen(node, node.target, node.args, results, several, reason)
        return outputs if several else outputs[0]

    def _fallen(
        self, node: Any, target: Any, args: Sequence[Any], results: Sequence[Any], several: bool,
        reason: str, counts: bool = False,
    ) -> Any:  # fmt: skip
        """Let PyTorch compute a call; ``counts`` says that its order among such calls matters."""
        name = _name(target) if hasattr(target, "_schema") else getattr(target, "__name__", target)
        aten = hasattr(target, "_schema") and "::" not in str(name)
        label = f"{'aten::' * aten}{name} {node.name!r}"
        if not self._fallback:
            self._refused.append((label, reason))
            return UNCONVERTED
        read = torch_package().fx.node.map_arg((args, dict(node.kwargs)), self._read)
        deferred = fallback.deferred_call(label, target, read[0], read[1], reason)
        random = _is_random(target)
        # A value that no kernel reads is computed in one step with its only reader.
        value, readers = node.meta.get("val"), list(node.users)
        alone = len(readers) == 1 and readers[0].op == "call_function"
        carried = is_tensor(value) and dtype_of(value) is None
        lone = alone and carried and shared_base(node, self._bases) is node
        if lone and not (random or several):
            return deferred
        result = fallback.as_step(
            deferred, results, several, self.turn if counts or random else None
        )
        if random and isinstance(result, Deferred):
            self._refused.append((label, "how many random numbers it draws depends on data"))
        return result

    def _effect(self, node: Any) -> Any:
        """A call with effects, ordered after the token of the one before."""
        _, target, *args = node.args
        results = list(node.meta["val"])[1:]
        several = len(results) > 1
        outputs = self._fallen(node, target, args, results, several, "it may fail", counts=True)
        return outputs if outputs is UNCONVERTED else [None, *(outputs if several else [outputs])]

    def _made(
        self, node: Any, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Any],
        results: Sequence[Any],
    ) -> Sequence[Any]:  # fmt: skip
        torch = torch_package()
        if not isinstance(node.target, torch._ops.OpOverload):
            raise GraphError("it is no operator of ATen")
        if any(isinstance(leaf, (Carried, Deferred)) for leaf in leaves):
            raise GraphError("it reads what no kernel does")
        tensors = [leaf for leaf in leaves if isinstance(leaf, Expr)]
        types = [tensor_type_of(t) for t in results]
        extents = [() if t is None else t.shape for t in types]
        elements = sum(prod(n for n in shape if isinstance(n, int)) for shape in extents)
        if not tensors and not _is_random(node.target) and elements <= _LARGE:
            with torch.no_grad():
                result = node.target(*args, **kwargs)
            return [constant_of(t) for t in fallback.leaves_of(result)]
        if any(map(is_tensor, (*args, *kwargs.values()))):
            raise GraphError("it reads a tensor without elements")
        plain = {k: v for k, v in kwargs.items() if k not in _OF_RESULTS}
        used = _used(node, len(results))
        call = Node(_name(node.target), node.name, tuple(types), used, self.types)
        return converted(call, args, plain)


def attribute(module: Any, target: str) -> Any:
    return reduce(getattr, target.split("."), module)


def _name(target: Any) -> str:
    """An operator with its overload, as converters are registered."""
    namespace, _, name = target._schema.name.partition("::")
    overload = target._overloadname
    full = name if overload in ("", "default") else f"{name}.{overload}"
    return full if namespace == "aten" else f"{namespace}::{full}"


def tensor_type_of(value: Any) -> TensorType | None:
    """The type of a tensor as kernels take it; None where it is unknown, or has no elements."""
    return fallback.held_type(value) if is_tensor(value) and dtype_of(value) is not None else None


def constant_of(tensor: Any, name: str = "") -> Any:
    """A known tensor, as a program holds it; itself without elements."""
    if not tensor.numel():
        return tensor
    return fallback.held(const(fallback.elements_of(tensor), name=name), tensor)


def lacks_converter(target: Any) -> bool:
    is_operator = isinstance(target, torch_package()._ops.OpOverload)
    return is_operator and converter_of(_name(target)) is None


def _is_random(target: Any) -> bool:
    return torch_package().Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _results(value: Any) -> tuple[list[Any], bool]:
    return ([*value], True) if isinstance(value, (list, tuple)) else ([value], False)


def _used(node: Any, count: int) -> tuple[bool, ...]:
    """For each output of a node, whether something reads it."""
    getters = [u for u in node.users if u.target is operator.getitem and u.args[0] is node]
    if len(getters) < len(node.users) or count == 1:
        return (True,) * count
    read = {u.args[1] for u in getters if u.users}
    return tuple(n in read for n in range(count))
