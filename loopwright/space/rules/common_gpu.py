"""Choices of rules for GPUs: knobs of a template, or symbols of a structure.

A rule declares its choices and schedules by the values that it reads, so that it is written once.
In a structure sizes are symbols, a flag that decides only a size is a symbol of 0 or 1, and every
other choice is a structure of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, product
from math import gcd, log2
from typing import Any, Protocol, TypeVar

from loopwright import dtypes, te
from loopwright.schedule import Schedule
from loopwright.space.expression import accesses, is_computed, producers, readers
from loopwright.space.structure import Sketch, Structure, fused
from loopwright.target import OPENCL_DEFAULTS, Target

T = TypeVar("T")
#: Reads the value of a name: a number, a tuple of sizes, a bool; symbols in structures.
Values = Callable[[str], Any]
#: Structures of an expression at most: programs of many kernels have choices for each.
_MOST_STRUCTURES = 8


@dataclass(frozen=True)
class LoopSizes:
    length: int  # of the loop
    #: sizes of its parts but the outermost, from the outside in
    candidates: Sequence[tuple[int, ...]]
    default: tuple[int, ...]  # one of the candidates


class Knobs(Protocol):
    """Place where a rule for GPUs defines its choices and reads them."""

    s: Schedule

    @property
    def collects(self) -> bool:
        """Whether candidates are collected; else they are known, and definitions may be skipped."""

    def value(self, name: str) -> Any: ...

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Value that no choice changes; computed once for all structures of a rule."""

    def number(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """Define a size; by default the first."""

    def numbers(
        self,
        name: str,
        each: Mapping[str, tuple[Sequence[int], int]],
        accepts: Callable[[Values], bool],
    ) -> None:
        """Define sizes of which only some fit together; in a structure one knob ``name``."""

    def loops(
        self,
        name: str,
        each: Mapping[str, LoopSizes],
        together: Callable[[], Sequence[tuple[tuple[int, ...], ...]]] | None,
    ) -> None:
        """Define the splits of loops: in a structure one knob ``name`` with the candidates of
        ``together``, sizes of each loop in order, or without it a knob for each loop."""

    def flag(self, name: str, candidates: Sequence[bool], default: bool | None = None) -> Any:
        """Define a flag that decides a size: true is 1 and false 0."""

    def choice(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """Define a number or flag that decides more than sizes."""

    def keep(self, accepts: Callable[[Values], bool]) -> None:
        """Leave out configurations that a device would refuse."""


def width_of(flag: Any, widest: int) -> Any:
    """``widest`` where a flag is set, else 1."""
    return 1 + flag * (widest - 1)


def is_one(size: Any) -> bool:
    """Whether a size is 1 in every configuration."""
    return isinstance(size, int) and size == 1


class Choices:
    """Choices beside sizes of one structure; after ``decided``, the first option is taken."""

    def __init__(self, decided: tuple[int, ...]) -> None:
        self._decided = decided
        self.taken: dict[str, int] = {}  # choices by name
        #: decisions of other structures: one choice differs, the later ones are open
        self.others: list[tuple[int, ...]] = []

    @property
    def words(self) -> list[str]:
        """Choices in words; flags that are off are left out."""
        choices = self.taken.items()
        return [name if x is True else f"{name} {x}" for name, x in choices if x is not False]

    def take(self, name: str, options: Sequence[int]) -> int:
        before = tuple(self.taken.values())
        if len(before) < len(self._decided):
            chosen = self._decided[len(before)]
        else:
            chosen = options[0]
            self.others += [(*before, option) for option in options[1:]]
        self.taken[name] = chosen
        return chosen


class StructureKnobs:
    """Knobs of a structure under construction; ``once`` has values computed once for the rule."""

    def __init__(
        self,
        outputs: Sequence[te.Tensor],
        args: Sequence[te.Tensor],
        choices: Choices,
        once: dict[str, Any],
    ) -> None:
        self.sketch = Sketch(outputs, args)
        self.s = self.sketch.s
        self.choices = choices
        self.collects = True
        self._values: dict[str, Any] = {}
        self._positions: dict[str, _Position] = {}
        self._once = once

    def value(self, name: str) -> Any:
        return self._values[name]

    def once(self, name: str, make: Callable[[], T]) -> T:
        if name not in self._once:
            self._once[name] = make()
        value: T = self._once[name]
        return value

    def number(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        value = candidates[0]
        if len(candidates) > 1:
            value = self.sketch.number(name, candidates, default)
            self._positions[name] = _Position(name)
        self._values[name] = value
        return value

    def numbers(
        self,
        name: str,
        each: Mapping[str, tuple[Sequence[int], int]],
        accepts: Callable[[Values], bool],
    ) -> None:
        """Define sizes as one knob of fitting ones; by default those nearest to the defaults."""
        names = list(each)
        every = product(*(candidates for candidates, _ in each.values()))
        fitting = [x for x in every if accepts(dict(zip(names, x, strict=True)).__getitem__)]
        defaults = [default for _, default in each.values()]

        def distance(sizes: Sequence[int]) -> float:
            return sum(abs(log2(a / b)) for a, b in zip(sizes, defaults, strict=True))

        choice = self.sketch.numbers(name, fitting, min(fitting, key=distance))
        self._values |= dict(zip(names, choice, strict=True))
        self._positions |= {size: _Position(name, at) for at, size in enumerate(names)}

    def loops(
        self,
        name: str,
        each: Mapping[str, LoopSizes],
        together: Callable[[], Sequence[tuple[tuple[int, ...], ...]]] | None,
    ) -> None:
        if together is None:
            for part, loop in each.items():
                self._values[part] = self.sketch.numbers(part, loop.candidates, loop.default)
                self._positions[part] = _Position(part, 0, len(loop.default))
            return
        default = tuple(n for loop in each.values() for n in loop.default)
        candidates = self.once(name, lambda: [tuple(chain(*point)) for point in together()])
        chosen = self.sketch.numbers(name, candidates, default)
        at = 0
        for part, loop in each.items():
            end = at + len(loop.default)
            self._values[part] = chosen[at:end]
            self._positions[part] = _Position(name, at, end)
            at = end

    def flag(self, name: str, candidates: Sequence[bool], default: bool | None = None) -> Any:
        first = candidates[0] if default is None else default
        return self.number(name, [int(x) for x in candidates], int(first))

    def choice(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """Take one of the options; each other one is another structure."""
        options = sorted(candidates, key=lambda x: x is not default)
        chosen = options[0] if len(options) == 1 else self.choices.take(name, options)
        self._values[name] = chosen
        return chosen

    def keep(self, accepts: Callable[[Values], bool]) -> None:
        positions, fixed = dict(self._positions), self._values

        def passes(config: Any) -> bool:
            return accepts(lambda n: positions[n].of(config) if n in positions else fixed[n])

        self.sketch.space.multi_filter(passes)


@dataclass(frozen=True)
class _Position:
    """Position of a value: a knob, or some of its numbers."""

    knob: str
    first: int | None = None  # number, or the first of several; None: the knob is a number
    end: int | None = None  # index after the last; None: one number

    def of(self, config: Any) -> Any:
        value = config[self.knob].val
        if self.first is None:
            return value
        return value[self.first] if self.end is None else tuple(value[self.first : self.end])


def unique_name(name: str, taken: set[str]) -> str:
    """A name, with a number where it is taken: axes and stages may have equal names."""
    numbered = (f"{name}_{n}" if n else name for n in count())
    unique = next(n for n in numbered if n not in taken)
    taken.add(unique)
    return unique


def every_structure(
    outputs: Sequence[te.Tensor],
    args: Sequence[te.Tensor],
    name: str,
    why: str,
    schedule: Callable[[Knobs], object],
) -> list[Structure]:
    """Structures of a rule: one for each combination of choices, at most 8, all defaults first,
    then structures that differ in one choice, and so on."""
    structures: list[Structure] = []
    waiting: deque[tuple[int, ...]] = deque([()])
    once: dict[str, Any] = {}
    while waiting and len(structures) < _MOST_STRUCTURES:
        choices = Choices(waiting.popleft())
        knobs = StructureKnobs(outputs, args, choices, once)
        schedule(knobs)
        knobs.sketch.why.append(why)
        structures.append(knobs.sketch.finished(", ".join([name, *choices.words])))
        waiting += choices.others
    return structures


MOST_BLOCKS_YZ = 65535  #: blocks of the axes y and z that every device launches
_REGISTERS = 65536  #: registers of a block where the target does not say: those of all CUDA devices
_UNROLLED = 16  #: unrolled copies of a statement by default


@dataclass(frozen=True)
class LaunchLimits:
    """Limits of a target, and the properties that its default configurations depend on."""

    threads: int  # of a block, at most
    shared: int  # bytes of shared memory of a block, at most
    vthreads: int  # virtual threads of a loop, at most
    vector_bytes: int  # bytes that a thread reads or writes at once
    warp: int  # threads that run in lockstep
    processors: int  # processors that run blocks
    registers: int  # of a block, at most, in words of 4 bytes

    @classmethod
    def current(cls) -> LaunchLimits:
        """Limits of the target in force; those of any OpenCL device where it names none."""
        options = {**OPENCL_DEFAULTS, **Target.current().options}
        return cls(
            options["max_threads_per_block"],
            options["max_shared_memory_per_block"],
            options["max_vthread"],
            options["max_vector_bytes"],
            options["thread_warp_size"],
            options["multi_processor_count"],
            options.get("registers_per_block", _REGISTERS),
        )

    def lanes(self, *types: str) -> int:
        """Elements, at most four, that a thread reads at once of tensors of some types."""
        return max(1, min(4, *(self.vector_bytes // dtypes.nbytes(x) for x in types)))


def powers(most: int, least: int = 1) -> list[int]:
    return [1 << n for n in range(most.bit_length()) if least <= 1 << n <= most]


def common_width(widest: int, *lengths: int) -> int:
    """Widest vector, a power of two of at most ``widest``, that divides some lengths."""
    return max(w for w in powers(widest) if gcd(w, *lengths) == w)


def copy_together(s: Schedule, stage: te.Tensor, threads: Any, width: Any) -> None:
    """Fill a stage in shared memory, computed at a loop of the kernel, by all threads of a block:
    neighbours side by side, ``width`` elements at once, few rounds unrolled."""
    rest = fused(s, stage, s[stage].op.axis)
    if not is_one(width):
        rest, lanes = s[stage].split(rest, factor=width)
        s[stage].vectorize(lanes)
    rounds, thread = s[stage].split(rest, factor=threads)
    s[stage].bind(thread, te.thread_axis("threadIdx.x"))
    s[stage].pragma(rounds, "auto_unroll_max_step", _UNROLLED)


@dataclass(frozen=True)
class KernelStages:
    """Result in global memory with the stages that it computes on its way."""

    out: te.Tensor
    #: stages of the kernel, the result last; other reads are inputs, and results of other kernels
    stages: tuple[te.Tensor, ...]
    program: tuple[te.Tensor, ...]  # all stages of the program

    @property
    def reductions(self) -> list[te.Tensor]:
        return [t for t in self.stages if t.op.reduce_axis]

    @property
    def dtypes(self) -> set[str]:
        """Types of the reads of its stages and of its result."""
        return {self.out.dtype, *(x.dtype for t in self.stages for x in t.op.input_tensors)}

    def computes(self, tensor: te.Tensor) -> bool:
        return any(tensor.op is t.op for t in self.stages)

    def inline(self, s: Schedule, but: Sequence[te.Tensor]) -> None:
        """Inline the stages but some; those that an earlier kernel inlines already are so here."""
        for t in self.stages:
            if t not in but and s.state.stages[s[t].id].attach.kind != "inline":
                s[t].compute_inline()


def whole_program(*outs: te.Tensor) -> KernelStages:
    # Outputs of an operation are one stage.
    by_op = {t.op: t for out in outs for t in producers(out)} | {out.op: out for out in outs}
    stages = tuple(by_op.values())
    return KernelStages(outs[-1], stages, stages)


def kernel_of(
    out: te.Tensor, program: Sequence[te.Tensor], others: Sequence[te.Tensor]
) -> KernelStages:
    mine, elsewhere = {out.op}, {t.op for t in others if t is not out}
    for t in reversed(program):
        if t.op in mine:
            mine |= {x.op for x in t.op.input_tensors if is_computed(x)} - elsewhere
    return KernelStages(out, tuple(t for t in program if t.op in mine), tuple(program))


def is_elementwise_over(kernel: KernelStages, reduction: te.Tensor) -> bool:
    """Whether every stage behind a reduction reads it, and stages over it, at its own element."""
    out, chain = kernel.out, kernel.stages
    behind = {reduction}
    for t in chain[chain.index(reduction) + 1 :]:
        if _reads_otherwise(t, behind):
            return False
        behind |= {t} if any(a.tensor in behind for a in accesses(t)) else set()
    return out in behind and out.static_shape == reduction.static_shape


def last_elementwise(reduction: te.Tensor, program: Sequence[te.Tensor]) -> te.Tensor:
    """Last stage that depends elementwise on a reduction alone, and is computed as its epilogue."""
    last = reduction
    while True:
        behind = readers(last, program)
        if len(behind) != 1 or behind[0].op.reduce_axis or _reads_otherwise(behind[0], {last}):
            return last
        # One with several results has a kernel of its own.
        if behind[0].static_shape != reduction.static_shape or behind[0].op.num_outputs > 1:
            return last
        last = behind[0]


def _reads_otherwise(t: te.Tensor, sources: set[te.Tensor]) -> bool:
    point = [{x: 1} for x in t.op.axis]
    reads = [a for a in accesses(t) if a.tensor in sources]
    return any([d and dict(d.moves) for d in a.dims] != point for a in reads)
