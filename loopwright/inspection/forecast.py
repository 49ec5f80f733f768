"""Prediction of the next measurements by a model: its accuracy over a run.

A log holds times and no predictions, so the question is asked anew: at several places of the run,
trees learn from the trials before it and predict those that came next, and the predictions are
compared with the measurements. That is not the tuner's own model, which sees features of the loop
nest and other shapes: it shows how much the knobs alone tell about the trials that the tuner chose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from loopwright.errors import RecordError
from loopwright.records import Record, fields_of, measured
from loopwright.records.reports.importance import ConfigTable, fit_trees, rank_correlation
from loopwright.records.reports.knobs import knobs_of

Rows = npt.NDArray[np.int64]

#: Trials that are learned from at least, and predicted at once at least.
FEWEST, AHEAD = 24, 12
#: Trials that are learned from at most: a sample of those before.
MOST = 1000
#: Trials that are predicted at most.
_MOST_AHEAD = 500


@dataclass(frozen=True)
class Forecast:
    """One prediction of the next trials."""

    before: int  # trials before it
    trained_on: int  # trials that the model learned from
    count: int  # predicted trials: the next ones that have a time
    correlation: float  # Spearman's rank correlation of predicted and measured times, from -1 to 1


def forecasts(records: Iterable[Record], places: int = 12, seed: int = 0) -> list[Forecast]:
    """Predictions of the next trials from earlier ones, at up to ``places`` places of a run.

    ``records`` are those of one task on one machine, in the order of the log; equal records and
    seed give equal answers. `RecordError` if too few trials have a time, or no knob varies among
    them.
    """
    searched = measured(records, again=False)
    trials = list(compress(searched, *fields_of(searched, "valid")))
    if len(trials) < FEWEST + AHEAD:
        raise RecordError(
            f"there are {len(trials)} trials with a time, and {FEWEST + AHEAD} are needed: "
            f"{FEWEST} to learn from and {AHEAD} to predict"
        )
    (medians,) = fields_of(trials, "median")
    logs = np.log(np.array(medians, dtype=np.float64))
    questions = _questions(len(trials), places, seed)
    # In a long run only trials that are learned from or predicted are read.
    used: Rows = np.unique(np.concatenate([part for both in questions for part in both]))
    every = knobs_of([trials[row] for row in used.tolist()])
    knobs = [knob for knob in every if len(knob.texts) > 1]
    if not knobs:
        raise RecordError("no knob varies among the trials")
    table = ConfigTable(knobs)
    features = table.rows([knob.codes for knob in knobs])
    found = []
    for known, ahead in questions:
        learned, asked = np.searchsorted(used, known), np.searchsorted(used, ahead)
        model = fit_trees(features[learned], logs[known], seed)
        correlation = rank_correlation(model.predict(features[asked]), logs[ahead])
        found.append(Forecast(int(ahead[0]), len(known), len(ahead), correlation))
    return found


def _questions(trials: int, places: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Trials that are learned from, and those that are predicted, for each place."""
    rng = np.random.default_rng(seed)
    cuts = _cuts(trials, places)
    found = []
    for cut, after in zip(cuts, [*cuts[1:], trials], strict=True):
        known = np.arange(cut) if cut <= MOST else np.sort(rng.choice(cut, MOST, replace=False))
        found.append((known, np.arange(cut, min(after, cut + _MOST_AHEAD))))
    return found


def _cuts(trials: int, places: int) -> list[int]:
    """Places of predictions: at equal ratios, since a run learns most at its beginning."""
    last = trials - AHEAD
    ratio = (last / FEWEST) ** (1 / max(1, places - 1))
    cuts = [FEWEST]
    for n in range(1, places):
        cut = min(last, math.ceil(FEWEST * ratio**n))
        if cut - cuts[-1] >= AHEAD:
            cuts.append(cut)
    return cuts
