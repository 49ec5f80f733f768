"""Time of a model's runs by the best of each of its kernels in a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loopwright.errors import RecordError
from loopwright.inspection.report.page_data import ModelKernel, ModelPage, Steps
from loopwright.records import (
    Log,
    Record,
    best_so_far,
    default_record,
    fields_of,
    keys_of,
    measured,
    ranked,
    verdict_on,
)


@dataclass(frozen=True)
class TunedKernels:
    """Kernels of a model that are one task, or the same computed in several ways."""

    name: str  # their computation, in words
    calls: int  # of all of them together in a run of the model
    flop: int  # operations of a call; 0 where there are none to count
    ways: Mapping[str, str]  # implementation in words, by the key of each task


def model_page(name: str, kernels: Sequence[TunedKernels], log: Log) -> ModelPage:
    """Model of some tuned kernels as a log knows them; `RecordError` if the log has none of them.

    Of several machines, or numbers of threads, the one with the most records of the model counts.
    """
    place = {key: at for at, one in enumerate(kernels) for key in one.ways}
    records = _of_one_machine(log, place)
    if not records:
        raise RecordError(
            f"{log.path}: no record of any kernel of {name}; it is a log of something else, of "
            "another target, or of an earlier version of the model"
        )
    by_kernel: list[list[Record]] = [[] for _ in kernels]
    keys = keys_of(records)
    for record, key in zip(records, keys, strict=True):
        by_kernel[place[key]].append(record)
    rows = [_row(one, found) for one, found in zip(kernels, by_kernel, strict=True)]
    rows.sort(key=lambda row: -(row.seconds or 0.0) * row.calls)
    places = {id(record): place[key] for record, key in zip(records, keys, strict=True)}
    trials = [(r, places[id(r)]) for r in measured(records, again=False)]
    steps, spent = _curve(trials, [one.calls for one in kernels], log)
    return ModelPage(name, tuple(rows), steps, len(trials), spent)


def _of_one_machine(log: Log, place: Mapping[str, int]) -> list[Record]:
    records = list(log)
    machines: dict[tuple[str, int], list[Record]] = {}
    columns = (keys_of(records), *fields_of(records, "hardware", "threads"))
    for record, key, hardware, threads in zip(records, *columns, strict=True):
        if key in place:
            machines.setdefault((hardware, threads), []).append(record)
    return max(machines.values(), key=len, default=[])


def _row(one: TunedKernels, records: Sequence[Record]) -> ModelKernel:
    best = next(iter(ranked(records, 1)), None)
    trials = len(measured(records, again=False))
    if best is None:
        return ModelKernel(one.name, one.calls, one.flop, "", "", trials, None, None)
    (key,) = keys_of([best])
    beside = [r for r, k in zip(records, keys_of(records), strict=True) if k == key]
    default = default_record(beside, verdict_on(best, beside))
    seconds = None if default is None else default.median
    way = one.ways.get(key, "") if len(one.ways) > 1 else ""
    return ModelKernel(one.name, one.calls, one.flop, way, best.id, trials, best.median, seconds)


def _curve(
    measured: Sequence[tuple[Record, int]], calls: Sequence[int], log: Log
) -> tuple[Steps, float]:
    """Expected time of a run after each trial that lowered it, once each task has a time; and the
    seconds of all trials.
    """
    curve = best_so_far([record for record, _ in measured], log.headers)
    best: dict[int, float] = {}
    steps: list[tuple[int, float, float, str]] = []
    times = zip(measured, curve.clock, curve.seconds, curve.counts, strict=True)
    for number, ((record, place), clock, seconds, counts) in enumerate(times, 1):
        if not counts or seconds >= best.get(place, float("inf")):
            continue
        best[place] = float(seconds)
        if len(best) == len(calls):
            total = sum(calls[at] * t for at, t in best.items())
            steps.append((number, float(clock), total, record.id))
    trial, clocks, totals, ids = zip(*steps, strict=True) if steps else ((), (), (), ())
    spent = float(curve.clock[-1]) if len(curve) else 0.0
    return Steps(trial, clocks, totals, totals, totals, ids), spent
