"""Operators of graphs as registered data: their inputs, computation, fusion, implementations.

An operator is one function over tensors, with its inputs by position and its attributes by keyword;
the type of a call is that of its expression. Other implementations stand beside that definition,
each with a priority, a condition and an error bound, as in TVM's ``OpStrategy``: a kernel takes the
one of the highest priority, with records the fastest.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from loopwright import te
from loopwright.errors import GraphError, LoopwrightError, did_you_mean, shown
from loopwright.graph.ir import expr as ir
from loopwright.graph.rounding import computed
from loopwright.lowering import PassContext
from loopwright.target import Target

#: Computation of an operator: tensors and attributes to one tensor, or several.
Compute = Callable[..., "te.Tensor | Sequence[te.Tensor]"]
_REQUIRED = inspect.Parameter.empty


class Pattern(enum.IntEnum):
    """Fusion behaviour of an operator; the names and the order are Relay's.

    Example:
        >>> print(lw.graph.get_op("add").pattern < lw.graph.Pattern.INJECTIVE)
        True
    """

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    OUT_ELEMENTWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


@dataclass(frozen=True, eq=False)
class Op:
    """A registered operator.

    Example:
        >>> op = lw.graph.get_op("nn.softmax")
        >>> print(op.inputs, dict(op.attrs), op.pattern.name)
        ('data',) {'axis': -1} OPAQUE
    """

    name: str  #: such as ``"nn.conv"``
    pattern: Pattern  #: how it fuses
    compute: Compute  #: makes the tensors of a call from its tensors and attributes
    inputs: tuple[str, ...]  #: names of its inputs
    optional: int  #: number of inputs, the last ones, that may be left out
    variadic: bool  #: whether any number of tensors may follow the inputs
    attrs: ir.Attrs  #: with their defaults; ``inspect.Parameter.empty`` where there is none
    summary: str  #: what it computes, in one line

    def __call__(self, *args: Any, span: str = "", **attrs: Any) -> ir.Call:
        """A call of the operator; arrays and numbers among ``args`` become constants.

        Raises:
            GraphError: too few or too many inputs, an attribute that is unknown or missing, or of a
                type that no attribute has.
        """
        self._check_count(len(args))
        exprs = tuple(a if isinstance(a, ir.Expr) else ir.const(a) for a in args)
        return ir.Call(ir.OpRef(self.name), exprs, self.complete(attrs), span=span)

    def _check_count(self, count: int) -> None:
        least, most = len(self.inputs) - self.optional, len(self.inputs)
        if count < least or (count > most and not self.variadic):
            wanted = f"{least} or more" if self.variadic else f"{least} to {most}"
            wanted = str(most) if least == most and not self.variadic else wanted
            raise GraphError(f"{self.name} takes {wanted} inputs, got {count}")

    def complete(self, attrs: Mapping[str, Any]) -> ir.Attrs:
        """The given attributes, and defaults for the others; GraphError as of `__call__`."""
        for name in attrs:
            if name not in self.attrs:
                hint = did_you_mean(name, self.attrs)
                raise GraphError(
                    f"{self.name} has no attribute {name!r}{hint}; it has "
                    f"{', '.join(self.attrs) or 'none'}"
                )
        values = {name: attrs.get(name, default) for name, default in self.attrs.items()}
        missing = [name for name, value in values.items() if value is _REQUIRED]
        if missing:
            raise GraphError(f"{self.name} needs the attribute {', '.join(missing)}")
        plain = {n: _plain(self.name, n, v) for n, v in values.items()}
        for name, value in plain.items():
            fits = self._checks.get(name)
            if fits is not None and not fits(value):
                raise GraphError(
                    f"{self.name}: attribute {name!r} is {shown(value)}; give "
                    f"{inspect.signature(self.compute).parameters[name].annotation}"
                )
        return MappingProxyType(plain)

    @cached_property
    def _checks(self) -> Mapping[str, Callable[[Any], bool] | None]:
        """Predicates of attributes, by the types that the computation declares, where known."""
        try:
            return {name: _fitting(h) for name, h in get_type_hints(self.compute).items()}
        except (NameError, TypeError):  # of a function that is not ours
            return {}

    def tensors(self, args: Sequence[te.Tensor], attrs: ir.Attrs) -> list[te.Tensor]:
        """The tensors of a call with all attributes; 16-bit results are rounded once."""
        return computed(self.compute, args, attrs)

    def type_of(self, args: Sequence[ir.Type], attrs: ir.Attrs) -> ir.Type:
        """The type of a call; GraphError where the operator takes no such arguments."""
        self._check_count(len(args))
        for n, t in enumerate(args):
            if not isinstance(t, ir.TensorType):
                raise GraphError(f"{self.name} takes tensors, but input {n} is {t}")
        return _type_of(self, tuple(args), tuple(sorted(attrs.items())))


@lru_cache(maxsize=1 << 14)
def _type_of(
    op: Op, args: tuple[ir.TensorType, ...], attrs: tuple[tuple[str, Any], ...]
) -> ir.Type:
    inputs = [te.placeholder(t.shape, t.dtype, name=f"x{n}") for n, t in enumerate(args)]
    try:
        outputs = op.compute(*inputs, **dict(attrs))
    except LoopwrightError as exc:
        text = " ".join(str(exc).split())
        raise GraphError(f"{op.name}({', '.join(map(str, args))}): {text}") from exc
    if isinstance(outputs, te.Tensor):
        return ir.tensor_type(outputs)
    return ir.TupleType(tuple(ir.tensor_type(t) for t in outputs))


def _plain(op: str, name: str, value: Any) -> Any:
    """An attribute as data: numbers, text, None, and tuples of such."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(_plain(op, name, v) for v in value)
    raise GraphError(
        f"{op}: attribute {name!r} is {value!r:.60}; give numbers, text, or lists of them"
    )


