"""One task on one machine in one log, as a report shows it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from loopwright.errors import RecordError
from loopwright.inspection.log_statistics import TimeSpent
from loopwright.inspection.report.elements import cut
from loopwright.inspection.report.page_data import (
    Accuracy,
    CandidateRow,
    FailureKind,
    KnobDistribution,
    KnobValue,
    Parallel,
    ParallelAxis,
    Points,
    Roofline,
    Series,
    Steps,
)
from loopwright.inspection.speed import Limits, Work, roofline_point, work_of
from loopwright.records import (
    NOT_COMPARED,
    STRUCTURE,
    Checked,
    ConfigTable,
    Curve,
    FailureReport,
    Json,
    KnobColumn,
    Log,
    Outcome,
    Record,
    Setup,
    best_so_far,
    config_text,
    default_record,
    failures,
    fields_of,
    fit_trees,
    importance,
    knobs_of,
    measured,
    rank_correlation,
    ranked,
    record_differences,
    spread,
    structure_legend,
    value_text,
    verdict_on,
    vouched,
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
    records: Sequence[Record], ids: Mapping[str, str], learned: int = 4000
) -> tuple[tuple[KnobDistribution, ...], int, str]:
    """Effects of varying knobs, the strongest first, their number, and the method in words."""
    searched = measured(records, again=False)
    trials = list(compress(searched, *fields_of(searched, "valid")))
    knobs = {knob.name: knob for knob in knobs_of(trials) if len(knob.texts) > 1}
    (medians,) = fields_of(trials, "median")
    seconds = np.array(medians, dtype=np.float64)
    if not learned:
        order = list(knobs.values())[:_KNOBS]
        return tuple(_effect(knob, None, seconds, ids) for knob in order), len(knobs), _LEFT_OUT
    try:
        result = importance(_sample(trials, learned))
    except RecordError as error:
        order = list(knobs.values())[:_KNOBS]
        effects = tuple(_effect(knob, None, seconds, ids) for knob in order)
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
    effects = tuple(_effect(knob, shares.get(knob.name), seconds, ids) for knob in order)
    return effects, len(knobs), note


def _sample(trials: Sequence[Record], most: int) -> Sequence[Record]:
    if len(trials) <= most:
        return trials
    rows = np.random.default_rng(0).choice(len(trials), most, replace=False)
    return [trials[row] for row in sorted(rows.tolist())]


def _effect(
    knob: KnobColumn, share: float | None, seconds: np.ndarray, ids: Mapping[str, str]
) -> KnobDistribution:
    values = []
    order = np.argsort(knob.codes, kind="stable")
    ends = np.searchsorted(knob.codes[order], np.arange(len(knob.texts) + 1))
    for code, text in enumerate(knob.texts):
        times = seconds[order[ends[code] : ends[code + 1]]]
        low, middle, high = np.quantile(times, (0.25, 0.5, 0.75)).tolist()
        values.append(
            KnobValue(ids.get(text, text), len(times), low, middle, high, float(times.min()))
        )
    values.sort(key=lambda value: value.middle)
    total = len(values)
    if total > _VALUES:
        values = values[: _VALUES - 3] + values[-3:]
    return KnobDistribution(knob.name, share, tuple(values), total)


def parallel_of(
    best: Sequence[Record], records: Sequence[Record], ids: Mapping[str, str]
) -> Parallel | None:
    """Best candidates as lines, also through knobs that they agree on; None for fewer than two."""
    axes = [
        _axis(
            name, [(ids.get(text, text), v) for text, v in values], knob.codes[: len(best)].tolist()
        )
        for knob in knobs_of([*best, *records])
        for name, values in knob.parts().items()
        if len({text for text, _ in values}) > 1
    ]
    if len(best) < 2 or not axes:
        return None
    medians, names = fields_of(best, "median", "id")
    axes.sort(key=lambda axis: len(axis.values))
    return Parallel(tuple(medians), tuple(names), tuple(axes[:_AXES]), len(axes))


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
    """Predictions at up to ``places`` places of a run; `RecordError` for too few trials."""
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
    for begin, after in zip(cuts, [*cuts[1:], trials], strict=True):
        learned = np.arange(begin) if begin <= MOST else rng.choice(begin, MOST, replace=False)
        questions.append((np.sort(learned), np.arange(begin, min(after, begin + _MOST_AHEAD))))
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


#: Candidates of the table and of the parallel coordinates.
TOP, LINES = 20, 50
#: Characters of an error's text that are shown.
_TEXT = 600


@dataclass(frozen=True)
class Detail:
    points: int = 2000  # trials of the curve at most; of more a sample is drawn
    places: int = 12  # number of places at which a model predicts the next trials; 0 for none
    learned: int = 4000  # trials that the shares of knobs rest on at most; 0 for no shares


@dataclass(frozen=True)
class SetupFacts:
    limits: Limits
    spent: TimeSpent | None  # None where its records have no clock
    ids: Mapping[str, str]  # of the structures of its log


def series_of(
    log: Log, place: int, setup: Setup, records: list[Record], detail: Detail, facts: SetupFacts
) -> tuple[Series, Record | None]:
    """Report of one setup, and its best record."""
    originals = measured(records)
    curve = best_so_far(originals, log.headers)
    top = ranked(records, max(TOP, LINES))
    best = next(iter(top), None)
    verdict = NOT_COMPARED if best is None else verdict_on(best, records) or NOT_COMPARED
    compared = verdict.outcome is not Outcome.NOT_COMPARED
    default = default_record(records, verdict)
    work = work_of(log, records[0] if best is None else best)
    report = failures(records)
    ids = facts.ids
    knobs, knobs_total, knobs_note = effects_of(records, ids, detail.learned)
    accuracy, accuracy_note = _accuracy(records, detail.places)
    roofline, roofline_note = _roofline(best, default, work, facts.limits)
    spent = facts.spent
    right = vouched(records)
    shown = [_candidate(one, default, right, ids) for one in top[:TOP]]
    target = records[-1].target
    own = {value_text(r.config[STRUCTURE]) for r in records if STRUCTURE in r.config} if ids else ()
    valid, phases, dropped = fields_of(originals, "valid", "phase", "dropped")
    series = Series(
        label="",
        log=place,
        hardware=setup.hardware.split(" | ")[0] or str(target.get("model") or ""),
        threads=setup.threads,
        target=" ".join(str(target[name]) for name in ("kind", "mcpu") if target.get(name)),
        trials=sum(own and not phase for own, phase in zip(valid, phases, strict=True)),
        failed=report.failed,
        dropped=sum(dropped),
        duplicates=len(records) - len(originals),
        spent=spent.run + spent.again + spent.build if spent else 0.0,
        flop=0 if work is None else work.flop,
        best=None if best is None else _candidate(best, default, right, ids),
        default=None if default is None else _candidate(default, default, right, ids),
        verdict=verdict.text() if compared else "",
        outcome=verdict.outcome.value if compared else "",
        gain=verdict.gain if compared else None,
        steps=_steps(curve),
        points=_points(curve, detail.points),
        errors=_errors(report, ids),
        knobs=knobs,
        knobs_total=knobs_total,
        knobs_note=knobs_note,
        parallel=parallel_of(top[:LINES], records, ids),
        roofline=roofline,
        roofline_note=roofline_note,
        accuracy=accuracy,
        accuracy_note=accuracy_note,
        top=tuple(shown),
        structures=tuple(structure_legend(ids, own)),
    )
    return series, best


def _errors(report: FailureReport, ids: Mapping[str, str]) -> tuple[FailureKind, ...]:
    return tuple(
        FailureKind(
            one.kind,
            one.count,
            one.share,
            one.first.id,
            one.first.trial,
            cut(one.text, _TEXT),
            tuple(
                f"{value.knob} = {ids.get(value.value, value.value)}: {value.failed} of "
                f"{value.trials} failed so"
                for value in one.values[:6]
            ),
        )
        for one in report.kinds
    )


def _candidate(
    one: Record, default: Record | None, right: set[tuple[str, str]], ids: Mapping[str, str]
) -> CandidateRow:
    """Row of a record; its speed over the default's rests on the two medians alone."""
    seconds = one.median
    assert seconds is not None, "a ranked record has a time"
    changes = None
    if default is not None:
        differences = record_differences(default, one)
        changes = tuple(
            f"{each.what.removeprefix('knob ')}={ids.get(each.other, each.other)}"
            for each in differences
        )
    return CandidateRow(
        one.id,
        one.trial,
        seconds,
        spread(one.times),
        one.checked is Checked.YES or (one.candidate, one.build) in right,
        config_text(one.config, ids=ids),
        changes,
        None if default is None or not default.median else default.median / seconds,
    )


