"""Runs of tuners on measured spaces, and what they needed; ``benchmarks.tuners`` prints it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from benchmarks.spaces import path_of
from benchmarks.spaces.templates import SPACES
from benchmarks.tuner_memory import remember
from benchmarks.tuner_stats import band, median_interval, random_median
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


_PLAIN = {"analytical": False}
CONTENDERS = (
    Contender("random", "random"),
    Contender("grid", "grid"),
    Contender("ga", "ga"),
    Contender("xgb", "xgb"),
    Contender("xgb without analytical", "xgb", {"analytical": False}),
    Contender(
        "xgb without analytical, trained every round",
        "xgb",
        {"analytical": False, "adaptive_training": False},
    ),
    *(
        Contender(f"xgb without analytical, {kind}", "xgb", {**_PLAIN, "feature_type": kind})
        for kind in ("knob", "curve", "per_store")
    ),
    Contender("xgb as Ansor searches", "xgb", {**_PLAIN, "optimizer": "ansor"}),
    Contender("droplet", "droplet"),
    Contender("droplet without analytical", "droplet", {"analytical": False}),
    Contender(
        "droplet without analytical, with restarts",
        "droplet",
        {"analytical": False, "restarts": None},
    ),
    Contender(
        "xgb without analytical, descent from 32",
        "xgb",
        {"analytical": False, "post_optimization": 32},
    ),
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
        own_seconds: what the tuner itself took a trial, features not counted, mean.
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
    remember()
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
        curve=dict(zip(("mean", "low", "high"), map(rounded, curve), strict=True)),
    )


def _first(reached: Any) -> list[float]:
    """Number of the first trial, from 1, at which each run is there; infinite when never."""
    return [float(line.argmax() + 1) if line.any() else math.inf for line in reached]


def rounded(values: Any) -> list[float]:
    return [round(float(value), 5) for value in values]
