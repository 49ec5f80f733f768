"""The nodes of a graph and their types: Relay's vocabulary (Roesch et al., 2018) over frozen nodes.

A node is equal to itself alone, variables too (`loopwright.graph.structural_equal` compares
graphs). Nodes are shared freely: walks visit each node once, and none recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from loopwright import dtypes, te
from loopwright.errors import GraphError, shown

#: An extent: a number, or an expression of size variables (`loopwright.te.size_var`).
Size: TypeAlias = "int | te.Expr"
_MOST = 1 << 47  # the address space of a process


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor.

    Raises:
        GraphError: an extent is neither a number from 0 nor an expression.
        TensorError: the dtype is unknown.

    Example:
        >>> print(lw.graph.TensorType((1, 3, 224, 224)))
        float32[1, 3, 224, 224]
    """

    shape: tuple[Size, ...]  #: extents; a scalar has none
    dtype: str = "float32"  #: of the elements

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(_size(n) for n in self.shape))
        object.__setattr__(self, "dtype", dtypes.check(self.dtype))

    @property
    def static(self) -> bool:
        """Whether every extent is a number."""
        return all(isinstance(n, int) for n in self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class TupleType:
    """The type of a tuple of values.

    Example:
        >>> scalar = lw.graph.TensorType((), "int32")
        >>> print(lw.graph.TupleType((scalar, scalar)))
        (int32[], int32[])
    """

    fields: tuple[Type, ...]

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.fields))
        return f"({inner},)" if len(self.fields) == 1 else f"({inner})"


@dataclass(frozen=True)
class FuncType:
    """The type of a function.

    Example:
        >>> scalar = lw.graph.TensorType(())
        >>> print(lw.graph.FuncType((scalar, scalar), scalar))
        fn(float32[], float32[]) -> float32[]
    """

    params: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        return f"fn({', '.join(map(str, self.params))}) -> {self.result}"


#: Types of values in a graph.
Type: TypeAlias = "TensorType | TupleType | FuncType"


def elements(t: TensorType) -> int:
    """The number of elements of a tensor, for one of each extent that is no number."""
    return prod(n for n in t.shape if isinstance(n, int))


def tensor_type(value: te.Tensor | np.ndarray) -> TensorType:
    return TensorType(tuple(value.shape), str(value.dtype))


def _size(n: object) -> Size:
    if isinstance(n, te.Expr):
        return n
    if isinstance(n, (int, np.integer)) and not isinstance(n, bool) and 0 <= n < _MOST:
        return int(n)
    raise GraphError(
        f"an extent of a tensor is {shown(n)}; give a whole number from 0 and below 2**47, or a "
        "loopwright.te.size_var"
    )


Array: TypeAlias = npt.NDArray[Any]
#: Attributes of calls and functions by name.
Attrs: TypeAlias = Mapping[str, Any]
_NOTHING: Attrs = MappingProxyType({})


@dataclass(frozen=True, eq=False, kw_only=True)
class Expr:
    """An expression: any node that has a value."""

    span: str = ""  #: its origin, such as the name of a node of a model; for messages

    #: Fields of children, in order: each an expression, or a tuple of them.
    _inner: ClassVar[tuple[str, ...]] = ()

    @cached_property
    def children(self) -> tuple[Expr, ...]:
        """The expressions of which it is made, in the order in which their types are known.

        So what is called comes after its arguments, and a body after its variables.
        """
        values = (getattr(self, name) for name in self._inner)
        return tuple(e for v in values for e in ((v,) if isinstance(v, Expr) else v))

    def with_children(self, children: tuple[Expr, ...]) -> Expr:
        """The same node over other children; itself where they are the same."""
        if all(a is b for a, b in zip(children, self.children, strict=True)):
            return self
        rest, fields = iter(children), dict[str, Any]()
        for name in self._inner:
            old = getattr(self, name)
            fields[name] = next(rest) if isinstance(old, Expr) else tuple(islice(rest, len(old)))
        return replace(self, **fields)


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """A variable: a parameter of a function, or one that a `Let` binds."""

    name: str  #: as it is printed; it need not be unique
    type: Type | None = None  #: None where a `Let` binds it, whose value has the type


@dataclass(frozen=True, eq=False)
class Constant(Expr):
    """An array that is known."""

    data: Array  #: must not be written
    name: str = ""  #: of the weight, where it has one

    @property
    def type(self) -> TensorType:
        return tensor_type(self.data)


@dataclass(frozen=True, eq=False)
class GlobalVar(Expr):
    """A function of a module by its name."""

    name: str  #: unique in the module


@dataclass(frozen=True, eq=False)
class OpRef(Expr):
    """A registered operator as the callee of a call."""

    name: str  #: as it is registered, such as ``"nn.conv"``


@dataclass(frozen=True, eq=False)
class HostFunction(Expr):
    """A Python function in the place of a function: another library computes what no operator does.

    Passes leave its calls as they are; a call is a separate step of the program.

    Example:
        >>> x = lw.graph.var("x", (3,))
        >>> by = lw.graph.HostFunction("sort", lambda a: [np.sort(a)], x.type, "NumPy", "shown")
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.negative(lw.graph.Call(by, (x,))))
        >>> print(lw.graph.compile(module, "llvm")(np.array([3, 1, 2], "float32"))[0])
        [-1. -2. -3.]
    """

    name: str  #: such as the operator of a node of a model
    function: Callable[..., Sequence[Array]]  #: must not write into its arguments
    result: Type  #: a tuple unless it returns one array
    by: str  #: the library that implements it, such as ``"onnx.reference"``
    reason: str  #: why there is no kernel, for messages


