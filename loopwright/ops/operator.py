"""Operators: a definition with a NumPy reference, from which the space is derived, and a line of
text; a template by hand where no rule does as well."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy.typing as npt

from loopwright.errors import UsageError, did_you_mean
from loopwright.ir.expr import Expr, IterVar
from loopwright.ops import gpu
from loopwright.records import Json
from loopwright.schedule import Schedule
from loopwright.space.tasks import Workload, workload
from loopwright.task import Template
from loopwright.te import Tensor

#: Arrays of any dtype, and NumPy functions of an operator's inputs that return its output.
Array: TypeAlias = npt.NDArray[Any]
Reference: TypeAlias = Callable[..., Array]
#: A loop of an operator, or an index that is computed from loops.
LoopOrIndex: TypeAlias = IterVar | Expr
#: One number for both dimensions of an image, or one for each: (y, x).
OneOrTwo: TypeAlias = int | tuple[int, int]
#: Stands in place of a default for a parameter that must be given.
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Operator:
    """An operator as the command line and the tests see it.

    Attributes:
        template: the tuned `loopwright.space.Workload` or template by hand; the default
            configuration is the default schedule.
        summary: one line of text.

    Example:
        >>> operator = lw.ops.WORKLOADS["matmul"]
        >>> print(operator.summary)
        C = A @ B; A (M, K) or (K, M), B (K, N) or (N, K)
    """

    template: Template
    summary: str

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return self.template.name

    @cached_property
    def params(self) -> dict[str, object]:
        """Parameters in order with their defaults (`REQUIRED` for none)."""
        parameters = inspect.signature(self.template.function).parameters
        return {name: parameter.default for name, parameter in parameters.items()}

    def args(self, given: Mapping[str, object]) -> tuple[Json, ...]:
        """Arguments in order from parameters by name.

        Raises:
            UsageError: a parameter is unknown (the nearest is named) or missing.
        """
        for key in given:
            if key not in self.params:
                raise UsageError(
                    f"{self.name} has no parameter {key!r}{did_you_mean(key, self.params)}; "
                    f"it takes {', '.join(self.params)}"
                )
        values = {k: given.get(k, default) for k, default in self.params.items()}
        missing = [k for k, v in values.items() if v is REQUIRED]
        if missing:
            example = " ".join(f"{k}=..." for k in missing)
            raise UsageError(f"{self.name} needs {example}")
        return self.template.bind(values.values())


#: Operators by name.
WORKLOADS: dict[str, Operator] = {}


def definition(
    name: str,
    summary: str,
    make_reference: Callable[..., Reference],
    *,
    former: Callable[..., list[Tensor]] | None = None,
) -> Callable[[Callable[..., list[Tensor]]], Workload]:
    """Decorate a function that returns inputs and the result in calling order: an operator.

    On CPUs its space is derived. On GPUs it has the template of `loopwright.ops.gpu.scheduled`,
    which knows the same rules and has every choice as a knob of one space.

    ``name`` is its name on the command line and in records. ``make_reference`` and ``former`` take
    its parameters; ``former`` returns inputs and the result as its former template for CPUs
    computed it, where that had other stages: records of it apply.
    """

    def enter(function: Callable[..., list[Tensor]]) -> Workload:
        made = workload(name, make_reference=make_reference)(function)

        def on_gpus(*args: Any) -> tuple[Schedule, list[Tensor]]:
            *inputs, out = function(*args)
            return gpu.scheduled(out, inputs)

        made.register("gpu")(on_gpus)
        made.former = former
        register(made, summary)
        return made

    return enter


def register(template: Template, summary: str) -> Operator:
    """Make a template that has a reference known to the command line; ``summary`` is one line."""
    operator = Operator(template, summary)
    WORKLOADS[operator.name] = operator
    return operator
