"""Measure every point of a space: build all, time all in several passes, the best again in turns.

Builders and the runner are those of tuning (`loopwright.measure`). Building comes first, so that
nothing compiles while something is timed; each pass takes the points in another random order, so
that a drift of the machine falls on no region of the space.
"""

from __future__ import annotations

import datetime
import hashlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import loopwright as lw
from benchmarks.spaces.ledger import Ledger
from loopwright import records
from loopwright.errors import InternalError, TuneError
from loopwright.measure import LocalBuilder, LocalRunner, MeasureError, Measurer, measure_option
from loopwright.measure.building import Build, BuildPool
from loopwright.measure.candidate import Candidate, instantiate
from loopwright.measure.options import DROP_RATIO
from loopwright.measure.result import ErrorKind
from loopwright.measure.space_file import MeasuredSpace, Point
from loopwright.measure.workers.protocol import RaceReply
from loopwright.runtime import Artifact

#: A point that is this many times slower than the best is not sampled.
HOPELESS = 10.0
#: Builds in flight.
_WINDOW = 64
#: Seconds that one build may take. Generous: a busy machine must not turn points into failures.
_BUILD_S = 60.0
#: Samples of one pass, and the least length of each in milliseconds.
_REPEAT, _WINDOW_MS = 2, 1.0
#: How often a point is tried again that ran out of time, or was found hopeless.
_AGAIN = 2
_TEMPLATES = Path(__file__).parent / "templates.py"


def note(ledger: Ledger, task: lw.Task, phase: str) -> None:
    """Write down that a phase begins: command, date, sources, machine."""
    git = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    ledger.runs.append(
        {
            "phase": phase,
            "command": " ".join(["python", "-m", "benchmarks.spaces", *sys.argv[1:]]),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "commit": commit,
            "build": records.build_hash(task.target.canonical),
            "templates": hashlib.sha256(_TEMPLATES.read_bytes()).hexdigest()[:16],
            "env": records.environment(),
        }
    )


def valid_points(task: lw.Task) -> list[int]:
    """The indices that the filters accept."""
    space = task.config_space
    return [index for index in range(space.range_length) if space.is_valid(index)]


def build_all(task: lw.Task, ledger: Ledger, say: Callable[[str], None]) -> None:
    """Build what is not built yet; equal code once."""
    done = {line["index"] for line in ledger.builds}
    todo = [index for index in valid_points(task) if index not in done]
    if not todo:
        return
    note(ledger, task, "build")
    pool = BuildPool(LocalBuilder(timeout=_BUILD_S), task.target.canonical)
    pool.start()
    first: dict[str, int] = {}
    flying: list[tuple[int, Build]] = []
    try:
        for number, index in enumerate(todo):
            found = instantiate(task, task.config_space.get(index))
            if isinstance(found, MeasureError):
                ledger.builds.append({"index": index, "error": [found.kind, found.text]})
                continue
            if found.key in first:
                ledger.builds.append({"index": index, "same": first[found.key]})
                continue
            first[found.key] = index
            flying.append((index, pool.add(found)))
            if len(flying) >= _WINDOW:
                _keep_build(ledger, pool, *flying.pop(0))
            if number % 500 == 0:
                say(f"built {len(done) + number} of {len(done) + len(todo)}")
        for index, job in flying:
            _keep_build(ledger, pool, index, job)
    finally:
        pool.close()


def _keep_build(ledger: Ledger, pool: BuildPool, index: int, job: Build) -> None:
    pool.wait([job])
    code = job.compiled
    if isinstance(code, Artifact):
        place = ledger.put_object(code.objects)
        ledger.builds.append({"index": index, "object": place, "manifest": code.manifest})
        return
    ledger.builds.append({"index": index, "error": [code.kind, code.text]})


