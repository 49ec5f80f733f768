"""Compare the tuners on measured spaces: how many trials each needs to come near the optimum.

``python -m benchmarks.tuners`` (``make tuners``) replays the spaces of ``benchmarks/spaces``, so it
needs no quiet machine: the same seeds give the same figures anywhere. Random search is computed
exactly; the others run with many seeds. `benchmarks/tuner_plot.py` draws the curves.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table

from benchmarks.spaces import path_of
from benchmarks.spaces.templates import SPACES
from benchmarks.tuner_stats import band, median_interval, random_curve, random_median
from loopwright.measure import MeasuredSpace, Replay, load_space
from loopwright.tuner import TUNERS, EarlyStop

#: Shares of the optimum's speed that count as near.
TARGETS = (0.95, 0.99)
#: Where random search needs fewer trials than this to the first target, the second one judges.
EASY = 100
#: Seeds, and trials of a run at most.
SEEDS, LIMIT = 60, 1500
#: A run ends with the round in which it finds a point this near the optimum.
_ENOUGH = 0.9999


@dataclass(frozen=True)
class Contender:
    """A tuner with its options."""

    label: str
    tuner: str
    options: dict[str, Any] = field(default_factory=dict)


CONTENDERS = (
    Contender("random", "random"),
    Contender("grid", "grid"),
    Contender("ga", "ga"),
    Contender("xgb", "xgb"),
)


@dataclass(frozen=True)
class Row:
    """What one contender needed on one space.

    Attributes:
        space: the space.
        label: the contender.
        seeds: its runs.
        trials: by target: median trials to reach it; infinite when most runs did not.
        interval: by target: bootstrap interval of that median.
        share: by target: median trials as a share of random's exact median.
        share_interval: by target: the interval likewise.
        reached: by target: how many runs came there.
        own_seconds: what the tuner itself took a trial, mean.
        curve: mean best share after each trial, with its interval: mean, low, high.
    """

    space: str
    label: str
    seeds: int
    trials: dict[str, float]
    interval: dict[str, tuple[float, float]]
    share: dict[str, float]
    share_interval: dict[str, tuple[float, float]]
    reached: dict[str, int]
    own_seconds: float
    curve: dict[str, list[float]]


class _Listener(Replay):
    """A replay that notes the order in which it was asked."""

    def __init__(self, source: MeasuredSpace) -> None:
        super().__init__(source)
        self.asked: list[int] = []

    def measure(self, inputs: Any, incumbent: float | None = None) -> Any:
        for item, result in zip(inputs, super().measure(inputs, incumbent), strict=True):
            self.asked.append(item.config.index)
            yield result


@lru_cache(maxsize=8)
def _recorded(space: str) -> MeasuredSpace:
    return load_space(path_of(space))


@lru_cache(maxsize=8)
def _task(space: str) -> Any:
    return SPACES[space].task(_recorded(space).target)


def shares(space: str) -> dict[int, float]:
    """Speed of each point as a share of the optimum's; 0.0 where it failed."""
    recorded = _recorded(space)
    best = recorded.ranking()[0][0]
    found = ((index, recorded.seconds(index)) for index in recorded.points)
    return {index: best / seconds if seconds else 0.0 for index, seconds in found}


