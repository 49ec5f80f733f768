"""Conversion of nodes of graphs, of functions and of subgraphs, one after the other. What cannot be
converted is noted, and what depends on it is left out, so that one message tells all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.errors import GraphError, LoopwrightError
from loopwright.graph.frontend.conversion import (
    UNCONVERTED,
    ExprTypes,
    Unconverted,
    listed,
    refusal,
)
from loopwright.graph.frontend.onnx.files import (
    FunctionBody,
    body_of,
    dense_of,
    domain,
    onnx_package,
    operator,
    opsets,
)
from loopwright.graph.frontend.onnx.node import (
    Node,
    UnboundInputsError,
    check_taken,
    constant,
    converter_of,
    outputs_of,
)
from loopwright.graph.frontend.onnx.reference import captured, fallen_back, folded
from loopwright.graph.ir.expr import Expr


class Scope:
    """Values by name; a subgraph also sees those of the graphs around it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self._outer = outer
        self._values: dict[str, Expr | Unconverted | None] = {}

    def __setitem__(self, name: str, value: Expr | Unconverted | None) -> None:
        self._values[name] = value

    def get(self, name: str) -> Expr | Unconverted | None:
        return self._values.get(name)

    def __getitem__(self, name: str) -> Expr | Unconverted | None:
        """A value, which has to be there; None for an optional input of a function not given."""
        if name in self._values:
            return self._values[name]
        if self._outer is None:
            raise GraphError(f"it reads {name!r}, which no node before it makes")
        return self._outer[name]


@dataclass(frozen=True)
class _Refused:
    node: str  # type and name
    reason: str
    inputs: tuple[str, ...] = ()  # inputs of the model whose values would be needed


