"""What records of other workloads are worth for a new one, each workload left out in turn.

    python -m benchmarks.transfer [--features itervar per_store] [--seeds 20] [--trials 64]

Replays points that `benchmarks.transfer.recording` measured, so it needs no quiet machine:
the same seeds give the same figures anywhere. A row says how many trials a search needed to 95 % of
the best of its pool, and how fast its best was after 8, 16 and 64 trials: medians over seeds, and
in brackets the quarter below and above; in the last rows geometric means over the pools.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table

from benchmarks.transfer.pools import RECORDS, WAYS, Way, pools, read, run
from benchmarks.transfer.workloads import WORKLOADS
from loopwright import te

#: What counts as near, and after how many trials the best is told.
NEAR, AFTER = 0.95, (8, 16, 64)


@dataclass(frozen=True)
class Row:
    """One way to search one pool.

    Attributes:
        pool: its name, and how many points it has.
        way: how the search was guided.
        needed: quartiles of the trials to `NEAR`.
        best: quartiles of the best share, by trials.
    """

    pool: str
    way: str
    needed: npt.NDArray[np.float64]
    best: dict[int, npt.NDArray[np.float64]]


def rows(feature_type: str, log: Path, seeds: int, trials: int, jobs: int) -> list[Row]:
    """Search every pool in every way."""
    names = {te.Dag.from_ops([make()[-1].op])[0].hash: name for name, make in WORKLOADS.items()}
    found = pools(read(log), names, feature_type)
    work = [(out, way) for out in range(len(found)) for way in WAYS]
    results = Parallel(n_jobs=jobs)(
        delayed(run)(found, way, out, seeds, trials) for out, way in work
    )
    return [
        _row(f"{found[out].name} ({len(found[out].share)} points)", way, best)
        for (out, way), best in zip(work, results, strict=True)
    ]


def _row(pool: str, way: Way, best: npt.NDArray[np.float64]) -> Row:
    there = best >= NEAR
    first = np.where(there.any(axis=1), there.argmax(axis=1) + 1, best.shape[1] + 1)
    quarters = (25, 50, 75)
    after = {n: np.percentile(best[:, min(n, best.shape[1]) - 1], quarters) for n in AFTER}
    return Row(pool, way.label, np.percentile(first, quarters), after)


def table(title: str, found: Sequence[Row]) -> Table:
    """The rows, and their means by way."""
    shown = Table(title=title, title_justify="left")
    for head in ("pool", "guided by", "trials to 95 %", *(f"best after {n}" for n in AFTER)):
        shown.add_column(head, justify="left" if head in ("pool", "guided by") else "right")
    for row in found:
        cells = [_cell(row.needed, ".0f"), *(_cell(row.best[n], ".2f") for n in AFTER)]
        shown.add_row(row.pool, row.way, *cells)
    for way in WAYS:
        own = [row for row in found if row.way == way.label]
        needed = _mean([row.needed[1] for row in own])
        means = [f"{_mean([row.best[n][1] for row in own]):.3f}" for n in AFTER]
        shown.add_row("all, geometric mean", way.label, f"{needed:.1f}", *means)
    return shown


def _cell(quartiles: npt.NDArray[np.float64], form: str) -> str:
    low, middle, high = (format(x, form) for x in quartiles)
    return f"{middle} [{low}, {high}]"


def _mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def main() -> None:
    """Print a table for each kind of features."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer", description=__doc__)
    parser.add_argument("--features", nargs="+", default=["itervar", "per_store"])
    parser.add_argument("--log", type=Path, default=RECORDS, help="records; may end in .gz")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    console = Console(width=150)
    for kind in options.features:
        found = rows(kind, options.log, options.seeds, options.trials, options.jobs)
        console.print(table(f"features {kind}, {options.seeds} seeds", found))


if __name__ == "__main__":
    main()
