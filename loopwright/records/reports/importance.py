"""Importance of knobs: the share of the variance of the time that each of them explains.

The method is functional ANOVA over an ensemble of trees (Hutter, Hoos, Leyton-Brown, "An efficient
approach for assessing hyperparameter importance", ICML 2014): gradient boosted trees learn the
logarithm of the time from the configurations of the log; the marginal of a knob is their prediction
as a function of that knob alone, averaged over the values of all other knobs that the log holds,
all equally likely, in a sample of configurations that is the same for all values of a knob. The
share of a knob is the part of the variance of all predictions that is the variance of its marginal;
the rest belongs to combinations of knobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import RecordError
from loopwright.presenting import counted
from loopwright.records.bulk import fields_of
from loopwright.records.line import Json
from loopwright.records.query import measured
from loopwright.records.record import Record
from loopwright.records.reports.knobs import ABSENT, KnobColumn, knobs_of, value_text

Floats = npt.NDArray[np.float64]

METHOD = "functional ANOVA over boosted trees"  # the name of the method, for people
FEWEST = 20  # records without which nothing is said
#: Records that the trees learn from at most, and values of a knob that are averaged at most.
_MOST_RECORDS, _MOST_VALUES = 2000, 200
#: Configurations that an average is taken over, and that the variance of all is taken from.
_AVERAGED, _SAMPLED = 400, 8000
_SEEN = 3  # a best value is one that so many records have, where there is such
_FOLDS = 3
_LARGEST = 709.0  # the largest logarithm whose number is finite
_ROUNDS = 150


@dataclass(frozen=True)
class ValueEffect:
    value: Json  # None for `knobs.ABSENT`
    text: str
    count: int  # number of records that have it
    #: Predicted ratio to the best value of the knob, 1.0 for that one: a ratio of geometric means
    #: over the values of all other knobs. A rare value may have less.
    slower: float
    fastest: float  # median seconds of the fastest record that has it


@dataclass(frozen=True)
class KnobEffect:
    knob: str
    share: float  # part of the variance of log(time) that it explains by itself, 0 to 1
    best: ValueEffect  # its best value among those that several records have
    worst: ValueEffect
    values: tuple[ValueEffect, ...]  # all values that were looked at, the best first

    def of(self, value: Json) -> ValueEffect | None:
        """The effect of a value; None where it was not looked at."""
        text = value_text(value)
        return next((effect for effect in self.values if effect.text == text), None)


@dataclass(frozen=True)
class Importance:
    knobs: tuple[KnobEffect, ...]  # those that vary, the most important first
    together: float  # part of the variance that only combinations explain, 0 to 1
    records: int  # number of records it rests on
    dropped: int  # number of these that racing dropped; their times are rough
    learned: int  # number of them that the trees learned from: a sample where there are very many
    #: Spearman's correlation of predicted and measured times of records that the trees had not
    #: learned from, cross-validated in three parts; below about 0.3 the shares say little.
    rank_correlation: float
    method: str = METHOD


def importance(records: Iterable[Record], seed: int = 0) -> Importance:
    """Importance of each knob for the time, from the trials of one task on one machine.

    Failed records have no time and are left out, and copies of a program are no measurements; those
    that racing dropped have a rough time and count. Records need not have the same knobs: the
    absence of a knob is one of its values. RecordError where there are fewer than `FEWEST` records
    with a time, or no knob varies, or all times are equal. The same records, of one `Setup`, and
    seed give the same result.

    Example:
        >>> from dataclasses import replace
        >>> from loopwright.records.reports.importance import importance
        >>> [one, *_] = lw.records.load("matmul.jsonl").records
        >>> configs = [{"tile": n % 5, "unroll": n % 2} for n in range(60)]
        >>> made_up = [replace(one, config=c, times=(1e-3 + c["tile"],)) for c in configs]
        >>> effects = importance(made_up)
        >>> print(effects.knobs[0].knob, effects.knobs[0].share > 0.9, effects.records)
        tile True 60
    """
    searched = measured(records, again=False)
    trials = list(compress(searched, *fields_of(searched, "valid")))
    if len(trials) < FEWEST:
        raise RecordError(
            f"the importance of knobs cannot be judged from {counted(len(trials), 'record')} with "
            f"a time; tune until there are {FEWEST}, better 100"
        )
    knobs = [knob for knob in knobs_of(trials) if len(knob.texts) > 1]
    if not knobs:
        raise RecordError(f"no knob varies among the {len(trials)} records with a time")
    (medians,) = fields_of(trials, "median")
    logs = np.log(np.array(medians, dtype=np.float64))
    if float(np.ptp(logs)) == 0.0:
        raise RecordError(
            f"all {len(trials)} records have the same time: no knob explains anything"
        )
    rng = np.random.default_rng(seed)
    some = rng.permutation(len(trials))[:_MOST_RECORDS]
    table = ConfigTable(knobs)
    features = table.rows([knob.codes[some] for knob in knobs])
    correlation = _cross_validated(features, logs[some], seed)
    model = fit_trees(features, logs[some], seed)
    variance = float(np.var(model.predict(table.rows(table.draw(rng, _SAMPLED)))))
    background = table.draw(rng, _AVERAGED)
    effects = [
        _effect(table, place, model, background, variance, logs) for place in range(len(knobs))
    ]
    effects.sort(key=lambda effect: -effect.share)
    together = max(0.0, 1.0 - sum(effect.share for effect in effects))
    rough = sum(*fields_of(trials, "dropped"))
    return Importance(tuple(effects), together, len(trials), rough, len(some), correlation)


def _effect(
    table: ConfigTable,
    place: int,
    model: Trees,
    background: Sequence[npt.NDArray[np.int64]],
    variance: float,
    logs: Floats,
) -> KnobEffect:
    knob = table.knobs[place]
    counts = np.bincount(knob.codes, minlength=len(knob.texts))
    # The most frequent values where there are too many to average.
    codes = np.argsort(-counts, kind="stable")[:_MOST_VALUES]
    rows = [np.tile(share, len(codes)) for share in background]
    rows[place] = np.repeat(codes, _AVERAGED)
    predicted = model.predict(table.rows(rows)).reshape(len(codes), _AVERAGED)
    marginal = predicted.mean(axis=1)
    share = float(np.var(marginal)) / variance if variance > 0.0 else 0.0
    fastest = np.full(len(knob.texts), np.inf)
    np.minimum.at(fastest, knob.codes, logs)
    order = np.argsort(marginal, kind="stable")
    often = [i for i in order.tolist() if counts[codes[i]] >= _SEEN]
    # A value that hardly any record has is best by luck more often than by merit.
    best, worst = (often or order.tolist())[0], int(order[-1])

    def value(i: int) -> ValueEffect:
        code = int(codes[i])
        return ValueEffect(
            knob.values[code],
            knob.texts[code],
            int(counts[code]),
            math.exp(min(_LARGEST, marginal[i] - marginal[best])),
            math.exp(min(_LARGEST, fastest[code])),
        )

    values = tuple(map(value, order.tolist()))
    return KnobEffect(knob.name, min(1.0, share), value(best), value(worst), values)


class ConfigTable:
    """Configurations as rows of numbers for trees.

    Each knob is a group of columns: a number is its rank among all numbers of that column, which is
    all that trees see of it; any other value is an indicator column; a list is one group for each
    of its places.
    """

    def __init__(self, knobs: Sequence[KnobColumn]) -> None:
        self.knobs = knobs
        # A row of numbers for each value of a knob.
        self._columns: list[npt.NDArray[np.float32]] = []
        for knob in knobs:
            columns = [c for values in knob.parts().values() for c in _part_columns(values)]
            self._columns.append(np.array(columns, dtype=np.float32).T)

    def rows(self, codes: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.float32]:
        """Rows of configurations, from the indices of values for each knob."""
        parts = [columns[code] for columns, code in zip(self._columns, codes, strict=True)]
        return np.concatenate(parts, axis=1)

    def draw(self, rng: np.random.Generator, count: int) -> list[npt.NDArray[np.int64]]:
        """Draw configurations: each knob independently, its values uniformly."""
        return [rng.integers(len(knob.texts), size=count) for knob in self.knobs]


def _part_columns(values: Sequence[tuple[str, Json]]) -> list[list[float]]:
    numbers = sorted({value for _, value in values if _is_number(value)})
    order = {number: float(place) for place, number in enumerate(numbers)}
    others = dict.fromkeys(t for t, value in values if t != ABSENT and not _is_number(value))
    columns = [[float(text == other) for text, _ in values] for other in others]
    if numbers or not columns:
        columns.append([order.get(v, math.nan) if _is_number(v) else math.nan for _, v in values])
    if any(text == ABSENT for text, _ in values):
        columns.append([float(text == ABSENT) for text, _ in values])
    return columns


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Trees:
    """Boosted trees of XGBoost; ``base`` is added to their predictions."""

    def __init__(self, booster: Any, base: float) -> None:
        self._booster, self._base = booster, base

    def predict(self, rows: npt.NDArray[np.float32]) -> Floats:
        return np.asarray(self._booster.inplace_predict(rows), dtype=np.float64) + self._base


def fit_trees(rows: npt.NDArray[np.float32], logs: Floats, seed: int) -> Trees:
    """Fit boosted trees to log(seconds) of rows of a `ConfigTable`."""
    import xgboost

    base = float(logs.mean())
    params: Mapping[str, Json] = {
        "objective": "reg:squarederror",
        "base_score": 0.0,
        "tree_method": "hist",
        "max_depth": 5,
        "eta": 0.1,
        "min_child_weight": 2,
        "subsample": 0.8,
        "seed": seed,
        "nthread": 1,  # so that the sums, and with them the answer, are the same everywhere
        "verbosity": 0,
    }
    matrix = xgboost.DMatrix(rows, label=logs - base)
    return Trees(xgboost.train(dict(params), matrix, num_boost_round=_ROUNDS), base)


def _cross_validated(rows: npt.NDArray[np.float32], logs: Floats, seed: int) -> float:
    """Spearman's rank correlation of measured times with predictions of trees fitted to others."""
    part = np.arange(len(logs)) % _FOLDS
    predicted = np.empty(len(logs))
    for fold in range(_FOLDS):
        held = part == fold
        predicted[held] = fit_trees(rows[~held], logs[~held], seed).predict(rows[held])
    return rank_correlation(predicted, logs)


def rank_correlation(one: npt.ArrayLike, other: npt.ArrayLike) -> float:
    """Spearman's rank correlation; equal values share their mean rank. 0 where one is constant."""
    a, b = _ranks(np.asarray(one)), _ranks(np.asarray(other))
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 0.0 else 0.0


def _ranks(values: npt.NDArray[Any]) -> Floats:
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2.0)[codes]
    return ranks