@dataclass(frozen=True)
class _Around:
    """The surroundings of a node: the graph in which it stands."""

    importer: OnnxImporter
    scope: Scope

    @property
    def types(self) -> ExprTypes:
        return self.importer.types

    def subgraph(self, graph: Any, args: Sequence[Expr | None]) -> list[Expr]:
        """The outputs of a graph that is an attribute of a node, for values of its inputs."""
        inner = Scope(self.scope)
        self.importer.initializers(graph, inner)
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
        self.refused: list[_Refused] = []
        # path: names of the nodes around, for messages
        self._versions, self._path, self._fallback = versions, path, fallback
        self._functions = {(domain(f.domain), f.name): f for f in functions}

    def initializers(self, graph: Any, scope: Scope) -> None:
        """Bind the constants of a graph to their names."""
        numpy_helper = onnx_package().numpy_helper
        dense = ((t.name, t, numpy_helper.to_array) for t in graph.initializer)
        sparse = ((t.values.name, t, dense_of) for t in graph.sparse_initializer)
        for name, tensor, read in (*dense, *sparse):
            try:
                scope[name] = constant(self.types, read(tensor), name)
            except LoopwrightError as exc:
                self._refuse(f"weight {name!r}", str(exc))
                scope[name] = UNCONVERTED
            except (TypeError, ValueError, KeyError) as exc:
                raise GraphError(f"weight {name!r} is malformed: {exc}") from exc

    def result(self, name: str, scope: Scope) -> Expr:
        """A value that has to have been converted."""
        found = scope[name]
        if not isinstance(found, Expr):
            raise GraphError(f"output {name!r} is not made by any node")
        return found

    def check(self) -> None:
        """Raise one error for all that was not converted, with the inputs that must be known."""
        if not self.refused:
            return
        text = refusal([(r.node, r.reason) for r in self.refused])
        inputs = [name for r in self.refused for name in r.inputs]
        raise UnboundInputsError(text, inputs) if inputs else GraphError(text)

    def _refuse(self, node: str, reason: str, inputs: tuple[str, ...] = ()) -> None:
        line = " ".join(reason.split())
        self.refused.append(_Refused(f"{self._path}{node}", line, inputs))

    def convert(self, proto: Any, scope: Scope) -> None:
        """Bind the outputs of a node; note what cannot be converted."""
        label = f"{operator(proto)} {proto.name or _first(proto.output)!r}"
        before = len(self.refused)
        for name in proto.output:
            scope[name] = UNCONVERTED
        try:
            inputs = [scope[name] if name else None for name in proto.input]
            if any(isinstance(e, Unconverted) for e in inputs):
                return
            made = self._made(proto, [e for e in inputs if not isinstance(e, Unconverted)], scope)
            for value in made:
                _ = value is None or self.types[value]
            for n, name in enumerate(proto.output):
                if name and (n >= len(made) or made[n] is None):
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
            made = fallen
        for name, value in zip(proto.output, made, strict=False):
            scope[name] = value

    def _fallen_back(self, proto: Any, scope: Scope, reason: str) -> Sequence[Expr | None] | str:
        """Compute a node by onnx's reference implementation; the reason where it cannot."""
        node = onnx_package().NodeProto()
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
        own = domain(proto.domain)
        narrow = None if own else check_taken(proto.op_type, inputs, self.types)
        known = None if narrow else folded(proto, inputs, self._versions)
        if known is not None:
            return known
        function = self._functions.get((own, proto.op_type))
        if function is not None:
            body = FunctionBody(function, opsets(function.opset_import))
            return self._expanded(proto, body, inputs)
        version = self._versions.get(own)
        if version is None:
            raise GraphError(f"the model imports no version of domain {own!r}")
        found = converter_of(operator(proto), version)
        if found is not None:
            value_of = onnx_package().helper.get_attribute_value
            attrs = {a.name: _plain(value_of(a)) for a in proto.attribute}
            around = _Around(self, scope)
            names = proto.name or _first(proto.output), tuple(inputs), attrs, tuple(proto.output)
            node = Node(operator(proto), *names, version, around)
            # The nodes of a graph inside of it are operators that round by themselves.
            inner = any(a.HasField("g") for a in proto.attribute)
            outputs = listed(found(node)) if inner else outputs_of(node, found)
            return [self.types.mark(e, narrow) for e in outputs] if narrow else outputs
        types = [None if e is None else self.types[e] for e in inputs]
        expansion = body_of(proto, self._versions, types)
        if expansion is None:
            raise GraphError(f"there is no converter for opset {version}")
        return self._expanded(proto, expansion, inputs)

    def _expanded(
        self, proto: Any, body: FunctionBody, inputs: Sequence[Expr | None]
    ) -> Sequence[Expr | None]:
        """Convert the nodes of a function over a node's inputs and attributes."""
        path = f"{self._path}{proto.op_type} > "
        inner = OnnxImporter(body.versions, self._functions.values(), path, self._fallback)
        inner.types = self.types
        scope = Scope()
        for n, name in enumerate(body.function.input):
            scope[name] = inputs[n] if n < len(inputs) else None
        for node in body.nodes(proto):
            inner.convert(node, scope)
        made = [scope.get(n) for n in body.function.output]
        wanted = [m for m, name in zip(made, proto.output, strict=False) if name]
        if any(isinstance(m, Unconverted) for m in wanted):
            self.refused.extend(inner.refused)
            raise _InsideError("a graph inside of it was refused")
        return [None if isinstance(m, Unconverted) else m for m in made]


def _first(names: Sequence[str]) -> str:
    return next((n for n in names if n), "")


def _plain(value: Any) -> Any:
    """An attribute as a Python value: text for bytes, arrays for tensors; graphs as they are."""
    onnx = onnx_package()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, onnx.TensorProto):
        return np.asarray(onnx.numpy_helper.to_array(value))
    if isinstance(value, onnx.SparseTensorProto):
        return dense_of(value)
    if isinstance(value, (int, float, str, onnx.GraphProto)):
        return value
    try:
        return tuple(map(_plain, value))
    except TypeError as exc:
        raise GraphError(f"its attributes hold a {type(value).__name__}") from exc
