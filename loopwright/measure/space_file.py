"""A measured space on disk, and `Replay`, which plays it back as a device that has measured it all.

The file is a NumPy ``.npz`` archive of plain arrays and one JSON header; nothing of it is executed
or unpickled. ``benchmarks.spaces`` writes three of them. `Replay` replaces builder and runner,
``tuner.tune(measure_option=Replay(path))``, and gives the recorded samples, failures and verdicts
of the race each time, in no time, so that tuners are compared without measuring.
"""

from __future__ import annotations

import io
import json
import statistics
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loopwright.errors import RecordError, UsageError
from loopwright.files import FileKind, Output, write
from loopwright.measure.comparison import Array
from loopwright.measure.interfaces import PlayoffPlan, PlayoffResult, played
from loopwright.measure.options import DROP_RATIO, WINDOWS
from loopwright.measure.result import MeasureError, MeasureInput, MeasureResult, would_lead
from loopwright.records import Json

if TYPE_CHECKING:
    from loopwright.task import ConfigEntity


#: Name and version of the format in the header.
FORMAT, VERSION = "loopwright measured space", 1
#: The names of its arrays are at the end of the archive.
_SPACE = FileKind("a measured space", lambda data: data[:2] == b"PK" and b"final_times.npy" in data)

_HEADER = ("task", "op", "args", "target", "space", "provenance", "errors")


@dataclass(frozen=True)
class Point:
    times: tuple[float, ...] = ()  # seconds per call, in the order of sampling; empty on failure
    dropped: bool = False  # too slow to be sampled again after its first run
    error: MeasureError | None = None


