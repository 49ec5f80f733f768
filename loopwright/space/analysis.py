"""Classes of the stages of an expression, derived from access maps alone, as in Ansor (OSDI 2020).

Classes are those that schedules differ by: sharing of operands along loops. No name of an operator,
no tag and no order of operands is looked at, so that unforeseen expressions have a class too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from math import prod

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.expr import IterVar
from loopwright.ir.reduction import Reduce, Scan, scan_of
from loopwright.records import Json
from loopwright.space.expression import AccessMap, accesses, extents, is_computed, producers


class StageClass(StrEnum):
    """Class of a stage."""

    #: A reduction each of whose operands some loop of the result does not move: products,
    #: convolutions, min-plus products. Tiles pay, since their data is reused.
    CONTRACTION = "contraction"
    #: A reduction over a window that slides with the result: pooling, depthwise convolution.
    WINDOW = "window"
    #: A reduction of a row of its own for every element of the result.
    ROW_REDUCTION = "row reduction"
    WHOLE_REDUCTION = "whole reduction"  #: a reduction of everything to one element
    #: No reduction; some operand is read across memory where the result is written along it.
    TRANSPOSE = "transpose"
    GATHER = "gather"  #: no reduction; the place at which an operand is read depends on data
    #: No reduction, everything else: elementwise, broadcasts, padding, concatenations.
    INJECTIVE = "injective"


#: Reason for each class.
_WHY = {
    StageClass.CONTRACTION: "each operand stays where it is along some loop of the result",
    StageClass.WINDOW: "an operand is read in windows that slide with the result",
    StageClass.ROW_REDUCTION: "each element of the result reduces a row that no other one needs",
    StageClass.WHOLE_REDUCTION: "the result is one element",
    StageClass.TRANSPOSE: "an operand lies in memory along another loop than the result",
    StageClass.GATHER: "where an operand is read depends on data",
    StageClass.INJECTIVE: "each element of the result is made of elements at known places",
}


@dataclass(frozen=True)
class OperandUse:
    """Use of one operand by a stage."""

    access: AccessMap
    #: Points of the stage that use one element: the product of the extents of the loops that do
    #: not move the operand, and of the steps of those that move it in blocks.
    reuse: int
    #: For each loop, the distance in memory that an iteration moves, in elements of the row-major
    #: tensor; loops that move it by no fixed distance are left out.
    strides: Mapping[IterVar, int]

    @property
    def tensor(self) -> te.Tensor:
        """Tensor that is read."""
        return self.access.tensor

    @property
    def moves(self) -> list[IterVar]:
        """Loops that move it, in the order of its dimensions."""
        moves = (x for dim in self.access.dims if dim is not None for x in dim.moves)
        return list(dict.fromkeys([*moves, *self.access.steps]))


@dataclass(frozen=True)
class StageAnalysis:
    """One stage."""

    tensor: te.Tensor
    kind: StageClass
    operands: tuple[OperandUse, ...]  #: its reads; equal reads once
    combiner: str  #: operation of a reduction, such as ``sum``; empty for others

    @property
    def why(self) -> str:
        """Reason for its class, in words."""
        return _WHY[self.kind]

    @property
    def spatial(self) -> list[IterVar]:
        """Loops of the result."""
        return list(self.tensor.op.axis)

    @property
    def reduced(self) -> list[IterVar]:
        """Loops of the reduction."""
        return list(self.tensor.op.reduce_axis)

    @cached_property
    def scan(self) -> Scan | None:
        """The stage as a scan, where each place combines the elements up to it, or None."""
        body = getattr(self.tensor.op, "body", None)
        if not isinstance(body, Reduce):
            return None
        scans = (scan_of(self.spatial, body, k) for k in self.reduced)
        return next((scan for scan in scans if scan is not None), None)

    @property
    def work(self) -> int:
        """Points of all its loops; of a scan those of its result, since it need not be a triangle
        (`loopwright.schedule.primitives.rfactor`)."""
        over = [k for k in self.reduced if self.scan is None or k is not self.scan.over]
        return extents(self.spatial) * extents(over)

    def alone(self, operand: OperandUse) -> list[IterVar]:
        """Loops of the result that move no other operand: vectors along these reuse all others."""
        others = [o for o in self.operands if o is not operand]
        return [
            x
            for x in self.spatial
            if operand.access.moves_with(x) and not any(o.access.moves_with(x) for o in others)
        ]

    def shared(self) -> list[IterVar]:
        """Loops of the result that move every operand."""
        return [x for x in self.spatial if all(o.access.moves_with(x) for o in self.operands)]

    def to_json(self) -> dict[str, Json]:
        """The analysis as JSON: names and numbers."""
        return {
            "stage": self.tensor.name,
            "class": str(self.kind),
            "why": self.why,
            "combiner": self.combiner or None,
            "spatial": {x.name: x.count for x in self.spatial},
            "reduced": {x.name: x.count for x in self.reduced},
            "operands": [
                {
                    "tensor": o.tensor.name,
                    "moves_with": [x.name for x in o.moves],
                    "strides": {x.name: n for x, n in o.strides.items()},
                    "reuse": o.reuse,
                    "alone": [x.name for x in self.alone(o)],
                }
                for o in self.operands
            ],
        }

    def __str__(self) -> str:
        loops = f"loops {_named(self.spatial)}" if self.spatial else "one element"
        if self.reduced:
            loops += f"; {self.combiner} over {_named(self.reduced)}"
        if self.scan is not None:
            loops += f", a scan along {self.scan.place.name}"
        lines = [f"{self.tensor.name}: {self.kind}, since {self.why}", f"  {loops}"]
        return "\n".join([*lines, *(f"  {self._operand(o)}" for o in self.operands)])

    def _operand(self, operand: OperandUse) -> str:
        if not operand.moves:
            return f"{operand.tensor.name} stays where it is"
        strides = {x: operand.strides.get(x) for x in operand.moves}
        notes = {None: " (in steps)", 1: ""}
        loops = [x.name + notes.get(n, f" (stride {n})") for x, n in strides.items()]
        text = f"{operand.tensor.name} moves with {', '.join(loops)}"
        if operand.reuse > 1:
            text += f"; each place serves {operand.reuse} points"
        alone = ", ".join(x.name for x in self.alone(operand))
        return f"{text}; alone along {alone}" if alone and len(self.operands) > 1 else text


def analyze(outputs: te.Tensor | Sequence[te.Tensor]) -> list[StageAnalysis]:
    """Analyze every computed stage of an expression.

    Args:
        outputs: the results; the stages that they need are analyzed too, inputs first.

    Raises:
        TensorError: an output is an input, or an extent is not known.

    Example:
        >>> A, B = te.placeholder((64, 32), name="A"), te.placeholder((32, 48), name="B")
        >>> k = te.reduce_axis((0, 32), name="k")
        >>> C = te.compute((64, 48), lambda i, j: te.min(A[i, k] + B[k, j], axis=k), name="C")
        >>> for stage in lw.space.analyze(C):
        ...     print(stage)
        ...
        C: contraction, since each operand stays where it is along some loop of the result
          loops i 64, j 48; min over k 32
          A moves with i (stride 32), k; each place serves 48 points; alone along i
          B moves with k (stride 48), j; each place serves 64 points; alone along j
    """
    results = list(outputs) if isinstance(outputs, Sequence) else [outputs]
    for out in results:
        if not isinstance(out, te.Tensor) or not is_computed(out):
            raise TensorError(f"analyze: expected a computed tensor, got {out!r}")
    return [_analyzed(t) for t in producers(*results)]


def _analyzed(tensor: te.Tensor) -> StageAnalysis:
    for source in (tensor, *tensor.op.input_tensors):
        if not all(isinstance(n, int) for n in source.shape):
            raise TensorError(
                f"analyze: the shape of {source.name!r} has variables, {list(source.shape)}; give "
                "ints for them"
            )
    loops, operands = [*tensor.op.axis, *tensor.op.reduce_axis], []
    for access in accesses(tensor):
        reuse = prod(min(access.steps.get(x, x.count), x.count) for x in loops)
        operands.append(OperandUse(access, reuse, _strides(access)))
    body = getattr(tensor.op, "body", None)
    combiner = body.combiner.name if isinstance(body, Reduce) else ""
    return StageAnalysis(tensor, _class_of(tensor, operands), tuple(operands), combiner)


def _strides(access: AccessMap) -> dict[IterVar, int]:
    """Elements of memory that an iteration of each loop moves by."""
    shape = access.tensor.static_shape
    strides: dict[IterVar, int] = {}
    for at, dim in enumerate(access.dims):
        for x, n in dim.moves.items() if dim is not None else ():
            strides[x] = strides.get(x, 0) + n * prod(shape[at + 1 :])
    return {x: n for x, n in strides.items() if access.steps.get(x, 1) <= 1}  # not by blocks


def _class_of(tensor: te.Tensor, operands: Sequence[OperandUse]) -> StageClass:
    if not tensor.op.reduce_axis:
        if any(o.access.data_dependent for o in operands):
            return StageClass.GATHER
        across = any(_is_read_across(o.access, tensor) for o in operands)
        return StageClass.TRANSPOSE if across else StageClass.INJECTIVE
    if extents(tensor.op.axis) == 1:
        return StageClass.WHOLE_REDUCTION
    spatial = [x for x in tensor.op.axis if x.count > 1]
    stays = [any(o.access.steps.get(x) != 1 for x in spatial) for o in operands]
    if len(operands) > 1 and all(stays):
        return StageClass.CONTRACTION
    # A loop of the result and one of the reduction move in one dimension of an operand.
    result, reduced = set(tensor.op.axis), set(tensor.op.reduce_axis)
    moves = [set(dim.moves) for o in operands for dim in o.access.dims if dim is not None]
    slides = any(moved & result and moved & reduced for moved in moves)
    return StageClass.WINDOW if slides else StageClass.ROW_REDUCTION


def _is_read_across(access: AccessMap, tensor: te.Tensor) -> bool:
    """Whether memory of an operand and of the result run along different common loops."""
    along = access.contiguous
    if along is None or not tensor.op.axis:
        return False
    last = tensor.op.axis[-1]
    return along is not last and access.moves_with(last)


def _named(axes: Iterable[IterVar]) -> str:
    return ", ".join(f"{x.name} {x.count}" for x in axes)
