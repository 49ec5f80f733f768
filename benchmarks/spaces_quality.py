"""How good automatic spaces are as spaces, and whether each of their points builds and is right.

    python -m benchmarks.spaces_quality [--cases TEXT] [--part 1/3] [--sample 32] [--trials 32]
    python -m benchmarks.spaces_quality --build 20000 [--cases TEXT] [--part 1/3]

For the workloads of the other benchmarks and the expressions without a template: structures and
points; seconds to derive the structures and to a first ranking of 2 000 points; and of a random
sample, measured, the speed of the median as a share of the best, and the share of points within
90 % of the best. The best is that of a short search and of the sample.

With --build random points are lowered, built, run and compared with NumPy, in a pool of processes;
what fails or is wrong is named, so that the same command finds it again.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

import loopwright as lw
from benchmarks.automatic import geomean
from benchmarks.expressions.cases import EXPRESSIONS, Expression
from benchmarks.expressions.measuring import error_of, exact
from benchmarks.expressions.sides import numpy_calls
from benchmarks.workloads import CASES, MORE_CASES, Case
from loopwright import te
from loopwright.cli.workload import find_workload
from loopwright.env import machine, usable_cpus
from loopwright.errors import LoopwrightError
from loopwright.measure.data.planning import task_inputs
from loopwright.runtime import Arg
from loopwright.space import AutomaticTask, ranked
from loopwright.task import Task
from loopwright.tuner import DEFAULT_TUNER, find_tuner

Array = npt.NDArray[Any]
#: Points of a first ranking; and what "near the best" is.
RANKED, NEAR = 2000, 0.9
#: Seconds that deriving structures, and such a ranking, may take.
DERIVE_S, RANK_S = 0.05, 2.0
#: Points that a process of the pool takes at once.
_CHUNK = 8
#: Largest error of a float32 kernel, relative to the largest element of the answer.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Subject:
    """Something that has an automatic space.

    Attributes:
        name: row of the table.
        tensors: makes its arguments, result last.
        data: makes inputs for them, and the answer in float64.
        tolerance: largest error relative to the largest element of the answer.
    """

    name: str
    tensors: Callable[[], list[te.Tensor]]
    data: Callable[[Sequence[te.Tensor]], tuple[list[Array], Array]]
    tolerance: float = _TOLERANCE


def subjects() -> list[Subject]:
    """The workloads, and the expressions."""
    workloads = [_of_workload(case) for case in (*CASES, *MORE_CASES)]
    return [*workloads, *map(_of_expression, EXPRESSIONS)]


def _of_expression(e: Expression) -> Subject:
    def data(tensors: Sequence[te.Tensor]) -> tuple[list[Array], Array]:
        inputs = e.inputs(tensors)
        return inputs, numpy_calls.call(e.call)(*map(exact, inputs))

    return Subject(e.name, e.tensors, data, e.tolerance)


def _of_workload(case: Case) -> Subject:
    def template() -> Task:
        return find_workload(case.op, list(case.params), "llvm", 1).task

    def tensors() -> list[te.Tensor]:
        task = template()
        if isinstance(task, AutomaticTask):
            return list(task.program.args)
        return list(task.instantiate(task.config_space.default_index)[1])

    def data(tensors: Sequence[te.Tensor]) -> tuple[list[Array], Array]:
        task = template()
        args = [
            Arg(t.name, t.static_shape, np.dtype(t.dtype), n == len(tensors) - 1)
            for n, t in enumerate(tensors)
        ]
        inputs = task_inputs(task, args)
        assert task.reference is not None
        return inputs, np.asarray(task.reference(*map(exact, inputs)))

    return Subject(case.name, tensors, data)


# ---------------------------------------------------------------- quality


def quality(subject: Subject, sample: int, trials: int, threads: int, seed: int) -> dict[str, Any]:
    """A row of the table.

    Args:
        subject: what has the space.
        sample: random points that are measured; 0: none.
        trials: of the search for the best beside them.
        threads: of the kernels.
        seed: of the sample.
    """
    tensors = subject.tensors()
    begin = time.perf_counter()
    task: Any = lw.create_task(tensors, target=f"llvm -num-threads={threads}")
    derived = time.perf_counter()
    with task.target:
        ranked(task.structures, sample=max(1, RANKED // len(task.structures)))
    ranked_at = time.perf_counter()
    found = {
        "what": subject.name,
        "structures": len(task.structures),
        "points": task.config_space.range_length,
        "derive_s": derived - begin,
        "rank_s": ranked_at - derived,
    }
    if sample:
        seconds = sampled(task, sample, seed)
        best = min([_searched(task, trials, seed), *seconds]) if trials else min(seconds)
        found |= {"sample": len(seconds), "failed": sample - len(seconds), "best_s": best}
        found |= shares(seconds, best)
    return found


def shares(seconds: Sequence[float], best: float) -> dict[str, float]:
    """Speed of the median as a share of the best, and the share of points that are near it."""
    near = sum(best / s >= NEAR for s in seconds)
    return {"median": best / statistics.median(seconds), "near": near / len(seconds)}


def sampled(task: Task, count: int, seed: int) -> list[float]:
    """Seconds of random points, of each structure alike; those that fail are left out."""
    indices = task.config_space.sample_ints(count, random.Random(seed))
    option = lw.measure_option(runner=lw.LocalRunner(number=1, repeat=3, racing=False))
    with lw.measure.Measurer(task, option) as measurer:
        inputs = [lw.MeasureInput(task, task.config(index)) for index in indices]
        results = list(measurer.measure(inputs))  # it measures as it is asked for the next
    return [r.median for r in results if r.error is None]


def _searched(task: Task, trials: int, seed: int) -> float:
    summary = find_tuner(DEFAULT_TUNER)(task, seed=seed).tune(n_trial=trials)
    assert summary.best_seconds is not None
    return summary.best_seconds


def quality_table(rows: Sequence[dict[str, Any]]) -> Table:
    """One row a space."""
    out = Table(
        "", "structures", "points", "derive ms", "rank ms", "median of best", "within 90 %",
        "failed", title="quality of spaces",
    )  # fmt: skip
    for r in rows:
        out.add_row(
            r["what"],
            str(r["structures"]),
            f"{r['points']:,}",
            f"{r['derive_s'] * 1e3:.0f}",
            f"{r['rank_s'] * 1e3:.0f}",
            *((f"{r['median']:.2f}", f"{r['near']:.0%}") if "median" in r else ("-", "-")),
            str(r.get("failed", "-")),
        )
    return out


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lines that say how the spaces stand beside the bars."""
    lines = []
    for key, what, most in (("derive_s", "derive", DERIVE_S), ("rank_s", "rank", RANK_S)):
        slow = sorted((r for r in rows if r[key] > most), key=lambda r: -r[key])
        names = ", ".join(f"{r['what']} {r[key] * 1e3:.0f}" for r in slow)
        median = statistics.median(r[key] for r in rows) * 1e3
        lines.append(
            f"{what}: median {median:.0f} ms, {len(slow)} of {len(rows)} above "
            f"{most * 1e3:.0f} ms {names}".rstrip()
        )
    measured = [r for r in rows if "median" in r]
    if measured:
        shares_of = [r["median"] for r in measured]
        lines.append(f"median random point: geomean {geomean(shares_of):.2f} of the best")
    return lines


