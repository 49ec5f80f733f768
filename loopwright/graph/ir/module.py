"""Modules: functions by name, one of which is the whole model, and their text.

The text has a line for each call, in the manner of Relay's text format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, overload

import numpy.typing as npt

from loopwright.errors import GraphError, InternalError, did_you_mean
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.visitor import Block, blocks, free_vars, post_order, substitute
from loopwright.ir.printer import unique

#: Nodes without a line of their own: they are written where they are read.
_WRITTEN_IN_PLACE = (
    ir.Var,
    ir.Constant,
    ir.GlobalVar,
    ir.OpRef,
    ir.HostFunction,
    ir.Tuple,
    ir.TupleGetItem,
)


def function_text(
    name: str, function: ir.Function, types: Mapping[ir.Expr, ir.Type] | None = None
) -> tuple[str, dict[ir.Expr, int]]:
    """A function as text, with types where known, and the line from 0 of each node that has one."""
    writer = _Writer(types or {})
    writer.open(f"def @{name}", function, 0)
    writer.block(blocks(function.body), 1)
    writer.add("}", 0)
    return "\n".join(writer.lines), writer.line_of


class _Writer:
    def __init__(self, types: Mapping[ir.Expr, ir.Type]) -> None:
        self.lines: list[str] = []
        self.line_of: dict[ir.Expr, int] = {}
        self._types = types
        self._names: dict[ir.Expr, str] = {}
        self._used: set[str] = set()
        self._count = 0

    def add(self, text: str, depth: int, e: ir.Expr | None = None) -> None:
        if e is not None:
            self.line_of[e] = len(self.lines)
            text += f"  /* {self._types[e]} */" if e in self._types else ""
        self.lines.append("  " * depth + text)

    def open(self, head: str, function: ir.Function, depth: int) -> None:
        params = ", ".join(f"{self._named(p)}: {p.type}" for p in function.params)
        result = f" -> {function.result}" if function.result is not None else ""
        attrs = f" [{_attrs(function.attrs)}]" if function.attrs else ""
        self.add(f"{head}({params}){result}{attrs} {{", depth)

    def block(self, block: Block, depth: int) -> None:
        """Write the lines of a block; its value is the last one."""
        bindings = {e.var: e for e in block.nodes if isinstance(e, ir.Let)}
        for e in block.nodes:
            if isinstance(e, ir.Var) and e in bindings:
                self.add(f"let {self._named(e)} = {self._text(bindings[e].value)};", depth, e)
            elif isinstance(e, ir.Let):
                self._names[e] = self._text(e.body)
            elif not isinstance(e, _WRITTEN_IN_PLACE) and e is not block.result:
                name = f"%{self._count}"
                self._count += 1
                self._written(f"{name} = ", e, block, depth, ";")
                self._names[e] = name
        value = block.result
        if value in self._names or isinstance(value, _WRITTEN_IN_PLACE):
            self.add(self._text(value), depth, value)
        else:
            self._written("", value, block, depth, "")

    def _written(self, before: str, e: ir.Expr, block: Block, depth: int, after: str) -> None:
        if isinstance(e, ir.If):
            self.add(f"{before}if ({self._text(e.condition)}) {{", depth, e)
            then, otherwise = block.inner[e]
            self.block(then, depth + 1)
            self.add("} else {", depth)
            self.block(otherwise, depth + 1)
            self.add("}" + after, depth)
        elif isinstance(e, ir.Function):
            self.open(f"{before}fn ", e, depth)
            self.line_of[e] = len(self.lines) - 1
            self.block(block.inner[e][0], depth + 1)
            self.add("}" + after, depth)
        elif isinstance(e, ir.Call):
            args = [*map(self._text, e.args), *([_attrs(e.attrs)] if e.attrs else [])]
            self.add(f"{before}{self._text(e.op)}({', '.join(args)}){after}", depth, e)
        else:
            raise InternalError(f"a graph cannot be printed: {type(e).__name__} has no text")

    def _text(self, e: ir.Expr) -> str:
        if e in self._names:
            return self._names[e]
        match e:
            case ir.Var():
                return self._named(e)
            case ir.Constant(data=a) if a.ndim == 0:
                return f"{a.item()!r}{'' if e.type.dtype == 'float32' else ':' + e.type.dtype}"
            case ir.Constant():
                return f"const[{e.name or 'unnamed'}: {e.type}]"
            case ir.GlobalVar():
                return f"@{e.name}"
            case ir.OpRef():
                return e.name
            case ir.HostFunction():
                return f"host[{e.name} by {e.by}]"
            case ir.TupleGetItem():
                return f"{self._text(e.tuple_value)}.{e.index}"
            case ir.Tuple(fields=(one,)):
                return f"({self._text(one)},)"
            case ir.Tuple():
                return f"({', '.join(map(self._text, e.fields))})"
        raise InternalError(f"{type(e).__name__} is read before it was printed")

    def _named(self, v: ir.Var) -> str:
        if v not in self._names:
            name = f"v{v.name}" if v.name.isdigit() else v.name
            self._names[v] = f"%{unique(name, self._used)}"
        return self._names[v]


def _attrs(attrs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in attrs.items())


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


#: The name of the function that is the whole model.
MAIN = "main"
#: The attribute of ``main`` with the names of its outputs in order, where the model names them.
OUTPUT_NAMES = "output_names"


@dataclass(frozen=True, eq=False)
class IRModule:
    """Functions by name that may call each other; frozen, so that a pass makes another one.

    Raises:
        GraphError: a function reads a variable that it does not bind, or calls one that is missing.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.relu(x))
        >>> print(module)
        def @main(%x: float32[4]) {
          nn.relu(%x)
        }
    """

    functions: Mapping[str, ir.Function]

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", MappingProxyType(dict(self.functions)))
        for name, function in self.functions.items():
            self._check(name, function)

    def _check(self, name: str, function: ir.Function) -> None:
        free = free_vars(function)
        if free:
            names = ", ".join(repr(v.name) for v in free)
            raise GraphError(f"function {name!r} reads {names}, which it does not bind")
        for e in post_order(function):
            if isinstance(e, ir.GlobalVar) and e.name not in self.functions:
                raise GraphError(
                    f"function {name!r} calls {e.name!r}, which the module does not have"
                    f"{did_you_mean(e.name, self.functions)}"
                )

    @classmethod
    def from_expr(
        cls, expr: ir.Expr, functions: Mapping[str, ir.Function] | None = None
    ) -> IRModule:
        """A module whose ``main`` is a function, or an expression over its free variables.

        These become the parameters in the order of their first use. ``functions`` are others.
        """
        main = expr if isinstance(expr, ir.Function) else ir.Function(tuple(free_vars(expr)), expr)
        return cls({MAIN: main, **(functions or {})})

    def __getitem__(self, name: str) -> ir.Function:
        """A function by name; GraphError where there is none."""
        if name not in self.functions:
            raise GraphError(
                f"the module has no function {name!r}{did_you_mean(name, self.functions)}; it has "
                f"{', '.join(self.functions)}"
            )
        return self.functions[name]

    def with_function(self, name: str, function: ir.Function) -> IRModule:
        """The module with one function added or replaced."""
        return IRModule({**self.functions, name: function})

    def with_functions(self, functions: Mapping[str, ir.Function]) -> IRModule:
        """The module with other functions.

        Itself where they are its own: a pass returns it to say that there was nothing to do.
        """
        same = functions.keys() == self.functions.keys()
        same = same and all(f is self.functions[name] for name, f in functions.items())
        return self if same else IRModule(functions)

    def astext(self) -> str:
        """The functions as text, in the manner of Relay's text format."""
        return "\n\n".join(function_text(n, f)[0] for n, f in self.functions.items())

    def __str__(self) -> str:
        return self.astext()


