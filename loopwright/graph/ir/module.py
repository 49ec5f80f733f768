"""Modules: functions by name, one of which is the whole model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from loopwright.errors import GraphError, did_you_mean
from loopwright.graph.ir.expr import Expr, Function, GlobalVar
from loopwright.graph.ir.text import function_text
from loopwright.graph.ir.visitor import free_vars, post_order

#: The name of the function that is the whole model.
MAIN = "main"
#: The attribute of ``main`` with the names of its outputs in order, where the model names them.
OUTPUT_NAMES = "output_names"


@dataclass(frozen=True, eq=False)
class IRModule:
    """Functions that may call each other by name; frozen, so that a pass makes another one.

    Args:
        functions: by name.

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

    functions: Mapping[str, Function]

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", MappingProxyType(dict(self.functions)))
        for name, function in self.functions.items():
            self._check(name, function)

    def _check(self, name: str, function: Function) -> None:
        free = free_vars(function)
        if free:
            names = ", ".join(repr(v.name) for v in free)
            raise GraphError(f"function {name!r} reads {names}, which it does not bind")
        for e in post_order(function):
            if isinstance(e, GlobalVar) and e.name not in self.functions:
                raise GraphError(
                    f"function {name!r} calls {e.name!r}, which the module does not have"
                    f"{did_you_mean(e.name, self.functions)}"
                )

    @classmethod
    def from_expr(cls, expr: Expr, functions: Mapping[str, Function] | None = None) -> IRModule:
        """A module whose ``main`` is an expression.

        Args:
            expr: a function, or an expression, whose free variables become the parameters in the
                order of their first use.
            functions: others that it calls.
        """
        main = expr if isinstance(expr, Function) else Function(tuple(free_vars(expr)), expr)
        return cls({MAIN: main, **(functions or {})})

    def __getitem__(self, name: str) -> Function:
        """A function by name; GraphError where there is none."""
        if name not in self.functions:
            raise GraphError(
                f"the module has no function {name!r}{did_you_mean(name, self.functions)}; it has "
                f"{', '.join(self.functions)}"
            )
        return self.functions[name]

    def with_function(self, name: str, function: Function) -> IRModule:
        """The module with one function added or replaced."""
        return IRModule({**self.functions, name: function})

    def with_functions(self, functions: Mapping[str, Function]) -> IRModule:
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
