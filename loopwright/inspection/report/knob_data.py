"""Effect of each knob, the best candidates as lines through them, and forecasts by the knobs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from loopwright.errors import RecordError
from loopwright.inspection.report.page_data import (
    KnobDistribution,
    KnobValue,
    Parallel,
    ParallelAxis,
)
from loopwright.records import (
    ConfigTable,
    Json,
    KnobColumn,
    Record,
    fields_of,
    fit_trees,
    importance,
    knobs_of,
    measured,
    rank_correlation,
)

#: Values of a knob that are shown: of more the fastest and the slowest.
_VALUES = 12
#: Knobs that are shown, and axes of the parallel coordinates.
_KNOBS, _AXES = 24, 12

#: Note where there are too many tasks to explain all of them.
_LEFT_OUT = (
    "Shares are worked out for the tasks with the most trials; a page of this task alone (--task) "
    "has them."
)


def effects_of(
    records: Sequence[Record], learned: int = 4000
) -> tuple[tuple[KnobDistribution, ...], int, str]:
    """Effect of each varying knob, the strongest first; number of these; and the method in words.

    Shares rest on a sample of at most ``learned`` trials; 0: they are not computed.
    """
    searched = measured(records, again=False)
    trials = list(compress(searched, *fields_of(searched, "valid")))
    knobs = {knob.name: knob for knob in knobs_of(trials) if len(knob.texts) > 1}
    (medians,) = fields_of(trials, "median")
    seconds = np.array(medians, dtype=np.float64)
    if not learned:
        order = list(knobs.values())[:_KNOBS]
        return tuple(_effect(knob, None, seconds) for knob in order), len(knobs), _LEFT_OUT
    try:
        result = importance(_sample(trials, learned))
    except RecordError as error:
        order = list(knobs.values())[:_KNOBS]
        effects = tuple(_effect(knob, None, seconds) for knob in order)
        return effects, len(knobs), f"Not worked out: {error}."
    shares = {one.knob: one.share for one in result.knobs}
    order = sorted(knobs.values(), key=lambda knob: -shares.get(knob.name, 0.0))[:_KNOBS]
    note = (
        f"Method: {result.method}, on {result.learned} of {len(trials)} trials that have a time. "
        f"{result.together:.0%} of the variance belongs to combinations of knobs. On trials that "
        f"they had not learned from, the trees' order agrees with the measured one by a rank "
        f"correlation of {result.rank_correlation:.2f}"
        f"{'; below 0.3 the shares say little' if result.rank_correlation < 0.3 else ''}."
    )
    effects = tuple(_effect(knob, shares.get(knob.name), seconds) for knob in order)
    return effects, len(knobs), note


def _sample(trials: Sequence[Record], most: int) -> Sequence[Record]:
    if len(trials) <= most:
        return trials
    rows = np.random.default_rng(0).choice(len(trials), most, replace=False)
    return [trials[row] for row in sorted(rows.tolist())]


def _effect(knob: KnobColumn, share: float | None, seconds: np.ndarray) -> KnobDistribution:
    values = []
    order = np.argsort(knob.codes, kind="stable")
    ends = np.searchsorted(knob.codes[order], np.arange(len(knob.texts) + 1))
    for code, text in enumerate(knob.texts):
        times = seconds[order[ends[code] : ends[code + 1]]]
        low, middle, high = np.quantile(times, (0.25, 0.5, 0.75)).tolist()
        values.append(KnobValue(text, len(times), low, middle, high, float(times.min())))
    values.sort(key=lambda value: value.middle)
    total = len(values)
    if total > _VALUES:
        values = values[: _VALUES - 3] + values[-3:]
    return KnobDistribution(knob.name, share, tuple(values), total)


def parallel_of(best: Sequence[Record], records: Sequence[Record]) -> Parallel | None:
    """Best candidates, the best first, as lines; None for fewer than two, or where no knob varies.

    A knob of which all of the best have one value has an axis, too, where others have another one:
    their agreement is the point of the chart.
    """
    axes = [
        _axis(name, values, knob.codes[: len(best)].tolist())
        for knob in knobs_of([*best, *records])
        for name, values in knob.parts().items()
        if len({text for text, _ in values}) > 1
    ]
    if len(best) < 2 or not axes:
        return None
    (medians, ids) = fields_of(best, "median", "id")
    axes.sort(key=lambda axis: len(axis.values))
    return Parallel(tuple(medians), tuple(ids), tuple(axes[:_AXES]), len(axes))


def _axis(name: str, values: Sequence[tuple[str, Json]], codes: Sequence[int]) -> ParallelAxis:
    """Axis of the values that occur, in numerical order, else in order of appearance."""
    different = {values[code][0]: values[code][1] for code in sorted(set(codes))}

    def order(text: str) -> tuple[bool, float]:
        value = different[text]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return not is_number, float(value) if is_number else 0.0

    texts = sorted(different, key=order)
    place = {text: at for at, text in enumerate(texts)}
    return ParallelAxis(name, tuple(texts), tuple(place[values[code][0]] for code in codes))


Rows = npt.NDArray[np.int64]

#: Trials that are learned from at least, and predicted at once at least. A log holds no
#: predictions: trees learn from the knobs of earlier trials; the tuner's own model sees other
#: features.
FEWEST, AHEAD = 24, 12
#: Trials that are learned from at most: a sample of those before.
MOST = 1000
#: Trials that are predicted at most.
_MOST_AHEAD = 500


@dataclass(frozen=True)
class Forecast:
    before: int  # trials before it
    trained_on: int  # trials that the model learned from
    count: int  # predicted trials: the next ones that have a time
    correlation: float  # Spearman's rank correlation of predicted and measured times, from -1 to 1


def forecasts(records: Iterable[Record], places: int = 12, seed: int = 0) -> list[Forecast]:
    """Predictions of the next trials from earlier ones, at up to ``places`` places of a run.

    `RecordError` if too few trials, in the order of the log, have a time, or no knob varies.
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
    results = []
    for learned_rows, ahead in questions:
        learned, asked = np.searchsorted(used, learned_rows), np.searchsorted(used, ahead)
        model = fit_trees(features[learned], logs[learned_rows], seed)
        correlation = rank_correlation(model.predict(features[asked]), logs[ahead])
        results.append(Forecast(int(ahead[0]), len(learned_rows), len(ahead), correlation))
    return results


def _questions(trials: int, places: int, seed: int) -> list[tuple[Rows, Rows]]:
    rng = np.random.default_rng(seed)
    cuts = _cuts(trials, places)
    questions = []
    for cut, after in zip(cuts, [*cuts[1:], trials], strict=True):
        learned = np.arange(cut) if cut <= MOST else np.sort(rng.choice(cut, MOST, replace=False))
        questions.append((learned, np.arange(cut, min(after, cut + _MOST_AHEAD))))
    return questions


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
