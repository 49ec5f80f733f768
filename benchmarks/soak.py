"""A soak: thousands of trials while everything goes wrong that can, and what is left afterwards.

``python -m benchmarks.soak --trials 3000`` tunes `benchmarks.soak_side`, a fifth of whose
candidates fail in some way, and disturbs the run from a seed: kills it, interrupts it, kills or
stops its workers, and damages its log. It starts the run again each time. The last third of the
trials is left to one process, whose candidates still fail, and whose memory is watched. In the end
it counts

- trials that were announced and are not in the log (lost), and candidates that are there twice;
- processes and files that are left;
- by how much memory grew per thousand trials, for the run and its workers;
- how the best candidate compares with that of a run that nobody disturbed.

The exit code is 1 where one of the first three is not 0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks import soak_side
from loopwright.measure import Measurer, PlayoffPlan, paired_gain
from loopwright.records import Record

#: Marks the processes of a soak: a variable in their environment.
_MARK = "LOOPWRIGHT_SOAK"
#: Seconds within which workers end after their parent has.
_PATIENCE_S = 5.0
#: Seconds without a new trial after which a run counts as stuck.
_STUCK_S = 120.0


@dataclass
class Side:
    """A tuning process and what it said.

    Attributes:
        process: the process.
        announced: numbers of the trials that it has recorded.
        done: it came to its end by itself.
        last: when it last said something, by the monotonic clock.
    """

    process: subprocess.Popen[str]
    announced: list[int] = field(default_factory=list)
    done: bool = False
    last: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.ear = threading.Thread(target=self.listen, daemon=True)
        self.ear.start()

    def listen(self) -> None:
        """Take in what it says until it ends."""
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._take(line)

    def _take(self, line: str) -> None:
        self.last = time.monotonic()
        word, _, rest = line.partition(" ")
        self.done |= word == "done"
        if word == "trial" and rest.endswith("\n"):
            self.announced.append(int(rest))

    def wait(self) -> None:
        """Return when it has ended and all that it said is heard."""
        self.process.wait()
        self.ear.join()


@dataclass
class Soak:
    """A soak under way.

    Attributes:
        folder: where its log and its temporary files are.
        seed: of the disturbances and of the tuner.
        mark: names its processes.
        disturbed: how often each disturbance was made.
        announced: numbers of trials that were recorded.
        spoiled: numbers of trials whose line was damaged on purpose.
        memory: ``(trials, bytes)`` by role, while nobody disturbs.
        due: disturbances that come before any is made again.
    """

    folder: Path
    seed: int
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    disturbed: Counter[str] = field(default_factory=Counter)
    announced: set[int] = field(default_factory=set)
    spoiled: set[int] = field(default_factory=set)
    memory: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    due: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.scratch = self.folder / "scratch"
        self.scratch.mkdir()

    @property
    def log(self) -> Path:
        """The log that is tuned into."""
        return self.folder / "soak.jsonl"

    def start(self, log: Path, trials: int, *more: str) -> Side:
        """Start a tuning process; what it and its workers leave can be told from the mark."""
        command = [sys.executable, "-m", "benchmarks.soak_side", str(log), "--trials", str(trials)]
        scratch = str(self.scratch)
        process = subprocess.Popen(
            [*command, "--seed", str(self.seed), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, _MARK: self.mark, "TMPDIR": scratch, "XDG_RUNTIME_DIR": scratch},
        )
        return Side(process)

    # -- the two parts ------------------------------------------------------------------------

    def disturb(self, trials: int, every: float) -> None:
        """Tune up to a number of valid trials, disturbing it every few seconds."""
        while True:
            side = self.start(self.log, trials)
            due = time.monotonic() + self.random.expovariate(1 / every)
            while side.process.poll() is None:
                time.sleep(0.05)
                self._refuse_to_wait(side)
                if time.monotonic() >= due:
                    self._once(side)
                    due = time.monotonic() + self.random.expovariate(1 / every)
            self._end(side)
            if side.done:
                return

    def watch(self, trials: int) -> None:
        """Let one process tune to its end, and note how much memory it and its workers use."""
        side = self.start(self.log, trials)
        while side.process.poll() is None:
            time.sleep(0.25)
            self._refuse_to_wait(side)
            for role, size in resident(self.mark).items():
                self.memory.setdefault(role, []).append((len(side.announced), size))
        self._end(side)
        if not side.done:
            raise SystemExit(f"the undisturbed part ended with {side.process.returncode}")

    def _end(self, side: Side) -> None:
        side.wait()
        self.announced.update(side.announced)
        until = time.monotonic() + _PATIENCE_S
        while processes(self.mark) and time.monotonic() < until:
            time.sleep(0.05)

    def _refuse_to_wait(self, side: Side) -> None:
        if time.monotonic() - side.last > _STUCK_S:
            side.process.kill()
            raise SystemExit(f"no trial for {_STUCK_S:.0f} s: {resident(self.mark)}")

    # -- disturbances -------------------------------------------------------------------------

    def _once(self, side: Side) -> None:
        """Do one thing that no run should come to harm by."""
        kinds: dict[str, Callable[[Side], None]] = {
            "kill -9": lambda s: s.process.kill(),
            "interrupt": lambda s: s.process.send_signal(signal.SIGINT),
            "hang up": lambda s: s.process.send_signal(signal.SIGHUP),
            "kill a builder": lambda s: self._signal("builder", signal.SIGKILL),
            "kill a runner": lambda s: self._signal("runner", signal.SIGKILL),
            "stop a worker, kill -9": self._stop_and_kill,
            "garbage": lambda s: self._append(self.random.randbytes(200) + b"\n"),
            "torn line": lambda s: self._append(b'{"v": 1, "task": "x", "ti'),
            "hostile line": lambda s: self._append(b'{"v":1,"times":[1e400],"ts":' + b"9" * 400),
            "flipped digit": lambda s: self._flip(),
        }
        if not self.due:
            self.due = self.random.sample(list(kinds), len(kinds))
        name = self.due.pop()
        self.disturbed[name] += 1
        kinds[name](side)

    def _signal(self, role: str, number: signal.Signals) -> None:
        for pid in processes(self.mark).get(role, [])[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _stop_and_kill(self, side: Side) -> None:
        self._signal(self.random.choice(["builder", "runner"]), signal.SIGSTOP)
        side.process.kill()

    def _append(self, line: bytes) -> None:
        with open(self.log, "ab") as file:
            file.write(line)

    def _flip(self) -> None:
        """Change a digit in the times of one line, in place."""
        with contextlib.suppress(FileNotFoundError), open(self.log, "r+b") as file:
            data = file.read()
            places = [
                i for i, line in _lines(data) if b'"times":[0.' in line and b"phase" not in line
            ]
            if not places:
                return
            start = self.random.choice(places)
            end = data.index(b"\n", start)
            self.spoiled.add(int(json.loads(data[start:end])["trial"]))
            at = data.index(b'"times":[0.', start) + len(b'"times":[0.') + 2
            file.seek(at)
            file.write(b"7" if data[at : at + 1] != b"7" else b"3")

    # -- what is left -------------------------------------------------------------------------

    def account(self) -> dict[str, Any]:
        """What was lost, doubled and left over, and how memory grew."""
        log = lw.records.load(self.log)
        trials = [r for r in log.records if not r.phase and not r.same_as]
        numbers = Counter(r.trial for r in trials)
        twice = Counter(json.dumps(r.config, sort_keys=True) for r in trials)
        return {
            "trials": len(trials),
            "valid": sum(r.valid for r in trials),
            "failed": dict(Counter(str(r.error["kind"]) for r in trials if r.error)),
            "disturbances": dict(sorted(self.disturbed.items())),
            "lines not understood": len(log.skipped),
            "lost": len(self.announced - set(numbers) - self.spoiled),
            "doubled": sum(count - 1 for count in twice.values()),
            "processes left": sum(map(len, processes(self.mark).values())),
            "files left": [str(p) for p in self._left()],
            "MB per 1000 trials": {r: growth(m) for r, m in sorted(self.memory.items())},
        }

    def _left(self) -> list[Path]:
        """Files in the folder of temporary files; the locks stay there on purpose."""
        files = (p for p in self.scratch.rglob("*") if p.is_file())
        return [p for p in files if "loopwright" not in p.parent.name]


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines of a log with the places at which they begin."""
    at = 0
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield at, line
        at += len(line)


