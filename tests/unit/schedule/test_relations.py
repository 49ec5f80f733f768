"""Extents and values of loops: every iteration counted, and all arithmetics compared."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest

from loopwright import te
from loopwright.cost.symbolic.evaluation import ColumnProgram
from loopwright.cost.symbolic.index_steps import Move, SteppedArithmetic, SteppedIndex
from loopwright.cost.symbolic.symbols import Graph
from loopwright.ir.affine import Affine, Extent
from loopwright.ir.expr import Var
from loopwright.ir.sizes import evaluate
from loopwright.schedule import Schedule, create_schedule
from loopwright.schedule.bounds.relations import (
    ExactArithmetic,
    LoopArithmetic,
    loop_extents,
    loop_values,
)
from loopwright.schedule.bounds.results import StageBounds
from loopwright.schedule.state import FuseRel, SplitRel, StageState

SEEDS = range(40)


@dataclass(frozen=True)
class Split:
    """Split leaf ``at`` by its factor or number of parts, which is entry ``size`` of a list."""

    at: int
    how: str
    size: int


@dataclass(frozen=True)
class Fuse:
    """Fuse leaf ``at`` with the next one."""

    at: int


@dataclass(frozen=True)
class Turn:
    """Put the last leaf first."""


Chain = tuple[Split | Fuse | Turn, ...]


def random_chain(rng: random.Random, leaves: int) -> Chain:
    """A few steps for a stage of so many loops."""
    chain: list[Split | Fuse | Turn] = []
    for size in range(rng.randint(1, 4)):
        kind = rng.choice(("split", "split", "fuse", "turn"))
        if kind == "split":
            chain.append(Split(rng.randrange(leaves), rng.choice(("factor", "nparts")), size))
            leaves += 1
        elif kind == "fuse" and leaves > 1:
            chain.append(Fuse(rng.randrange(leaves - 1)))
            leaves -= 1
        else:
            chain.append(Turn())
    return tuple(chain)


def scheduled(shape: Sequence[Any], chain: Chain, sizes: Sequence[Any]) -> tuple[Schedule, Any]:
    """A copy of a tensor whose loops went through a chain of steps, and the id of its stage."""
    a = te.placeholder(tuple(shape), name="A")
    c = te.compute(tuple(shape), lambda *i: a[i] + 1.0, name="C")
    s = create_schedule(c)
    for step in chain:
        leaves = s[c].leaf_iter_vars
        match step:
            case Split(at, how, size):
                s[c].split(leaves[at], **{how: sizes[size]})
            case Fuse(at):
                s[c].fuse(leaves[at], leaves[at + 1])
            case Turn():
                s[c].reorder(leaves[-1], *leaves[:-1])
    return s, s[c].id


class Ints(LoopArithmetic[int, int]):
    """Extents are numbers, and a value is the one of a single iteration."""

    def times(self, a: int, b: int) -> int:
        return a * b

    def ceil_div(self, a: int, b: int) -> int:
        return len(range(0, a, b))

    def clipped(self, factor: int, n: int) -> int:
        return min(factor, n)

    def split_value(self, loop: str, outer: int, length: int, inner: int) -> int:
        return outer * length + inner

    def fused_values(self, loop: str, value: int, outer: int, length: int) -> tuple[int, int]:
        return divmod(value, length)


def iterations(stage: StageState, extents: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Values of the leaf loops, for every iteration."""
    for point in product(*(range(extents[x]) for x in stage.leaves)):
        yield dict(zip(stage.leaves, point, strict=True))


