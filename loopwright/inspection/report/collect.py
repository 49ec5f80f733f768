"""Data of a report page, collected from logs."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from loopwright.errors import RecordError
from loopwright.inspection.log_statistics import throughput, time_spent, time_spent_by
from loopwright.inspection.report.elements import cut
from loopwright.inspection.report.page_data import (
    LogPage,
    ModelKernel,
    ModelPage,
    Page,
    Series,
    SeriesComparison,
    Steps,
    TaskPage,
)
from loopwright.inspection.report.series import Detail, SetupFacts, series_of
from loopwright.inspection.speed import arithmetic_in, limits_in, threads_text
from loopwright.records import (
    Json,
    Log,
    Record,
    Setup,
    best_so_far,
    by_setup,
    default_record,
    device_of,
    fields_of,
    keys_of,
    measured,
    ranked,
    record_differences,
    structure_ids,
    task_text,
    time_ratio,
    verdict_on,
)
from loopwright.version import __version__

#: Tasks that a page shows: those with the most records.
MOST_TASKS = 50
#: Tasks for which the shares of knobs are worked out, which takes half a second each.
_EXPLAINED = 12
#: Points of all curves together, and of each at least.
_POINTS, _FEWEST_POINTS = 24_000, 300
#: Predictions of all tasks together.
_PLACES = 24
#: Trials that shares of knobs rest on, of all tasks together, and of each at least.
_LEARNED, _FEWEST_LEARNED = 4_000, 400
#: Runs of a log, and values of a fact, that are listed.
_RUNS, _VALUES = 12, 4
#: Fields of ``env`` that are told, with their names.
_FACTS = {
    "cpu": "CPU",
    "arch": "architecture",
    "cores": "cores",
    "isa": "instruction sets",
    "governor": "CPU governor",
    "mhz": "MHz at the start",
    "load": "load at the start",
    "os": "system",
    "python": "Python",
    "loopwright": "loopwright",
    "git": "revision",
    "llvmlite": "llvmlite",
    "numpy": "NumPy",
    "variables": "environment variables",
}


def page_of(logs: Sequence[Log], task: str | None = None) -> Page:
    """Collect the data of a report of some logs, the others compared with the first.

    ``task`` selects tasks whose key or name contains it. `RecordError` if no log has a record of
    one.

    Example:
        >>> from loopwright.inspection.report import page_of
        >>> page = page_of([lw.records.load("matmul.jsonl")])
        >>> print([task.name for task in page.tasks])
        ['matmul(64, 64, 64, False, False, float32)']
    """
    names = _names([log.path for log in logs])
    all_setups = [by_setup(log) for log in logs]
    setups = [_chosen(groups, task) for groups in all_setups]
    records = [[r for group in groups.values() for r in group] for groups in setups]
    if not any(records):
        raise RecordError(_nothing(logs, task))
    pages = tuple(
        _log_page(name, log, own) for name, log, own in zip(names, logs, records, strict=True)
    )
    sizes = Counter[str]()
    for groups in setups:
        for setup, group in groups.items():
            sizes[setup.task] += len(group)
    shown = {key for key, _ in sizes.most_common(MOST_TASKS)}
    count = sum(setup.task in shown for groups in setups for setup in groups)
    detail = Detail(
        points=max(_FEWEST_POINTS, min(2000, _POINTS // count)),
        places=places if (places := min(12, _PLACES // count)) >= 3 else 0,
        learned=max(_FEWEST_LEARNED, _LEARNED // count),
    )
    explained = {key for key, _ in sizes.most_common(_EXPLAINED)}
    details = {k: detail if k in explained else replace(detail, learned=0) for k in shown}
    series: dict[str, list[tuple[Series, Record | None]]] = {
        key: []
        for groups in setups
        for key in dict.fromkeys(s.task for s in groups)
        if key in shown
    }
    for place, (log, groups) in enumerate(zip(logs, setups, strict=True)):
        facts = _known(log, all_setups[place])
        for setup, group in groups.items():
            if setup.task in details:
                one, best = series_of(log, place, setup, group, details[setup.task], facts[setup])
                series[setup.task].append((one, best))
    tasks = [_task_page(key, entries, names, setups) for key, entries in series.items()]
    return Page(int(time.time()), __version__, pages, _told_apart(tasks), len(sizes))


def _names(paths: Sequence[os.PathLike[str]]) -> list[str]:
    """Short names of logs: as much of their paths as tells them apart."""
    names = [os.path.basename(path) for path in paths]
    if len(set(names)) < len(names):
        names = [os.fspath(path) for path in paths]
    again = Counter(names)
    return [n if again[n] == 1 else f"{n} ({at})" for at, n in enumerate(names, 1)]


def _chosen(setups: dict[Setup, list[Record]], task: str | None) -> dict[Setup, list[Record]]:
    if task is None:
        return setups
    return {
        setup: records
        for setup, records in setups.items()
        if task in setup.task or task in task_text(records[0].op, records[0].args)
    }


def _nothing(logs: Sequence[Log], task: str | None) -> str:
    paths = " and ".join(str(log.path) for log in logs)
    held = sum(len(log) for log in logs)
    if task is not None and held:
        return f"{paths}: none of the {held} records is of a task that contains {task!r}"
    why = "; ".join(filter(None, (log.complaint() for log in logs)))
    return f"{paths}: no record to report{f' ({why})' if why else ''}; tune first, or name a log"


def _known(log: Log, setups: Mapping[Setup, list[Record]]) -> dict[Setup, SetupFacts]:
    judged = {
        setup: list(compress(group, (v is not None for v in fields_of(group, "verdict")[0])))
        for setup, group in setups.items()
    }
    kinds = {setup: arithmetic_in(log, group) for setup, group in setups.items()}
    machines: dict[tuple[str, int], list[Record]] = {}
    alike: dict[tuple[str, int, str], list[Record]] = {}
    for setup, group in judged.items():
        machine = setup.hardware, setup.threads
        machines.setdefault(machine, []).extend(group)
        alike.setdefault((*machine, kinds[setup]), []).extend(group)
    limits = {machine: limits_in(log, group) for machine, group in machines.items()}
    by_kind = {kind: limits_in(log, group) for kind, group in alike.items()}
    spent = time_spent_by(setups, log.headers)
    facts, ids = {}, structure_ids(log.records)
    for setup, group in judged.items():
        machine, near = (setup.hardware, setup.threads), limits_in(log, group)
        if near.flops is None:  # tasks that compute in another type have another limit
            near = by_kind[*machine, kinds[setup]]
        flops = {name: getattr(near, name) for name in ("flops", "flops_from", "flops_name")}
        facts[setup] = SetupFacts(replace(limits[machine], **flops), spent.get(setup), ids)
    return facts


def _task_page(
    key: str,
    entries: Sequence[tuple[Series, Record | None]],
    names: Sequence[str],
    setups: Sequence[Mapping[Setup, list[Record]]],
) -> TaskPage:
    first = next(group[0] for groups in setups for s, group in groups.items() if s.task == key)
    series = _labelled([one for one, _ in entries], names)
    comparisons = (
        _comparison(series[0], entries[0][1], other, record)
        for other, (_, record) in zip(series[1:], entries[1:], strict=True)
    )
    compared = tuple(one for one in comparisons if one is not None)
    return TaskPage(key, task_text(first.op, first.args), tuple(series), compared)


def _told_apart(tasks: Sequence[TaskPage]) -> tuple[TaskPage, ...]:
    """Tasks with distinct names: those of one template for two targets name these, too."""
    names = Counter(task.name for task in tasks)
    return tuple(
        replace(task, name=f"{task.name} on {task.series[0].target}")
        if names[task.name] > 1
        else task
        for task in tasks
    )


def _labelled(series: Sequence[Series], names: Sequence[str]) -> list[Series]:
    parts = {
        "log": [names[one.log] for one in series],
        "hardware": [one.hardware or "hardware not known" for one in series],
        "threads": [threads_text(one.threads) for one in series],
        "target": [one.target for one in series],
    }
    differ = [values for values in parts.values() if len(set(values)) > 1]
    labels = [", ".join(filter(None, row)) for row in zip(*differ, strict=True)] if differ else []
    if len(set(labels)) < len(series):
        labels = [f"{names[one.log]} ({at})" for at, one in enumerate(series, 1)]
    if len(series) == 1:
        labels = [names[series[0].log]]
    return [replace(one, label=label) for one, label in zip(series, labels, strict=True)]


def _comparison(
    one: Series, mine: Record | None, other: Series, theirs: Record | None
) -> SeriesComparison | None:
    if mine is None or theirs is None or not mine.median or not theirs.median:
        return None
    ratio = time_ratio(mine, theirs)
    if ratio is None:
        return None
    faster, slower, times = one, other, ratio.value
    ends = [ratio.low, ratio.high]
    if ratio.value < 1:
        faster, slower, times = other, one, 1 / ratio.value
        ends = [end and 1 / end for end in reversed(ends)]
    low, high = ends
    if low is None or high is None:
        text = f"{faster.label} is {times:.2f}x as fast ({ratio.why_no_interval})"
    else:
        interval = f"95 % interval of the windows: {low:.2f}x to {high:.2f}x"
        text = f"{faster.label} is {times:.2f}x as fast as {slower.label} ({interval})"
        text = f"no measurable difference ({interval})" if ratio.same else text
    differences = tuple(map(str, record_differences(mine, theirs)))
    return SeriesComparison(one.label, other.label, mine.median, theirs.median, text, differences)


def _log_page(name: str, log: Log, records: Sequence[Record]) -> LogPage:
    runs = [_run(header) for header in log.headers]
    return LogPage(
        name,
        str(log.path),
        len(records),
        log.complaint(),
        throughput(log.records),
        time_spent(log.records, log.headers),
        tuple(runs[-_RUNS:]),
        len(runs),
        _facts(records),
    )


def _run(header: Mapping[str, Json]) -> dict[str, str]:
    began = header.get("ts")
    is_known = isinstance(began, (int, float)) and 0 < began < 1e11
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(began)) if is_known else ""
    limits = ("n_trial", "timeout", "early_stopping", "target_gflops", "min_gain")
    facts = {
        "run": _plain(header.get("run")),
        "began": when,
        "tuner": _plain(header.get("tuner")),
        "seed": _plain(header.get("seed")),
        "limits": _pairs({name: header.get(name) for name in limits}),
        "resumed": _plain(header.get("resumed")),
        "options": _pairs(header.get("options")),
        "measuring": _pairs(header.get("measure")),
    }
    return {name: cut(text, 600) for name, text in facts.items() if text}


def _pairs(values: Json) -> str:
    parts = []
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, dict):
            parts.append(f"{name}: {_pairs(value)}")
        elif value is not None:
            parts.append(f"{name}={_plain(value)}")
    return ", ".join(parts)


def _plain(value: Json) -> str:
    return "" if value is None else str(value)


def _facts(records: Sequence[Record]) -> dict[str, tuple[str, ...]]:
    envs, builds, seeds, threads = fields_of(records, "env", "build", "seed", "threads")
    different = list({id(env): env for env in envs}.values())
    devices = map(device_of, different)
    facts = {title: [_fact(env.get(name)) for env in different] for name, title in _FACTS.items()}
    facts |= {
        "device": [_device(device) for device in devices if device],
        "threads": [str(n) for n in threads if n],
        "compiler": list(builds),
        "seeds": [str(seed) for seed in seeds if seed is not None],
    }
    shown = {}
    for title, texts in facts.items():
        values = list(dict.fromkeys(filter(None, texts)))
        more = (f"{len(values) - _VALUES} more",) if len(values) > _VALUES else ()
        if values:
            shown[title] = (*(cut(value, 300) for value in values[:_VALUES]), *more)
    return shown


def _device(device: Mapping[str, Json]) -> str:
    names = ("arch", "processors", "driver", "uuid")
    facts = [f"{name} {device[name]}" for name in names if device.get(name)]
    return f"{device.get('name', device.get('kind', ''))} ({', '.join(facts)})"


def _fact(value: Json) -> str:
    if isinstance(value, dict):
        return _pairs(value)
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    return _plain(value)


@dataclass(frozen=True)
class TunedKernels:
    """Kernels of a model that are one task, or the same computed in several ways."""

    name: str  # their computation, in words
    calls: int  # of all of them together in a run of the model
    flop: int  # operations of a call; 0 where there are none to count
    ways: Mapping[str, str]  # implementation in words, by the key of each task


def model_page(name: str, kernels: Sequence[TunedKernels], log: Log) -> ModelPage:
    """Model of tuned kernels on the machine with most of its records; `RecordError` for none."""
    place = {key: at for at, one in enumerate(kernels) for key in one.ways}
    machines: dict[tuple[str, int], list[Record]] = {}
    columns = (keys_of(log.records), *fields_of(log.records, "hardware", "threads"))
    for record, key, hardware, threads in zip(log.records, *columns, strict=True):
        if key in place:
            machines.setdefault((hardware, threads), []).append(record)
    records = max(machines.values(), key=len, default=[])
    if not records:
        raise RecordError(
            f"{log.path}: no record of any kernel of {name}; it is a log of something else, of "
            "another target, or of an earlier version of the model"
        )
    by_kernel: list[list[Record]] = [[] for _ in kernels]
    keys = keys_of(records)
    for record, key in zip(records, keys, strict=True):
        by_kernel[place[key]].append(record)
    rows = [_row(one, of_kernel) for one, of_kernel in zip(kernels, by_kernel, strict=True)]
    rows.sort(key=lambda row: -(row.seconds or 0.0) * row.calls)
    places = {id(record): place[key] for record, key in zip(records, keys, strict=True)}
    trials = [(r, places[id(r)]) for r in measured(records, again=False)]
    steps, spent = _curve(trials, [one.calls for one in kernels], log)
    return ModelPage(name, tuple(rows), steps, len(trials), spent)


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
    """Expected time of a run after each trial that lowered it, and the seconds of all trials."""
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
