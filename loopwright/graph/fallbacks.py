"""Which nodes of a model no kernel computes, who does, and which share of the time they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopwright.graph.step_times import seconds_by_step
from loopwright.task import Choice, Report

if TYPE_CHECKING:
    from loopwright.graph.ir.expr import HostFunction
    from loopwright.runtime.executors import Model

#: Runs of a model that tell the shares.
_RUNS = 3


@dataclass(frozen=True)
class Fallback:
    """A node that another library computes.

    Attributes:
        step: its name in the program.
        node: its operator, with its name where it has one.
        by: who computes it, such as ``"PyTorch"`` or ``"onnx.reference"``.
        reason: why there is no kernel.
        share: of the time of a run, 0 to 1.
    """

    step: str
    node: str
    by: str
    reason: str
    share: float

    def __str__(self) -> str:
        return f"{self.node} runs by {self.by}, {self.share:.1%} of the time: {self.reason}"


class ModelReport(Report):
    """What the kernels of a model were built from, and the nodes that have no kernel.

    It is a tuple of the choices of records; its text is a table, with a line for each node that
    falls back.

    Attributes:
        fallbacks: the nodes without a kernel, that with the largest share of the time first.

    Example:
        >>> x = lw.graph.var("x", (4,))
        >>> model = lw.graph.compile(lw.graph.IRModule.from_expr(lw.graph.op.exp(x)), "llvm")
        >>> print(len(model.report), model.report.fallbacks)
        0 ()
    """

    fallbacks: tuple[Fallback, ...]

    def __new__(cls, choices: Iterable[Choice], fallbacks: Sequence[Fallback] = ()) -> ModelReport:
        """A report of choices and fallbacks."""
        made = super().__new__(cls, choices)
        made.fallbacks = tuple(fallbacks)
        return made

    def __str__(self) -> str:
        if not self.fallbacks:
            return super().__str__()
        share = sum(f.share for f in self.fallbacks)
        count = len(self.fallbacks)
        nodes = "1 node has" if count == 1 else f"{count} nodes have"
        head = f"{nodes} no kernel, {share:.1%} of the time:"
        lines = [head, *(f"  {f}" for f in self.fallbacks)]
        return "\n".join([super().__str__(), *lines] if self else lines)


def fallbacks_of(model: Model, hosts: Mapping[str, HostFunction]) -> tuple[Fallback, ...]:
    """The nodes of a model that have no kernel, with their share of runs on random data.

    Args:
        model: the model.
        hosts: the Python functions among its steps by their names.

    Raises:
        RunError: the model does not run on random data.
    """
    if not hosts:
        return ()
    took = seconds_by_step(model, _RUNS)
    whole = sum(took.values())
    where = model.device_type
    moved = "" if where == "cpu" else f"; its values go from {where} to the host and back"
    found = [
        Fallback(name, host.span or host.name, host.by, host.reason + moved, took[name] / whole)
        for name, host in hosts.items()
    ]
    return tuple(sorted(found, key=lambda f: -f.share))
