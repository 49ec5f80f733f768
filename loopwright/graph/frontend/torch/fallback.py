"""Calls that have no converter, computed by PyTorch.

A call becomes a Python function that is a step of the program of its own. It sees tensors in the
memory that eager PyTorch would have given them. Tensors of dtypes that programs do not have, such
as complex ones, are bytes there; what no program holds at all, because its size depends on data, is
computed again where something is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loopwright.graph.frontend.torch.arrays import (
    Array,
    as_array,
    as_bytes,
    as_tensor,
    dtype_of,
    is_tensor,
    torch_package,
)
from loopwright.graph.frontend.torch.memory import Memory
from loopwright.graph.ir.expr import Call, Expr, HostFunction, TupleGetItem
from loopwright.graph.ir.types import TensorType, TupleType

#: Who computes what falls back.
BY = "PyTorch"
#: What a step gives whose place among others counts: the next of them reads it.
_DONE = np.zeros(1, "uint8")
_TURN = TensorType((1,), "uint8")


@dataclass(frozen=True, eq=False)
class Carried:
    """A tensor of a dtype that programs do not have.

    Attributes:
        expr: the bytes of its elements, in order.
        memory: its shape and dtype.
    """

    expr: Expr
    memory: Memory

    def tensor(self, elements: Any) -> Any:
        """The tensor that shares the memory of its bytes."""
        return elements.view(self.memory.dtype).view(self.memory.shape)


@dataclass(frozen=True, eq=False)
class Read:
    """A tensor that a call reads, as it lies in memory.

    Attributes:
        value: what made its storage.
        base: the layout of that.
        memory: its own, from the beginning of that on.
    """

    value: Expr | Carried
    base: Memory
    memory: Memory

    @property
    def expr(self) -> Expr:
        """The values that it reads."""
        return self.value.expr if isinstance(self.value, Carried) else self.value

    def tensor(self, tensors: Mapping[Expr, Any]) -> Any:
        """The tensor, of the elements of what is read."""
        elements = tensors[self.expr]
        if isinstance(self.value, Carried):
            elements = self.value.tensor(elements)
        return self.memory.of_base(self.base.filled(elements))


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
    """A call over tensors and values that PyTorch computes.

    Args:
        label: what it is, for people.
        target: the function of PyTorch.
        args: arguments by position; `Read` and `Deferred` stand where tensors do.
        kwargs: the others.
        reason: why it has no kernel.
    """
    leaves = leaves_of([args, kwargs])
    inner = [leaf for leaf in leaves if isinstance(leaf, Deferred)]
    own = [leaf.expr for leaf in leaves if isinstance(leaf, Read)]
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
    if isinstance(value, Read):
        return value.tensor(tensors)
    if isinstance(value, Deferred):
        return value.value(tensors)
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(v, tensors) for v in value)
    if isinstance(value, dict):
        return {k: _filled(v, tensors) for k, v in value.items()}
    return value


def held_type(tensor: Any) -> TensorType | None:
    """The type of the value by which a program holds a tensor; None where it holds none.

    Args:
        tensor: it, or a fake one.
    """
    memory = Memory.of(tensor)
    if memory is None or tensor.device.type != "cpu" or 0 in memory.shape:
        return None
    dtype = dtype_of(tensor)
    if dtype is not None:
        return TensorType(memory.shape, dtype)
    return TensorType((tensor.numel() * tensor.dtype.itemsize,), "uint8")


def held(e: Expr, tensor: Any) -> Expr | Carried:
    """A value of a program as the tensor that it holds, of which a fake one is known."""
    memory = Memory.of(tensor)
    return e if dtype_of(tensor) is not None or memory is None else Carried(e, memory)


def is_empty(value: Any) -> bool:
    """Whether a value is a tensor that is known to have no elements, which nobody computes."""
    memory = Memory.of(value)
    return memory is not None and 0 in memory.shape


def elements_of(tensor: Any) -> Array:
    """The elements of a tensor, as a program holds them."""
    return as_bytes(tensor) if dtype_of(tensor) is None else as_array(tensor)


def as_step(
    deferred: Deferred, results: Sequence[Any], several: bool, turn: Turn | None = None
) -> Any:
    """What PyTorch computes as a step of the program.

    Args:
        deferred: the value.
        results: its tensors, fake ones.
        several: whether it is a list of tensors rather than one.
        turn: of a step whose place among others counts: it draws random numbers, or may fail.

    Returns:
        What holds the tensor, or a list; the value itself where no program holds its tensors.
    """
    tensors = [is_tensor(t) and not is_empty(t) for t in results]
    types = [held_type(t) for t, made in zip(results, tensors, strict=True) if made]
    known = [t for t in types if t is not None]
    if len(known) < len(types) or not (known or turn):
        return deferred
    if turn is not None:
        known.append(_TURN)
    one = len(known) == 1
    label = " > ".join(deferred.names)
    host = HostFunction(
        deferred.names[-1].partition(" ")[0],
        _function(deferred, several, tensors, turn is not None),
        known[0] if one else TupleType(tuple(known)),
        BY,
        deferred.reason,
        span=label,
    )
    call = Call(host, deferred.reads if turn is None else turn.behind(deferred.reads), span=label)
    parts = [call] if one else [TupleGetItem(call, n) for n in range(len(known))]
    if turn is not None:
        turn.last = parts.pop()
    places = iter(parts)
    found = [
        held(next(places), t) if made else _empty_like(t)
        for t, made in zip(results, tensors, strict=True)
    ]
    return found if several else found[0]


class Turn:
    """The order of steps that random numbers, or errors, tie to each other.

    Attributes:
        last: what the last one gives; None before the first.
    """

    def __init__(self) -> None:
        self.last: Expr | None = None

    def behind(self, reads: Sequence[Expr]) -> tuple[Expr, ...]:
        """The token that the next step reads, so that it runs behind the last one."""
        return (*reads,) if self.last is None else (*reads, self.last)


def _empty_like(value: Any) -> Any:
    """A tensor without elements, of which a fake one is known; what is no tensor is None."""
    memory = Memory.of(value)
    return None if memory is None else memory.empty()


def _function(
    deferred: Deferred, several: bool, tensors: Sequence[bool], turn: bool
) -> Callable[..., list[Array]]:
    torch = torch_package()

    def run(*arrays: Array) -> list[Array]:
        with torch.no_grad():
            given = map(as_tensor, arrays[: len(deferred.reads)])
            found = deferred.value(dict(zip(deferred.reads, given, strict=True)))
        values = zip(found if several else [found], tensors, strict=True)
        return [elements_of(t) for t, made in values if made] + [_DONE] * turn

    return run
