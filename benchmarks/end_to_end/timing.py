"""Times of a model's sides in turns, and what a side takes alone in a process of its own."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.end_to_end.files import Subject
from benchmarks.end_to_end.sides import (
    OTHERS,
    OURS,
    RUNTIME,
    UNTUNED,
    Side,
    compiled,
    session_of,
    side_of,
)
from loopwright import graph
from loopwright.env import machine
from loopwright.measure import paired_gain

#: Runs of one side before the next one's turn, and seconds after which the threads of the side
#: before have gone to sleep: until then they look for work, and take a CPU for that. After 0.03 s,
#: behind ONNX Runtime 1.32, a model of half a millisecond took twice as long for 60 ms and more.
_TURN, _REST_S = 3, 0.15
#: Seconds of runs that are not timed before those of a turn: a CPU that has rested needs some
#: milliseconds for its clock, in which a run of half a millisecond took five times as long.
_WARM_S = 0.03
#: Rounds in which all sides have a turn, at least, and at most.
_FEWEST, _MOST = 8, 40
#: Largest difference of an output from that of PyTorch, as a share of its largest element.
TOLERANCE = 1e-4


def timed(subject: Subject, names: Sequence[str], threads: int, seconds: float) -> dict[str, Any]:
    """Compare sides of a model, first their outputs, then their times.

    Args:
        subject: the model.
        names: of the sides.
        threads: of each.
        seconds: of taking turns.

    Returns:
        For each side its milliseconds of a run by round; for each of ours the median ratio of the
        fastest other side to it, with the interval of 95 % where there are rounds enough.
    """
    sides = [side_of(name, subject, threads) for name in names]
    differences = _differences(sides)
    rounds = _rounds(sides, seconds)
    others = [n for n in names if n in OTHERS]
    best = min(others, key=lambda n: float(np.median(rounds[n])), default=None)
    ratios = {n: _ratio(rounds[best], rounds[n]) for n in names if n in OURS and best is not None}
    return {
        "model": subject.name,
        "batch": subject.batch,
        "threads": threads,
        "machine": machine(),
        "ms": {n: [1e3 * t for t in times] for n, times in rounds.items()},
        "best_other": best,
        "ratios": ratios,
        "prepare_s": {side.name: side.prepare_s for side in sides},
        "about": {side.name: side.about for side in sides if side.about},
        "differences": differences,
        "wrong": [n for n, d in differences.items() if not d <= TOLERANCE],
    }


def _rounds(sides: Sequence[Side], seconds: float) -> dict[str, list[float]]:
    """Seconds of a run of each side, the median of a turn, in each of some rounds."""
    found: dict[str, list[float]] = {side.name: [] for side in sides}
    end = time.perf_counter() + seconds
    for number in range(_MOST):
        if number >= _FEWEST and time.perf_counter() >= end:
            break
        for side in sides[:: -1 if number % 2 else 1]:
            time.sleep(_REST_S)
            _warmed(side)
            found[side.name].append(float(np.median([_seconds(side) for _ in range(_TURN)])))
    return found


def _warmed(side: Side) -> None:
    """Run a side, so that what another one left in caches, and the rest before, do not count."""
    end = time.perf_counter() + _WARM_S
    side.run()
    while time.perf_counter() < end:
        side.run()


def _seconds(side: Side) -> float:
    begin = time.perf_counter()
    side.run()
    return time.perf_counter() - begin


def _ratio(other: Sequence[float], own: Sequence[float]) -> list[float]:
    """How many times as fast our side is: the estimate, and the ends of its interval."""
    gain = paired_gain(other, own)
    if gain is None:
        return [float(np.median(np.divide(other, own)))]
    return [1 + x for x in (gain.gain, gain.low, gain.high)]


def _differences(sides: Sequence[Side]) -> dict[str, float]:
    """How far each side's output is from that of the last one, as a share of its largest."""
    wanted = sides[-1].output()
    scale = np.abs(wanted).max()
    return {s.name: float(np.abs(s.output() - wanted).max() / scale) for s in sides[:-1]}


# -- alone -------------------------------------------------------------------------------------


def save(subject: Subject, name: str, threads: int) -> None:
    """Write a model that is built in one of our ways, for `alone`."""
    if not subject.saved(name).exists():
        compiled(name, subject, threads).save(subject.saved(name))


def in_its_own_process(subject: Subject, name: str, threads: int) -> dict[str, float]:
    """What `alone` prints in a fresh process; seconds are from the process's start."""
    command = [sys.executable, "-m", "benchmarks.end_to_end", "alone", str(subject.folder)]
    options = ["--sides", name, "--batch", str(subject.batch), "--threads", str(threads)]
    begin = time.perf_counter()
    done = subprocess.run(
        [*command, subject.name, *options], check=True, capture_output=True, text=True
    )
    whole = time.perf_counter() - begin
    found: dict[str, float] = json.loads(done.stdout)
    return {**found, "process_s": whole}


def alone(subject: Subject, name: str, threads: int) -> dict[str, float]:
    """Seconds from the import of a side to the end of a first run, and the most memory in MB."""
    begin = time.perf_counter()
    if name in OURS:
        executor = graph.load(subject.saved(name)).executor()
        executor.run(**_zeros(executor))
    elif name == RUNTIME:
        session = session_of(subject, threads)
        session.run(None, {x.name: np.zeros(x.shape, "float32") for x in session.get_inputs()})
    else:
        side_of(name, subject, threads)
    ready = time.perf_counter() - begin
    return {"ready_s": ready, "most_mb": _most_mb()}


def _most_mb() -> float:
    """The most memory that this process has had, in MB. What `resource` says of a process counts
    that of its parent, before the program was loaded, so that Linux is asked in another way."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    (line,) = [x for x in status.read_text().splitlines() if x.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def _zeros(executor: Any) -> dict[str, Any]:
    return {v.name: np.zeros(v.shape, v.dtype) for v in executor.inputs}


def default_sides(tuned: bool) -> list[str]:
    """What is compared where nothing is asked for: ours, with what is tuned where there is a log,
    and all others."""
    return [*(n for n in OURS if tuned or n.startswith(UNTUNED)), *OTHERS]