@dataclass(frozen=True, eq=False)
class Call(Expr):
    """The value of an operator or a function for some arguments."""

    #: an `OpRef`, a `GlobalVar`, a `Function`, a `HostFunction`, or a `Var` that is a function
    op: Expr
    args: tuple[Expr, ...]
    attrs: Attrs = field(default_factory=lambda: _NOTHING)  #: missing ones have their defaults
    _inner = ("args", "op")


@dataclass(frozen=True, eq=False)
class Function(Expr):
    """A function.

    Raises:
        GraphError: two parameters are one variable, or one has no type.
    """

    params: tuple[Var, ...]  #: all different, each with a type
    body: Expr
    result: Type | None = None  #: declared; a function that calls itself needs it
    #: such as ``{"primitive": True}`` for a function that becomes one kernel
    attrs: Attrs = field(default_factory=lambda: _NOTHING)
    _inner = ("params", "body")

    def __post_init__(self) -> None:
        if len(set(self.params)) < len(self.params):
            raise GraphError("a function has one variable as two of its parameters; make another")
        for p in self.params:
            _require_var(p)
            if p.type is None:
                raise GraphError(f"parameter {p.name!r} of a function has no type; give it one")

    @property
    def primitive(self) -> bool:
        return bool(self.attrs.get("primitive", False))

    def type_with(self, result: Type) -> FuncType:
        """The type it has if it returns ``result``."""
        return FuncType(tuple(p.type for p in self.params if p.type is not None), result)


@dataclass(frozen=True, eq=False)
class Tuple(Expr):
    """Several values as one."""

    fields: tuple[Expr, ...]
    _inner = ("fields",)


@dataclass(frozen=True, eq=False)
class TupleGetItem(Expr):
    """One of the values of a tuple, by its index from 0.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> best = lw.graph.TupleGetItem(lw.graph.op.topk(x, k=2), 0)
        >>> print(lw.graph.infer_types(lw.graph.IRModule.from_expr(best))[best])
        float32[2]
    """

    tuple_value: Expr
    index: int
    _inner = ("tuple_value",)


@dataclass(frozen=True, eq=False)
class Let(Expr):
    """A body in which a variable has a value.

    Example:
        >>> x, twice = lw.graph.var("x", (4,)), lw.graph.Var("twice")
        >>> e = lw.graph.Let(twice, lw.graph.op.add(x, x), lw.graph.op.exp(twice))
        >>> print([v.name for v in lw.graph.free_vars(e)])
        ['x']
    """

    var: Var
    value: Expr  #: in which the variable does not occur
    body: Expr  #: where it may occur
    _inner = ("value", "var", "body")

    def __post_init__(self) -> None:
        _require_var(self.var)


@dataclass(frozen=True, eq=False)
class If(Expr):
    """One of two values; the other is not computed."""

    condition: Expr  #: a tensor of type bool and no dimensions
    then: Expr
    otherwise: Expr
    _inner = ("condition", "then", "otherwise")


def _require_var(e: Expr) -> None:
    if not isinstance(e, Var):
        raise GraphError(f"a {type(e).__name__} stands where a variable is bound; put a Var there")


def var(name: str, shape: tuple[Any, ...] | Type = (), dtype: str = "float32") -> Var:
    """A variable with a type; ``shape`` is that of a tensor, or any type.

    Example:
        >>> x = lw.graph.var("x", (1, 8))
        >>> print(x.name, x.type)
        x float32[1, 8]
    """
    return Var(name, TensorType(shape, dtype) if isinstance(shape, tuple) else shape)


def _is_of_bytes(value: object) -> bool:
    """Whether an array lies in a ``bytes``, so that nobody can write it."""
    while isinstance(value, np.ndarray) and not value.flags.writeable:
        value = value.base
    return isinstance(value, bytes)


def const(value: Any, dtype: str | None = None, name: str = "") -> Constant:
    """A constant from a copy of anything that NumPy makes an array of; ``name`` is of the weight.

    Without a dtype, Python's numbers with a fraction become float32; arrays keep theirs.

    Raises:
        TensorError: the dtype is not supported.

    Example:
        >>> print(lw.graph.const([1.0, 2.0]).type)
        float32[2]
    """
    if dtype is None and not hasattr(value, "dtype"):
        default = np.asarray(value)
        dtype = {"float64": "float32"}.get(default.dtype.name, default.dtype.name)
    wanted = None if dtype is None else np.dtype(dtype)
    # Weights from a file are not copied, since that takes a third of the time of its import.
    if _is_of_bytes(value):
        array = np.require(value, wanted, ["C", "ALIGNED", "ENSUREARRAY"])
    else:
        array = np.array(value, wanted, order="C")
    tensor_type(array)
    array.flags.writeable = False
    return Constant(array, name)