class Timer:
    """Times built points in the runner of tuning.

    Args:
        task: the task.
        ledger: where objects are and samples go.
        say: told how far it is.
    """

    def __init__(self, task: lw.Task, ledger: Ledger, say: Callable[[str], None]) -> None:
        self.task, self.ledger, self.say = task, ledger, say
        self.built = {line["index"]: line for line in ledger.builds if "object" in line}
        self.best = min((min(x["times"]) for x in ledger.samples if x["times"]), default=None)
        runner = LocalRunner(number=1, repeat=_REPEAT, min_repeat_ms=_WINDOW_MS)
        option = measure_option(LocalBuilder(n_parallel=1, timeout=_BUILD_S), runner)
        self.measurer = Measurer(task, option, say)
        self._candidate: Candidate | None = None

    def passes(self, count: int, seconds: float) -> bool:
        """Time every point ``count`` times over; False when the time was up before."""
        end = time.monotonic() + seconds
        slow = {x["index"] for x in self.ledger.samples if x["dropped"] or x["error"]}
        done = {(x["index"], x["pass"]) for x in self.ledger.samples}
        note(self.ledger, self.task, "time")
        with self.measurer as m:
            m.session.take_devices()
            for number in range(count):
                order = sorted(self.built)
                random.Random(number).shuffle(order)
                for at, index in enumerate(order):
                    if (index, number) in done or (number and index in slow):
                        continue
                    if time.monotonic() > end:
                        return False
                    line = self._sampled(index, first=number == 0)
                    if line["dropped"] or line["error"]:
                        slow.add(index)
                    self.ledger.samples.append({"index": index, "pass": number, **line})
                    if at % 500 == 0:
                        self.say(f"pass {number}: {at} of {len(order)}, best {self.best}")
        return True

    def finals(self, count: int, rounds: int) -> None:
        """Measure the best of all passes again, one sample of each a round, in turns."""
        note(self.ledger, self.task, "finals")
        times = _samples(self.ledger.samples)
        best = sorted(times, key=lambda index: statistics.median(times[index]))[:count]
        with self.measurer as m:
            m.session.take_devices()
            for number in range(rounds):
                order = list(best)
                random.Random(number).shuffle(order)
                for index in order:
                    race = self._race(index, drop=False)
                    if isinstance(race, RaceReply):
                        samples = m.session.runner.sample(race.first)
                    else:
                        samples = race
                    if isinstance(samples, MeasureError):
                        self.say(f"finalist {index} failed: {samples}")
                        continue
                    seconds = statistics.median(samples)
                    line = {"index": index, "round": number, "seconds": seconds}
                    self.ledger.finals.append(line)

    def _race(self, index: int, *, drop: bool) -> RaceReply | MeasureError:
        line = self.built[index]
        artifact = Artifact(line["manifest"], self.ledger.get_object(line["object"]))
        limit = None if self.best is None else self.best * HOPELESS / DROP_RATIO
        return self.measurer.session.runner.load_and_race(artifact, limit, race=drop)

    def _sampled(self, index: int, *, first: bool) -> dict[str, Any]:
        """One pass of one point; what a stalled machine may have spoilt is tried again.

        The first pass checks answers, and decides who is hopeless.
        """
        m = self.measurer
        self._expression(index)  # says which data kernels run on
        for attempt in range(_AGAIN + 1):
            last = attempt == _AGAIN
            race = self._race(index, drop=first)
            if isinstance(race, MeasureError):
                if race.kind == ErrorKind.RUN_TIMEOUT and not last:
                    continue
                return _line((), error=race)
            if race.dropped:
                if not last:
                    continue
                return _line((race.first,), dropped=True)
            samples = m.session.runner.sample(race.first)
            if isinstance(samples, MeasureError):
                if samples.kind == ErrorKind.RUN_TIMEOUT and not last:
                    continue
                return _line((), error=samples)
            if first and (problem := self._wrong(index)) is not None:
                return _line((), error=problem)
            fastest = min(samples)
            self.best = fastest if self.best is None else min(self.best, fastest)
            return _line(samples)
        raise InternalError("the last attempt returns")

    def _wrong(self, index: int) -> MeasureError | None:
        m = self.measurer
        artifact = Artifact(self.built[index]["manifest"], b"")
        result = m.session.check(self._expression(index), artifact)
        if result.error is None and result.check_reason:
            why = result.check_reason
            raise TuneError(f"point {index} of {self.task.name} cannot be checked: {why}")
        return result.error

    def _expression(self, index: int) -> Candidate:
        """A candidate whose expression is that of all points."""
        if self._candidate is None:
            found = self.measurer.session.instantiate(self.task.config_space.get(index))
            if isinstance(found, MeasureError):
                raise TuneError(f"point {index} was built and cannot be instantiated: {found}")
            self._candidate = found
        return self._candidate


