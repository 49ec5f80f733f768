"""Type inference for all nodes of a module; errors show the program around the fault."""

from __future__ import annotations

from typing import TypeGuard

from loopwright.errors import GraphError, InternalError
from loopwright.graph.ir import expr as ir
from loopwright.graph.ir.module import IRModule, function_text
from loopwright.graph.ir.visitor import post_order
from loopwright.graph.registry import get_op

#: Lines of the program that a message shows before the one that is wrong.
_LINES_BEFORE = 3
#: Functions that call each other in a chain, at most: inference follows it.
_MOST_CALLS = 200


def infer_types(module: IRModule) -> dict[ir.Expr, ir.Type]:
    """The type of every node of a module; called functions have one, operators do not.

    Raises:
        GraphError: an operator does not take its arguments, a function is called with others than
            it declares, a function that calls itself does not declare its result, an index leaves
            its tuple, or a condition is no bool. The message shows the place in the program.

    Example:
        >>> x, w = lw.graph.var("x", (4, 8)), lw.graph.var("w", (16, 8))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.dense(x, w))
        >>> print(lw.graph.infer_types(module)[module["main"]])
        fn(float32[4, 8], float32[16, 8]) -> float32[4, 16]
    """
    inference = _Inference(module)
    for name in module.functions:
        inference.function(name)
    return inference.types


class Types:
    """Types of the nodes of a module, and of nodes made from them, inferred on demand.

    Calls of operators and Python functions, constants, tuples and their parts may be new.
    """

    def __init__(self, module: IRModule) -> None:
        self._inference = _Inference(IRModule({}))
        self._known = self._inference.types = infer_types(module)

    def __getitem__(self, e: ir.Expr) -> ir.Type:
        waiting = [] if e in self._known else [e]
        while waiting:
            at = waiting[-1]
            unknown = [c for c in at.children if c not in self._known and not _is_untyped(c)]
            if not unknown:
                self._known[at] = self._inference.type_of(waiting.pop())
            waiting += unknown
        return self._known[e]

    def tensor(self, e: ir.Expr) -> ir.TensorType:
        """The type of an expression that is a tensor; GraphError where it is something else."""
        t = self[e]
        if not isinstance(t, ir.TensorType):
            raise GraphError(f"a tensor is needed, got {t}")
        return t

    def keep(self, e: ir.Expr, t: ir.Type) -> None:
        """Enter the type of an expression that replaces one of that type."""
        self._known[e] = t


def _is_untyped(e: ir.Expr) -> TypeGuard[ir.OpRef | ir.HostFunction]:
    """Whether a node is called without having a type itself."""
    return isinstance(e, (ir.OpRef, ir.HostFunction))


class _Inference:
    def __init__(self, module: IRModule) -> None:
        self.types: dict[ir.Expr, ir.Type] = {}
        self._module = module
        self._begun: list[str] = []
        self._bound: dict[ir.Var, ir.Expr] = {}

    def function(self, name: str) -> ir.FuncType:
        function = self._module[name]
        before = self.types.get(function)
        if before is not None:
            assert isinstance(before, ir.FuncType)
            return before
        if name in self._begun:
            if function.result is None:
                chain = " -> ".join(f"@{n}" for n in [*self._begun, name])
                raise GraphError(f"{chain}: a function that calls itself must declare its result")
            return function.type_with(function.result)
        if len(self._begun) == _MOST_CALLS:
            raise GraphError(f"more than {_MOST_CALLS} functions call each other in a chain")
        self._begun.append(name)
        nodes = post_order(function)
        self._bound.update({e.var: e.value for e in nodes if isinstance(e, ir.Let)})
        for e in nodes:
            if e in self.types or _is_untyped(e):
                continue
            try:
                self.types[e] = self.type_of(e)
            except GraphError as exc:
                if isinstance(e, ir.GlobalVar):  # what is wrong there was told with its place
                    raise
                raise GraphError(self._placed(name, e, str(exc))) from exc
        self._begun.pop()
        t = self.types[function]
        assert isinstance(t, ir.FuncType)
        return t

    def type_of(self, e: ir.Expr) -> ir.Type:
        """The type of a node whose children's types are known."""
        values = e.args if isinstance(e, ir.Call) else e.children
        untyped = next((c for c in values if _is_untyped(c)), None)
        if untyped is not None:
            raise GraphError(
                f"operator {untyped.name!r} stands where a value is needed; only a call names one"
            )
        match e:
            case ir.Var():
                return self._variable(e)
            case ir.Constant():
                return e.type
            case ir.GlobalVar():
                return self.function(e.name)
            case ir.Tuple():
                return ir.TupleType(tuple(self.types[f] for f in e.fields))
            case ir.TupleGetItem():
                return self._item(e)
            case ir.Let():
                return self.types[e.body]
            case ir.If():
                return self._branches(e)
            case ir.Function():
                body = self.types[e.body]
                if e.result is not None and e.result != body:
                    raise GraphError(f"the function declares {e.result}, but returns {body}")
                return e.type_with(body)
            case ir.Call():
                return self._call(e)
        raise InternalError(f"{type(e).__name__} has no type rule")

    def _variable(self, e: ir.Var) -> ir.Type:
        bound = self._bound.get(e)
        value = None if bound is None else self.types.get(bound)
        if value is None and bound is not None:
            raise GraphError(f"variable {e.name!r} is read where its value is not known yet")
        declared = value if e.type is None else e.type
        if declared is None:
            raise GraphError(f"variable {e.name!r} has no type; give it one")
        if value is not None and declared != value:
            raise GraphError(f"variable {e.name!r} declares {declared}, but its value is {value}")
        return declared

    def _item(self, e: ir.TupleGetItem) -> ir.Type:
        whole = self.types[e.tuple_value]
        if not isinstance(whole, ir.TupleType):
            raise GraphError(f"part {e.index} is asked of {whole}, which is no tuple")
        if not 0 <= e.index < len(whole.fields):
            raise GraphError(f"part {e.index} is asked of {whole}, from 0")
        return whole.fields[e.index]

    def _branches(self, e: ir.If) -> ir.Type:
        condition, then, other = (self.types[c] for c in e.children)
        if condition != ir.TensorType((), "bool"):
            raise GraphError(f"a condition is bool[], got {condition}")
        if then != other:
            raise GraphError(f"the branches differ: {then} and {other}")
        return then

    def _call(self, e: ir.Call) -> ir.Type:
        args = [self.types[a] for a in e.args]
        if isinstance(e.op, ir.OpRef):
            op = get_op(e.op.name)
            return op.type_of(args, op.complete(e.attrs))
        if isinstance(e.op, ir.HostFunction):
            return e.op.result
        callee = self.types[e.op]
        if not isinstance(callee, ir.FuncType):
            raise GraphError(f"{callee} is called, which is no function")
        if list(callee.params) != args:
            types = ", ".join(map(str, args))
            raise GraphError(f"{callee} is called with ({types})")
        return callee.result

    def _placed(self, name: str, e: ir.Expr, text: str) -> str:
        """A message with the lines of the program around a node."""
        program, line_of = function_text(name, self._module[name], self.types)
        where = f" ({e.span})" if e.span else ""
        if e not in line_of:
            return f"in @{name}{where}: {text}"
        at, lines = line_of[e], program.split("\n")
        first = max(0, at - _LINES_BEFORE)
        shown = [f"  {line}" for line in lines[first:at]] + [f"> {lines[at]}"]
        return f"in @{name}{where}: {text}\n" + "\n".join(shown)