@overload
def bind_params_by_name(model: ir.Function, params: Mapping[str, npt.ArrayLike]) -> ir.Function: ...


@overload
def bind_params_by_name(model: IRModule, params: Mapping[str, npt.ArrayLike]) -> IRModule: ...


def bind_params_by_name(
    model: ir.Function | IRModule, params: Mapping[str, npt.ArrayLike]
) -> ir.Function | IRModule:
    """Replace parameters of a function, or of the ``main`` of a module, by constants.

    The name is that of Relay's function. Parameters without an array remain.

    Raises:
        GraphError: there is no such parameter, several have its name, or the array is of another
            shape or dtype.

    Example:
        >>> x, w = lw.graph.var("x", (1, 4)), lw.graph.var("w", (2, 4))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.dense(x, w))
        >>> bound = lw.graph.bind_params_by_name(module, {"w": np.ones((2, 4), "float32")})
        >>> print([p.name for p in bound["main"].params])
        ['x']
    """
    if isinstance(model, IRModule):
        return model.with_function(MAIN, bind_params_by_name(model[MAIN], params))
    values: dict[ir.Var, ir.Expr] = {}
    for name, array in params.items():
        named = [p for p in model.params if p.name == name]
        if len(named) != 1:
            names = [p.name for p in model.params]
            why = "there is none" if not named else f"there are {len(named)}"
            raise GraphError(
                f"bind_params_by_name: {why} of the name {name!r}{did_you_mean(name, names)}; the "
                f"parameters are {', '.join(names)}"
            )
        value = ir.const(array, name=name)
        if value.type != named[0].type:
            raise GraphError(f"bind_params_by_name: {name!r} is {named[0].type}, got {value.type}")
        values[named[0]] = value
    body = substitute(model.body, values)
    params_left = tuple(p for p in model.params if p not in values)
    return ir.Function(params_left, body, model.result, model.attrs, span=model.span)
