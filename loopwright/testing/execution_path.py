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

    ``"round trip"`` writes the trace as JSON and as Python source and reads it back;
    ``"interpreter"`` interprets the lowered program; ``"passes"`` compares the program with all
    passes to the one with the default passes; ``"target"`` runs compiled code.
    """

    kind: PathKind
    #: The target string of compiled code.
    target: str = ""
    #: The optimisation level of the passes, 0 to 3.
    level: int = 2
    #: Whether compiled code checks every access.
    checked: bool = False
    #: Seed of the order of GPU threads in the interpreter; None: ascending.
    order: int | None = 1
    #: The end of each array that lies against a forbidden page.
    side: Literal["start", "end"] = "end"
    #: Values of size variables, by name.
    sizes: dict[str, int] = field(default_factory=dict, hash=False)
    #: Whether to call the two parts of a function of constants one after the other.
    prepared: bool = False

    @property
    def config(self) -> dict[str, bool]:
        return {"verify": True} | ({"instrument_bound_checkers": True} if self.checked else {})

    def __str__(self) -> str:
        text = f"{self.target} at level {self.level}" if self.kind == "target" else self.kind
        text += ", bounds checked" if self.checked else ""
        text += ", in two parts" if self.prepared else ""
        text += "" if self.order == 1 else f", threads in order {self.order}"
        return text + (f", {self.sizes}" if self.sizes else "")
