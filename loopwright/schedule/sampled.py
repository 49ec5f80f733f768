"""`Sampled`: a number that a sampling step of the trace chose."""

from __future__ import annotations

from typing import Self


class Sampled(int):
    """A number that a step chose, in whose place a replay of the trace may have another one.

    Everywhere it is the number; steps that take it keep that it comes from there. Arithmetic on it
    gives plain numbers.
    """

    #: Index of the step that chose it.
    step: int
    #: Its index among the numbers that the step chose.
    part: int

    def __new__(cls, value: int, step: int = -1, part: int = 0) -> Self:
        made = super().__new__(cls, value)
        made.step, made.part = step, part
        return made

    @property
    def name(self) -> str:
        """Name in the Python text of a trace."""
        return f"v{self.step}_{self.part}"
