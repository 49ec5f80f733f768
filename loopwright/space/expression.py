"""Results and arguments of an expression, found from the tensors that users give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loopwright import te
from loopwright.errors import TensorError
from loopwright.schedule.resolution import StageOp
from loopwright.space.access import is_computed, producers


@dataclass(frozen=True, eq=False)
class TensorProgram:
    """An expression with its arguments.

    Attributes:
        outputs: the results.
        args: inputs and results in calling order.

    Example:
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> program = lw.space.tensor_program([A, B])
        >>> print([t.name for t in program.outputs])
        ['B']
    """

    outputs: tuple[te.Tensor, ...]
    args: tuple[te.Tensor, ...]


def tensor_program(tensors: te.Tensor | Sequence[te.Tensor]) -> TensorProgram:
    """Expression with the given tensors as its arguments or results.

    Args:
        tensors: results alone, whose inputs then precede them in the order in which the expression
            reads them; or inputs and results in calling order. A computed tensor that another one
            of them reads is a result, too.

    Raises:
        TensorError: an argument is no tensor or one of a schedule, nothing is computed, a tensor
            is given twice, a size is a variable, or an input that is read is missing.

    Example:
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> program = lw.space.tensor_program(B)
        >>> print([t.name for t in program.args], [t.name for t in program.outputs])
        ['A', 'B'] ['B']
    """
    if not isinstance(tensors, (te.Tensor, list, tuple)):
        raise TensorError(f"expected tensors (inputs and results), got {tensors!r:.80}")
    given = [tensors] if isinstance(tensors, te.Tensor) else list(tensors)
    _check(given)
    outputs = tuple(t for t in given if is_computed(t))
    inputs = _inputs(outputs)
    named = [t for t in given if not is_computed(t)]
    if not named:
        return TensorProgram(outputs, (*inputs, *outputs))
    missing = [t.name for t in inputs if t not in named]
    if missing:
        raise TensorError(
            f"the expression reads {', '.join(missing)}, not among the tensors given; give all "
            "inputs and results in calling order, or the results alone"
        )
    return TensorProgram(outputs, tuple(given))


def _check(given: Sequence[Any]) -> None:
    for t in given:
        if not isinstance(t, te.Tensor):
            raise TensorError(f"expected tensors (inputs and results), got {t!r:.80}")
        if isinstance(t.op, StageOp):
            raise TensorError(
                f"{t.name!r} belongs to a schedule; build the schedule with it, or give the "
                "tensors that the schedule was made of"
            )
    if not any(map(is_computed, given)):
        names = ", ".join(t.name for t in given) or "nothing"
        raise TensorError(f"nothing is computed: {names} given; give a result of te.compute")
    for number, t in enumerate(given):
        if t in given[:number]:
            raise TensorError(f"{t.name!r} is given twice; give each tensor once")
    for t in producers_of([t for t in given if is_computed(t)]):
        if not all(isinstance(n, int) for n in t.shape):
            raise TensorError(
                f"the shape of {t.name!r} has variables, {list(t.shape)}; a space is derived for "
                "sizes that are known: give ints"
            )


def producers_of(outputs: Sequence[te.Tensor]) -> list[te.Tensor]:
    """All computed tensors of some results, inputs left out, each once, readers last."""
    found: dict[te.Tensor, None] = {}
    for out in outputs:
        found.update(dict.fromkeys(producers(out)))
    return list(found)


def _inputs(outputs: Sequence[te.Tensor]) -> list[te.Tensor]:
    """Inputs in the order of reading."""
    found: dict[te.Tensor, None] = {}
    for t in producers_of(outputs):
        found.update((read, None) for read in t.op.input_tensors if not is_computed(read))
    return list(found)
