"""Structures of schedules with sampling steps, each of whose choices is a knob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from loopwright import te
from loopwright.cost.symbolic.symbols import Graph, Sym
from loopwright.errors import SpaceError
from loopwright.ir.sizes import Symbol
from loopwright.schedule import Schedule, replay
from loopwright.schedule.rules import SampleCategorical, SamplePerfectTile
from loopwright.schedule.rules.sampling import perfect_tiles
from loopwright.space.structure import Structure
from loopwright.target import Target
from loopwright.task.space import ConfigSpace

#: Most tiles that a knob may list.
_MOST_TILES = 1 << 17


def structure_of(s: Schedule, args: Sequence[te.Tensor], name: str = "sampled") -> Structure:
    """Structure of a schedule with sampling steps, whose points differ in the sampled decisions.

    Each step of `Stage.sample_categorical` and `Stage.sample_perfect_tile` is a knob, named
    ``v<step>``, whose default is the schedule's decision. Orders, marks and places are those of the
    schedule, also where `Stage.sample_compute_location` chose them: another place is another
    structure.

    Args:
        s: the schedule.
        args: the arguments in calling order.
        name: name of the structure in records.

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
    knobs = _Knobs(s)
    for step in s.trace:
        if isinstance(step, SampleCategorical):
            (number,) = knobs.define(list(dict.fromkeys(step.candidates)), step.decision)
            step = replace(step, decision=number)
        elif isinstance(step, SamplePerfectTile):
            step = replace(step, decision=knobs.define(knobs.tiles(step), step.decision))
        knobs.add(step)
    knobs.space.freeze()
    why = ("a schedule whose sampled numbers are knobs",)
    ids, trace = tuple(s.arg_ids(args)), tuple(knobs.trace)
    return Structure(name, why, knobs.space, Target.current(), s.dag, ids, trace, knobs.symbols)


class _Knobs:
    """Knobs, and steps with symbols, of the part of a trace walked so far."""

    def __init__(self, s: Schedule) -> None:
        self.space, self.trace = ConfigSpace(), list[Any]()
        self.symbols: dict[int, tuple[str, int]] = {}
        self._graph, self._so_far = Graph(), replay(s.dag, [])

    def add(self, step: Any) -> None:
        self.trace.append(step)
        self._so_far.apply_step(step)

    def define(self, candidates: list[Any], default: Any) -> tuple[Any, ...]:
        """Numbers of a knob: symbols, or the numbers where there is one candidate."""
        name, number = f"v{len(self.trace)}", len(self.space.knobs)
        self.space.define_knob(name, candidates, default=default)
        parts = self.space.knobs[name].parts()
        found = [self._graph.leaf(number, part, values) for part, values in enumerate(parts)]
        for part, x in enumerate(found):
            if isinstance(x, Sym):
                self.symbols[x.number] = (name, part)
        return tuple(found)

    def tiles(self, step: SamplePerfectTile) -> list[tuple[int, ...]]:
        """All decisions of a step, with the errors of `structure_of`."""
        state, t = self._so_far.state, len(self.trace)
        loop = state.stages[step.stage].loops[step.loop]
        label = state.loop_label(state.stages[step.stage], step.loop)
        if isinstance(loop.nominal, Symbol) or not isinstance(loop.nominal, int):
            raise SpaceError(
                f"structure_of: step {t} samples a tile of {label!r}, whose extent depends on "
                "what was sampled before; sample tiles of axes, or of loops split by numbers"
            )
        tiles = []
        for tile in perfect_tiles(loop.nominal, step.n, step.max_innermost_factor):
            tiles.append(tile)
            if len(tiles) > _MOST_TILES:
                raise SpaceError(
                    f"structure_of: {label!r} has more than {_MOST_TILES} tiles of {step.n} "
                    f"factors (step {t}); sample fewer factors"
                )
        return tiles
