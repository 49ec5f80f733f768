"""Strategies: several implementations of an operator, one of which each kernel is built from.

An operator's own definition is one implementation. Others are registered beside it, each with a
priority, the condition under which it computes the same, and its error bound (`Implementation`).
Without measurements a kernel takes the one of the highest priority; with records of a tuning run,
the fastest. The idea, and ``plevel``, are those of TVM's ``OpStrategy``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from loopwright import te
from loopwright.errors import GraphError, did_you_mean
from loopwright.graph.ir.expr import Attrs
from loopwright.graph.ir.types import tensor_type
from loopwright.graph.registry import Compute, Op, get_op
from loopwright.graph.rounding import computed
from loopwright.lowering.context import PassContext
from loopwright.target import Target

#: The name of the way that an operator is defined, and its priority.
DEFINITION, PLEVEL = "definition", 10
#: The largest error of implementations that are taken, where ``max_error`` says nothing else.
MAX_ERROR = 1e-5

#: Decides about a call by its inputs as tensors, all its attributes, and the target.
Condition = Callable[[Sequence[te.Tensor], Attrs, Target], bool]
Priority = Callable[[Sequence[te.Tensor], Attrs, Target], int]


def _always(_inputs: Sequence[te.Tensor], _attrs: Attrs, _target: Target) -> bool:
    return True


@dataclass(frozen=True, eq=False)
class Implementation:
    """One way to compute an operator.

    Attributes:
        op: the operator.
        name: distinguishes it from others of the operator.
        compute: as of the operator: makes the tensors of a call from its tensors and attributes.
        plevel: its priority, or a function that gives it for a call; that of definitions is 10.
        condition: whether it can compute a call.
        error: the largest distance from the exact result, as a share of the largest result, for
            inputs drawn from normal distributions, beyond that of the definition; 0 where it only
            sums in another order.

    Example:
        >>> found = lw.graph.implementations("nn.conv_channels_last")
        >>> print([(one.name, one.error) for one in found])
        [('definition', 0.0), ('winograd_2x2', 2e-06), ('winograd_4x4', 4e-05)]
    """

    op: str
    name: str
    compute: Compute
    plevel: int | Priority = PLEVEL
    condition: Condition = _always
    error: float = 0.0

    def priority(self, inputs: Sequence[te.Tensor], attrs: Attrs, target: Target) -> int:
        return self.plevel if isinstance(self.plevel, int) else self.plevel(inputs, attrs, target)

    def tensors(self, inputs: Sequence[te.Tensor], attrs: Attrs) -> list[te.Tensor]:
        """The tensors of a call.

        Raises:
            GraphError: they differ from those of the operator in number, shape or dtype.
        """
        found = computed(self.compute, inputs, attrs)
        wanted = get_op(self.op).type_of([tensor_type(t) for t in inputs], attrs)
        types = [tensor_type(t) for t in found]
        if types != list(getattr(wanted, "fields", [wanted])):
            told = ", ".join(map(str, types))
            raise GraphError(
                f"the implementation {self.name!r} of {self.op} makes {told}; the operator makes "
                f"{wanted}"
            )
        return found


@dataclass(frozen=True)
class _Registry:
    implementations: dict[str, dict[str, Implementation]] = field(default_factory=dict)


_REGISTRY = _Registry()


def register_implementation(
    op: str,
    name: str,
    *,
    plevel: int | Priority = PLEVEL,
    condition: Condition = _always,
    error: float = 0.0,
) -> Callable[[Compute], Compute]:
    """Decorate a function over tensors to make it a further way to compute an operator.

    Its parameters are those of the operator. Models that are compiled or tuned later know it.

    Args:
        op: the operator's name.
        name: of the implementation; a later one of a name replaces the earlier one.
        plevel, condition, error: see `Implementation`.

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
        own = _REGISTRY.implementations.setdefault(op, {})
        own[name] = Implementation(op, name, compute, plevel, condition, error)
        return compute

    return register


def implementations(op: str) -> list[Implementation]:
    """The ways to compute an operator: its definition first, then others as they were registered.

    Raises:
        GraphError: there is no such operator.

    Example:
        >>> print([one.name for one in lw.graph.implementations("nn.softmax")])
        ['definition']
    """
    return [_definition(get_op(op)), *_REGISTRY.implementations.get(op, {}).values()]


def remove_implementation(op: str, name: str) -> None:
    """Forget an implementation.

    Raises:
        GraphError: there is none of the name.

    Example:
        >>> lw.graph.remove_implementation("nn.softmax", "fast")
        Traceback (most recent call last):
        loopwright.errors.GraphError: nn.softmax has no implementation 'fast' beside its definition
    """
    own = _REGISTRY.implementations.get(op, {})
    if name not in own:
        hint = did_you_mean(name, own)
        raise GraphError(f"{op} has no implementation {name!r} beside its definition{hint}")
    del own[name]


def _definition(op: Op) -> Implementation:
    return Implementation(op.name, DEFINITION, op.compute)


def applicable(
    op: str, inputs: Sequence[te.Tensor], attrs: Attrs, target: Target
) -> list[Implementation]:
    """The implementations that can compute a call, those of high priority first.

    The definition is always among them. The setting ``max_error`` of the `loopwright.PassContext`
    in force limits their error.
    """
    most = PassContext.current().number("max_error", MAX_ERROR)
    found = [
        one
        for one in implementations(op)
        if one.error <= most and one.condition(inputs, attrs, target)
    ]
    return sorted(found, key=lambda one: -one.priority(inputs, attrs, target))


def is_constant(tensor: te.Tensor) -> bool:
    """Whether a tensor is known before calls: a constant input, or computed from such alone."""
    if not tensor.op.input_tensors:
        return bool(getattr(tensor.op, "constant", False))
    return all(map(is_constant, tensor.op.input_tensors))
