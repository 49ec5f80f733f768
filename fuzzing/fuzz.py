"""``python -m fuzzing.fuzz``: random schedules, as many as wanted, each from a seed.

A seed makes a program, a schedule of it, and the targets that run it. Of five seeds three are
programs of known sizes for CPUs, one has a size variable and runs for several sizes, one is
scheduled for GPU threads, which the interpreter runs, and with ``--target opencl`` a device; with
``--target cuda`` they become cubins, which run where a GPU is. Everything is compared with NumPy.
``--kind spaces`` takes points of the programs' automatic spaces; with ``--target`` of a device a
point that it could not launch is a failure, too. ``--kind inputs`` reads slightly broken models,
graphs, programs, logs and artifacts in turn (`fuzzing.inputs`), as do the kinds of these names.

A failure is reported at once with its seed. Then its schedule and program are made smaller, and
printed as a Python program that fails in the same way. A crash of compiled code is a failure like
any other; that of an OpenCL driver's optimiser is counted apart, where the kernel is right without
it. Ctrl-C ends the run with the summary so far.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing import inputs
from fuzzing.differential import Array, Case, Checker, ExecutionPath, case_of
from fuzzing.guarded import COMPILER_DID_NOT_END, OPTIMISER_CRASHED
from fuzzing.random.expr import Draw, Info, poison, random_array
from fuzzing.random.moves import RandomSchedule
from fuzzing.random.program import mark_constants, random_product, random_program
from fuzzing.random.schedule import random_kernel, random_schedule, random_structure
from fuzzing.shrink import reproducer, shrink
from loopwright.errors import InternalError, LoopwrightError, ScheduleError, TensorError
from loopwright.te.dag import ArgId, Dag, read_arg_id
from loopwright.testing.numpy_eval import evaluate
from loopwright.testing.target_contract import is_for_devices, runs_here

#: Largest distance of an extent from a size that is written as the size plus or minus a number.
NEAR = 2
_VAR = ["var", "s0"]


def symbolise(d: Draw, dag: dict[str, Any]) -> tuple[dict[str, Any], int] | None:
    """The JSON of a program with a size variable in related extents, and the value of the
    variable."""
    out = copy.deepcopy(dag)
    places = [(op[key], k) for op in out["ops"] for key in ("shape", "reduce_extents")
              for k in range(len(op.get(key, ())))]  # fmt: skip
    extents = sorted({x[k] for x, k in places if x[k] > 1})
    if not extents:
        return None
    size = d.pick(extents)
    for x, k in places:
        x[k] = _extent(d, x[k], size)
    return out | {"sizes": [["n", "int32", d.chance(50)]]}, size


def _extent(d: Draw, n: int, size: int) -> Any:
    if n == size:
        return _VAR
    if n == 2 * size and d.chance(70):
        return ["bin", "*", _VAR, ["const", 2, "int32"], "int32"]
    if abs(n - size) <= NEAR and n > 1 and d.chance(70):
        op = "+" if n > size else "-"
        return ["bin", op, _VAR, ["const", abs(n - size), "int32"], "int32"]
    return n


def symbolic_cases(d: Draw, case: Case) -> list[Case]:
    symbolic = symbolise(d, case.dag)
    if symbolic is None:
        return []
    dag, size = Dag.from_json(symbolic[0]), symbolic[1]
    out = []
    for n in dict.fromkeys((size, 1, size - 1, size + 1, 2 * size, size + 7)):
        arrays = _arrays(dag, case.arg_ids, n, d)
        assert arrays or n != size, "the size that the program had gives another program"
        if arrays:
            # What is known of the values holds for the old size only.
            infos = [Info(False, 1.0, 1.0, 2.5e-4) for _ in arrays]
            sizes = {"n": n}
            out.append(Case(symbolic[0], case.trace, case.arg_ids, arrays, infos, sizes, 2e-2))
    return out


def _arrays(dag: Dag, arg_ids: Sequence[ArgId], n: int, d: Draw) -> list[Array] | None:
    try:
        bound = dag.bind({"n": n})
    except TensorError:
        return None
    rng, arrays, inputs = np.random.default_rng(d.integer(0, 1 << 16)), [], {}
    for i, k in map(read_arg_id, arg_ids):
        op = bound.ops[i]
        if op.is_placeholder:
            inputs[i] = random_array(rng, op.static_shape, op.dtype, False)
            arrays.append(inputs[i])
        else:
            arrays.append(poison(op.static_shape, op.dtypes[k]))
    try:
        evaluate(bound, inputs)
    except InternalError:
        return None
    return arrays


TARGETS = (
    "llvm -num-threads=1",
    "llvm -num-threads=2",
    "llvm -num-threads=1 -prefer-vector-width=256",
    "llvm -num-threads=1 -mcpu=x86-64",
    "llvm -num-threads=1 -prefer-vector-width=128",
    "llvm -num-threads=2 -mcpu=x86-64-v3",
    "llvm -num-threads=1 -loop-vectorize=true -loop-unroll=true",
    "c -num-threads=1",
    "c -num-threads=2",
    "c -num-threads=1 -prefer-vector-width=256 -opt-level=3",
)
#: Kind of the example of a seed, by its remainder.
KINDS = ("cpu", "cpu", "cpu", "sizes", "threads")
#: Kind on demand only: a point of the program's automatic space.
SPACES = "spaces"
#: All kinds of broken inputs in turn, on demand only.
INPUTS = "inputs"


def targets_of(d: Draw) -> list[str]:
    return [*TARGETS[:2], *([d.pick(TARGETS[2:])] if d.chance(35) else [])]


def example(seed: int) -> tuple[Case, list[str], RandomSchedule]:
    d = Draw.random(random.Random(seed))
    program = random_program(d)
    schedule = random_schedule(d, program.dag, max_moves=20)
    return case_of(program, schedule.trace), targets_of(d), schedule


#: The example of a seed: cases that differ in their sizes only, the targets, and the schedule.
Example = tuple[list[Case], list[str], RandomSchedule]


def examples(seed: int, kind: str, targets: Sequence[str] = ()) -> Example:
    """The cases of a seed of kind ``"cpu"``, ``"sizes"`` (one case a size), ``"threads"``, or
    ``"spaces"``, with the targets of spaces, by default some CPUs."""
    if kind == SPACES:
        return _structure(Draw.random(random.Random(seed)), targets or TARGETS[:4])
    if kind == "cpu":
        case, drawn_targets, schedule = example(seed)
        return [case], drawn_targets, schedule
    d = Draw.random(random.Random(seed))
    program = random_program(d)
    kernel = kind == "threads"
    if kind == "sizes" and d.chance(50):
        mark_constants(program, [d.chance(60) for _ in program.tensors])
    schedule = random_kernel(d, program.dag) if kernel else random_schedule(d, program.dag, 14)
    case = case_of(program, schedule.trace)
    return (symbolic_cases(d, case) if kind == "sizes" else [case]), targets_of(d), schedule


def _structure(d: Draw, targets: Sequence[str]) -> Example:
    odd = d.chance(40)  # products in tiles that divide nothing, and register tiles for the rest
    program, target = random_product(d) if odd else random_program(d), d.pick(targets)
    # A space has the results of a program in calling order, from which its operations are numbered.
    called = tuple(t for t in program.tensors if t in program.outputs)
    program = replace(program, outputs=called)
    schedule = random_structure(d, program, target)
    return [case_of(program, schedule.trace)], [target], schedule


@dataclass
class Fuzz:
    #: Targets of compiled code; empty: drawn for each seed.
    targets: list[str] = field(default_factory=list)
    #: Time for making a failure smaller.
    shrink_seconds: float = 60.0
    checker: Checker = field(default_factory=Checker)
    #: Outcomes of schedules by kind: ran, refused, failed, or empty (no size to vary).
    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Steps by primitive, as are the refused ones.
    applied: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    #: Runs of compiled code by target, and of the interpreter.
    runs: Counter[str] = field(default_factory=Counter)
    #: A line each.
    failures: list[str] = field(default_factory=list)
    #: Number of seeds that were checked.
    done: int = 0

    def run_all(self, seeds: Iterable[int], kind: str = "", stop: bool = False) -> None:
        for seed in seeds:
            well = self.run(seed, kind)
            self.done += 1
            if stop and not well:
                return

    def run(self, seed: int, kind: str = "") -> bool:
        kind = kind or KINDS[seed % len(KINDS)]
        if kind == INPUTS:
            kind = [*inputs.KINDS][seed % len(inputs.KINDS)]
        if kind in inputs.KINDS:
            return self._take(seed, kind)
        try:
            drawn = examples(seed, kind, self.targets)
        except LoopwrightError as error:
            if kind != SPACES:  # others draw what is legal
                raise
            self.ends[kind, "failed"] += 1
            self.failures.append(f"seed {seed} ({kind}): {error}")
            print(self.failures[-1], flush=True)
            return False
        return self.check(seed, kind, drawn)

    def _take(self, seed: int, kind: str) -> bool:
        try:
            self.ends[kind, inputs.take(kind, seed)] += 1
        except Exception as error:
            self.ends[kind, "failed"] += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.failures.append(
                f"seed {seed} ({kind}): {type(error).__name__}: {str(error)[:200]!r} "
                f"({Path(place.filename).name}:{place.lineno})"
            )
            print(self.failures[-1], flush=True)
            return False
        return True

    def check(self, seed: int, kind: str, example: Example) -> bool:
        cases, targets, schedule = example
        self.applied.update(schedule.applied)
        self.refused.update(schedule.refused)
        before = self.checker.runs.copy()
        end = "empty"
        for case in cases:
            try:
                end = self.checker.check(case, self.targets or targets)
            except Exception as error:
                self.ends[kind, "failed"] += 1
                self._report(seed, kind, case, error)
                return False
        new = self.checker.runs - before
        for fault in (OPTIMISER_CRASHED, COMPILER_DID_NOT_END):
            if new[fault]:
                print(f"seed {seed} ({kind}), no failure: {fault}", flush=True)
        self.runs += new
        self.ends[kind, end] += 1
        return True

    def _report(self, seed: int, kind: str, case: Case, error: Exception) -> None:
        path = self.checker.path
        first = f"{error}".partition("\n")[0][:200]
        line = f"seed {seed} ({kind}): {path}: {type(error).__name__}: {first}"
        self.failures.append(line)
        print(line, flush=True)
        small = shrink(case, lambda c: self.fails(c, path, error), self.shrink_seconds)
        text = reproducer(small, path, f"{line}. Found by fuzzing.fuzz, made smaller.")
        print(f"# ---- a program that fails in this way\n{text}# ---- end", flush=True)

    def fails(self, case: Case, path: ExecutionPath, error: Exception) -> bool:
        """Whether a case fails as another did: on one execution path, with one kind of error."""
        self.checker.path = path
        try:
            prepared = self.checker.prepare(case)
            if path.kind == "target" and prepared.is_kernel and not is_for_devices(path.target):
                return False
            self.checker.run(prepared, path)
        except ScheduleError:
            return False
        except Exception as e:
            return type(e) is type(error) and alike(f"{e}", f"{error}")
        return False

    def summary(self) -> str:
        lines = []
        for kind in dict.fromkeys(k for k, _ in self.ends):
            ends = {e: n for (k, e), n in sorted(self.ends.items()) if k == kind}
            what = "inputs" if kind in inputs.KINDS else "schedules"
            lines.append(f"{kind}: {sum(ends.values())} {what}: {_counts(ends)}")
        names = sorted({*self.applied, *self.refused}, key=lambda n: -self.applied[n])
        steps = ", ".join(f"{n} {self.applied[n]}/{self.refused[n]}" for n in names)
        lines.append(f"steps, applied/refused: {steps}")
        lines.append(f"runs: {_counts(self.runs)}")
        lines.append(f"failures: {len(self.failures)}")
        return "\n".join([*lines, *(f"  {x}" for x in self.failures)])


def alike(a: str, b: str) -> bool:
    """Whether two errors are the same complaint: equal first words, but for names and numbers."""
    return _words(a) == _words(b)


def _words(text: str) -> list[str]:
    known = [w for w in text.partition("\n")[0].split() if w.isalpha() and w.islower()]
    return known[:4]


def _counts(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{n} {key}" for key, n in counts.items()) or "none"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fuzzing.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, help="first seed (default 0)")
    parser.add_argument("--count", type=int, default=1000, help="number of seeds (default 1000)")
    parser.add_argument("--minutes", type=float, help="stop then, instead of after a count")
    parser.add_argument(
        "--kind",
        choices=sorted({*KINDS, SPACES, INPUTS, *inputs.KINDS}),
        help="this kind of seed only",
    )
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    parser.add_argument("--target", action="append", help="run on this target only (repeatable)")
    parser.add_argument(
        "--shrink-seconds",
        type=float,
        default=60.0,
        help="how long each failure is made smaller (default 60)",
    )
    options = parser.parse_args(argv)
    for target in options.target or TARGETS:
        if not runs_here(target):
            print(f"not run: {target} (no such CPU or no C compiler here)")
    run = Fuzz(options.target or [], options.shrink_seconds)
    began = time.monotonic()
    try:
        run.run_all(
            _seeds(options.seed, options.count, options.minutes), options.kind or "", options.stop
        )
    except KeyboardInterrupt:
        print(f"interrupted at seed {options.seed + run.done}")
    finally:
        run.checker.close()
    last = options.seed + run.done - 1
    print(f"seeds {options.seed} to {last} in {time.monotonic() - began:.0f} s")
    print(run.summary())
    return 1 if run.failures else 0


def _seeds(first: int, count: int, minutes: float | None) -> Iterator[int]:
    if minutes is None:
        yield from range(first, first + count)
        return
    end = time.monotonic() + 60 * minutes
    yield from itertools.takewhile(lambda _: time.monotonic() < end, itertools.count(first))


if __name__ == "__main__":
    sys.exit(main())
