"""The folder of a benchmark: a plan with what was built, and results with what was measured.

``plan.jsonl`` is written where programs are built, ``results.jsonl`` where the device is; the two
meet in the folder, which is carried from one machine to the other.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.gpu.cases import Case
from benchmarks.gpu.journal import Journal, Line, opened, read_lines
from loopwright.errors import UsageError

_FORMAT = 1


@dataclass(frozen=True)
class Purpose:
    """What a folder is for; the first line of its plan.

    Attributes:
        device: kind of devices.
        target: what programs are built for.
        small: whether sizes are those of a trial run.
        seed: of what is proposed and of the inputs.
    """

    device: str
    target: str
    small: bool
    seed: int


class Folder:
    """A folder as it is now.

    Args:
        path: where it is.

    Attributes:
        purpose: what it is for.
        plan, results: lines.
        damaged: lines that were passed over.

    Raises:
        UsageError: it has no plan, or one of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan, broken = read_lines(self.plan_path)
        self.results, also = read_lines(self.results_path)
        self.damaged = broken + also
        first = self.plan[0] if self.plan else {}
        if first.get("what") != "folder" or first.get("format") != _FORMAT:
            raise UsageError(
                f"{path} holds no plan of format {_FORMAT}; make one with python -m benchmarks.gpu "
                f"build --out {path}"
            )
        names = ("device", "target", "small", "seed")
        self.purpose = Purpose(**{name: first[name] for name in names})

    @property
    def plan_path(self) -> Path:
        """What was built."""
        return self.path / "plan.jsonl"

    @property
    def results_path(self) -> Path:
        """What was measured."""
        return self.path / "results.jsonl"

    def artifact(self, case: Case, index: int) -> Path:
        """The file of a candidate's program."""
        return self.path / "programs" / case.name / f"{index}.o"

    def rounds(self, case: Case) -> list[Line]:
        """What was proposed, in order."""
        return [x for x in self.plan if x["what"] == "round" and x["case"] == case.name]

    def candidates(self, case: Case) -> dict[int, Line]:
        """What became of the candidates that were built or refused, by index."""
        return {
            x["index"]: x for x in self.plan if x["what"] == "candidate" and x["case"] == case.name
        }

    def built(self, case: Case) -> list[int]:
        """Indices of the candidates that can be measured, in the order of their proposal."""
        return [n for n, x in self.candidates(case).items() if x["outcome"] == "built"]

    def trials(self, case: Case) -> dict[int, Line]:
        """What was measured of candidates, by index."""
        return {
            x["index"]: x for x in self.results if x["what"] == "trial" and x["case"] == case.name
        }

    def best(self, case: Case) -> int | None:
        """The fastest candidate whose answer was checked."""
        ranked = [
            (statistics.median(x["times"]), n) for n, x in self.trials(case).items() if is_good(x)
        ]
        return min(ranked)[1] if ranked else None

    def turns(self, case: Case) -> Line | None:
        """The last time that all sides of a case took turns."""
        found = [x for x in self.results if x["what"] == "turns" and x["case"] == case.name]
        return found[-1] if found else None

    @property
    def sessions(self) -> list[Line]:
        """On which devices it was measured."""
        return [x for x in self.results if x["what"] == "session"]


def is_good(trial: Line) -> bool:
    """Whether a trial has a time that may be the best."""
    return trial["outcome"] == "ok" and bool(trial["checked"])


def begin(path: Path, purpose: Purpose) -> Folder:
    """The folder for a purpose, made if it is not there.

    Raises:
        UsageError: it is there for another purpose.
    """
    path.mkdir(parents=True, exist_ok=True)
    plan = path / "plan.jsonl"
    with opened(plan) as journal:
        if not journal.lines and not plan.stat().st_size:
            journal.append({"what": "folder", "format": _FORMAT, **asdict(purpose)})
    folder = Folder(path)
    if folder.purpose != purpose:
        raise UsageError(f"{path} is for {folder.purpose}, not for {purpose}; take another folder")
    return folder


@contextmanager
def building(folder: Folder) -> Iterator[Journal]:
    """The plan, to write what is built."""
    with opened(folder.plan_path) as journal:
        folder.plan = journal.lines
        yield journal


@contextmanager
def measuring(folder: Folder) -> Iterator[Journal]:
    """The results, to write what is measured."""
    with opened(folder.results_path) as journal:
        folder.results = journal.lines
        yield journal