# ---------------------------------------------------------------- every point builds and is right


@dataclass(frozen=True)
class Fault:
    """A point that failed, or is wrong.

    Attributes:
        what: name of the workload.
        index: of the point.
        text: what happened.
    """

    what: str
    index: int
    text: str


@lru_cache(maxsize=1)
def _prepared(name: str) -> tuple[Task, list[Any], Array, float]:
    """A task, its arguments in memory with the result last, and the right answer."""
    subject = next(s for s in subjects() if s.name == name)
    tensors = subject.tensors()
    task = lw.create_task(tensors, target="llvm -num-threads=1")
    inputs, right = subject.data(tensors)
    out = np.empty(tensors[-1].static_shape, tensors[-1].dtype)
    return task, [lw.nd.array(x) for x in (*inputs, out)], right, subject.tolerance


def check(name: str, indices: Sequence[int]) -> list[Fault]:
    """Build, run and compare some points of a space."""
    return [fault for index in indices if (fault := _check(name, index))]


def _check(name: str, index: int) -> Fault | None:
    task, arrays, right, tolerance = _prepared(name)
    # What no kernel writes is seen, and a former answer is none.
    arrays[-1].copyfrom(np.full(right.shape, 77, arrays[-1].dtype))
    try:
        f = lw.build(*task.instantiate(index), task.target, name="f")
        f(*arrays)
    except LoopwrightError as error:
        return Fault(name, index, f"{type(error).__name__}: {error}")
    error_found = error_of(arrays[-1].numpy().reshape(right.shape), right)
    if error_found <= tolerance:
        return None
    return Fault(name, index, f"wrong: error {error_found:.1e}")


def drawn(names: Sequence[str], count: int, seed: int) -> Iterator[tuple[str, list[int]]]:
    """Random points, shared out over workloads alike, some of one workload at a time."""
    rng = random.Random(seed)
    for number, name in enumerate(names):
        own = count // len(names) + (number < count % len(names))
        tensors = next(s for s in subjects() if s.name == name).tensors()
        task = lw.create_task(tensors, target="llvm -num-threads=1")
        indices = task.config_space.sample_ints(min(own, task.config_space.range_length), rng)
        yield from ((name, indices[at : at + _CHUNK]) for at in range(0, len(indices), _CHUNK))


