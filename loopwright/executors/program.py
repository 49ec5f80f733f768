"""A model as data: values, their places in memory, and kernels in the order of a run.

Memory is assigned by liveness: a value gets the smallest gap that holds it among the values that
are alive while it is, the largest values first (greedy by size; Pisarchyk and Lee, 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loopwright import dtypes
from loopwright.errors import RunError, UsageError

Array = npt.NDArray[Any]
#: Origin of a value: a caller, the weights, or a kernel, which stores it in the pool.
Kind = Literal["input", "constant", "stored"]
_KINDS = ("input", "constant", "stored")
_FORMAT, VERSION = "loopwright.program", 1
#: Where values begin in the pool, and extents and offsets at most, whatever a file says.
ALIGNMENT, _MOST = 64, 1 << 47


@dataclass(frozen=True)
class Value:
    """A tensor of a program.

    Attributes:
        name: of an input or a constant, as users know it; else for messages.
        kind: input, constant or stored.
        offset: of a stored value: its first byte in the pool.

    Example:
        >>> print(lw.executors.Value("x", (1, 3, 224, 224), "float32", "input").nbytes)
        602112
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: Kind
    offset: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Step:
    """A call of a kernel.

    Attributes:
        args: numbers of values in the order of its arguments; its ``outputs`` are the last.

    Example:
        >>> print(lw.executors.Step("add", (0, 1, 2)).outputs)
        1
    """

    kernel: str
    args: tuple[int, ...]
    outputs: int = 1

    @property
    def reads(self) -> tuple[int, ...]:
        """Numbers of the values that it reads."""
        return self.args[: len(self.args) - self.outputs]

    @property
    def writes(self) -> tuple[int, ...]:
        """Numbers of the values that it writes."""
        return self.args[len(self.args) - self.outputs :]


@dataclass(frozen=True)
class Program:
    """A model as an executor runs it.

    RunError where it is inconsistent: an unknown number, memory outside of the pool, a value that
    is read before it is written, or after another one has overwritten it.

    Attributes:
        inputs, outputs: numbers of the values that a caller gives, and gets, in order.
        pool_bytes: memory for stored values.
        output_names: names of its outputs, in order, all different; default ``output_0``,
            ``output_1`` and so on.

    Example:
        >>> from loopwright.executors import Program, Step, Value
        >>> x, y = Value("x", (4,), "float32", "input"), Value("y", (4,), "float32", "stored")
        >>> program = Program((x, y), (Step("double", (0, 1)),), (0,), (1,), 64)
        >>> print(Program.from_json(program.to_json()) == program)
        True
    """

    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    pool_bytes: int
    output_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = self.output_names or tuple(f"output_{n}" for n in range(len(self.outputs)))
        object.__setattr__(self, "output_names", names)
        if len(names) != len(self.outputs) or len(set(names)) != len(names):
            shown = f"{names!r:.200}"
            raise RunError(f"a program has {len(self.outputs)} outputs, and for them {shown}")
        if not 0 <= self.pool_bytes < _MOST:
            raise RunError(f"a program asks for {self.pool_bytes} bytes of memory")
        for n, v in enumerate(self.values):
            _check_value(n, v, self.pool_bytes)
        for n in (*self.inputs, *self.outputs, *(a for s in self.steps for a in s.args)):
            if not 0 <= n < len(self.values):
                raise RunError(f"a program names value {n}; it has {len(self.values)}")
        input_numbers = {n for n, v in enumerate(self.values) if v.kind == "input"}
        if set(self.inputs) != input_numbers or len(self.inputs) != len(input_numbers):
            raise RunError("the inputs of a program are not its values that are given")
        _check_order(self)

    @cached_property
    def input_values(self) -> tuple[Value, ...]:
        """Values that a caller gives, in order."""
        return tuple(self.values[n] for n in self.inputs)

    @cached_property
    def output_values(self) -> tuple[Value, ...]:
        """Values that it returns, in order, by the names of the outputs."""
        named = zip(self.outputs, self.output_names, strict=True)
        return tuple(replace(self.values[n], name=name) for n, name in named)

    @cached_property
    def outputs_alone(self) -> tuple[bool, ...]:
        """For each output whether it is one stored value of its own."""
        values, outputs = self.values, self.outputs
        return tuple(values[n].kind == "stored" and outputs.count(n) == 1 for n in outputs)

    def to_json(self) -> dict[str, Any]:
        """The form in a file, as JSON."""
        values = [[v.name, list(v.shape), v.dtype, v.kind, v.offset] for v in self.values]
        return {
            "format": _FORMAT,
            "version": VERSION,
            "values": values,
            **steps_to_json(self.steps, self.inputs, self.outputs),
            "pool_bytes": self.pool_bytes,
            "output_names": list(self.output_names),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Program:
        """The program of `to_json`; RunError for anything else, or another version."""
        with reading(data, _FORMAT, "program of a model"):
            return Program(
                tuple(Value(str(n), tuple(s), d, k, o) for n, s, d, k, o in data["values"]),
                *steps_from_json(data),
                data["pool_bytes"],
                tuple(map(str, data.get("output_names", ()))),
            )


@contextmanager
def reading(data: Mapping[str, Any], form: str, what: str) -> Iterator[None]:
    """Read JSON of a format and of this version; RunError for any other, or for changed data."""
    if not isinstance(data, Mapping) or data.get("format") != form:
        raise RunError(f"this is no {what}")
    if data.get("version") != VERSION:
        raise RunError(
            f"this program has version {data.get('version')!r}, and {VERSION} is known; build the "
            "model again"
        )
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, UsageError) as exc:
        raise RunError(f"this program was changed: {type(exc).__name__}: {exc}") from exc


