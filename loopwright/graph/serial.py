"""Modules as JSON and back: nodes in order, each with the indices of its children."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from loopwright import te
from loopwright.errors import GraphError, shown
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import post_order
from loopwright.ir.sizes import SizeVar

_FORMAT, _VERSION = "loopwright.graph", 1
_MOST_DIMENSIONS = 32  # of a constant, as of NumPy before 2
_MOST_NESTED = 32  # types and lists inside of one another


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
    except (TypeError, ValueError, RecursionError) as exc:
        raise GraphError(f"this is no JSON of a graph: {exc}") from exc
    if not isinstance(data, dict) or data.get("format") != _FORMAT:
        raise GraphError("this is no JSON of a graph; write it with loopwright.graph.save_json")
    if data.get("version") != _VERSION:
        raise GraphError(
            f"this graph has version {shown(data.get('version'))}, and {_VERSION} is known; "
            "write it again with this version of loopwright"
        )
    try:
        return _Reader(msgspec.convert(data, _File)).module()
    except (msgspec.ValidationError, RecursionError) as exc:
        raise GraphError(
            f"this JSON of a graph was changed: {exc}; write it again with "
            "loopwright.graph.save_json"
        ) from exc


class _Size(msgspec.Struct):
    """An extent that is a size variable, by its number."""

    size: int


class _Type(msgspec.Struct):
    """The type of a tensor by its ``shape``, of a tuple by ``fields``, else of a function."""

    shape: list[int | _Size] | None = None
    dtype: str = ""
    fields: list[_Type] | None = None
    params: list[_Type] | None = None
    result: _Type | None = None


class _Node(msgspec.Struct, tag_field="kind", tag=lambda name: name[1:], kw_only=True):
    children: list[int] = []
    span: str = ""


class _Var(_Node):
    name: str
    type: _Type | None


class _Constant(_Node):
    name: str
    type: _Type
    data: bytes  # base64 in JSON


class _GlobalVar(_Node):
    name: str


class _OpRef(_Node):
    name: str


class _Call(_Node):
    attrs: dict[str, Any]


class _Function(_Node):
    result: _Type | None
    attrs: dict[str, Any]


class _Tuple(_Node):
    pass


class _TupleGetItem(_Node):
    index: int


class _Let(_Node):
    pass


class _If(_Node):
    pass


_Nodes = _Var | _Constant | _GlobalVar | _OpRef | _Call | _Function | _Tuple | _TupleGetItem
_Nodes |= _Let | _If


class _SizeVar(msgspec.Struct):
    name: str
    dtype: str


class _File(msgspec.Struct):
    sizes: list[_SizeVar]
    nodes: list[_Nodes]
    functions: dict[str, int]


class _Reader:
    def __init__(self, file: _File) -> None:
        self._file = file
        self._sizes = [te.size_var(s.name, s.dtype) for s in file.sizes]

    def module(self) -> IRModule:
        nodes: list[ir.Expr] = []
        for d in self._file.nodes:
            if any(not 0 <= n < len(nodes) for n in d.children):
                raise GraphError(f"node {len(nodes)} of a graph reads one that does not precede it")
            e = self.node(d, [nodes[n] for n in d.children])
            if e is None:
                raise GraphError(
                    f"node {len(nodes)} of a graph, a {type(d).__name__[1:]}, has "
                    f"{len(d.children)} children"
                )
            nodes.append(replace(e, span=d.span) if d.span else e)
        functions = {}
        for name, n in self._file.functions.items():
            function = nodes[n] if 0 <= n < len(nodes) else None
            if not isinstance(function, ir.Function):
                raise GraphError(
                    f"the function {shown(name)} of this graph is node {n}, no function"
                )
            functions[name] = function
        return IRModule(functions)

    def node(self, d: _Node, children: list[ir.Expr]) -> ir.Expr | None:
        """A node over its children, without its span; None for a wrong number of them."""
        match d, children:
            case _Var(), []:
                return ir.Var(d.name, self.type(d.type))
            case _Constant(), []:
                return ir.Constant(self.elements(d), d.name)
            case _GlobalVar(), []:
                return ir.GlobalVar(d.name)
            case _OpRef(), []:
                return ir.OpRef(d.name)
            case _Call(), [*args, op]:
                return ir.Call(op, tuple(args), _tuples(d.attrs))
            case _Function(), [*params, body]:
                variables = tuple(p for p in params if isinstance(p, ir.Var))
                if len(variables) < len(params):
                    raise GraphError("a parameter of a function of this graph is no variable")
                return ir.Function(variables, body, self.type(d.result), _tuples(d.attrs))
            case _Tuple(), _:
                return ir.Tuple(tuple(children))
            case _TupleGetItem(), [whole]:
                return ir.TupleGetItem(whole, d.index)
            case _Let(), [value, ir.Var() as var, body]:
                return ir.Let(var, value, body)
            case _Let(), [_, _, _]:
                raise GraphError("a let of this graph binds no variable")
            case _If(), [condition, then, otherwise]:
                return ir.If(condition, then, otherwise)
        return None

    def elements(self, d: _Constant) -> ir.Array:
        t = self.type(d.type)
        if not isinstance(t, ir.TensorType) or not t.static:
            raise GraphError(f"the constant {shown(d.name)} of this graph has the type {t}")
        dtype = np.dtype(t.dtype)
        if len(d.data) != ir.elements(t) * dtype.itemsize or len(t.shape) > _MOST_DIMENSIONS:
            raise GraphError(
                f"the constant {shown(d.name)} of this graph has {len(d.data)} bytes for {t}"
            )
        array = np.frombuffer(d.data, dtype)
        if t.dtype == "bool" and (np.frombuffer(d.data, np.uint8) > 1).any():
            raise GraphError(f"the constant {shown(d.name)} has a bool that is neither 0 nor 1")
        return array.reshape(tuple(n for n in t.shape if isinstance(n, int)))

    def type(self, d: _Type | None) -> ir.Type | None:
        return None if d is None else self._known(d)

    def _known(self, d: _Type, depth: int = 0) -> ir.Type:
        _check_depth(depth)
        known = partial(self._known, depth=depth + 1)
        if d.shape is not None:
            return ir.TensorType(tuple(map(self._size, d.shape)), d.dtype)
        if d.fields is not None:
            return ir.TupleType(tuple(map(known, d.fields)))
        if d.params is None or d.result is None:
            raise GraphError("a type of this graph is none of a tensor, a tuple or a function")
        return ir.FuncType(tuple(map(known, d.params)), known(d.result))

    def _size(self, n: int | _Size) -> ir.Size:
        if isinstance(n, int):
            return n
        if not 0 <= n.size < len(self._sizes):
            raise GraphError(f"an extent is size {n.size}, and the graph has {len(self._sizes)}")
        return self._sizes[n.size]


def _check_depth(depth: int) -> None:
    if depth > _MOST_NESTED:
        raise GraphError(f"more than {_MOST_NESTED} types or lists of this graph are nested")


def _tuples(value: Any, depth: int = 0) -> Any:
    _check_depth(depth)
    if isinstance(value, list):
        return tuple(_tuples(v, depth + 1) for v in value)
    if isinstance(value, dict):
        return {k: _tuples(v, depth + 1) for k, v in value.items()}
    return value