def number(form: Extent, at: Mapping[Var, int]) -> int:
    """The number that a form is."""
    return (
        form
        if isinstance(form, int)
        else form.const + sum(c * at[v] for v, c in form.terms.items())
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_loops_count_through_what_they_replace(seed: int) -> None:
    """The two loops of a split count up; a fused loop goes through all pairs in their order."""
    rng = random.Random(seed)
    shape = [rng.randint(1, 7) for _ in range(2)]
    s, sid = scheduled(shape, random_chain(rng, 2), [rng.randint(1, 5) for _ in range(4)])
    stage = s.state.stages[sid]
    extents = loop_extents(stage, shape, [], Ints())
    for rel in stage.relations:
        outer, inner = extents[rel.outer], extents[rel.inner]
        pairs = list(product(range(outer), range(inner)))
        if isinstance(rel, FuseRel):
            assert extents[rel.fused] == len(pairs)
            continue
        # As many as were asked for of the one, and as few of the other as reach all iterations.
        n = extents[rel.parent]
        assert len(pairs) >= n
        assert (outer if rel.nparts else inner) == min(rel.nparts or rel.factor or 0, n)
        assert (outer * (inner - 1) if rel.nparts else (outer - 1) * inner) < n
    reached = []
    for leaves in iterations(stage, extents):
        values = loop_values(stage, leaves, extents, Ints())
        for rel in stage.relations:
            pair = (values[rel.outer], values[rel.inner])
            inner = extents[rel.inner]
            if isinstance(rel, SplitRel):
                assert values[rel.parent] == pair[0] * inner + pair[1]
            elif values[rel.fused] < extents[rel.outer] * inner:
                pairs = list(product(range(extents[rel.outer]), range(inner)))
                assert pairs[values[rel.fused]] == pair
        # What over-runs a loop that was split is left out by a guard.
        parents = [x.parent for x in stage.relations if isinstance(x, SplitRel)]
        if all(values[x] < extents[x] for x in parents):
            reached.append((values["a0"], values["a1"]))
    assert sorted(reached) == list(product(range(shape[0]), range(shape[1])))


def exact(
    s: Schedule, sid: Any, sizes: Mapping[str, int]
) -> tuple[dict[str, int], list[dict[str, int]]]:
    """Extents of all loops, and their values for every iteration, from `ExactArithmetic`."""
    sb = s.bounds().stages[sid]
    stage, arithmetic = sb.stage, ExactArithmetic(sb)
    forms = loop_extents(stage, sb.shape, [], arithmetic)
    leaves = {x.loop.id: Affine.of(x.var) for x in sb.loops}
    values = loop_values(stage, leaves, forms, arithmetic)
    known = _sizes_at(sb, sizes)
    extents = {x: number(n, known) for x, n in forms.items()}
    out = []
    for point in iterations(stage, extents):
        at = {**known, **{x.var: point[x.loop.id] for x in sb.loops}}
        for var, definition in (let for group in sb.lets for let in group):
            at[var] = evaluate(definition, at)
        out.append({x: number(v, at) for x, v in values.items()})
    return extents, out


def _sizes_at(sb: StageBounds, sizes: Mapping[str, int]) -> dict[Var, int]:
    at = {v: sizes[v.name] for v in sb.sizes.known if v.name in sizes}
    for var, definition in sb.sizes.lets:
        at[var] = evaluate(definition, at)
    return at


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_forms_are_what_numbers_give(seed: int) -> None:
    rng = random.Random(seed)
    shape = [rng.randint(2, 7) for _ in range(3)]
    s, sid = scheduled(shape, random_chain(rng, 3), [rng.randint(1, 5) for _ in range(4)])
    _check_exact(s, sid, shape, {})


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_forms_over_sizes_are_what_numbers_give(seed: int) -> None:
    """A size is not clipped where the extent is no number: it is then never larger."""
    rng = random.Random(seed)
    n, m = te.size_var("n"), te.size_var("m")
    s, sid = scheduled([n, m], random_chain(rng, 2), [rng.randint(1, 3) for _ in range(4)])
    for shape in ((3, 5), (4, 3), (9, 4)):
        if _never_clipped(s.state.stages[sid], shape):
            _check_exact(s, sid, shape, dict(zip("nm", shape, strict=True)))


def _never_clipped(stage: StageState, shape: Sequence[int]) -> bool:
    extents = loop_extents(stage, shape, [], Ints())
    splits = [x for x in stage.relations if isinstance(x, SplitRel)]
    return all((x.factor or x.nparts or 0) <= extents[x.parent] for x in splits)


def _check_exact(s: Schedule, sid: Any, shape: Sequence[int], sizes: Mapping[str, int]) -> None:
    stage = s.state.stages[sid]
    extents, values = exact(s, sid, sizes)
    assert extents == loop_extents(stage, shape, [], Ints())
    points = list(iterations(stage, extents))
    assert values == [loop_values(stage, x, extents, Ints()) for x in points]


def stepped(
    stage: StageState, shape: Sequence[Any]
) -> tuple[dict[str, Any], dict[str, SteppedIndex]]:
    """Extents and values of all loops, from `SteppedArithmetic`."""
    extents = loop_extents(stage, shape, [], SteppedArithmetic())
    leaves = {x: SteppedIndex(0, (Move((stage.id, x), 1, extents[x]),)) for x in stage.leaves}
    return extents, loop_values(stage, leaves, extents, SteppedArithmetic())


@pytest.mark.parametrize("seed", SEEDS)
def test_symbols_give_what_their_numbers_give(seed: int) -> None:
    """One derivation with symbols for factors, against one for each choice of them."""
    rng = random.Random(seed)
    shape = [rng.randint(2, 40) for _ in range(2)]
    chain = random_chain(rng, 2)
    choices = [[rng.randint(1, 9) for _ in range(4)] for _ in range(6)]
    graph = Graph()
    syms = [graph.leaf(k, 0, column) for k, column in enumerate(zip(*choices, strict=True))]
    s, sid = scheduled(shape, chain, syms)
    symbolic = _flat(*stepped(s.state.stages[sid], shape))
    program = ColumnProgram(symbolic, [False] * len(symbolic))
    columns = [np.array([row[k] for row in choices], np.float64) for k, _ in program.leaves]
    out = np.empty((len(choices), len(symbolic)), np.float32)
    program.evaluate(columns, out)
    for row, sizes in zip(out, choices, strict=True):
        t, tid = scheduled(shape, chain, sizes)
        stage = t.state.stages[tid]
        extents, values = stepped(stage, shape)
        assert extents == exact(t, tid, {})[0] if _small(extents, stage) else True
        assert row.tolist() == _flat(extents, values)


def _small(extents: Mapping[str, int], stage: StageState) -> bool:
    return int(np.prod([extents[x] for x in stage.leaves])) < 300


def _flat(extents: Mapping[str, Any], values: Mapping[str, SteppedIndex]) -> list[Any]:
    moves = [m for x in values.values() for m in x.moves]
    consts = [x.const for x in values.values()]
    return [*extents.values(), *consts, *(n for m in moves for n in (m.step, m.count))]


@pytest.mark.parametrize("seed", SEEDS)
def test_steps_are_the_values_that_a_loop_goes_through(seed: int) -> None:
    """Where tiles are whole: what each loop alone does to every other loop, counted."""
    rng = random.Random(seed)
    shape = [2 ** rng.randint(1, 4) for _ in range(2)]
    s, sid = scheduled(shape, random_chain(rng, 2), [2 ** rng.randint(0, 2) for _ in range(4)])
    stage = s.state.stages[sid]
    extents, values = stepped(stage, shape)
    for leaf in stage.leaves:
        still = dict.fromkeys(stage.leaves, 0)
        runs = [
            loop_values(stage, {**still, leaf: k}, extents, Ints()) for k in range(extents[leaf])
        ]
        for x, value in values.items():
            moves = [m for m in value.moves if m.loop == (sid, leaf)]
            counted = {run[x] for run in runs}
            assert counted == _sums(moves), (x, leaf, stage.relations)


def _sums(moves: Sequence[Move]) -> set[int]:
    """Values that an index takes while some moves happen."""
    steps = [[m.step * k for k in range(m.count)] for m in moves]
    return {sum(point) for point in product(*steps)}
