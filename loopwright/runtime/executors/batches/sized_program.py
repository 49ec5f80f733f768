"""A program with one size that is known only when it runs, such as the batch of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loopwright.errors import RunError, UsageError
from loopwright.runtime.artifacts.size_formulas import SizeFormula, evaluate, text
from loopwright.runtime.executors.memory_plan import placed
from loopwright.runtime.executors.program import Kind, Program, Step, Value

_FORMAT, _VERSION = "loopwright.sized_program", 1
#: Size for the checks of a program when it is read: any size gives the same structure.
_ANY = 2


@dataclass(frozen=True)
class SizedValue:
    """A tensor of a program whose extents may depend on its size.

    Attributes:
        name, dtype, kind: as of `Value`.
        shape: its extents: numbers, the name of the size, or formulas of it
            (`loopwright.runtime.artifacts.size_formulas`).

    Example:
        >>> from loopwright.runtime.executors import SizedValue
        >>> print(SizedValue("x", (["*", "n", 2], 3), "float32", "input").at({"n": 4}).shape)
        (8, 3)
    """

    name: str
    shape: tuple[SizeFormula, ...]
    dtype: str
    kind: Kind

    def at(self, sizes: Mapping[str, int]) -> Value:
        """The value for given sizes."""
        shape = tuple(evaluate(n, sizes) for n in self.shape)
        return Value(self.name, shape, self.dtype, self.kind)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(text, self.shape))}]"


@dataclass(frozen=True)
class SizedProgram:
    """A program with one open size; `at` gives the program for a number.

    Attributes:
        size: the name of the size.
        values, steps, inputs, outputs, output_names: as of `Program`. Kernels of steps serve every
            size.

    Example:
        >>> from loopwright.runtime.executors import SizedProgram, SizedValue, Step
        >>> x = SizedValue("x", ("n", 4), "float32", "input")
        >>> y = SizedValue("y", ("n", 4), "float32", "stored")
        >>> program = SizedProgram("n", (x, y), (Step("double", (0, 1)),), (0,), (1,))
        >>> print(program.at(8).values[1].shape, program.at(8).pool_bytes)
        (8, 4) 128
    """

    size: str
    values: tuple[SizedValue, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    output_names: tuple[str, ...] = ()

    def at(self, number: int) -> Program:
        """The program for a number of the size, with its memory planned.

        Raises:
            RunError: it is inconsistent, see `Program`.
            UsageError: a formula is malformed.
        """
        values = [v.at({self.size: number}) for v in self.values]
        return placed(values, self.steps, self.inputs, self.outputs, self.output_names)

    @property
    def input_values(self) -> tuple[SizedValue, ...]:
        """Values that a caller gives, in order."""
        return tuple(self.values[n] for n in self.inputs)

    def to_json(self) -> dict[str, Any]:
        """The program as JSON."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "size": self.size,
            "values": [[v.name, list(v.shape), v.dtype, v.kind] for v in self.values],
            "steps": [[s.kernel, list(s.args), s.outputs] for s in self.steps],
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "output_names": list(self.output_names),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SizedProgram:
        """The program of `to_json`.

        Raises:
            RunError: it is something else, of another version, or is inconsistent.
        """
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
            raise RunError("this is no program of a model whose size varies")
        if data.get("version") != _VERSION:
            raise RunError(
                f"this program has version {data.get('version')!r}, and {_VERSION} is known; "
                "build the model again"
            )
        try:
            found = SizedProgram(
                str(data["size"]),
                tuple(SizedValue(n, tuple(s), d, k) for n, s, d, k in data["values"]),
                tuple(Step(k, tuple(a), o) for k, a, o in data["steps"]),
                tuple(data["inputs"]),
                tuple(data["outputs"]),
                tuple(map(str, data["output_names"])),
            )
            found.at(_ANY)
        except (KeyError, TypeError, ValueError, IndexError, UsageError) as exc:
            raise RunError(f"this program was changed: {type(exc).__name__}: {exc}") from exc
        return found
