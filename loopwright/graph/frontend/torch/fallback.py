"""Calls that have no converter, computed by PyTorch.

A call becomes a Python function that is a separate step of the program. It gets tensors in the
memory layout that eager PyTorch would have given them. Tensors of dtypes that programs do not have,
such as complex ones, are passed as bytes; a value that no program holds at all, because its size
depends on data, is recomputed by each call that reads it.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from loopwright.errors import FallbackWarning
from loopwright.graph.frontend.torch.memory import (
    Array,
    TensorLayout,
    as_array,
    as_bytes,
    as_tensor,
    dtype_of,
    is_tensor,
    torch_package,
)
from loopwright.graph.ir.expr import Call, Expr, HostFunction, TensorType, TupleGetItem, TupleType
from loopwright.runtime import GraphExecutor

#: Who computes what falls back.
BY = "PyTorch"
#: Token of a step whose order counts: the next such step reads it.
_DONE = np.zeros(1, "uint8")
_TURN = TensorType((1,), "uint8")


@dataclass(frozen=True, eq=False)
class Carried:
    """A tensor of a dtype that programs do not have."""

    expr: Expr  # the bytes of its elements, in order
    memory: TensorLayout

    def tensor(self, elements: Any) -> Any:
        """The tensor that shares the memory of its bytes."""
        return elements.view(self.memory.dtype).view(self.memory.shape)


@dataclass(frozen=True, eq=False)
class TensorRead:
    """A tensor that a call reads, with its memory layout."""

    value: Expr | Carried  # the value that made its storage
    base: TensorLayout  # the layout of ``value``
    memory: TensorLayout  # its own layout, relative to the beginning of ``base``

    @property
    def expr(self) -> Expr:
        return self.value.expr if isinstance(self.value, Carried) else self.value

    def tensor(self, tensors: Mapping[Expr, Any]) -> Any:
        """The tensor, over the elements of ``value``."""
        elements = tensors[self.expr]
        if isinstance(self.value, Carried):
            elements = self.value.tensor(elements)
        return self.memory.of_base(self.base.filled(elements))


@dataclass(frozen=True, eq=False)
class Deferred:
    names: tuple[str, ...]  # the calls that make it, the last one last
    reads: tuple[Expr, ...]  # expressions that it is computed from
    value: Callable[[Mapping[Expr, Any]], Any]  # from their tensors to the value
    reason: str  # why it has no kernel


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
    """A call of PyTorch; `TensorRead` and `Deferred` stand for tensors in its arguments."""
    leaves = leaves_of([args, kwargs])
    inner = [leaf for leaf in leaves if isinstance(leaf, Deferred)]
    own = [leaf.expr for leaf in leaves if isinstance(leaf, TensorRead)]
    reads = dict.fromkeys([*(e for d in inner for e in d.reads), *own])
    names = dict.fromkeys([*(n for d in inner for n in d.names), label])
    first = next((d.reason for d in inner), reason)

    def value(tensors: Mapping[Expr, Any]) -> Any:
        return target(*_filled(args, tensors), **_filled(kwargs, tensors))

    return Deferred(tuple(names), tuple(reads), value, first)


def part_of(whole: Deferred, index: int) -> Deferred:
    return Deferred(whole.names, whole.reads, lambda env: whole.value(env)[index], whole.reason)


def _filled(value: Any, tensors: Mapping[Expr, Any]) -> Any:
    if isinstance(value, (TensorRead, Deferred)):
        return value.tensor(tensors) if isinstance(value, TensorRead) else value.value(tensors)
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(v, tensors) for v in value)
    if isinstance(value, dict):
        return {k: _filled(v, tensors) for k, v in value.items()}
    return value


def held_type(tensor: Any) -> TensorType | None:
    """The type of the value that holds a (fake) tensor in a program; None where none can."""
    memory = TensorLayout.of(tensor)
    if memory is None or tensor.device.type != "cpu" or 0 in memory.shape:
        return None
    dtype = dtype_of(tensor)
    if dtype is not None:
        return TensorType(memory.shape, dtype)
    return TensorType((tensor.numel() * tensor.dtype.itemsize,), "uint8")


def held(e: Expr, tensor: Any) -> Expr | Carried:
    """Wrap the value of a program that holds a tensor, of which a fake one is given."""
    memory = TensorLayout.of(tensor)
    return e if dtype_of(tensor) is not None or memory is None else Carried(e, memory)


def is_empty(value: Any) -> bool:
    """Whether a value is a tensor known to have no elements, which needs no computation."""
    memory = TensorLayout.of(value)
    return memory is not None and 0 in memory.shape


def elements_of(tensor: Any) -> Array:
    return as_bytes(tensor) if dtype_of(tensor) is None else as_array(tensor)


def as_step(
    deferred: Deferred, results: Sequence[Any], several: bool, turn: Turn | None = None
) -> Any:
    """Make a step of the program of a value that PyTorch computes. Returns the value that holds the
    result, or a list of them where ``several`` is set; the deferred value itself where no program
    holds its tensors. ``results`` are fake tensors. A step with ``turn`` draws random numbers or
    may fail, so that its order among others counts.
    """
    tensors = [is_tensor(t) and not is_empty(t) for t in results]
    types = [held_type(t) for t, full in zip(results, tensors, strict=True) if full]
    held_types = [t for t in types if t is not None]
    if len(held_types) < len(types) or not (held_types or turn):
        return deferred
    if turn is not None:
        held_types.append(_TURN)
    one = len(held_types) == 1
    label = " > ".join(deferred.names)
    host = HostFunction(
        deferred.names[-1].partition(" ")[0],
        partial(_run, deferred, several, tensors, turn is not None),
        held_types[0] if one else TupleType(tuple(held_types)),
        BY,
        deferred.reason,
        span=label,
    )
    behind = () if turn is None or turn.last is None else (turn.last,)
    call = Call(host, (*deferred.reads, *behind), span=label)
    parts = [call] if one else [TupleGetItem(call, n) for n in range(len(held_types))]
    if turn is not None:
        turn.last = parts.pop()
    places = iter(parts)
    values: list[Any] = []
    for t, full in zip(results, tensors, strict=True):
        memory = TensorLayout.of(t)  # None where it is no tensor
        empty = None if memory is None or full else memory.empty()
        values.append(held(next(places), t) if full else empty)
    return values if several else values[0]


@dataclass
class Turn:
    """The order of steps with random numbers or possible errors: the next reads the last."""

    last: Expr | None = None  # result of the last of them; None before the first


def _run(
    deferred: Deferred, several: bool, tensors: Sequence[bool], turn: bool, *arrays: Array
) -> list[Array]:
    with torch_package().no_grad():
        inputs = map(as_tensor, arrays[: len(deferred.reads)])
        result = deferred.value(dict(zip(deferred.reads, inputs, strict=True)))
    values = zip(result if several else [result], tensors, strict=True)
    return [elements_of(t) for t, full in values if full] + [_DONE] * turn


#: Runs that are timed, behind one that is not; the share from which on there is a warning; the
#: operators that it names.
_RUNS, _MOST, _NAMED = 3, 0.2, 6


class FallbackShare:
    """Times the first runs of a model with nodes that PyTorch computes; warns at most once."""

    def __init__(self) -> None:
        self.known = False  # enough runs were timed
        self._runs, self._whole = 0, 0.0
        self._by_operators: defaultdict[str, float] = defaultdict(float)

    def run(self, executor: GraphExecutor, hosts: Mapping[str, HostFunction]) -> None:
        """Run a model once; ``hosts`` are the steps that PyTorch computes."""
        if not hosts or self.known:
            self.known = True
            executor.run()
            return
        seconds = executor.seconds_of_steps()
        self._runs += 1
        if self._runs == 1:
            return
        self._whole += sum(seconds)
        for step, took in zip(executor.program.steps, seconds, strict=True):
            if (host := hosts.get(step.kernel)) is not None:
                # Its operators, without the names of their nodes.
                names = [part.partition(" ")[0] for part in (host.span or host.name).split(" > ")]
                self._by_operators[" > ".join(names)] += took
        if self._runs <= _RUNS:
            return
        self.known = True
        share = sum(self._by_operators.values()) / self._whole
        if share <= _MOST:
            return
        most = sorted(self._by_operators.items(), key=lambda pair: -pair[1])[:_NAMED]
        named = ", ".join(f"{name} ({took / self._whole:.0%})" for name, took in most)
        more = len(self._by_operators) - len(most)
        warnings.warn(
            f"{share:.0%} of the time of this compiled model is PyTorch's, which computes what has "
            f"no kernel: {named}{f', and {more} more' if more else ''}; the reasons are told by "
            "loopwright.graph.torch_backend.compiled_models()[-1].report",
            FallbackWarning,
            stacklevel=1,
        )