def run(space: str, contender: Contender, seed: int, trials: int) -> tuple[list[int], float]:
    """One run: the measured indices in order, and the seconds that the tuner took for itself."""
    known = shares(space)
    device = _Listener(_recorded(space))

    def enough(tuner: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        if any(known[item.config.index] >= _ENOUGH for item in inputs):
            raise EarlyStop("the optimum is found")

    tuner: Any = TUNERS[contender.tuner](_task(space), seed=seed, **contender.options)
    start = time.perf_counter()
    tuner.tune(n_trial=trials, measure_option=device, callbacks=[enough])
    return device.asked, time.perf_counter() - start


def random_medians(space: str) -> dict[str, int]:
    """Exact median trials of random search by target."""
    known = list(shares(space).values())
    return {
        str(target): random_median(len(known), sum(s >= target for s in known))
        for target in TARGETS
    }


def judged_by(space: str) -> str:
    """The target by which tuners are judged on a space."""
    easy, hard = map(str, TARGETS)
    return easy if random_medians(space)[easy] >= EASY else hard


def compare(space: str, contenders: Sequence[Contender], seeds: int, jobs: int) -> list[Row]:
    """Run contenders on a space; trials are limited to what random search needs, and `LIMIT`."""
    trials = min(LIMIT, len(_recorded(space).points), max(random_medians(space).values()))
    work = [(c, seed) for c in contenders for seed in range(1 if c.tuner == "grid" else seeds)]
    runs = Parallel(n_jobs=jobs)(delayed(run)(space, c, seed, trials) for c, seed in work)
    rows = []
    for contender in contenders:
        own = [found for (c, _), found in zip(work, runs, strict=True) if c is contender]
        rows.append(_row(space, contender, own, trials))
    return rows


def _row(
    space: str, contender: Contender, runs: Sequence[tuple[list[int], float]], trials: int
) -> Row:
    known, medians = shares(space), random_medians(space)
    rng = np.random.default_rng(0)
    best = np.zeros((len(runs), trials))
    for line, (asked, _) in zip(best, runs, strict=True):
        values = np.maximum.accumulate([known[index] for index in asked])[:trials]
        line[: len(values)], line[len(values) :] = values, values[-1]
    needed = {str(t): _first(best >= t) for t in TARGETS}
    middle = {t: float(np.sort(n)[len(n) // 2]) for t, n in needed.items()}
    interval = {t: median_interval(n, rng) for t, n in needed.items()}
    curve = band(best, rng) if len(runs) > 1 else (best[0], best[0], best[0])
    return Row(
        space=space,
        label=contender.label,
        seeds=len(runs),
        trials=middle,
        interval=interval,
        share={t: n / medians[t] for t, n in middle.items()},
        share_interval={t: (a / medians[t], b / medians[t]) for t, (a, b) in interval.items()},
        reached={t: int(np.isfinite(n).sum()) for t, n in needed.items()},
        own_seconds=sum(s for _, s in runs) / sum(len(asked) for asked, _ in runs),
        curve=dict(zip(("mean", "low", "high"), map(_rounded, curve), strict=True)),
    )


def _first(reached: Any) -> list[float]:
    """Number of the first trial, from 1, at which each run is there; infinite when never."""
    return [float(line.argmax() + 1) if line.any() else math.inf for line in reached]


def _rounded(values: Any) -> list[float]:
    return [round(float(value), 5) for value in values]


def tables(rows: Sequence[Row]) -> list[Table]:
    """A table a space."""
    made = []
    for space in dict.fromkeys(row.space for row in rows):
        known, medians = list(shares(space).values()), random_medians(space)
        judge = judged_by(space)
        near = sum(s >= TARGETS[0] for s in known)
        table = Table(
            title=f"{space}: {len(known)} points, {near} within 95 %; random needs "
            f"{medians['0.95']} trials to 95 % and {medians['0.99']} to 99 % (exact medians); "
            f"judged at {float(judge):.0%}",
            title_justify="left",
        )
        heads = ("tuner", "seeds", "to 95 %", "share of random", "to 99 %", "share of random")
        for head in (*heads, "reached 95 / 99 %", "own ms a trial"):
            table.add_column(head, justify="left" if head == "tuner" else "right")
        for row in rows:
            if row.space == space:
                table.add_row(*_cells(row))
        made.append(table)
    return made


def _cells(row: Row) -> list[str]:
    cells = [row.label, str(row.seeds)]
    for target in map(str, TARGETS):
        low, high = row.interval[target]
        cells.append(f"{row.trials[target]:.0f} [{low:.0f}, {high:.0f}]")
        low, high = row.share_interval[target]
        cells.append(f"{row.share[target]:.2f} [{low:.2f}, {high:.2f}]")
    reached = " / ".join(str(row.reached[str(target)]) for target in TARGETS)
    return [*cells, reached, f"{row.own_seconds * 1e3:.1f}"]


def main() -> None:
    """Print the tables, write the JSON, draw the curves."""
    options = _options()
    console = Console(width=150)
    chosen = [c for c in CONTENDERS if c.tuner in TUNERS]
    if options.only:
        chosen = [c for c in chosen if c.label in options.only]
    rows: list[Row] = []
    for space in options.spaces:
        rows += compare(space, chosen, options.seeds, options.jobs)
        console.print(tables(rows)[-1])
    exact = {
        space: {
            "medians": random_medians(space),
            "judged_by": judged_by(space),
            "curve": _rounded(random_curve(list(shares(space).values()), _longest(rows, space))),
        }
        for space in options.spaces
    }
    found = {"random": exact, "rows": [asdict(row) for row in rows]}
    options.out.write_text(json.dumps(found))
    if options.plot is not None:
        from benchmarks.tuner_plot import draw

        draw(found, options.plot)


def _longest(rows: Sequence[Row], space: str) -> int:
    return max(len(row.curve["mean"]) for row in rows if row.space == space)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuners", description=__doc__)
    parser.add_argument("spaces", nargs="*", default=list(SPACES), choices=list(SPACES))
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"default {SEEDS}")
    parser.add_argument("--jobs", type=int, default=2, help="processes; default 2")
    parser.add_argument("--only", nargs="*", help="labels of contenders; default all")
    parser.add_argument("--out", type=Path, default=Path("bench_tuners.json"))
    parser.add_argument("--plot", type=Path, help="draw the curves into this PNG")
    return parser.parse_args()


if __name__ == "__main__":
    main()