def _steps(curve: Curve) -> Steps:
    rows = [(x.number, x.clock, x.seconds, x.low, x.high, x.record.id) for x in curve.steps]
    return Steps(*zip(*rows, strict=True)) if rows else Steps(*[()] * 6)


def _points(curve: Curve, most: int) -> Points:
    count = len(curve)
    chosen = np.arange(count)
    if count > most:
        rng = np.random.default_rng(0)
        kept = {count - 1, *(step.number - 1 for step in curve.steps)}
        rest = rng.choice(count, max(0, most - len(kept)), replace=False)
        chosen = np.array(sorted(kept | set(rest.tolist())))
    failed = np.isnan(curve.seconds[chosen])
    kinds = np.where(failed, 2, np.where(curve.counts[chosen], 0, 1))
    seconds: Iterable[float] = curve.seconds[chosen].tolist()
    return Points(
        tuple((chosen + 1).tolist()),
        tuple(curve.clock[chosen].tolist()),
        tuple(None if bad else s for s, bad in zip(seconds, failed.tolist(), strict=True)),
        tuple(kinds.tolist()),
        count,
    )


def _accuracy(records: Sequence[Record], places: int) -> tuple[Accuracy | None, str]:
    if not places:
        why = (
            "there are many tasks, and it takes a while; a page of this task alone (--task) has it"
        )
        return None, why
    try:
        predictions = forecasts(records, places)
    except RecordError as error:
        return None, str(error)
    note = (
        "The log holds no predictions, so the question is asked anew: at each point trees learned "
        "the times of the trials before it from their knobs alone, and predicted the next ones. "
        "It is not the tuner's own model. 1 is a perfect order, 0 is chance; where a tuner "
        "measures only good candidates, these lie close together, and a low figure is no fault."
    )
    rows = [(one.before, one.correlation, one.count, one.trained_on) for one in predictions]
    return Accuracy(*zip(*rows, strict=True)), note


