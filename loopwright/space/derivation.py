"""From an expression to its structures: every rule is asked, and what none knows runs as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loopwright import te
from loopwright.errors import TargetError, TensorError
from loopwright.space.access import is_computed, producers
from loopwright.space.rules.contraction_cpu import contractions
from loopwright.space.rules.injective_cpu import injective
from loopwright.space.rules.programs_gpu import programs
from loopwright.space.rules.rows_cpu import rows
from loopwright.space.rules.tensor_core_gpu import tensor_cores
from loopwright.space.rules.windows_cpu import windows
from loopwright.space.sketch import Sketch
from loopwright.space.structure import Structure
from loopwright.target import Target

#: A rule: the structures that it knows for some results and arguments, none where it knows none.
Rule = Callable[[Sequence[te.Tensor], Sequence[te.Tensor]], list[Structure]]

_CPU: tuple[Rule, ...] = (contractions, windows, rows, injective)
_GPU: tuple[Rule, ...] = (tensor_cores, programs)


def structures(outputs: te.Tensor, args: Sequence[te.Tensor]) -> list[Structure]:
    """All structures of an expression for the target in force.

    Args:
        outputs: the result.
        args: the arguments in calling order.

    Returns:
        What every rule knows, in the order of the rules. Where none applies on a CPU, one structure
        without knobs, the naive schedule; its ``why`` says so.

    Raises:
        TensorError: the result is an input, or a size is not known.
        TargetError: the target is neither a CPU nor a GPU.

    Example:
        >>> X = te.placeholder((64, 1000), name="X")
        >>> k = te.reduce_axis((0, 1000), name="k")
        >>> Y = te.compute((64,), lambda i: te.max(te.abs(X[i, k]), axis=k), name="Y")
        >>> with lw.Target("llvm -mcpu=x86-64-v3"):
        ...     for structure in lw.space.structures(Y, [X, Y]):
        ...         print(structure)
        ...
        rows in cache (96 configurations)
    """
    if not isinstance(outputs, te.Tensor) or not is_computed(outputs):
        raise TensorError(f"structures: expected what is computed, got {outputs!r}")
    rules = _rules()
    _check_sizes(outputs)
    found = [s for rule in rules for s in rule([outputs], args)]
    return found or [_naive(outputs, args)]


def _rules() -> tuple[Rule, ...]:
    target = Target.current()
    if "gpu" in target.keys:
        return _GPU
    if "cpu" not in target.keys:
        raise TargetError(f"structures are derived for CPUs and GPUs, and the target is {target}")
    return _CPU


def _check_sizes(out: te.Tensor) -> None:
    for t in producers(out):
        if not all(isinstance(n, int) for n in t.shape):
            raise TensorError(
                f"structures: the shape of {t.name!r} has variables, {list(t.shape)}; give ints"
            )


def _naive(out: te.Tensor, args: Sequence[te.Tensor]) -> Structure:
    sketch = Sketch([out], args)
    sketch.why.append("no rule applies to this expression: every stage runs as it was written")
    return sketch.finished("naive")
