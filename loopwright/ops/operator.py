"""What an operator is: a definition, a reference, parameters, and a template to tune."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loopwright.errors import UsageError, did_you_mean
from loopwright.task import Template

#: Marks a parameter that must be given.
REQUIRED = object()


@dataclass(frozen=True)
class Operator:
    """An operator as the command line and the tests see it.

    Attributes:
        name: its name on the command line.
        template: its tunable template; the default configuration is its default schedule.
        params: parameters in the template's order with their defaults (`REQUIRED` for none).
        make_reference: from the template's arguments to the NumPy function of the inputs.
        summary: one line of text.
    """

    name: str
    template: Template
    params: dict[str, Any]
    make_reference: Callable[..., Callable[..., Any]]
    summary: str

    def args(self, given: dict[str, Any]) -> tuple[Any, ...]:
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


def register(op: Operator) -> Operator:
    """Make an operator known to the command line."""
    WORKLOADS[op.name] = op
    return op
