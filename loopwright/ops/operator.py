"""What an operator is: a tunable template with a NumPy reference, and a line of text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy.typing as npt

from loopwright.errors import UsageError, did_you_mean
from loopwright.ir.expr import Expr, IterVar
from loopwright.records import Json
from loopwright.task import Template

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
        template: its tunable template; the default configuration is its default schedule.
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
        """Its name on the command line, that of its template."""
        return self.template.name

    @cached_property
    def params(self) -> dict[str, object]:
        """Parameters of the template in order with their defaults (`REQUIRED` for none)."""
        parameters = inspect.signature(self.template.function).parameters
        return {name: parameter.default for name, parameter in parameters.items()}

    def args(self, given: Mapping[str, object]) -> tuple[Json, ...]:
        """Arguments of the template from parameters by name.

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


def register(template: Template, summary: str) -> Operator:
    """Make an operator known to the command line.

    Args:
        template: its template, which has a reference.
        summary: what it computes, in one line.
    """
    operator = Operator(template, summary)
    WORKLOADS[operator.name] = operator
    return operator
