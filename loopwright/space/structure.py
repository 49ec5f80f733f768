"""Structures: ways to schedule an expression whose sizes are knobs that are not chosen yet.

Orders of loops, annotations and placements are fixed; factors are symbols, each of which stands for
a part of a knob's choice. So a structure is a trace as data, and a schedule is that trace with
numbers in place of symbols.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from loopwright import te
from loopwright.cost.symbolic.operations import reachable
from loopwright.cost.symbolic.symbols import Sym, with_leaves
from loopwright.errors import InternalError
from loopwright.schedule import Schedule, replay
from loopwright.schedule.steps import Step
from loopwright.target import Target
from loopwright.task.space import ConfigEntity, ConfigSpace
from loopwright.te.dag import ArgId, Dag


@dataclass(frozen=True, eq=False)
class Structure:
    """One way to schedule an expression.

    Attributes:
        name: its name in records, such as ``"C: tile i x j, B packed for each panel"``.
        why: rules that made it, and their reasons, in order.
        config_space: its knobs.
        target: its target.
        dag: the expression.
        arg_ids: the arguments in calling order, as ids of the DAG.
        trace: its steps, with symbols.
        symbols: number of a symbol's node to the name of a knob and the part of its choice.

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

    name: str
    why: tuple[str, ...]
    config_space: ConfigSpace
    target: Target
    dag: Dag
    arg_ids: tuple[ArgId, ...]
    trace: tuple[Step, ...]
    symbols: Mapping[int, tuple[str, int]]

    @cached_property
    def content(self) -> str:
        """Hash of the expression, the arguments, the target, the knobs with their defaults, and the
        steps; two structures of one content schedule every point alike.
        """
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
        """Schedule of a configuration of its space.

        Args:
            config: a configuration, whose numbers may be symbols of another graph: a cost model
                then describes all candidates at once.

        Returns:
            The schedule, and the arguments in calling order.
        """
        s = replay(self.dag, self.steps(config))
        return s, [s.tensor(a) for a in self.arg_ids]

    def steps(self, config: ConfigEntity) -> list[Step]:
        """Steps of a configuration of its space, with its numbers."""
        return [_resolved(step, self._chosen(config)) for step in self.trace]

    def _chosen(self, config: ConfigEntity) -> Callable[[Sym], Any]:
        def leaf(number: int) -> Any:
            if number not in self.symbols:
                raise InternalError(f"structure {self.name}: symbol {number} is no part of a knob")
            knob, part = self.symbols[number]
            chosen = config[knob].val
            return chosen[part] if isinstance(chosen, tuple) else chosen

        return lambda symbol: with_leaves(symbol, leaf)

    def __str__(self) -> str:
        return f"{self.name} ({self.config_space.range_length} configurations)"


def _symbols_in(x: object) -> Iterator[Sym]:
    """Symbols of a step's field."""
    if isinstance(x, Sym):
        yield x
    elif isinstance(x, tuple):
        for part in x:
            yield from _symbols_in(part)


def _resolved(step: Step, value: Callable[[Sym], Any]) -> Step:
    """Step with numbers in place of symbols."""
    given = {f.name: getattr(step, f.name) for f in fields(step)}
    found = {name: _with_values(x, value) for name, x in given.items()}
    changed = {name: x for name, x in found.items() if x is not given[name]}
    return replace(step, **changed) if changed else step


def _with_values(x: Any, value: Callable[[Sym], Any]) -> Any:
    if isinstance(x, Sym):
        return value(x)
    if not isinstance(x, tuple):
        return x
    parts = tuple(_with_values(part, value) for part in x)
    return parts if any(a is not b for a, b in zip(parts, x, strict=True)) else x