def _roofline(
    best: Record | None, default: Record | None, work: Work | None, limits: Limits
) -> tuple[Roofline | None, str]:
    if best is None or best.median is None:
        return None, "no record may be best"
    if work is None:
        return None, "the log holds no tensor expression, so the work of a call is not known"
    point = roofline_point(work, best.median, limits)
    if point is None:
        return None, "a call has no arithmetic to count"
    seconds = None if default is None else default.median
    speed = None if seconds is None else work.flop / seconds
    figures = (point.intensity, point.speed, speed, limits.flops, limits.bandwidth)
    return Roofline(*figures, _source(limits)), ""


def _source(limits: Limits) -> str:
    sources = []
    if limits.flops:
        name = limits.flops_name
        # Limits of CPUs do not say it.
        name += " of float32" if name.startswith(("FMA", "peak")) and "float" not in name else ""
        sources.append(f"{name} beside the playoff of record {limits.flops_from}")
    if limits.bandwidth:
        sources.append(f"memory bandwidth beside the playoff of record {limits.bandwidth_from}")
    if not sources:
        return (
            "The log does not tell the limits of its machine (no playoff sampled them), and one of "
            "another machine would say nothing."
        )
    return f"Limits of this machine, sampled by the log itself: {' and '.join(sources)}."
