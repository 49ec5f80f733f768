"""Expressions: access maps of their stages, and the arguments and results that users give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

from loopwright import te
from loopwright.errors import TensorError
from loopwright.ir.affine import to_affine
from loopwright.ir.expr import Binary, Const, Expr, IterVar, Read, Var
from loopwright.ir.visitor import nodes
from loopwright.schedule import StageOp
from loopwright.te import body_parts

# Access maps, as in polyhedral compilers and Ansor (OSDI 2020): the loops of a stage that move each
# operand, and by how many elements of memory. Rules look at nothing else of an expression.


@dataclass(frozen=True)
class Index:
    """Index of one dimension: ``sum(moves[axis] * axis) + offset * something``."""

    moves: Mapping[IterVar, int]  # distance that an iteration of each axis moves
    #: Divisor of the rest: constants, and blocks ``axis // n``, which stand still in a tile of
    #: fewer than n iterations; 0 where there is none.
    offset: int = 0


@dataclass(frozen=True)
class AccessMap:
    tensor: te.Tensor
    #: For each axis that the element depends on, after how many of its iterations the element may
    #: change: 1, or n where the axis stands in ``axis // n`` only.
    steps: Mapping[IterVar, int]
    dims: tuple[Index | None, ...]  # index of each dimension of the tensor; None where not affine
    data_dependent: bool = False  # whether an index holds an element of a tensor

    def moves_with(self, axis: IterVar) -> bool:
        return axis in self.steps

    @property
    def contiguous(self) -> IterVar | None:
        """Axis whose next iteration reads the next element of memory, if it alone moves in the last
        dimension."""
        last = self.dims[-1] if self.dims else None
        return None if last is None or list(last.moves.values()) != [1] else next(iter(last.moves))

    def tile(self, sizes: Mapping[IterVar, int]) -> list[int]:
        """Extents of the smallest box that a tile of some axes reads; other axes stand still, and a
        dimension that is not affine counts in full."""
        box = list(self.tensor.static_shape)
        for d, dim in enumerate(self.dims):
            if dim is not None:
                reach = 1 + sum(abs(c) * (sizes.get(x, 1) - 1) for x, c in dim.moves.items())
                box[d] = min(reach, box[d])
        return box


def is_own(dim: Index | None, axis: IterVar) -> bool:
    """Whether an index is exactly an axis; 0 is that of an axis of one iteration."""
    return dim == Index({axis: 1}) or (axis.count == 1 and dim == Index({}))


def accesses(tensor: te.Tensor, start: bool = True) -> list[AccessMap]:
    """Reads of a computed tensor in order, each once; ``start`` adds those of ``init``."""
    op = tensor.op
    axes = {x.var: x for x in [*op.axis, *op.reduce_axis]}
    maps: dict[tuple[object, ...], AccessMap] = {}
    parts = expressions(op)
    for read in reads_of(parts if start else parts[: len(parts) - len(_start(op))]):
        maps.setdefault((read.source, read.value_index, read.indices), _access(read, axes))
    return list(maps.values())


def read_at_start(tensor: te.Tensor) -> set[te.Tensor]:
    """Tensors that ``init`` of a reduction reads, before its loops begin."""
    return {read.source for read in reads_of(_start(tensor.op))}


def _start(op: te.Operation) -> tuple[Expr, ...]:
    return getattr(getattr(op, "body", None), "init", None) or ()


def extents(axes: Iterable[IterVar]) -> int:
    """Number of points of some axes."""
    return prod(x.count for x in axes)


def is_computed(tensor: te.Tensor) -> bool:
    """Whether a tensor is no input."""
    return getattr(tensor.op, "body", None) is not None


def producers(*tensors: te.Tensor) -> list[te.Tensor]:
    """Computed tensors that some tensors need, each once, inputs first, themselves last."""
    order: dict[te.Tensor, None] = {}
    pending = [(t, False) for t in reversed(tensors)]
    while pending:  # no recursion: an expression may have hundreds of stages
        t, entered = pending.pop()
        if t in order or not is_computed(t):
            continue
        if entered:
            order[t] = None
            continue
        pending += [(t, True), *((x, False) for x in reversed(t.op.input_tensors))]
    return list(order)


def readers(tensor: te.Tensor, among: Sequence[te.Tensor]) -> list[te.Tensor]:
    return [t for t in among if tensor in t.op.input_tensors]


def expressions(op: te.Operation) -> list[Expr]:
    """Expressions that a stage evaluates; none for an input."""
    body = getattr(op, "body", None)
    return [] if body is None else body_parts(body)


def reads_of(expressions: Iterable[Expr]) -> list[Read]:
    """Reads in some expressions, those in indices included."""
    return [n for e in expressions for n in nodes(e) if isinstance(n, Read)]


def _access(read: Read, axes: Mapping[Var, IterVar]) -> AccessMap:
    steps: dict[IterVar, int] = {}
    for v, n in (step for index in read.indices for step in _steps(index).items()):
        steps[axes[v]] = gcd(n, steps.get(axes[v], n))
    blocked = {v for v, x in axes.items() if steps.get(x, 1) > 1}
    dims = tuple(_index(e, axes, blocked) for e in read.indices)
    return AccessMap(read.source, steps, dims, bool(reads_of(read.indices)))


def _index(e: Expr, axes: Mapping[Var, IterVar], blocked: set[Var]) -> Index | None:
    """Index in terms of axes, and of blocks of axes that move by blocks alone, or None."""
    blocks: dict[tuple[Var, int], Var] = {}

    def with_blocks(n: Any) -> Any:  # an expression gives an expression
        match n:
            case Binary(op="//", a=Var() as v, b=Const(value=int(m))) if v in blocked:
                return blocks.setdefault((v, m), Var(f"{v.name}_block", v.dtype))
        return n.map_children(with_blocks)

    e = with_blocks(e)
    ranges = {v: (0, x.count - 1) for v, x in axes.items()}
    ranges |= {u: (0, (axes[v].count - 1) // m) for (v, m), u in blocks.items()}
    form = to_affine(e, {}, ranges)
    if form is None:
        return None
    still = [c for v, c in form.terms.items() if v not in axes]
    moves = {axes[v]: c for v, c in form.terms.items() if c and v in axes}
    return Index(moves, gcd(form.const, *still))


def _steps(e: Expr) -> dict[Var, int]:
    """For each variable of an index, after how many of its values the index may change."""
    match e:
        case Var():
            return {e: 1}
        case Binary(op="//", a=Var() as v, b=Const(value=int(n))):
            return {v: n}
    out: dict[Var, int] = {}
    for child in e.children():
        for v, n in _steps(child).items() if isinstance(child, Expr) else ():
            out[v] = gcd(n, out.get(v, n))
    return out


@dataclass(frozen=True, eq=False)
class TensorProgram:
    """An expression with its arguments."""

    outputs: tuple[te.Tensor, ...]
    args: tuple[te.Tensor, ...]  #: inputs and results in calling order


def tensor_program(tensors: te.Tensor | Sequence[te.Tensor]) -> TensorProgram:
    """Expression with the given tensors as its arguments or results.

    Args:
        tensors: results alone, whose inputs then precede them in the order in which the expression
            reads them; or inputs and results in calling order. A computed tensor that another one
            of them reads is a result, too.

    Raises:
        TensorError: an argument is no tensor or one of a schedule, nothing is computed, a tensor
            is given twice, a size is a variable, or an input that is read is missing.
    """
    if not isinstance(tensors, (te.Tensor, list, tuple)):
        raise TensorError(f"expected tensors (inputs and results), got {tensors!r:.80}")
    args = [tensors] if isinstance(tensors, te.Tensor) else list(tensors)
    _check(args)
    outputs = tuple(t for t in args if is_computed(t))
    # Inputs in the order of reading.
    reads = (x for t in producers(*outputs) for x in t.op.input_tensors)
    inputs = dict.fromkeys(x for x in reads if not is_computed(x))
    if len(args) == len(outputs):
        return TensorProgram(outputs, (*inputs, *outputs))
    missing = [t.name for t in inputs if t not in args]
    if missing:
        raise TensorError(
            f"the expression reads {', '.join(missing)}, not among the tensors given; give all "
            "inputs and results in calling order, or the results alone"
        )
    return TensorProgram(outputs, tuple(args))


def _check(tensors: Sequence[Any]) -> None:
    for t in tensors:
        if not isinstance(t, te.Tensor):
            raise TensorError(f"expected tensors (inputs and results), got {t!r:.80}")
        if isinstance(t.op, StageOp):
            raise TensorError(
                f"{t.name!r} belongs to a schedule; build the schedule with it, or give the "
                "tensors that the schedule was made of"
            )
    if not any(map(is_computed, tensors)):
        names = ", ".join(t.name for t in tensors) or "nothing"
        raise TensorError(f"nothing is computed: {names} given; give a result of te.compute")
    for number, t in enumerate(tensors):
        if t in tensors[:number]:
            raise TensorError(f"{t.name!r} is given twice; give each tensor once")
    for t in producers(*(t for t in tensors if is_computed(t))):
        if not all(isinstance(n, int) for n in t.shape):
            raise TensorError(
                f"the shape of {t.name!r} has variables, {list(t.shape)}; a space is derived for "
                "sizes that are known: give ints"
            )
