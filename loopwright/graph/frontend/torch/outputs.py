"""Outputs of a graph in the memory layout that eager PyTorch gives them. A program makes each
storage once, in the order in which its elements lie; outputs are tensors over it, or over the
memory of an input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.fallback import Carried, Deferred
from loopwright.graph.frontend.torch.importer import TorchImporter
from loopwright.graph.frontend.torch.memory import (
    TensorLayout,
    expression_of,
    is_tensor,
    storage_of,
    torch_package,
)
from loopwright.graph.ir.expr import Expr
from loopwright.graph.registry import get_op


@dataclass(frozen=True)
class InputView:
    """A tensor, or several, over the memory of an input."""

    index: int  # of the input
    calls: tuple[Callable[[Any], Any], ...] = ()  # lead from the input to it, in order

    def __call__(self, storages: Sequence[Any], inputs: Sequence[Any]) -> Any:
        return reduce(lambda tensor, call: call(tensor), self.calls, inputs[self.index])


def _storage_view(index: int, memory: TensorLayout | None) -> Callable[..., Any]:
    """A tensor over a storage that the program makes, of a layout there; None: all of it."""
    if memory is None:
        return lambda storages, inputs: storages[index]
    return lambda storages, inputs: memory.of_base(storages[index])


def input_views(graph: Any, holders: Sequence[Any]) -> dict[Any, InputView]:
    """The nodes of a ``torch.fx`` graph that are tensors over the memory of its placeholders."""
    views = {node: InputView(n) for n, node in enumerate(holders)}
    for node in graph.nodes:
        before = node.all_input_nodes
        if len(before) != 1 or before[0] not in views or node.op != "call_function":
            continue
        storage = storage_of(node.meta.get("val"))
        if storage is not None and storage == storage_of(before[0].meta.get("val")):
            view = views[before[0]]
            views[node] = InputView(view.index, (*view.calls, partial(_called, node)))
    return views


def _called(node: Any, tensor: Any) -> Any:
    args, kwargs = torch_package().fx.node.map_arg((node.args, node.kwargs), lambda _: tensor)
    return node.target(*args, **kwargs)


def eager_outputs(module: Any) -> list[Any]:
    """Fake tensors of the outputs of a graph of TorchDynamo, with their layouts in eager PyTorch.
    Decompositions of operators may give them other layouts; an operator that writes into its
    argument does not.
    """
    (node,) = (n for n in module.graph.nodes if n.op == "output")
    return [getattr(n, "meta", {}).get("example_value") for n in node.args[0]]


class EagerLayout(NamedTuple):
    memory: TensorLayout
    storage: int  # a number that outputs of one storage share
    guessed: bool  # strides are PyTorch's guess: symbolic, with dimensions of one element


def eager_layouts(
    outputs: Sequence[Any], holders: Sequence[Any], inputs: Sequence[Any]
) -> list[EagerLayout | None]:
    """Layouts of fake outputs, with the symbols' values in ``inputs``; None where not known."""
    numbers: dict[Any, int] = {}
    for node, value in zip(holders, inputs, strict=True):
        for symbol, number in zip(_sizes(node.meta.get("val")), _sizes(value), strict=False):
            expr = expression_of(symbol)
            if getattr(expr, "is_symbol", False) and type(number) is int:
                numbers[expr] = number
    layouts: list[EagerLayout | None] = []
    for t in outputs:
        memory = TensorLayout.of(t, numbers)
        if memory is None:
            layouts.append(None)
            continue
        symbolic = not all(type(n) is int for n in _sizes(t))
        layouts.append(EagerLayout(memory, storage_of(t) or 0, symbolic and 1 in memory.shape))
    return layouts


def _sizes(value: Any) -> tuple[Any, ...]:
    if not is_tensor(value) or value.layout is not torch_package().strided:
        return (value,)
    return (*value.shape, *value.stride(), value.storage_offset())


@dataclass(frozen=True)
class Made:
    """The storages that a program makes, and the outputs of a graph over them."""

    results: list[Expr]  # outputs of the program
    #: for each result from its elements to the tensor; None: it is one already
    layouts: list[Callable[[Any], Any] | None]
    #: for each output of the graph a function of the storages and the inputs, or a non-tensor
    outputs: list[Any]


def outputs_of(importer: TorchImporter, graph: Any, eager: Sequence[EagerLayout | None]) -> Made:
    """Lay out the outputs of an imported ``torch.fx.GraphModule``; ``eager`` as far as known."""
    nodes = list(graph.graph.nodes)
    (returned,) = nodes[-1].args
    inputs = input_views(graph.graph, [n for n in nodes if n.op == "placeholder"])
    layouts = [*eager, *[None] * (len(returned) - len(eager))]
    relaid = _relaid(importer, returned, layouts)
    plan, places = Made([], [], []), dict[Any, int]()
    whole_of: dict[Any, Any] = {}  # the node that is an object for all of a storage
    for number, (node, layout) in enumerate(zip(returned, layouts, strict=True)):
        value = importer.values[node] if hasattr(node, "meta") else node
        memory = TensorLayout.of(node.meta.get("val")) if hasattr(node, "meta") else None
        if isinstance(value, Deferred) or (memory is None and isinstance(value, Expr)):
            raise GraphError(f"output {number} of the graph is a tensor that no program holds")
        if memory is None or value is None:
            plan.outputs.append(value)
        elif node in inputs:
            plan.outputs.append(inputs[node])
        elif is_tensor(value) and importer.base_of(node) is node:
            plan.outputs.append(lambda storages, inputs, memory=memory: memory.empty())
        else:
            base = importer.base_of(node)
            around = TensorLayout.of(base.meta["val"])
            if layout is not None and base in relaid:
                around, memory = relaid[base], layout.memory
            assert around is not None
            key = base, around, layout and layout.storage
            if key not in places:
                places[key] = len(plan.results)
                _add(plan, importer.values[base], around)
            whole = memory == around and memory.plain
            whole = whole and whole_of.setdefault(key, node) is node
            plan.outputs.append(_storage_view(places[key], None if whole else memory.after(around)))
    return plan


def _relaid(
    importer: TorchImporter, returned: Sequence[Any], layouts: Sequence[EagerLayout | None]
) -> dict[Any, TensorLayout]:
    """Layouts of storages that eager PyTorch lays out otherwise as a whole."""
    relaid: dict[Any, TensorLayout] = {}
    for node, layout in zip(returned, layouts, strict=True):
        if layout is None or layout.guessed or not hasattr(node, "meta"):
            continue
        base, eager = importer.base_of(node), layout.memory
        memory = TensorLayout.of(node.meta.get("val"))
        if memory is None or None in (memory.order, eager.order) or memory.shape != eager.shape:
            continue
        if memory == TensorLayout.of(base.meta["val"]):
            relaid[base] = eager
    return relaid


def _add(plan: Made, value: Any, memory: TensorLayout) -> None:
    if isinstance(value, Carried):
        plan.results.append(value.expr)
        plan.layouts.append(lambda elements: memory.filled(value.tensor(elements)))
    elif memory.order is None:
        plan.results.append(value)
        plan.layouts.append(memory.filled)
    else:
        moved = memory.order != tuple(range(len(memory.order)))
        plan.results.append(get_op("transpose")(value, axes=memory.order) if moved else value)
        plan.layouts.append(None)
