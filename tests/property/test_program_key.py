"""Equal keys mean equal machine code: random schedules, and what can be added without an effect.

The independent truth is the object file. The other direction is no promise: a compiler may bring
programs with different keys to the same instructions.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from typing import Any

from fuzzing import fuzz
from fuzzing.random.expr import Draw
from fuzzing.random.moves import Moves
from loopwright import driver
from loopwright.codegen.backends import compile_program
from loopwright.codegen.c.compiler import write_c
from loopwright.errors import LoopwrightError
from loopwright.ir.kinds import MarkKind
from loopwright.schedule import primitives, replay
from loopwright.target import Target
from loopwright.te import Dag
from tests.covering import examples

EXAMPLES = examples(6)
#: Targets and settings of passes, in turn.
TARGETS = (
    "llvm -num-threads=1",
    "llvm -num-threads=2",
    "c -num-threads=1",
    "llvm -num-threads=1 -mcpu=x86-64",
    "c -num-threads=2",
)
PASSES: tuple[dict[str, Any], ...] = ({}, {"opt_level": 3}, {"opt_level": 0}, {"opt_level": 1})
MARKS: tuple[MarkKind, ...] = ("unrolled", "vectorized", "parallel")


class Additions(Moves):
    """Adds steps to a finished schedule, most of which change no code."""

    def __init__(self, d: Draw, dag: Dag, trace: list[Any]) -> None:
        super().__init__(d, dag)
        self.state, self.out.trace = replay(dag, trace).state, list(trace)

    def add(self) -> None:
        """Split a loop by one, and do something with the loop that runs once."""
        stage = self.stage()
        x = self.loop(stage)
        if x is None:
            return
        t = self.state.steps
        inner = self.d.chance(60)
        if self.do(primitives.Split(stage.id, x, 1 if inner else None, None if inner else 1)):
            self.use(stage.id, f"{t}.1" if inner else f"{t}.0")

    def use(self, stage: Any, once: str) -> None:
        """Mark a loop that runs once, hint at it, or put it somewhere else."""
        match self.d.integer(0, 3):
            case 0:
                self.do(primitives.Annotate(stage, once, self.d.pick(MARKS)))
            case 1:
                limit = self.d.pick((4, 16))
                self.do(primitives.Pragma(stage, once, "auto_unroll_max_step", limit))
            case 2:
                self.shuffle(self.state.stages[stage])
            case 3:
                self.pragma()


def variants(seed: int) -> list[list[Any]]:
    """Traces of a random schedule, and of some that add to it or change a number in it."""
    base = fuzz.example(seed)[0]
    dag = Dag.from_json(base.dag)
    traces = [base.trace]
    for k in range(4):
        more = Additions(Draw.random(random.Random(seed * 10 + k)), dag, base.trace)
        for _ in range(k + 1):
            more.add()
        traces.append(more.out.trace)
    return [*traces, *changed(base.trace, random.Random(seed))]


def changed(trace: list[Any], rng: random.Random) -> list[list[Any]]:
    """The trace with one number in it replaced, in two ways."""
    spots = [
        (i, k)
        for i, step in enumerate(trace)
        for k, value in enumerate(step)
        if k > 1 and type(value) is int
    ]
    if not spots:
        return []
    i, k = rng.choice(spots)
    wider = [[*trace[i][:k], trace[i][k] * factor, *trace[i][k + 1 :]] for factor in (2, 64)]
    return [[*trace[:i], step, *trace[i + 1 :]] for step in wider]


def built(dag: Dag, trace: list[Any], arg_ids: Any, target: Target, passes: Any) -> tuple[str, Any]:
    """Key and code of a trace: an object file, or a C source without names."""
    program = driver.lower_trace(dag, trace, arg_ids, "main", passes)
    key = driver.program_key(program.func, target, passes)
    if target.kind == "llvm":
        return key, compile_program(program, target).objects
    return key, without_names(write_c(program.func, target)[0])


def without_names(text: str) -> str:
    """A C source without its names, which differ with their scopes; types and calls are kept."""
    kept = r"lw_\w+|\w+_t|float|double|for|if|return|__\w+"
    return re.sub(rf"\b(?!(?:{kept})\b)[A-Za-z_]\w*", "name", text)


def compare(seed: int, counts: Counter[str]) -> None:
    """Compile all variants of a seed; equal keys, equal code."""
    case = fuzz.example(seed)[0]
    dag = Dag.from_json(case.dag)
    target = Target(TARGETS[seed % len(TARGETS)])
    passes = PASSES[seed % len(PASSES)]
    codes: dict[str, Any] = {}
    keys = defaultdict(set)
    for trace in variants(seed):
        try:
            key, code = built(dag, trace, case.arg_ids, target, passes)
        except LoopwrightError:
            counts["refused"] += 1
            continue
        counts["built"] += 1
        counts["shared"] += key in codes
        assert codes.setdefault(key, code) == code, (seed, str(target), passes, key)
        keys[str(code)].add(key)
    counts["missed"] += sum(len(names) - 1 for names in keys.values())


def test_equal_keys_mean_equal_code() -> None:
    counts: Counter[str] = Counter()
    for seed in range(EXAMPLES):
        compare(seed, counts)
    print(dict(counts))  # "missed": equal code under different keys, which costs a measurement
    assert counts["shared"] > counts["built"] / 10
