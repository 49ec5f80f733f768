"""Programs of several kernels: an expression in parts that rules know, each a program of its own.

Parts are cut where a tensor is kept in memory in between. A part takes in as many of the stages
before its result as some rule has a structure for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loopwright import te
from loopwright.ir.expr import Read
from loopwright.space.access import is_computed
from loopwright.space.expression import producers_of
from loopwright.space.structure import Structure
from loopwright.te.tensor import ComputeOp, Tensor

#: Reductions that a part may have at most: more than any rule knows.
_MOST_REDUCTIONS = 6

#: The structures of a program, none where no rule has one.
Known = Callable[[Sequence[te.Tensor], Sequence[te.Tensor]], list[Structure]]


@dataclass(frozen=True, eq=False)
class Part:
    """One part of an expression.

    Attributes:
        output: its result, as a tensor of the whole.
        result: its result, as a tensor of its own expression.
        structures: those that rules know for it.
        operations: for each operation of the part's own expression that of the whole.
    """

    output: te.Tensor
    result: te.Tensor
    structures: list[Structure]
    operations: Mapping[te.Operation, te.Operation]

    def places(self, whole: Mapping[te.Operation, int]) -> dict[int, int]:
        """For the index of each operation of the part that in the whole."""
        _, own = te.Dag.from_ops([self.result.op])
        return {index: whole[self.operations[op]] for op, index in own.items()}


def parts_of(outputs: Sequence[te.Tensor], known: Known) -> list[Part]:
    """An expression in parts.

    Args:
        outputs: the results of the expression.
        known: asks the rules.

    Returns:
        The parts, each after those whose results it reads. A stage that no rule knows alone is a
        part without structures.
    """
    readers = _readers(outputs)
    kept = dict.fromkeys(outputs)
    found: list[Part] = []
    for tensor in reversed(producers_of(outputs)):
        if tensor not in kept:
            continue
        part, inside = _largest(tensor, readers, kept, known)
        found.append(part)
        reads = (t for member in inside for t in member.op.input_tensors)
        kept.update(dict.fromkeys(t for t in reads if is_computed(t) and t not in inside))
    return found[::-1]


def _readers(outputs: Sequence[te.Tensor]) -> dict[te.Tensor, list[te.Tensor]]:
    """Who reads each tensor."""
    readers: dict[te.Tensor, list[te.Tensor]] = {}
    for t in producers_of(outputs):
        for source in t.op.input_tensors:
            readers.setdefault(source, []).append(t)
    return readers


def _largest(
    tensor: te.Tensor,
    readers: Mapping[te.Tensor, Sequence[te.Tensor]],
    kept: Mapping[te.Tensor, None],
    known: Known,
) -> tuple[Part, set[te.Tensor]]:
    """The part of a result with as many stages as some rule knows, and these stages."""
    for inside in reversed(_growing(tensor, readers, kept)):
        program, operations = _cut_out(tensor, inside)
        # A copy of one of several outputs would be asked for by another number in the whole.
        plain = all(old.num_outputs == 1 for old in operations.values())
        structures = known([program[-1]], program) if plain else []
        if structures:
            break
    return Part(tensor, program[-1], structures, operations), inside


def _growing(
    tensor: te.Tensor,
    readers: Mapping[te.Tensor, Sequence[te.Tensor]],
    kept: Mapping[te.Tensor, None],
) -> list[set[te.Tensor]]:
    """Sets of stages that a part may have, each with one reduction more than the one before.

    A stage is taken in when nobody outside reads it.
    """
    inside = {tensor}
    sets: list[set[te.Tensor]] = []
    order = [t for t in reversed(producers_of([tensor])) if t is not tensor and t not in kept]
    allowed = 1 if tensor.op.reduce_axis else 0
    while allowed <= _MOST_REDUCTIONS:
        for t in order:
            reductions = sum(bool(member.op.reduce_axis) for member in inside)
            room = reductions < allowed or not t.op.reduce_axis
            if t not in inside and room and all(r in inside for r in readers[t]):
                inside.add(t)
        if sets and inside == sets[-1]:
            break
        sets.append(set(inside))
        allowed += 1
    return sets


def _cut_out(
    tensor: te.Tensor, inside: set[te.Tensor]
) -> tuple[list[te.Tensor], dict[te.Operation, te.Operation]]:
    """The program of some stages alone: what it reads from outside are its inputs.

    Returns:
        Its arguments, the result last, and for each of its operations that of the whole.
    """
    made: dict[te.Tensor, te.Tensor] = {}
    inputs: list[te.Tensor] = []
    for t in producers_of([tensor]):
        if t not in inside:
            continue
        for source in t.op.input_tensors:
            if source not in made:
                made[source] = _input_like(source)
                inputs.append(made[source])
        made[t] = _with_sources(t, made)
    operations = {new.op: old.op for old, new in made.items()}
    return [*inputs, made[tensor]], operations


def _input_like(source: te.Tensor) -> te.Tensor:
    if not is_computed(source):
        return source
    return te.placeholder(source.shape, source.dtype, name=source.name)


def _with_sources(t: te.Tensor, made: Mapping[te.Tensor, te.Tensor]) -> te.Tensor:
    """A stage that reads other tensors in place of its own; loops and name stay."""

    def exchanged(e: Any) -> Any:
        new = e.map_children(exchanged)
        if isinstance(new, Read) and isinstance(new.source, Tensor) and new.source in made:
            return Read(made[new.source], new.indices, new.dtype, new.value_index)
        return new

    old = t.op
    assert isinstance(old, ComputeOp)
    op = ComputeOp(old.name, t.shape, [o.dtype for o in map(old.output, range(old.num_outputs))])
    op.tag, op.attrs = old.tag, dict(old.attrs)
    op.axis, op.reduce_axis = old.axis, old.reduce_axis
    op.body = exchanged(old.body)
    return op.output(t.value_index)
