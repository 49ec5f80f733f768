"""Conversion of nodes of graphs, of functions and of subgraphs, one after the other. What cannot be
converted is noted, and what depends on it is left out, so that one message tells all of it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.errors import GraphError, LoopwrightError
from loopwright.graph.frontend import conversion
from loopwright.graph.frontend.conversion import UNCONVERTED, ExprTypes, Unconverted
from loopwright.graph.frontend.onnx import files
from loopwright.graph.frontend.onnx import node as nodes
from loopwright.graph.frontend.onnx.node import Node, UnboundInputsError
from loopwright.graph.frontend.onnx.reference import captured, fallen_back, folded
from loopwright.graph.ir.expr import Expr


class Scope(ChainMap[str, "Expr | Unconverted | None"]):
    """Values by name, those of the graphs around it too; None where an input is not given."""

    def __missing__(self, name: str) -> Expr | Unconverted | None:
        raise GraphError(f"it reads {name!r}, which no node before it makes")


@dataclass(frozen=True)
class _Around:
    """The surroundings of a node: the graph in which it stands."""

    importer: OnnxImporter
    scope: Scope

    def subgraph(self, graph: Any, args: Sequence[Expr | None]) -> list[Expr]:
        """The outputs of a graph that is an attribute of a node, for values of its inputs."""
        inner = self.scope.new_child()
        self.importer.initializers(graph, inner)
        if len(graph.input) != len(args):
            raise GraphError(
                f"its graph {graph.name!r} declares {len(graph.input)} inputs, and gets {len(args)}"
            )
        for info, value in zip(graph.input, args, strict=True):
            inner[info.name] = value
        before = len(self.importer.refused)
        for proto in graph.node:
            self.importer.convert(proto, inner)
        if len(self.importer.refused) > before:
            raise _InsideError("a graph inside of it was refused")
        return [self.importer.result(o.name, inner) for o in graph.output]


class _InsideError(GraphError):
    """Nodes of a subgraph were not converted; they were noted."""


class OnnxImporter:
    """Converts nodes; with ``fallback``, onnx's reference implementation computes the others."""

    def __init__(
        self,
        versions: Mapping[str, int],
        functions: Iterable[Any] = (),
        path: str = "",
        fallback: bool = False,
    ) -> None:
        self.types = ExprTypes()
        #: type and name of a node, reason, and inputs of the model whose values would be needed
        self.refused: list[tuple[str, str, tuple[str, ...]]] = []
        # path: names of the nodes around, for messages
        self._versions, self._path, self._fallback = versions, path, fallback
        self._around: tuple[tuple[str, str], ...] = ()  # calls of functions that it stands in
        self._functions = {(files.domain(f.domain), f.name): f for f in functions}

    def initializers(self, graph: Any, scope: Scope) -> None:
        dense = ((t.name, t, files.array_of) for t in graph.initializer)
        sparse = ((t.values.name, t, files.dense_of) for t in graph.sparse_initializer)
        for name, tensor, read in (*dense, *sparse):
            files.check_texts(name)
            try:
                scope[name] = nodes.constant(self.types, read(tensor), name)
            except LoopwrightError as exc:
                self._refuse(f"weight {name!r}", str(exc))
                scope[name] = UNCONVERTED

    def result(self, name: str, scope: Scope) -> Expr:
        value = scope[name]
        if not isinstance(value, Expr):
            raise GraphError(f"output {name!r} is not made by any node")
        return value

    def check(self) -> None:
        """Raise one error for all that was not converted, with the inputs that must be known."""
        if not self.refused:
            return
        text = conversion.refusal([(node, reason) for node, reason, _ in self.refused])
        inputs = [name for *_, names in self.refused for name in names]
        raise UnboundInputsError(text, inputs) if inputs else GraphError(text)

    def _refuse(self, node: str, reason: str, inputs: tuple[str, ...] = ()) -> None:
        self.refused.append((f"{self._path}{node}", " ".join(reason.split()), inputs))

    def convert(self, proto: Any, scope: Scope) -> None:
        """Bind the outputs of a node; note what cannot be converted."""
        texts = proto.op_type, proto.domain, proto.name, *proto.input, *proto.output
        files.check_texts(*texts, *(a.name for a in proto.attribute))
        label = f"{files.operator(proto)} {proto.name or _first(proto.output)!r}"
        before = len(self.refused)
        for name in proto.output:
            scope[name] = UNCONVERTED
        try:
            inputs = [scope[name] if name else None for name in proto.input]
            if any(isinstance(e, Unconverted) for e in inputs):
                return
            values = self._made(proto, [e for e in inputs if not isinstance(e, Unconverted)], scope)
            for value in values:
                _ = value is None or self.types[value]
            for n, name in enumerate(proto.output):
                if name and (n >= len(values) or values[n] is None):
                    raise GraphError(f"its output {name!r} is not supported")
        except LoopwrightError as exc:
            reason = str(exc).partition("\n")[0]
            fallen = self._fallen_back(proto, scope, reason) if self._fallback else reason
            if isinstance(fallen, str):
                if not isinstance(exc, _InsideError):
                    unbound = exc.inputs if isinstance(exc, UnboundInputsError) else ()
                    self._refuse(label, fallen, unbound)
                return
            del self.refused[before:]  # of what is inside of it, which is computed with it
            values = fallen
        for name, value in zip(proto.output, values, strict=False):
            scope[name] = value

    def _fallen_back(self, proto: Any, scope: Scope, reason: str) -> Sequence[Expr | None] | str:
        """Compute a node by onnx's reference implementation; the reason where it cannot."""
        node = files.onnx_package().NodeProto()
        node.CopyFrom(proto)
        node.input[:] = [n if n and scope[n] is not None else "" for n in proto.input]
        try:
            names = dict.fromkeys([*(n for n in node.input if n), *captured(node)])
            inputs = {name: self.result(name, scope) for name in names}
            return fallen_back(node, inputs, self.types, self._versions, reason)
        except LoopwrightError as exc:
            return f"{reason}; no fallback: {str(exc).partition(chr(10))[0]}"

    def _made(
        self, proto: Any, inputs: Sequence[Expr | None], scope: Scope
    ) -> Sequence[Expr | None]:
        own = files.domain(proto.domain)
        narrow = None if own else nodes.check_taken(proto.op_type, inputs, self.types)
        results = None if narrow else folded(proto, inputs, self._versions)
        if results is not None:
            return results
        function = self._functions.get((own, proto.op_type))
        if function is not None:
            return self._expanded(proto, function, {}, inputs)
        version = self._versions.get(own)
        if version is None:
            raise GraphError(
                f"the model imports no version of its domain {proto.domain or 'ai.onnx'!r}"
            )
        files.check_node(proto, self._versions)
        convert = nodes.converter_of(files.operator(proto), version)
        if convert is not None:
            attrs = {a.name: _value_of(a) for a in proto.attribute}
            names = proto.name or _first(proto.output), tuple(inputs), attrs, tuple(proto.output)
            around = _Around(self, scope)
            node = Node(files.operator(proto), *names, version, around, self.types)
            # The nodes of a graph inside of it are operators that round by themselves.
            inner = any(a.HasField("g") for a in proto.attribute)
            outputs = conversion.listed(convert(node)) if inner else nodes.outputs_of(node, convert)
            return [self.types.mark(e, narrow) for e in outputs] if narrow else outputs
        types = [None if e is None else self.types[e] for e in inputs]
        function = files.body_of(proto, self._versions, types)
        if function is None:
            raise GraphError(_unknown(proto, version))
        return self._expanded(proto, function, self._versions, inputs)

    def _expanded(
        self, proto: Any, body: Any, versions: Mapping[str, int], inputs: Sequence[Expr | None]
    ) -> Sequence[Expr | None]:
        """Convert the nodes of a function, which may declare other versions of domains."""
        key = files.domain(proto.domain), proto.op_type
        if key in self._around:
            raise GraphError(f"it is a function that calls itself: {self._path}{proto.op_type}")
        path = f"{self._path}{proto.op_type} > "
        versions = {**versions, **files.opsets(body.opset_import)}
        inner = OnnxImporter(versions, self._functions.values(), path, self._fallback)
        inner.types, inner._around = self.types, (*self._around, key)
        scope = Scope()
        for n, name in enumerate(body.input):
            scope[name] = inputs[n] if n < len(inputs) else None
        for node in files.nodes_of(body, proto):
            inner.convert(node, scope)
        values = [scope.get(n) for n in body.output]
        wanted = [m for m, name in zip(values, proto.output, strict=False) if name]
        if any(isinstance(m, Unconverted) for m in wanted):
            self.refused.extend(inner.refused)
            raise _InsideError("a graph inside of it was refused")
        return [None if isinstance(m, Unconverted) else m for m in values]


def _first(names: Sequence[str]) -> str:
    return next((n for n in names if n), "")


def _unknown(proto: Any, version: int) -> str:
    """The reason why a node has no converter."""
    own = files.domain(proto.domain)
    if not own or any(name.startswith(f"{own}::") for name in nodes.known_operators()):
        return f"there is no converter for opset {version}"
    return (
        f"operators of the domain {own!r} are not ONNX's; register a converter: "
        f"loopwright.graph.frontend.onnx.converter({files.operator(proto)!r})"
    )


def _value_of(attribute: Any) -> Any:
    try:
        return _plain(files.onnx_package().helper.get_attribute_value(attribute))
    except ValueError as exc:
        raise GraphError(f"its attribute {attribute.name!r} has no type") from exc


def _plain(value: Any) -> Any:
    """An attribute as a Python value: text for bytes, arrays for tensors; graphs as they are."""
    onnx = files.onnx_package()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return files.array_of(value)
    if isinstance(value, onnx.SparseTensorProto):
        return files.dense_of(value)
    if isinstance(value, (int, float, str, onnx.GraphProto)):
        return value
    try:
        return tuple(map(_plain, value))
    except TypeError as exc:
        raise GraphError(f"its attributes hold a {type(value).__name__}") from exc