def _line(
    times: Iterable[float], *, dropped: bool = False, error: MeasureError | None = None
) -> dict[str, Any]:
    told = None if error is None else [error.kind, error.text]
    return {"times": list(times), "dropped": dropped, "error": told}


def _samples(lines: Iterable[dict[str, Any]]) -> dict[int, list[float]]:
    """Samples by index of what was not dropped."""
    found: dict[int, list[float]] = {}
    for line in sorted(lines, key=lambda line: line["pass"]):
        if line["times"] and not line["dropped"]:
            found.setdefault(line["index"], []).extend(line["times"])
    return found


def packed(task: lw.Task, ledger: Ledger) -> MeasuredSpace:
    """All that was measured, as one measured space."""
    measured: dict[int, Point] = {}
    for line in ledger.samples:
        error = None if line["error"] is None else MeasureError(*line["error"])
        if error is not None:
            measured[line["index"]] = Point(error=error)
        elif line["dropped"]:
            measured.setdefault(line["index"], Point(tuple(line["times"]), True))
    for index, times in _samples(ledger.samples).items():
        if index not in measured or measured[index].error is None:
            measured[index] = Point(tuple(times))
    points = dict(_placed(ledger, measured))
    finals: dict[int, list[float]] = {}
    for line in ledger.finals:
        finals.setdefault(line["index"], []).append(line["seconds"])
    return MeasuredSpace(
        task=task.alias,
        op=task.name,
        args=list(task.args),
        target=task.target.canonical,
        space=task.config_space.space_hash,
        points=points,
        finals={index: tuple(times) for index, times in finals.items()},
        provenance=_provenance(ledger, points, finals),
    )


def _placed(ledger: Ledger, measured: dict[int, Point]) -> Iterator[tuple[int, Point]]:
    """Every built, equal or failed point; those that were not timed are left out."""
    for line in ledger.builds:
        if "error" in line:
            yield line["index"], Point(error=MeasureError(*line["error"]))
        elif (source := line.get("same", line["index"])) in measured:
            yield line["index"], measured[source]


def _provenance(
    ledger: Ledger, points: dict[int, Point], finals: dict[int, list[float]]
) -> dict[str, Any]:
    runs = list(ledger.runs)
    distinct = {(r["phase"], r["command"], r["commit"], r["date"][:10]) for r in runs}
    return {
        "runs": [
            dict(zip(("phase", "command", "commit", "date"), r, strict=True))
            for r in sorted(distinct)
        ],
        "begun": runs[0]["date"],
        "ended": runs[-1]["date"],
        "build": sorted({r["build"] for r in runs}),
        "templates": sorted({r["templates"] for r in runs}),
        "env": runs[-1]["env"],
        "points": len(points),
        "samples": sum(len(p.times) for p in points.values()),
        "dropped_beyond": HOPELESS,
        "sample_ms": _WINDOW_MS,
        "finalists": len(finals),
        "rounds": max(map(len, finals.values()), default=0),
    }


def folder(name: str) -> Path:
    """Where a space is kept while it is measured: not under version control."""
    return Path("build") / "spaces" / name
