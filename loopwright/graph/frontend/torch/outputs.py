"""Outputs of a graph in the memory that eager PyTorch gives them.

A program makes each storage once, in the order in which its elements lie; outputs are tensors over
it, or over the memory of an input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from loopwright.errors import GraphError
from loopwright.graph.frontend.torch.arrays import is_tensor, torch_package
from loopwright.graph.frontend.torch.fallback import Carried, Deferred
from loopwright.graph.frontend.torch.importer import Importer
from loopwright.graph.frontend.torch.memory import Memory, expression_of, storage_of
from loopwright.graph.ir.expr import Expr
from loopwright.graph.registry import get_op


@dataclass(frozen=True)
class View:
    """A tensor over a storage that the program makes.

    Attributes:
        index: of the storage.
        memory: its layout there; None: it is all of it.
    """

    index: int
    memory: Memory | None

    def tensor(self, made: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """The tensor."""
        base = made[self.index]
        return base if self.memory is None else self.memory.of_base(base)


@dataclass(frozen=True)
class InputView:
    """A tensor over the memory of an input, or several.

    Attributes:
        index: of the input.
        calls: from the input to it, one behind the other.
    """

    index: int
    calls: tuple[Callable[[Any], Any], ...] = ()

    def tensor(self, made: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """The tensor."""
        found = inputs[self.index]
        for call in self.calls:
            found = call(found)
        return found


@dataclass(frozen=True)
class Empty:
    """A tensor without elements.

    Attributes:
        memory: its layout.
    """

    memory: Memory

    def tensor(self, made: Sequence[Any], inputs: Sequence[Any]) -> Any:
        """The tensor."""
        return self.memory.empty()


def input_views(graph: Any, holders: Sequence[Any]) -> dict[Any, InputView]:
    """The nodes of a graph that are tensors over the memory of its inputs.

    Args:
        graph: of ``torch.fx``.
        holders: its placeholders.
    """
    found = {node: InputView(n) for n, node in enumerate(holders)}
    for node in graph.nodes:
        before = node.all_input_nodes
        if len(before) != 1 or before[0] not in found or node.op != "call_function":
            continue
        storage = storage_of(node.meta.get("val"))
        if storage is not None and storage == storage_of(before[0].meta.get("val")):
            view = found[before[0]]
            found[node] = InputView(view.index, (*view.calls, _call(node)))
    return found


def _call(node: Any) -> Callable[[Any], Any]:
    """A call of one tensor as a function of that."""

    def call(tensor: Any) -> Any:
        args, kwargs = map_arg((node.args, node.kwargs), lambda _: tensor)
        return node.target(*args, **kwargs)

    map_arg = torch_package().fx.node.map_arg
    return call


def eager_outputs(module: Any) -> list[Any]:
    """Fake tensors of the outputs of a graph of TorchDynamo, which lie as in eager PyTorch.

    Decompositions of operators may lay them out otherwise, an operator that writes into its
    argument does not.
    """
    (node,) = (n for n in module.graph.nodes if n.op == "output")
    return [getattr(n, "meta", {}).get("example_value") for n in node.args[0]]


class Layout(NamedTuple):
    """The layout of an output in eager PyTorch.

    Attributes:
        memory: it.
        storage: a number that outputs of one storage share.
        guessed: whether strides are PyTorch's guess: with symbols, of dimensions of one element.
    """

    memory: Memory
    storage: int
    guessed: bool


def eager_layouts(
    outputs: Sequence[Any], holders: Sequence[Any], inputs: Sequence[Any]
) -> list[Layout | None]:
    """Layouts of outputs; None where one is not known.

    Args:
        outputs: fake tensors.
        holders: placeholders, of which the symbols in these are known.
        inputs: their values.
    """
    numbers: dict[Any, int] = {}
    for node, value in zip(holders, inputs, strict=True):
        for symbol, number in zip(_sizes(node.meta.get("val")), _sizes(value), strict=False):
            expr = expression_of(symbol)
            if getattr(expr, "is_symbol", False) and type(number) is int:
                numbers[expr] = number
    found: list[Layout | None] = []
    for t in outputs:
        memory = Memory.of(t, numbers)
        symbolic = not all(type(n) is int for n in _sizes(t))
        guessed = memory is not None and symbolic and 1 in memory.shape
        found.append(Layout(memory, storage_of(t) or 0, guessed) if memory is not None else None)
    return found


def _sizes(value: Any) -> tuple[Any, ...]:
    if not is_tensor(value) or value.layout is not torch_package().strided:
        return (value,)
    return (*value.shape, *value.stride(), value.storage_offset())


@dataclass(frozen=True)
class Made:
    """The storages that a program makes, and the outputs of a graph over them.

    Attributes:
        results: its outputs.
        layouts: for each of these from its elements to the tensor; None: it is one already.
        outputs: for each output of the graph a `View`, an `Empty`, or what is no tensor.
    """

    results: list[Expr]
    layouts: list[Callable[[Any], Any] | None]
    outputs: list[Any]


def outputs_of(importer: Importer, graph: Any, eager: Sequence[Layout | None]) -> Made:
    """Lay out the outputs of a graph that was imported.

    Args:
        importer: what imported it.
        graph: a ``torch.fx.GraphModule``.
        eager: for its outputs as of `eager_layouts`, as many as are known.

    Raises:
        GraphError: a program cannot hold an output.
    """
    nodes = list(graph.graph.nodes)
    (returned,) = nodes[-1].args
    inputs = input_views(graph.graph, [n for n in nodes if n.op == "placeholder"])
    known = [*eager, *[None] * (len(returned) - len(eager))]
    relaid = _relaid(importer, returned, known)
    made, places = Made([], [], []), dict[Any, int]()
    whole_of: dict[Any, Any] = {}  # the node that is an object for all of a storage
    for number, (node, layout) in enumerate(zip(returned, known, strict=True)):
        value = importer.values[node] if hasattr(node, "meta") else node
        memory = Memory.of(node.meta.get("val")) if hasattr(node, "meta") else None
        if isinstance(value, Deferred) or (memory is None and isinstance(value, Expr)):
            raise GraphError(f"output {number} of the graph is a tensor that no program holds")
        if memory is None or value is None:
            made.outputs.append(value)
        elif node in inputs:
            made.outputs.append(inputs[node])
        elif is_tensor(value) and importer.base_of(node) is node:
            made.outputs.append(Empty(memory))
        else:
            base = importer.base_of(node)
            around = Memory.of(base.meta["val"])
            if layout is not None and base in relaid:
                around, memory = relaid[base], layout.memory
            assert around is not None
            key = base, around, layout and layout.storage
            if key not in places:
                places[key] = len(made.results)
                _add(made, importer.values[base], around)
            whole = memory == around and memory.plain
            whole = whole and whole_of.setdefault(key, node) is node
            made.outputs.append(View(places[key], None if whole else memory.after(around)))
    return made


def _relaid(
    importer: Importer, returned: Sequence[Any], known: Sequence[Layout | None]
) -> dict[Any, Memory]:
    """Layouts of storages where eager PyTorch lays the whole tensor out otherwise."""
    found: dict[Any, Memory] = {}
    for node, layout in zip(returned, known, strict=True):
        if layout is None or layout.guessed or not hasattr(node, "meta"):
            continue
        base, eager = importer.base_of(node), layout.memory
        memory = Memory.of(node.meta.get("val"))
        if memory is None or None in (memory.order, eager.order) or memory.shape != eager.shape:
            continue
        if memory == Memory.of(base.meta["val"]):
            found[base] = eager
    return found


def _add(made: Made, value: Any, memory: Memory) -> None:
    """Let the program make a storage."""
    if isinstance(value, Carried):
        made.results.append(value.expr)
        made.layouts.append(lambda elements: memory.filled(value.tensor(elements)))
    elif memory.order is None:
        made.results.append(value)
        made.layouts.append(memory.filled)
    else:
        moved = memory.order != tuple(range(len(memory.order)))
        made.results.append(get_op("transpose")(value, axes=memory.order) if moved else value)
        made.layouts.append(None)