#: Types of values that fit a hint; 0 and 1 may stand for a bool.
_KINDS: dict[Any, tuple[type, ...]] = {
    bool: (int,), int: (int,), float: (int, float), str: (str,), NoneType: (NoneType,)
}  # fmt: skip


def _fitting(hint: Any) -> Callable[[Any], bool] | None:
    """Whether an attribute has the type that is declared for it; None: any value has."""
    if hint in _KINDS:
        kinds = _KINDS[hint]
        return lambda value: isinstance(value, kinds)
    inner = [_fitting(one) for one in get_args(hint)]
    checks = [fits for fits in inner if fits is not None]
    if get_origin(hint) in (Union, UnionType) and len(checks) == len(inner):
        return lambda value: any([fits(value) for fits in checks])
    if get_origin(hint) is Sequence:
        return lambda value: isinstance(value, tuple) and all(f(v) for f in checks for v in value)
    return None


_OPS: dict[str, Op] = {}
#: By operator, then by name, without definitions.
_IMPLEMENTATIONS: dict[str, dict[str, Implementation]] = {}
#: Computations as the workloads of `loopwright.ops` write them, where definitions differ.
_WORKLOAD_FORMS: dict[str, Compute] = {}


def register_op(name: str, pattern: Pattern) -> Callable[[Compute], Op]:
    """Decorate a function over tensors to make it an `Op`: called with expressions, it makes calls.

    Raises:
        GraphError: another function has the name.

    Example:
        >>> @lw.graph.register_op("example.double", lw.graph.Pattern.ELEMENTWISE)
        ... def double(data):
        ...     "Twice the data."
        ...     return te.compute(data.shape, lambda *i: data(*i) * 2, name="double")
        ...
        >>> x = lw.graph.var("x", (4,))
        >>> print(lw.graph.IRModule.from_expr(double(x)))
        def @main(%x: float32[4]) {
          example.double(%x)
        }
        >>> lw.graph.remove_op("example.double")
    """

    def register(function: Compute) -> Op:
        before = _OPS.get(name)
        if before is not None and _origin(before.compute) != _origin(function):
            raise GraphError(f"an operator {name!r} is registered already; choose another name")
        parameters = inspect.signature(function).parameters.values()
        by_position = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        _OPS[name] = Op(
            name,
            pattern,
            function,
            inputs=tuple(p.name for p in by_position),
            optional=sum(p.default is not _REQUIRED for p in by_position),
            variadic=any(p.kind is p.VAR_POSITIONAL for p in parameters),
            attrs=MappingProxyType(
                {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
            ),
            summary=(inspect.getdoc(function) or "").partition("\n")[0],
        )
        return _OPS[name]

    return register


def _origin(function: Compute) -> tuple[object, object]:
    """Equal for definitions of one function that were run one after the other."""
    code = getattr(function, "__code__", None)
    return getattr(function, "__qualname__", None), code and code.co_filename


def get_op(name: str) -> Op:
    """The operator of a name; GraphError, with the nearest name, where there is none.

    Example:
        >>> print(lw.graph.get_op("add").summary)
        The sum of two tensors, broadcast.
    """
    if name not in _OPS:
        raise GraphError(f"there is no operator {name!r}{did_you_mean(name, _OPS)}")
    return _OPS[name]


def op_names() -> list[str]:
    """The names of all operators, sorted.

    Example:
        >>> print("nn.conv" in lw.graph.op_names())
        True
    """
    return sorted(_OPS)


def remove_op(name: str) -> None:
    """Forget an operator; GraphError where there is none of the name.

    Example:
        >>> same = lambda data: te.compute(data.shape, lambda *i: data(*i), name="same")
        >>> _ = lw.graph.register_op("example.same", lw.graph.Pattern.ELEMENTWISE)(same)
        >>> lw.graph.remove_op("example.same")
        >>> print("example.same" in lw.graph.op_names())
        False
    """
    get_op(name)
    del _OPS[name]


#: The name of the way that an operator is defined, and its priority.
DEFINITION, PLEVEL = "definition", 10
#: The largest error of implementations that are taken, where ``max_error`` says nothing else.
MAX_ERROR = 1e-5

#: Decides about a call by its inputs as tensors, all its attributes, and the target.
Condition = Callable[[Sequence[te.Tensor], ir.Attrs, Target], bool]
Priority = Callable[[Sequence[te.Tensor], ir.Attrs, Target], int]


def _always(_inputs: Sequence[te.Tensor], _attrs: ir.Attrs, _target: Target) -> bool:
    return True


@dataclass(frozen=True, eq=False)
class Implementation:
    """One way to compute an operator.

    Example:
        >>> found = lw.graph.implementations("nn.conv_channels_last")
        >>> print([(one.name, one.error) for one in found])
        [('definition', 0.0), ('winograd_2x2', 2e-06), ('winograd_4x4', 4e-05)]
    """

    op: str
    name: str  #: distinguishes it from others of the operator
    compute: Compute  #: as of the operator
    plevel: int | Priority = PLEVEL  #: or a function that gives it for a call
    condition: Condition = _always  #: whether it can compute a call
    #: the largest distance from the exact result, as a share of the largest result, for inputs
    #: drawn from normal distributions, beyond that of the definition; 0 where it only sums in
    #: another order
    error: float = 0.0

    def priority(self, inputs: Sequence[te.Tensor], attrs: ir.Attrs, target: Target) -> int:
        return self.plevel if isinstance(self.plevel, int) else self.plevel(inputs, attrs, target)

    def tensors(self, inputs: Sequence[te.Tensor], attrs: ir.Attrs) -> list[te.Tensor]:
        """The tensors of a call; GraphError where number, shape or dtype are not the operator's."""
        outputs = computed(self.compute, inputs, attrs)
        wanted = get_op(self.op).type_of([ir.tensor_type(t) for t in inputs], attrs)
        types = [ir.tensor_type(t) for t in outputs]
        if types != list(getattr(wanted, "fields", [wanted])):
            names = ", ".join(map(str, types))
            raise GraphError(
                f"the implementation {self.name!r} of {self.op} makes {names}; the operator makes "
                f"{wanted}"
            )
        return outputs


def register_implementation(
    op: str,
    name: str,
    *,
    plevel: int | Priority = PLEVEL,
    condition: Condition = _always,
    error: float = 0.0,
) -> Callable[[Compute], Compute]:
    """Decorate a function over tensors to make it a further way to compute an operator.

    Its parameters are those of the operator. Models that are compiled or tuned later know it. A
    later one of a name replaces the earlier one. ``plevel``, ``condition`` and ``error`` are those
    of `Implementation`.

    Raises:
        GraphError: there is no such operator, or the name is that of definitions.

    Example:
        >>> @lw.graph.register_implementation("nn.relu", "by_select", plevel=5)
        ... def by_select(data):
        ...     zero = te.const(0, data.dtype)
        ...     positive = lambda *i: te.select(data(*i) > zero, data(*i), zero)
        ...     return te.compute(data.shape, positive, name="relu")
        ...
        >>> print([one.name for one in lw.graph.implementations("nn.relu")])
        ['definition', 'by_select']
        >>> lw.graph.remove_implementation("nn.relu", "by_select")
    """
    get_op(op)
    if name == DEFINITION:
        raise GraphError(f"{name!r} is what {op} is defined by; choose another name")

    def register(compute: Compute) -> Compute:
        own = _IMPLEMENTATIONS.setdefault(op, {})
        own[name] = Implementation(op, name, compute, plevel, condition, error)
        return compute

    return register


def register_workload_form(op: str, compute: Compute) -> None:
    """Let records of a workload serve kernels of one call, which ``compute`` writes as it does."""
    _WORKLOAD_FORMS[op] = compute


def workload_form(op: str) -> Implementation | None:
    """An operator as workloads write it; None where that is its definition."""
    compute = _WORKLOAD_FORMS.get(op)
    return None if compute is None else Implementation(op, "workload", compute)


def implementations(op: str) -> list[Implementation]:
    """The ways to compute an operator: its definition first, then others as they were registered.

    GraphError where there is no such operator.

    Example:
        >>> print([one.name for one in lw.graph.implementations("nn.softmax")])
        ['definition']
    """
    definition = Implementation(op, DEFINITION, get_op(op).compute)
    return [definition, *_IMPLEMENTATIONS.get(op, {}).values()]


def remove_implementation(op: str, name: str) -> None:
    """Forget an implementation; GraphError where there is none of the name.

    Example:
        >>> lw.graph.remove_implementation("nn.softmax", "fast")
        Traceback (most recent call last):
        loopwright.errors.GraphError: nn.softmax has no implementation 'fast' beside its definition
    """
    own = _IMPLEMENTATIONS.get(op, {})
    if name not in own:
        hint = did_you_mean(name, own)
        raise GraphError(f"{op} has no implementation {name!r} beside its definition{hint}")
    del own[name]


def applicable(
    op: str, inputs: Sequence[te.Tensor], attrs: ir.Attrs, target: Target
) -> list[Implementation]:
    """The implementations of a call within ``max_error`` of the `PassContext`, by priority."""
    most = PassContext.current().number("max_error", MAX_ERROR)
    fitting = [
        one
        for one in implementations(op)
        if one.error <= most and one.condition(inputs, attrs, target)
    ]
    return sorted(fitting, key=lambda one: -one.priority(inputs, attrs, target))


def is_constant(tensor: te.Tensor) -> bool:
    """Whether a tensor is known before calls: a constant input, or computed from such alone."""
    if not tensor.op.input_tensors:
        return bool(getattr(tensor.op, "constant", False))
    return all(map(is_constant, tensor.op.input_tensors))
