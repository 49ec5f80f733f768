"""`Sampled`: a number that a sampling step of the trace chose."""

from __future__ import annotations

from typing import Self


class Sampled(int):
    """A number that a step chose, in whose place a replay of the trace may have another one.

    Everywhere it is the number; steps that take it keep that it comes from there. Arithmetic on it
    gives plain numbers.

    Attributes:
        step: the index of the step that chose it.
        part: which of the numbers that the step chose.

    Example:
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> factor = s[B].sample_categorical([4, 8], decision=8)
        >>> print(factor, factor.step, factor + 1)
        8 0 9
    """

    step: int
    part: int

    def __new__(cls, value: int, step: int = -1, part: int = 0) -> Self:
        """A number that part ``part`` of what step ``step`` chose is."""
        made = super().__new__(cls, value)
        made.step, made.part = step, part
        return made

    @property
    def name(self) -> str:
        """What it is called in the Python text of a trace."""
        return f"v{self.step}_{self.part}"
