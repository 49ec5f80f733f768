"""Structures and points of a space, how long it takes to derive and to rank it, and how its random
points do beside the best."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from rich.table import Table

import loopwright as lw
from benchmarks.automatic import geomean
from benchmarks.spaces_quality.subjects import Subject
from loopwright import te
from loopwright.space import ranked
from loopwright.task import Task
from loopwright.tuner import DEFAULT_TUNER, find_tuner

#: Points of a first ranking; and what "near the best" is.
RANKED, NEAR = 2000, 0.9
#: Seconds that deriving structures, and such a ranking, may take.
DERIVE_S, RANK_S = 0.05, 2.0


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
    given = task.config_space.given
    with task.target:
        ranked(given, sample=max(1, RANKED // len(given)))
    ranked_at = time.perf_counter()
    default = task.config_space.default_index
    found = {
        "what": subject.name,
        "structures": len(task.structures),
        "points": task.config_space.range_length,
        "default": default,
        "derive_s": derived - begin,
        "rank_s": ranked_at - derived,
        "default_s": time.perf_counter() - ranked_at,
    }
    if sample:
        seconds = sampled(task, sample, seed)
        best = min([_searched(task, trials, seed), *seconds]) if trials else min(seconds)
        asked = min(sample, task.config_space.range_length)
        found |= {"sample": len(seconds), "failed": asked - len(seconds), "best_s": best}
        found |= shares(seconds, best)
    return found


def shares(seconds: Sequence[float], best: float) -> dict[str, float]:
    """Speed of the median as a share of the best, and the share of points that are near it."""
    near = sum(best / s >= NEAR for s in seconds)
    return {"median": best / statistics.median(seconds), "near": near / len(seconds)}


def sampled(task: Task, count: int, seed: int) -> list[float]:
    """Seconds of random points, of each structure alike; those that fail are left out."""
    count = min(count, task.config_space.range_length)
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
        "", "structures", "points", "derive ms", "rank ms", "default ms", "median of best",
        "within 90 %", "failed", title="quality of spaces",
    )  # fmt: skip
    for r in rows:
        out.add_row(
            r["what"],
            str(r["structures"]),
            f"{r['points']:,}",
            *(f"{r[key] * 1e3:.0f}" for key in ("derive_s", "rank_s", "default_s")),
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
        near = statistics.median(r["near"] for r in measured)
        lines.append(
            f"median random point of {len(measured)} spaces: geomean {geomean(shares_of):.2f} of "
            f"the best; within {NEAR:.0%} of it {near:.0%} of the points (median space), "
            f"{sum(r['failed'] for r in measured)} failed"
        )
    return lines


def warm_up() -> None:
    """Have what is imported, or learned of the machine, when it is first needed."""
    A = te.placeholder((64,), name="A")
    task: Any = lw.create_task([A, te.compute((64,), lambda i: A[i] + 1, name="B")], target="llvm")
    assert task.ranking, "every expression has a structure"
