"""Modules as JSON and back: nodes in order, each with the indices of its children."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from loopwright import te
from loopwright.errors import GraphError
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import post_order
from loopwright.ir.sizes import SizeVar

_FORMAT, _VERSION = "loopwright.graph", 1


def save_json(module: IRModule) -> str:
    """A module as JSON text, its constants among it; extents are numbers or size variables.

    Raises:
        GraphError: an extent is an expression of size variables, or a Python function is called.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(x))
        >>> again = lw.graph.load_json(lw.graph.save_json(module))
        >>> print(lw.graph.structural_equal(module, again))
        True
    """
    writer = _Writer()
    nodes = [writer.node(e) for e in post_order(*module.functions.values())]
    functions = {name: writer.number[f] for name, f in module.functions.items()}
    data = {"format": _FORMAT, "version": _VERSION, "sizes": writer.sizes, "nodes": nodes}
    return json.dumps({**data, "functions": functions})


class _Writer:
    def __init__(self) -> None:
        self.number: dict[ir.Expr, int] = {}
        self.sizes: list[dict[str, Any]] = []
        self._vars: dict[SizeVar, int] = {}

    def node(self, e: ir.Expr) -> dict[str, Any]:
        self.number[e] = len(self.number)
        data: dict[str, Any] = {"kind": type(e).__name__, **self._own(e)}
        if e.children:
            data["children"] = [self.number[c] for c in e.children]
        return {**data, "span": e.span} if e.span else data

    def _own(self, e: ir.Expr) -> dict[str, Any]:
        match e:
            case ir.Var():
                return {"name": e.name, "type": self._type(e.type)}
            case ir.Constant():
                data = base64.b64encode(np.ascontiguousarray(e.data).tobytes()).decode()
                return {"name": e.name, "type": self._type(e.type), "data": data}
            case ir.GlobalVar() | ir.OpRef():
                return {"name": e.name}
            case ir.HostFunction():
                raise GraphError(
                    f"{e.name} is computed by {e.by} in Python ({e.reason:.120}), which has no "
                    "JSON; import the model with fallback=False to see all such nodes"
                )
            case ir.Call():
                return {"attrs": dict(e.attrs)}
            case ir.Function():
                return {"result": self._type(e.result), "attrs": dict(e.attrs)}
            case ir.TupleGetItem():
                return {"index": e.index}
        return {}

    def _type(self, t: ir.Type | None) -> Any:
        match t:
            case ir.TensorType():
                return {"shape": [self._size(n) for n in t.shape], "dtype": t.dtype}
            case ir.TupleType():
                return {"fields": [self._type(f) for f in t.fields]}
            case ir.FuncType():
                return {"params": [*map(self._type, t.params)], "result": self._type(t.result)}
        return None

    def _size(self, n: ir.Size) -> Any:
        if isinstance(n, int):
            return n
        if not isinstance(n, SizeVar):
            raise GraphError(f"the extent {n} is no number and no size variable; it has no JSON")
        if n not in self._vars:
            self._vars[n] = len(self.sizes)
            self.sizes.append({"name": n.name, "dtype": n.dtype})
        return {"size": self._vars[n]}


def load_json(text: str) -> IRModule:
    """The module that `save_json` wrote.

    Raises:
        GraphError: the text is none of it, of another version, or was changed so that it is no
            module any more.

    Example:
        >>> text = lw.graph.save_json(lw.graph.IRModule.from_expr(lw.graph.const([1.0])))
        >>> print(list(lw.graph.load_json(text).functions))
        ['main']
    """
    try:
        data = json.loads(text)
    except ValueError as exc:
        raise GraphError(f"this is no JSON of a graph: {exc}") from exc
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise GraphError("this is no JSON of a graph; write it with loopwright.graph.save_json")
    if data.get("version") != _VERSION:
        raise GraphError(
            f"this graph has version {data.get('version')!r}, and {_VERSION} is known; "
            "write it again with this version of loopwright"
        )
    try:
        return _Reader(data).module()
    except (KeyError, IndexError, TypeError, ValueError) as exc:
        raise GraphError(f"this JSON of a graph was changed: {type(exc).__name__}: {exc}") from exc


class _Reader:
    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._sizes = [te.size_var(s["name"], s["dtype"]) for s in data["sizes"]]

    def module(self) -> IRModule:
        nodes: list[ir.Expr] = []
        for d in self._data["nodes"]:
            numbers = d.get("children", [])
            if any(not isinstance(n, int) or not 0 <= n < len(nodes) for n in numbers):
                raise GraphError(f"node {len(nodes)} of a graph reads one that does not precede it")
            e = self.node(d, [nodes[n] for n in numbers])
            if e is None:
                raise GraphError(
                    f"node {len(nodes)} of a graph is a {d['kind']!r:.40}; it is unknown"
                )
            nodes.append(replace(e, span=d["span"]) if d.get("span") else e)
        functions = {name: nodes[n] for name, n in self._data["functions"].items()}
        definitions = {name: f for name, f in functions.items() if isinstance(f, ir.Function)}
        if len(definitions) < len(functions):
            raise GraphError("a function of this graph is none")
        return IRModule(definitions)

    def node(self, d: Mapping[str, Any], children: list[ir.Expr]) -> ir.Expr | None:
        """A node over its children, without its span; None for an unknown kind."""
        match d["kind"], children:
            case "Var", _:
                return ir.Var(d["name"], self.type(d["type"]))
            case "Constant", _:
                return ir.Constant(self.elements(d), d["name"])
            case "GlobalVar", _:
                return ir.GlobalVar(d["name"])
            case "OpRef", _:
                return ir.OpRef(d["name"])
            case "Call", [*args, op]:
                return ir.Call(op, tuple(args), _tuples(d["attrs"]))
            case "Function", [*params, body]:
                variables = tuple(p for p in params if isinstance(p, ir.Var))
                if len(variables) < len(params):
                    raise GraphError("a parameter of a function of this graph is no variable")
                return ir.Function(variables, body, self.type(d["result"]), _tuples(d["attrs"]))
            case "Tuple", _:
                return ir.Tuple(tuple(children))
            case "TupleGetItem", [whole]:
                return ir.TupleGetItem(whole, d["index"])
            case "Let", [value, ir.Var() as var, body]:
                return ir.Let(var, value, body)
            case "Let", [_, _, _]:
                raise GraphError("a let of this graph binds no variable")
            case "If", [condition, then, otherwise]:
                return ir.If(condition, then, otherwise)
            case "Call" | "Function" | "TupleGetItem" | "Let" | "If" as kind, _:
                raise ValueError(f"{len(children)} children of a {kind}")
        return None

    def elements(self, d: Mapping[str, Any]) -> ir.Array:
        t = self.type(d["type"])
        if not isinstance(t, ir.TensorType) or not t.static:
            raise GraphError(f"a constant of this graph has the type {t}")
        raw = base64.b64decode(d["data"], validate=True)
        return np.frombuffer(raw, np.dtype(t.dtype)).reshape(t.shape)  # type: ignore[arg-type]

    def type(self, d: Any) -> ir.Type | None:
        if d is None:
            return None
        if "shape" in d:
            return ir.TensorType(tuple(self._size(n) for n in d["shape"]), d["dtype"])
        if "fields" in d:
            return ir.TupleType(tuple(self._known(f) for f in d["fields"]))
        return ir.FuncType(tuple(self._known(p) for p in d["params"]), self._known(d["result"]))

    def _known(self, d: Any) -> ir.Type:
        t = self.type(d)
        if t is None:
            raise GraphError("a type of this graph has a part without a type")
        return t

    def _size(self, n: Any) -> ir.Size:
        return self._sizes[n["size"]] if isinstance(n, dict) else n


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(v) for v in value)
    return {k: _tuples(v) for k, v in value.items()} if isinstance(value, dict) else value
