"""Searches among the recorded points of a workload, by a model that was taught by the others.

A pool is what a log holds of one workload: points of all its structures, as their traces make
them. A search picks a round of it, is told their times, and picks again; what is not in the pool
cannot be picked. Rounds, ensemble, share of random points and the fading of the transfer model are
those of `XGBTuner`; evolution and the bandit over structures have nothing to do in a pool.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.records import Log, Record, load
from loopwright.target import Target
from loopwright.tuner.model.candidates import faded, score_of
from loopwright.tuner.model.cost_model import SampleOutcome, Samples, joined
from loopwright.tuner.model.transfer_model import ExpressionTable, traced_batch
from loopwright.tuner.model.xgb_model import XGBCostModel
from loopwright.tuner.run.recorded import result_of
from loopwright.tuner.xgb_tuner import in_turn

#: The records that come along.
RECORDS = Path(__file__).parent / "records.jsonl.gz"
#: As of `XGBTuner`.
ROUND, FIRST, EPSILON, MODELS = 16, 8, 0.05, 4
#: A pool with fewer points is left out.
LEAST = 30


@dataclass(frozen=True)
class Pool:
    """The recorded points of a workload.

    Attributes:
        name: the workload.
        samples: features, the analytical model's predictions as offsets, and scores.
        share: float64 (n,): speed as a share of the best; 0.0 for a failure.
    """

    name: str
    samples: Samples
    share: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Way:
    """How a search is guided.

    Attributes:
        label: in the table.
        analytical: by the analytical model, too.
        taught: by what other workloads teach.
        model: False for chance alone.
    """

    label: str
    analytical: bool = False
    taught: bool = False
    model: bool = True


WAYS = (
    Way("random", model=False),
    Way("learned"),
    Way("learned, pretrained", taught=True),
    Way("learned, analytical", analytical=True),
    Way("learned, analytical, pretrained", analytical=True, taught=True),
)


def read(path: Path) -> Log:
    """A log, which may be compressed."""
    if path.suffix != ".gz":
        return load(path)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / path.stem
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        return load(plain)


def pools(log: Log, names: Mapping[str, str], feature_type: str) -> list[Pool]:
    """The pools of a log, one for each run, since times of different hours do not compare.

    Args:
        log: records of trials; further measurements in it are left out.
        names: of the workloads, by the hash of their expression.
        feature_type: of the rows, see `loopwright.cost.features.Extractor`.
    """
    expressions = ExpressionTable()
    expressions.add(log.dags)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in log:
        if not record.phase and not record.same_as and record.dag in names:
            groups.setdefault((record.dag, record.run), []).append(record)
    enough = [(dag, found) for (dag, _), found in groups.items() if len(found) >= LEAST]
    return [
        _pool(names[dag], records, expressions, feature_type, number)
        for number, (dag, records) in enumerate(enough)
    ]


def _pool(
    name: str,
    records: Sequence[Record],
    expressions: ExpressionTable,
    feature_type: str,
    number: int,
) -> Pool:
    target = Target.from_canonical(records[0].target)
    batch = traced_batch(records, expressions, target, feature_type, True)
    outcomes, scores = zip(*(score_of(result_of(record)) for record in records), strict=True)
    outcome, score = np.array(outcomes, np.int64), np.array(scores, np.float64)
    ran = outcome != SampleOutcome.FAILED
    exact = outcome == SampleOutcome.EXACT
    share = np.where(ran, np.exp2(score - score[exact].max()), 0.0)
    return Pool(name, Samples(batch, score, outcome, np.full(len(score), number)), share)


def teach(others: Sequence[Pool], analytical: bool) -> XGBCostModel:
    """The transfer model of some workloads."""
    samples = joined([_seen(pool.samples, analytical) for pool in others])
    model = XGBCostModel(_names(samples))
    model.fit(samples)
    return model


def search(pool: Pool, way: Way, teacher: XGBCostModel | None, seed: int, trials: int) -> list[int]:
    """The points that a search picks, in their order."""
    samples = _seen(pool.samples, way.analytical)
    model = XGBCostModel(_names(samples), ensemble=MODELS)
    chosen: list[int] = []
    for number in range(-(-trials // ROUND)):
        rng = np.random.default_rng([seed, number])
        left = np.setdiff1d(np.arange(len(samples)), chosen)
        picked = _round(samples, way, teacher, model, chosen, left, rng)
        chosen += picked[: trials - len(chosen)]
    return chosen


def _round(
    samples: Samples,
    way: Way,
    teacher: XGBCostModel | None,
    model: XGBCostModel,
    chosen: list[int],
    left: npt.NDArray[np.int64],
    rng: np.random.Generator,
) -> list[int]:
    """One round: what the model likes best, and random points."""
    random = rng.permutation(left).tolist()
    if not way.model:
        return random[:ROUND]
    batch = samples.batch
    if way.taught and teacher is not None:
        batch = faded(batch, teacher, len(chosen))
    known = np.array(chosen, np.int64)
    ran = int((samples.outcome[known] != SampleOutcome.FAILED).sum())
    liked: list[int] = []
    if ran >= FIRST:
        taken = samples.take(known)
        model.fit(Samples(batch.take(known), taken.score, taken.outcome, taken.task))
        scores = model.predict_ensemble(batch.take(left))
        greedy = ROUND - int(rng.binomial(ROUND, EPSILON))
        first = int(rng.integers(scores.shape[1]))
        liked = left[in_turn(scores, greedy, first)].tolist()
    elif way.analytical or way.taught:
        order = np.argsort(-batch.offset[left], kind="stable")
        liked = left[order[: (ROUND + 1) // 2]].tolist()
    return [*liked, *(index for index in random if index not in set(liked))][:ROUND]


def _seen(samples: Samples, analytical: bool) -> Samples:
    """Samples with the analytical model's prediction, or without."""
    offset = samples.batch.offset if analytical else np.zeros(len(samples))
    batch = samples.batch.with_offset(offset)
    return Samples(batch, samples.score, samples.outcome, samples.task)


def _names(samples: Samples) -> list[str]:
    return [str(column) for column in range(samples.batch.features.shape[1])]


def run(pools: Sequence[Pool], way: Way, out: int, seeds: int, trials: int) -> Any:
    """The best share after each trial, float64 (seeds, trials), of one workload left out."""
    pool = pools[out]
    taught = [other for other in pools if other.name != pool.name]
    teacher = teach(taught, way.analytical) if way.taught else None
    most = min(trials, len(pool.share))
    best = np.zeros((seeds, trials))
    for seed in range(seeds):
        asked = search(pool, way, teacher, seed, most)
        values = np.maximum.accumulate(pool.share[asked])
        best[seed, : len(values)], best[seed, len(values) :] = values, values[-1]
    return best
