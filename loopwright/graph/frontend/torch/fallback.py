"""Calls that have no converter, computed by PyTorch.

A call becomes a Python function that is a step of the program of its own. What no program holds,
such as complex numbers, is computed again where something is made of it that one does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright.graph.frontend.torch.arrays import Array, as_array, as_tensor, torch_package
from loopwright.graph.ir.expr import Call, Expr, HostFunction, TupleGetItem
from loopwright.graph.ir.types import TensorType, TupleType

#: Who computes what falls back.
BY = "PyTorch"


@dataclass(frozen=True, eq=False)
class Deferred:
    """A value that PyTorch computes from tensors.

    Attributes:
        names: the calls that make it, the last one last.
        reads: expressions that it is computed from.
        value: from their tensors to the value.
        reason: why it has no kernel.
    """

    names: tuple[str, ...]
    reads: tuple[Expr, ...]
    value: Callable[[Mapping[Expr, Any]], Any]
    reason: str


def leaves_of(value: Any) -> list[Any]:
    """The values in lists, tuples, dictionaries and slices, in order."""
    if isinstance(value, (list, tuple)):
        return [leaf for v in value for leaf in leaves_of(v)]
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in leaves_of(v)]
    return [value]


def deferred_call(
    label: str, target: Callable[..., Any], args: Any, kwargs: Any, reason: str
) -> Deferred:
    """A call over expressions and values that PyTorch computes.

    Args:
        label: what it is, for people.
        target: the function of PyTorch.
        args: arguments by position; expressions and `Deferred` stand where tensors do.
        kwargs: the others.
        reason: why it has no kernel.
    """
    leaves = leaves_of([args, kwargs])
    inner = [leaf for leaf in leaves if isinstance(leaf, Deferred)]
    own = [leaf for leaf in leaves if isinstance(leaf, Expr)]
    reads = dict.fromkeys([*(e for d in inner for e in d.reads), *own])
    names = dict.fromkeys([*(n for d in inner for n in d.names), label])
    first = next((d.reason for d in inner), reason)

    def value(tensors: Mapping[Expr, Any]) -> Any:
        return target(*_filled(args, tensors), **_filled(kwargs, tensors))

    return Deferred(tuple(names), tuple(reads), value, first)


def part_of(whole: Deferred, index: int) -> Deferred:
    """One of several values that PyTorch computes together."""
    return Deferred(whole.names, whole.reads, lambda env: whole.value(env)[index], whole.reason)


def _filled(value: Any, tensors: Mapping[Expr, Any]) -> Any:
    if isinstance(value, Expr):
        return tensors[value]
    if isinstance(value, Deferred):
        return value.value(tensors)
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(v, tensors) for v in value)
    if isinstance(value, dict):
        return {k: _filled(v, tensors) for k, v in value.items()}
    return value


def as_step(deferred: Deferred, results: Sequence[TensorType | None], several: bool) -> Any:
    """What PyTorch computes as a step of the program.

    Args:
        deferred: the value.
        results: the types of its tensors.
        several: whether it is a list of tensors rather than one.

    Returns:
        An expression, or a list of them; the value itself where no program holds its tensors.
    """
    types = [t for t in results if t is not None]
    if len(types) < len(results) or not types:
        return deferred
    result = TupleType(tuple(types)) if several else types[0]
    label = " > ".join(deferred.names)
    host = HostFunction(
        deferred.names[-1].partition(" ")[0],
        _function(deferred, several),
        result,
        BY,
        deferred.reason,
        span=label,
    )
    call = Call(host, deferred.reads, span=label)
    return [TupleGetItem(call, n) for n in range(len(types))] if several else call


def _function(deferred: Deferred, several: bool) -> Callable[..., list[Array]]:
    torch = torch_package()

    def run(*arrays: Array) -> list[Array]:
        with torch.no_grad():
            tensors = dict(zip(deferred.reads, map(as_tensor, arrays), strict=True))
            found = deferred.value(tensors)
        return [as_array(t) for t in (found if several else [found])]

    return run