def steps_to_json(
    steps: Sequence[Step], inputs: Sequence[int], outputs: Sequence[int]
) -> dict[str, Any]:
    return {
        "steps": [[s.kernel, list(s.args), s.outputs] for s in steps],
        "inputs": list(inputs),
        "outputs": list(outputs),
    }


def steps_from_json(
    data: Mapping[str, Any],
) -> tuple[tuple[Step, ...], tuple[int, ...], tuple[int, ...]]:
    steps = tuple(Step(str(k), tuple(a), o) for k, a, o in data["steps"])
    return steps, tuple(data["inputs"]), tuple(data["outputs"])


def _check_value(number: int, v: Value, pool_bytes: int) -> None:
    dtypes.check(v.dtype)
    in_range = all(type(n) is int and 0 <= n < _MOST for n in (*v.shape, v.offset))
    if v.kind not in _KINDS or not in_range or v.nbytes >= _MOST:
        raise RunError(f"value {number} of a program is malformed: {v!r:.120}")
    outside = v.offset + v.nbytes > pool_bytes or v.offset % ALIGNMENT
    if v.kind == "stored" and outside:
        raise RunError(f"value {number} of a program lies outside of its {pool_bytes} bytes: {v}")


def _check_order(program: Program) -> None:
    """Check that each value is written before it is read, and not overwritten before."""
    values = program.values
    alive: dict[int, Value] = {}
    for step in program.steps:
        if not 1 <= step.outputs <= len(step.args):
            raise RunError(f"kernel {step.kernel!r} of a program has {step.outputs} outputs")
        _check_alive(program, step.reads, alive, f"kernel {step.kernel!r} reads")
        for n in step.writes:
            if values[n].kind != "stored":
                raise RunError(f"kernel {step.kernel!r} of a program writes an input or a constant")
            over = [m for m, v in alive.items() if overlap(v, values[n])]
            if set(over) & set(step.reads):
                raise RunError(f"kernel {step.kernel!r} of a program overwrites what it reads")
            for m in over:
                del alive[m]
        for n in step.writes:
            alive[n] = values[n]
    _check_alive(program, program.outputs, alive, "an output is")


def _check_alive(
    program: Program, numbers: Sequence[int], alive: Mapping[int, Value], what: str
) -> None:
    for n in numbers:
        if program.values[n].kind == "stored" and n not in alive:
            raise RunError(f"{what} value {n} of a program, which is not made yet, or overwritten")


def overlap(a: Value, b: Value) -> bool:
    return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes


def placed(
    values: Sequence[Value],
    steps: Sequence[Step],
    inputs: Sequence[int],
    outputs: Sequence[int],
    output_names: Sequence[str] = (),
    alignment: int = ALIGNMENT,
) -> Program:
    """A program whose stored values get offsets; `alignment` is a power of two from 64 on."""
    lives: dict[int, tuple[int, int]] = {}  # the steps that write a stored value, and read it last
    for at, step in enumerate(steps):
        for n in step.args:
            if values[n].kind == "stored":
                lives[n] = (lives.get(n, (at, at))[0], at)
    lives |= {n: (lives[n][0], len(steps)) for n in outputs if n in lives}
    offsets, size = share_out({n: values[n].nbytes for n in lives}, lives, alignment)
    there = [replace(v, offset=offsets.get(n, 0)) for n, v in enumerate(values)]
    return Program(
        tuple(there), tuple(steps), tuple(inputs), tuple(outputs), size, tuple(output_names)
    )


def share_out(
    sizes: Mapping[int, int], lives: Mapping[int, tuple[int, int]], alignment: int = ALIGNMENT
) -> tuple[dict[int, int], int]:
    """Offsets in a pool for values by their bytes and their first and last steps, both included, so
    that values that live at one time do not overlap; and the pool's bytes.
    """
    offsets: dict[int, int] = {}
    rounded = {n: -(-max(size, 1) // alignment) * alignment for n, size in sizes.items()}
    for n in sorted(rounded, key=lambda n: (-rounded[n], lives[n])):
        begin, end = lives[n]
        beside = [m for m in offsets if lives[m][0] <= end and begin <= lives[m][1]]
        offsets[n] = _gap(rounded[n], sorted((offsets[m], rounded[m]) for m in beside))
    return offsets, max((offsets[n] + rounded[n] for n in offsets), default=0)


def _gap(size: int, taken: list[tuple[int, int]]) -> int:
    """The beginning of the smallest gap between places that are taken; else their end."""
    best, end = None, 0
    for offset, taken_size in taken:
        gap = offset - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, offset + taken_size)
    return end if best is None else best[1]