@dataclass(frozen=True)
class MeasuredSpace:
    """All points of a space with their samples.

    Example:
        >>> from loopwright.measure import MeasuredSpace
        >>> from loopwright.measure.space_file import Point
        >>> points = {0: Point((3e-3, 3e-3)), 1: Point((1e-3, 1e-3)), 2: Point()}
        >>> space = MeasuredSpace("key", "matmul", [64], {"kind": "llvm"}, "hash", points)
        >>> print(space.ranking(), space.seconds(2))
        [(0.001, 1), (0.003, 0)] None
    """

    task: str  #: key of the task
    op: str  #: name of its template
    args: list[Json]  #: of the template
    target: dict[str, Json]  #: canonical form
    space: str  #: hash of the ordered knobs and their candidates
    points: dict[int, Point]  #: the result of each index
    #: Seconds per call in each round of interleaved measurements of the best.
    finals: dict[int, tuple[float, ...]] = field(default_factory=dict)
    #: Machine, versions, commands, dates, numbers of samples.
    provenance: dict[str, Json] = field(default_factory=dict)

    def seconds(self, index: int) -> float | None:
        """Median of the last careful measurement of a point; None where it failed."""
        times = self.finals.get(index) or self.points[index].times
        return statistics.median(times) if times else None

    def ranking(self) -> list[tuple[float, int]]:
        """``(seconds, index)`` of every point that ran, fastest first."""
        pairs = ((self.seconds(index), index) for index in self.points)
        return sorted((seconds, index) for seconds, index in pairs if seconds is not None)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the file, with times as float32; `RecordError` if that fails.

        ``force`` replaces even a file that is no measured space; else that is a `UsageError`.
        """
        errors: dict[tuple[str, str], int] = {}
        indices = sorted(self.points)
        points = [self.points[index] for index in indices]
        numbers = [
            -1 if p.error is None else errors.setdefault((p.error.kind, p.error.text), len(errors))
            for p in points
        ]
        header = {
            "format": FORMAT,
            "v": VERSION,
            **{name: getattr(self, name) for name in _HEADER[:-1]},
            "errors": [list(error) for error in errors],
        }
        finals = sorted(self.finals)
        archive = io.BytesIO()
        np.savez_compressed(
            archive,
            header=np.frombuffer(json.dumps(header, sort_keys=True).encode(), np.uint8),
            index=np.array(indices, np.int64),
            count=np.array([len(p.times) for p in points], np.uint16),
            times=np.array([t for p in points for t in p.times], np.float32),
            dropped=np.array([p.dropped for p in points], np.bool_),
            error=np.array(numbers, np.int16),
            final_index=np.array(finals, np.int64),
            final_count=np.array([len(self.finals[i]) for i in finals], np.uint16),
            final_times=np.array([t for i in finals for t in self.finals[i]], np.float32),
        )
        write(Output(Path(path), archive.getvalue(), _SPACE), force=force, error=RecordError)


def load_space(path: str | Path) -> MeasuredSpace:
    """Read a measured space.

    Raises:
        RecordError: the file is missing, damaged, of another format or of a later version.

    Example:
        >>> from loopwright.measure import MeasuredSpace, load_space
        >>> from loopwright.measure.space_file import Point
        >>> space = MeasuredSpace("key", "matmul", [64], {"kind": "llvm"}, "hash", {0: Point()})
        >>> space.save("space.npz")
        >>> print(load_space("space.npz").op)
        matmul
    """
    try:
        with open(path, "rb") as data, np.load(data, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
            header = json.loads(arrays["header"].tobytes())
        if header["format"] != FORMAT or header["v"] != VERSION:
            raise ValueError(
                f"its header says {header['format']!r} version {header['v']!r}, "
                f"this loopwright reads {FORMAT!r} version {VERSION}"
            )
        errors = [MeasureError(kind, text) for kind, text in header["errors"]]
        samples = _ragged(arrays["count"], arrays["times"])
        columns = (arrays["index"], samples, arrays["dropped"], arrays["error"])
        points = {
            int(index): Point(times, bool(dropped), None if number < 0 else errors[number])
            for index, times, dropped, number in zip(*columns, strict=True)
        }
        finals = _ragged(arrays["final_count"], arrays["final_times"])
        return MeasuredSpace(
            points=points,
            finals=dict(zip(arrays["final_index"].tolist(), finals, strict=True)),
            **{name: header[name] for name in _HEADER[:-1]},
        )
    except FileNotFoundError:
        raise RecordError(f"there is no measured space {str(path)!r}") from None
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as exc:
        raise RecordError(f"{str(path)!r} is no measured space, or is damaged: {exc}") from exc


def _ragged(counts: Array, values: Array) -> list[tuple[float, ...]]:
    if int(counts.sum()) != len(values):
        raise ValueError(f"{len(values)} samples are there, {int(counts.sum())} are announced")
    ends = np.cumsum(counts, dtype=np.int64)
    return [tuple(values[end - n : end].tolist()) for end, n in zip(ends, counts, strict=True)]


class Replay:
    """A measurer that returns recorded results; ``recorded`` has all points with their samples.

    Args:
        source: a file that `MeasuredSpace.save` wrote, or the result of `load_space`.
        racing: drop a candidate whose first sample is more than twice the incumbent, as
            `LocalRunner` does; the result is then marked and holds that sample alone.

    Raises:
        RecordError: the file is missing or damaged.

    Example:
        >>> from loopwright.measure import MeasuredSpace, Replay
        >>> from loopwright.measure.space_file import Point
        >>> task = lw.create_task("reduce", (64, 64), "llvm")
        >>> space = task.config_space
        >>> times = {i: Point((1e-3 * (1 + i),) * 3) for i in range(len(space))}
        >>> replay = Replay(MeasuredSpace(
        ...     task.key, task.name, task.args, task.target.canonical, space.space_hash, times
        ... ))
        >>> (result,) = replay.measure([lw.MeasureInput(task, task.config(4))])
        >>> print(result.times[0])
        0.005
    """

    def __init__(self, source: str | Path | MeasuredSpace, *, racing: bool = True) -> None:
        self.recorded = source if isinstance(source, MeasuredSpace) else load_space(source)
        self.racing = racing
        self.timing: dict[str, float | int] = {}

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: float | None = None
    ) -> Iterator[MeasureResult]:
        """Yield the recorded result of each input, in order.

        ``incumbent``, the best time so far in seconds per call, decides which candidates are
        dropped; better results of this batch take its place.

        Raises:
            UsageError: an input is of another task or space, or was never measured.
        """
        for item in inputs:
            if self.recorded.task not in (item.task.key, item.task.alias):
                raise UsageError(
                    f"this replay holds {self.recorded.task}; it was asked for {item.task.key}"
                )
        return self._results([self._point(item.config) for item in inputs], incumbent)

    def playoff(self, candidates: Sequence[ConfigEntity], plan: PlayoffPlan) -> PlayoffResult:
        """Recorded interleaved samples, else ordinary ones, unchecked; raises as `measure`."""

        def times(config: ConfigEntity) -> Sequence[float]:
            point = self._point(config)
            assert config.index is not None
            return self.recorded.finals.get(config.index) or point.times

        return played(candidates, plan, times)

    def measure_again(
        self, configs: Sequence[ConfigEntity], windows: int = WINDOWS
    ) -> list[MeasureResult]:
        """The recorded result of each configuration: recorded times do not drift."""
        points = [self._point(config) for config in configs]
        return [MeasureResult(times=point.times, error=point.error) for point in points]

    def _results(self, points: Sequence[Point], incumbent: float | None) -> Iterator[MeasureResult]:
        for point in points:
            if point.error is not None:
                result = MeasureResult(error=point.error)
            elif self.racing and incumbent and point.times[0] > DROP_RATIO * incumbent:
                result = MeasureResult(times=point.times[:1], dropped=True)
            else:
                result = MeasureResult(times=point.times)
            if would_lead(incumbent, result):  # what a space file holds was measured and judged
                incumbent = result.median
            yield result

    def _point(self, config: ConfigEntity) -> Point:
        recorded = self.recorded
        if config.space.space_hash != recorded.space:
            raise UsageError(
                f"this replay holds the space {recorded.space} of {recorded.op}; it was asked for "
                f"a point of {config.space.space_hash}: the template or its knobs have changed"
            )
        if config.index is None or config.index not in recorded.points:
            raise UsageError(f"point {config.index} of {recorded.op} was never measured: {config}")
        return recorded.points[config.index]