class Pool:
    """Processes that check points; one that crashes costs the point that it checked.

    Args:
        processes: how many.
        work: what they do with a name and points.
    """

    def __init__(
        self, processes: int, work: Callable[[str, Sequence[int]], list[Fault]] = check
    ) -> None:
        self._processes, self._work = processes, work

    def run(self, chunks: Iterator[tuple[str, list[int]]]) -> Iterator[tuple[int, list[Fault]]]:
        """Number of points and faults of each chunk, in order."""
        todo = list(chunks)
        while todo:
            crashed = yield from self._until_crash(todo)
            if crashed is None:
                return
            name, indices = todo[crashed]
            yield len(indices), [f for index in indices for f in self._alone(name, index)]
            todo = todo[crashed + 1 :]

    def _until_crash(
        self, todo: Sequence[tuple[str, list[int]]]
    ) -> Iterator[tuple[int, list[Fault]]]:
        with self._executor(self._processes) as executor:
            futures: list[Future[list[Fault]]] = [executor.submit(self._work, *c) for c in todo]
            for number, (future, (_, indices)) in enumerate(zip(futures, todo, strict=True)):
                try:
                    found = future.result()
                except BrokenProcessPool:
                    return number
                yield len(indices), found
        return None

    def _alone(self, name: str, index: int) -> list[Fault]:
        with self._executor(1) as executor:
            try:
                return executor.submit(self._work, name, [index]).result()
            except BrokenProcessPool:
                return [Fault(name, index, "crashed")]

    def _executor(self, processes: int) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(processes, mp_context=get_context("spawn"))


# ---------------------------------------------------------------- the command


def main() -> int:
    """Print a line after each workload, then the table; 1 when a point failed or is wrong."""
    options = _options()
    console = Console(width=150)
    chosen = [s for s in _part(options.part) if options.cases in s.name]
    if options.build:
        return _build(options, [s.name for s in chosen], console)
    rows: list[dict[str, Any]] = []
    _warm_up()
    for subject in chosen:
        rows.append(quality(subject, options.sample, options.trials, options.threads, options.seed))
        console.print(json.dumps(rows[-1]), markup=False)
        _write(options.out, {"rows": rows})
    if rows:
        console.print(quality_table(rows))
        console.print("\n".join(verdicts(rows)), markup=False)
    return 0


def _warm_up() -> None:
    """Have what is imported, or learned of the machine, when it is first needed."""
    A = te.placeholder((64,), name="A")
    task: Any = lw.create_task([A, te.compute((64,), lambda i: A[i] + 1, name="B")], target="llvm")
    assert task.ranking, "every expression has a structure"


def _part(text: str) -> list[Subject]:
    first, _, count = text.partition("/")
    return subjects()[int(first) - 1 :: int(count)]


def _build(options: argparse.Namespace, names: list[str], console: Console) -> int:
    done, faults = 0, list[Fault]()
    begin = time.perf_counter()
    pool = Pool(options.processes)
    for count, found in pool.run(drawn(names, options.build, options.seed)):
        done, faults = done + count, [*faults, *found]
        for fault in found:
            console.print(f"{fault.what} #{fault.index}: {fault.text}", markup=False)
        _write(options.out, {"points": done, "faults": [vars(f) for f in faults]})
    wrong = sum(f.text.startswith("wrong") for f in faults)
    console.print(
        f"{done} points of {len(names)} workloads in {time.perf_counter() - begin:.0f} s: "
        f"{len(faults) - wrong} failed (bar 0), {wrong} wrong (bar 0)"
    )
    return 1 if faults else 0


def _write(path: str, made: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps({"machine": machine(), **made}, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spaces_quality", description=__doc__
    )
    parser.add_argument("--cases", default="", help="only workloads whose name holds this text")
    parser.add_argument("--part", default="1/1", help="every n-th workload, such as 1/3 [all]")
    parser.add_argument("--sample", type=int, default=32, help="points to measure; 0: none [32]")
    parser.add_argument("--trials", type=int, default=32, help="of the search beside them [32]")
    parser.add_argument("--build", type=int, default=0, metavar="N", help="check N points instead")
    parser.add_argument("--processes", type=int, default=len(usable_cpus()), help="with --build")
    parser.add_argument("--threads", type=int, default=len(usable_cpus()), help="of kernels")
    parser.add_argument("--seed", type=int, default=0, help="of the points")
    parser.add_argument("--out", default="spaces_quality.json", help="where the JSON goes")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
