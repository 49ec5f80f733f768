"""Structures: traces of an expression whose sizes are knobs; and `Sketch`, which makes them.

Orders of loops, annotations and placements are fixed; factors are symbols, each of which stands for
a part of a knob's choice. So a structure is a trace as data, and a schedule is that trace with
numbers in place of symbols.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from itertools import count, islice
from typing import Any

from loopwright import te
from loopwright.cost import Graph, Sym, reachable, with_leaves
from loopwright.errors import InternalError, SpaceError
from loopwright.ir.expr import IterVar
from loopwright.ir.sizes import Symbol
from loopwright.schedule import (
    SampleCategorical,
    SamplePerfectTile,
    Schedule,
    State,
    Step,
    create_schedule,
    perfect_tiles,
    replay,
)
from loopwright.space.expression import TensorProgram
from loopwright.space.kernels import Kernel, kernels
from loopwright.target import Target
from loopwright.task import STRUCTURE, ConfigEntity, ConfigSpace, Scheduled, Task
from loopwright.te import ArgId, Dag


@dataclass(frozen=True, eq=False)
class Structure:
    """Trace of an expression with symbols for sizes, and the knobs that choose these.

    Example:
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> with lw.Target("llvm"):
        ...     structure = lw.space.structures(B, [A, B])[0]
        ...
        >>> s, args = structure.instantiate(structure.config_space.get(0))
        >>> print([t.name for t in args])
        ['A', 'B']
    """

    name: str  #: its name in records, such as ``"C: tile i x j, B packed for each panel"``
    why: tuple[str, ...]  #: rules that made it, and their reasons, in order
    config_space: ConfigSpace
    target: Target
    dag: Dag
    arg_ids: tuple[ArgId, ...]  #: the arguments in calling order, as ids of the DAG
    trace: tuple[Step, ...]  #: its steps, with symbols
    #: Number of a symbol's node to the name of a knob and the part of its choice.
    symbols: Mapping[int, tuple[str, int]]

    @cached_property
    def content(self) -> str:
        """Hash of the expression, the arguments, the target, the knobs with their defaults, and the
        steps; two structures of one content schedule every point alike."""
        space = self.config_space
        values = [getattr(step, f.name) for step in self.trace for f in fields(step)]
        symbols = [symbol for value in values for symbol in _symbols_in(value)]
        # All are of one graph.
        nodes = dict(enumerate(symbols[0].graph.nodes)) if symbols else {}
        needed = [(n, nodes[n]) for n in reachable(nodes, {x.number for x in symbols})]
        parts: list[object] = [self.dag.hash, self.arg_ids, self.target.canonical]
        parts += [space.space_hash, space.default_index, sorted(self.symbols.items()), needed]
        parts += [(type(step).__name__, step.fields_json()) for step in self.trace]
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def instantiate(self, config: ConfigEntity) -> tuple[Schedule, list[te.Tensor]]:
        """Schedule of a configuration of its space, and the arguments in calling order.

        Its numbers may be symbols of another graph: a cost model then describes all candidates.
        """
        s = replay(self.dag, self.steps(config))
        return s, [s.tensor(a) for a in self.arg_ids]

    def steps(self, config: ConfigEntity) -> list[Step]:
        """Steps of a configuration of its space, with its numbers."""

        def leaf(number: int) -> Any:
            if number not in self.symbols:
                raise InternalError(f"structure {self.name}: symbol {number} is no part of a knob")
            knob, part = self.symbols[number]
            choice = config[knob].val
            return choice[part] if isinstance(choice, tuple) else choice

        def resolved(step: Step) -> Step:
            old = {f.name: getattr(step, f.name) for f in fields(step)}
            new = {
                name: _with_values(x, lambda sym: with_leaves(sym, leaf)) for name, x in old.items()
            }
            changed = {name: x for name, x in new.items() if x is not old[name]}
            return replace(step, **changed) if changed else step

        return [resolved(step) for step in self.trace]

    def __str__(self) -> str:
        return f"{self.name} ({self.config_space.range_length} configurations)"


def _symbols_in(x: object) -> Iterator[Sym]:
    if isinstance(x, Sym):
        yield x
    elif isinstance(x, tuple):
        for part in x:
            yield from _symbols_in(part)


def _with_values(x: Any, value: Callable[[Sym], Any]) -> Any:
    if isinstance(x, Sym):
        return value(x)
    if not isinstance(x, tuple):
        return x
    parts = tuple(_with_values(part, value) for part in x)
    return parts if any(a is not b for a, b in zip(parts, x, strict=True)) else x


class SymbolicKnobs:
    """Knobs of a structure under construction, and the symbols of their choices. Copies share a
    graph, in which numbers of knobs tell their symbols apart."""

    def __init__(self) -> None:
        self.space, self.graph = ConfigSpace(), Graph()
        self.symbols: dict[int, tuple[str, int]] = {}

    def copy(self) -> SymbolicKnobs:
        twin = copy(self)
        twin.space, twin.symbols = ConfigSpace(), dict(self.symbols)
        twin.space.knobs.update(self.space.knobs)
        return twin

    def define(self, number: int, name: str, candidates: list[Any], default: Any) -> Any:
        """Define a knob; returns its choice: symbols, or the numbers of a single candidate."""
        self.space.define_knob(name, candidates, default=default)
        parts = self.space.knobs[name].parts()
        choice = tuple(self.graph.leaf(number, part, values) for part, values in enumerate(parts))
        symbols = [(x.number, part) for part, x in enumerate(choice) if isinstance(x, Sym)]
        self.symbols |= {symbol: (name, part) for symbol, part in symbols}
        return choice

    def structure(
        self,
        name: str,
        why: Sequence[str],
        dag: Dag,
        arg_ids: tuple[ArgId, ...],
        trace: Sequence[Step],
    ) -> Structure:
        """Structure of a trace for the target in force; no knob can be defined afterwards."""
        self.space.freeze()
        symbols = dict(self.symbols)
        target = Target.current()
        return Structure(name, tuple(why), self.space, target, dag, arg_ids, tuple(trace), symbols)


class TemplateStructure:
    """Template, for the target of an expression, that computes the same. Its knobs are those of the
    template, with the knob that names it. `SpaceError` if the template computes something else, or
    is for another target. ``like`` is a structure of the expression."""

    def __init__(self, task: Task, program: TensorProgram, like: Structure) -> None:
        self.name = f"template {task}"  # template and its arguments
        self.why = (f"written by hand: {task.template.where}",)
        if task.target != like.target:
            raise SpaceError(f"{self.name} is for the target {task.target}, not for {like.target}")
        # A task of its own: the knob that names it is none of the template's own space.
        self._task = Task(task.template, task.args, task.target)
        space = self.config_space = self._task.config_space
        schedule, args = self._task.instantiate(self._task.fallback())
        if schedule.dag.hash != like.dag.hash or tuple(schedule.arg_ids(args)) != like.arg_ids:
            wanted = ", ".join(f"{t.dtype}{list(t.shape)}" for t in program.args)
            got = ", ".join(f"{t.dtype}{list(t.shape)}" for t in args)
            raise SpaceError(
                f"{self.name} does not compute this expression of ({wanted}), but another one of "
                f"({got}); give the template the arguments with which it does"
            )
        default = space.default_index
        space.extend(lambda: space.define_knob(STRUCTURE, [self.name]))
        space.set_default(default)

    @property
    def target(self) -> Target:
        return self._task.target

    def instantiate(self, config: ConfigEntity) -> Scheduled:
        """Schedule of a configuration; errors as of `loopwright.Task.instantiate`."""
        return self._task.instantiate(config)

    def __str__(self) -> str:
        return f"{self.name} ({self.config_space.range_length} configurations)"


_MOST_TILES = 1 << 17  #: most tiles that a knob may list


def structure_of(s: Schedule, args: Sequence[te.Tensor], name: str = "sampled") -> Structure:
    """Structure of a schedule with sampling steps, whose points differ in the sampled decisions.

    Each step of `Stage.sample_categorical` and `Stage.sample_perfect_tile` is a knob, named
    ``v<step>``, whose default is the schedule's decision. Orders, marks and places are those of the
    schedule, also where `Stage.sample_compute_location` chose them: another place is another
    structure.

    Raises:
        SpaceError: a tile was sampled of a loop whose extent depends on another sampled number, or
            has too many tiles.

    Example:
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> outer, inner = s[B].sample_perfect_tile(B.op.axis[0], 2, max_innermost_factor=8)
        >>> io, ii = s[B].split(B.op.axis[0], factor=inner)
        >>> s[B].vectorize(ii)
        >>> structure = lw.space.structure_of(s, [A, B])
        >>> print(structure)
        sampled (4 configurations)
        >>> points = [structure.instantiate(structure.config_space.get(n))[0] for n in range(4)]
        >>> print([made.trace[0].decision for made in points])
        [(64, 1), (32, 2), (16, 4), (8, 8)]
    """
    knobs, trace, so_far = SymbolicKnobs(), list[Step](), replay(s.dag, [])
    for t, step in enumerate(s.trace):
        number = len(knobs.space.knobs)
        if isinstance(step, SampleCategorical):
            candidates: list[Any] = list(dict.fromkeys(step.candidates))
            (decision,) = knobs.define(number, f"v{t}", candidates, step.decision)
            step = replace(step, decision=decision)
        elif isinstance(step, SamplePerfectTile):
            candidates = _tiles(so_far.state, t, step)
            step = replace(step, decision=knobs.define(number, f"v{t}", candidates, step.decision))
        trace.append(step)
        so_far.apply_step(step)
    why = ("a schedule whose sampled numbers are knobs",)
    return knobs.structure(name, why, s.dag, tuple(s.arg_ids(args)), trace)


def _tiles(state: State, t: int, step: SamplePerfectTile) -> list[tuple[int, ...]]:
    """All decisions of step ``t`` in a state, with the errors of `structure_of`."""
    loop = state.stages[step.stage].loops[step.loop]
    label = state.loop_label(state.stages[step.stage], step.loop)
    if isinstance(loop.nominal, Symbol) or not isinstance(loop.nominal, int):
        raise SpaceError(
            f"structure_of: step {t} samples a tile of {label!r}, whose extent depends on "
            "what was sampled before; sample tiles of axes, or of loops split by numbers"
        )
    every = perfect_tiles(loop.nominal, step.n, step.max_innermost_factor)
    tiles = list(islice(every, _MOST_TILES + 1))
    if len(tiles) > _MOST_TILES:
        raise SpaceError(
            f"structure_of: {label!r} has more than {_MOST_TILES} tiles of {step.n} "
            f"factors (step {t}); sample fewer factors"
        )
    return tiles


# ---------------------------------------------------------------- structures under construction


class Sketch:
    """Structure under construction, the working object of rules.

    Attributes:
        s: the schedule so far; rules call its primitives, with symbols for sizes.
        why: steps of rules, and their reasons.
        prefix: prefix of the names of knobs; of the current kernel where an expression has several.

    Example:
        >>> A = te.placeholder((64,), name="A")
        >>> B = te.compute((64,), lambda i: A[i] + 1, name="B")
        >>> sketch = lw.space.Sketch([B], [A, B])
        >>> width = sketch.number("width", [4, 8])
        >>> outer, inner = sketch.s[B].split(B.op.axis[0], factor=width)
        >>> sketch.s[B].vectorize(inner)
        >>> structure = sketch.finished("vectors")
        >>> print(structure)
        vectors (2 configurations)
        >>> s, args = structure.instantiate(structure.config_space.get(1))
        >>> print(lw.lower(s, args))
        def main(A: float32[64], B: out float32[64]):
          for i.0 in range(8):
            for i.1 in vectorized(8):
              B[i.0 * 8 + i.1] = A[i.0 * 8 + i.1] + 1.0
    """

    def __init__(self, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]) -> None:
        self.s = create_schedule(list(dict.fromkeys(t.op for t in outputs))).with_arguments(args)
        self.why: list[str] = []
        self.prefix = ""
        self._args = list(args)
        self._knobs = SymbolicKnobs()
        self._numbers = count()  # shared with copies

    @property
    def space(self) -> ConfigSpace:
        """Knobs so far."""
        return self._knobs.space

    def copy(self) -> Sketch:
        """Copy of the sketch, in whose graph the symbols of both are."""
        twin = copy(self)
        twin.s, twin.why, twin._knobs = self.s.copy(), list(self.why), self._knobs.copy()
        return twin

    def number(self, name: str, candidates: Sequence[int], default: int | None = None) -> Any:
        """Define a size as a knob of positive ``candidates``; ``default`` None: the first.

        Returns a symbol, which schedules take for an int; the number itself if it is the only one.
        """
        number = next(self._numbers)
        return self._knobs.define(number, self.prefix + name, list(candidates), default)[0]

    def numbers(
        self,
        name: str,
        candidates: Sequence[tuple[int, ...]],
        default: tuple[int, ...] | None = None,
    ) -> tuple[Any, ...]:
        """Define sizes that one knob chooses together, so that misfits are no candidates.

        Candidates are tuples of as many positive numbers each; ``default`` None: the first.
        """
        number = next(self._numbers)
        return self._knobs.define(number, self.prefix + name, list(candidates), default)

    def finished(self, name: str) -> Structure:
        """The structure, by its name in records: the one candidate of the knob ``structure``."""
        self.space.define_knob(STRUCTURE, [name])
        ids = tuple(self.s.arg_ids(self._args))
        return self._knobs.structure(name, self.why, self.s.dag, ids, self.s.trace)


def fused(s: Schedule, t: te.Tensor, loops: Sequence[IterVar]) -> IterVar:
    """Fuse some loops of a stage; a single one stays as it is."""
    return s[t].fuse(*loops) if len(loops) > 1 else loops[0]


@dataclass(frozen=True)
class Variant:
    """Schedule of one kernel, a part of structures.

    Example:
        >>> @lw.space_rule("example/by_rows", scope="kernel", stops=True)
        ... def by_rows(kernel):
        ...     def schedule(sketch):
        ...         sketch.s[kernel.out].parallel(kernel.out.op.axis[0])
        ...
        ...     return lw.space.Variant("by rows", "a row for each task", schedule)
        ...
        >>> A = te.placeholder((8, 4), name="A")
        >>> B = te.compute((8, 4), lambda i, j: A[i, j] + 1, name="B")
        >>> print([s.name for s in lw.create_task([A, B], target="llvm").structures])
        ['by rows']
        >>> lw.space.remove_rule("example/by_rows")
    """

    name: str
    why: str
    schedule: Callable[[Sketch], None]  #: function that makes its steps and knobs in a sketch


#: Function that gives the variants of a kernel, the most sensible first; none where it knows none.
Variants = Callable[[Kernel], list[Variant]]


def structures_of(
    variants: Variants, outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]
) -> list[Structure]:
    """Structure for each variant of an expression that is one kernel; else none."""
    if len(outputs) != 1:
        return []
    kernel, *others = kernels_of(tuple(outputs))
    return [] if others else scheduled(variants(kernel), outputs, args)


def scheduled(
    variants: Sequence[Variant], outputs: Sequence[te.Tensor], args: Sequence[te.Tensor]
) -> list[Structure]:
    structures = []
    begun = Sketch(outputs, args) if variants else None
    for variant in variants:
        assert begun is not None
        sketch = begun.copy()
        variant.schedule(sketch)
        sketch.why.append(variant.why)
        structures.append(sketch.finished(variant.name))
    return structures


@lru_cache(maxsize=4)
def kernels_of(outputs: tuple[te.Tensor, ...]) -> tuple[Kernel, ...]:
    """Kernels of an expression; cached, since every rule asks."""
    return tuple(kernels(outputs))
