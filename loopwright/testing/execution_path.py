"""The ways in which a scheduled program is executed; each of them can fail on its own.

An `ExecutionPath` is plain data. The fuzz keeps the one that failed, follows it again while it
makes the program smaller, and prints it as a script (`loopwright.testing.reproduce`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

PathKind = Literal["round trip", "interpreter", "passes", "target"]


@dataclass(frozen=True)
class ExecutionPath:
    """One way to execute a schedule.

    Attributes:
        kind: ``"round trip"`` writes the trace as JSON and as Python source and reads it back;
            ``"interpreter"`` interprets the lowered program; ``"passes"`` compares the program with
            all passes to the one with the default passes; ``"target"`` runs compiled code.
        target: the target string of compiled code.
        level: the optimisation level of the passes, 0 to 3.
        checked: whether compiled code checks every access.
        order: the seed of the order in which the interpreter runs GPU threads; None runs them in
            ascending order.
        side: which end of each array lies against a page that may not be touched.
        sizes: values of size variables, by name.
        prepared: whether the two parts of a function of constants run one after the other, each
            called by itself, in place of the whole.
    """

    kind: PathKind
    target: str = ""
    level: int = 2
    checked: bool = False
    order: int | None = 1
    side: Literal["start", "end"] = "end"
    sizes: dict[str, int] = field(default_factory=dict, hash=False)
    prepared: bool = False

    @property
    def config(self) -> dict[str, bool]:
        """Settings of the `PassContext`."""
        return {"verify": True} | ({"instrument_bound_checkers": True} if self.checked else {})

    def __str__(self) -> str:
        text = f"{self.target} at level {self.level}" if self.kind == "target" else self.kind
        text += ", bounds checked" if self.checked else ""
        text += ", in two parts" if self.prepared else ""
        text += "" if self.order == 1 else f", threads in order {self.order}"
        return text + (f", {self.sizes}" if self.sizes else "")
