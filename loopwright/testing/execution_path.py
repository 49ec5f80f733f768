"""The ways in which a case is run, each of which can fail on its own.

A `Way` is data, so that a failure can be looked for again while its program is made smaller, and
be printed as a program that runs without the fuzz (`loopwright.testing.reproduce`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Way:
    """One way to run a schedule.

    Attributes:
        kind: ``"round trip"`` (the trace through JSON and Python source), ``"interpreter"``,
            ``"passes"`` (with all of them, against without) or ``"target"``.
        target: of compiled code.
        level: of passes.
        checked: whether compiled code checks every access.
        order: seed of the order of GPU threads; None runs them in ascending order.
        side: which end of each array lies against forbidden memory.
        sizes: values of size variables, by name.
    """

    kind: str
    target: str = ""
    level: int = 2
    checked: bool = False
    order: int | None = 1
    side: str = "end"
    sizes: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def config(self) -> dict[str, Any]:
        """Settings of the `PassContext`."""
        return {"verify": True} | ({"instrument_bound_checkers": True} if self.checked else {})

    def __str__(self) -> str:
        text = f"{self.target} at level {self.level}" if self.kind == "target" else self.kind
        text += ", bounds checked" if self.checked else ""
        text += "" if self.order == 1 else f", threads in order {self.order}"
        return text + (f", {self.sizes}" if self.sizes else "")