def processes(mark: str) -> dict[str, list[int]]:
    """The processes that carry a mark, by role: ``run``, ``builder``, ``runner``, ``other``."""
    found: dict[str, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{_MARK}={mark}".encode() not in (path / "environ").read_bytes():
                continue
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if words == [""]:
                continue  # it has ended
            role = next((r for r in ("builder", "runner") if r in words), "other")
            role = "run" if "benchmarks.soak_side" in words else role
            found.setdefault(role, []).append(int(path.name))
    return found


def resident(mark: str) -> dict[str, int]:
    """Largest resident memory of the marked processes in bytes, by role."""
    sizes: dict[str, int] = {}
    for role, pids in processes(mark).items():
        for pid in pids:
            with contextlib.suppress(OSError, IndexError, ValueError):
                pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
                sizes[role] = max(sizes.get(role, 0), pages * os.sysconf("SC_PAGE_SIZE"))
    return sizes


def growth(samples: Sequence[tuple[int, int]]) -> float:
    """Slope of memory over trials in MB per 1000, in the second half: the first fills caches.

    What comes after the last trial is the playoff, which holds several kernels at once, and is left
    out.
    """
    last = samples[-1][0]
    half = [s for s in samples if last / 2 <= s[0] < last]
    if not half:
        return 0.0
    trials, sizes = (np.array(x, float) for x in zip(*half, strict=True))
    if np.ptp(trials) == 0:
        return 0.0
    return round(float(np.polyfit(trials, sizes / 1e6, 1)[0]) * 1000, 2)


def best_of(log: Path) -> Record:
    """The best record of a log."""
    best = lw.records.best(lw.records.load(log))
    if best is None:
        raise SystemExit(f"{log} has no best record")
    return best


def compared(one: Record, other: Record) -> str:
    """How the best of the soak compares with that of the undisturbed run, measured in turns."""
    task = lw.create_task("benchmarks/soak", (), "llvm -num-threads=1")
    first, second = (task.config(dict(r.config)) for r in (other, one))
    if first == second:
        return "the same configuration"
    with Measurer(task, soak_side.measuring()) as measurer:
        played = measurer.playoff([second], PlayoffPlan(default=first, places=1, seconds=5.0))
    times = {f.config.index: f.times for f in played.finalists}
    ours, theirs = times.get(second.index, ()), times.get(first.index, ())
    gain = paired_gain(theirs, ours) if len(ours) == len(theirs) else None
    if gain is None:
        return "; ".join(str(f.error) for f in played.finalists if f.error) or "one program"
    return f"{gain.outcome} by {gain.gain:.1%} +- {gain.margin:.1%}"


def run(folder: Path, trials: int, seed: int, every: float, beside: int) -> dict[str, Any]:
    """Hold a soak; returns what it found.

    Args:
        folder: an empty folder for its files.
        trials: valid trials, of which the last third are measured by one process.
        seed: of everything that is drawn.
        every: seconds between two disturbances, on average.
        beside: valid trials of the undisturbed run that its best is compared with; 0 for none.
    """
    soak = Soak(folder, seed)
    began = time.monotonic()
    soak.disturb(trials * 2 // 3, every)
    soak.watch(trials)
    found = soak.account()
    found["seconds"] = round(time.monotonic() - began, 1)
    if beside:
        quiet = soak.start(folder / "quiet.jsonl", beside)
        quiet.wait()
        found["best against undisturbed"] = compared(
            best_of(soak.log), best_of(folder / "quiet.jsonl")
        )
    return found


def main() -> int:
    """Hold a soak and print what it found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--trials", type=int, default=3000, help="valid trials [3000]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between disturbances [3]")
    parser.add_argument("--beside", type=int, help="undisturbed trials [as many as --trials]")
    options = parser.parse_args()
    beside = options.trials if options.beside is None else options.beside
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), options.trials, options.seed, options.every, beside)
    for what, value in found.items():
        print(f"{what}: {value}")
    return int(bool(found["lost"] or found["doubled"] or found["processes left"]))


if __name__ == "__main__":
    sys.exit(main())
