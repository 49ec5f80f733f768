"""Can a log or a manifest do harm? Edit every field of both, and use what comes out in every way.

``python -m benchmarks.hostile``. An edited line keeps a checksum that fits, so that whatever reads
it must judge it by what it says; most of them claim to be the best of their log. Each meets each
verb that reads or builds alone, beside one good record, and the verbs that measure together with
others. The manifest of a built kernel is edited with and without checksums that fit, and loaded.
The bar is 0: nothing may raise anything but the errors of loopwright in one line each, print what a
terminal obeys, or take longer than a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loopwright import autotvm, ops, records
from loopwright.cli import main as loopwright
from loopwright.errors import LoopwrightError
from loopwright.history import apply_history_best
from loopwright.history.rebuilding import rebuild
from loopwright.measure import LocalRunner, measure_option
from loopwright.records.line import sealed
from loopwright.runtime import Artifact
from loopwright.runtime.artifacts.artifact import manifest_checksum
from loopwright.task import Task, create_task
from loopwright.tuner import RandomTuner, learn, log_to_file
from loopwright.tuner.run.journal import LogJournal
from tests.property.hostile_lines import VALUES, hostile_line, of_all_kinds, paths

Json = Any
WORKLOAD = "matmul M=16 N=16 K=16 --threads 1"
#: Seconds that no use may take. Those that measure start processes; all others take a few.
LIMIT = 60.0
#: Lines that meet a verb together where it measures.
TOGETHER = 40
_TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ALONE = (
    "records list LOG",
    "records list LOG --sort time --status usable",
    "records list LOG --json",
    "records best LOG -k 3",
    "records show LOG best",
    "records show LOG best --expr",
    "records show LOG best --ir",
    "records show LOG best --code",
    "records pick LOG -o picked.jsonl",
    "records distill LOG -o distilled.jsonl",
    "records merge LOG -o merged.jsonl",
    "records split LOG -o tasks",
    f"lower {WORKLOAD} --history LOG",
    f"explain {WORKLOAD} --history LOG",
    f"build {WORKLOAD} --history LOG --allow-default -o k.so",
)
MEASURING = (
    f"bench {WORKLOAD} --history LOG --allow-default --rounds 3",
    f"tune {WORKLOAD} --trials 5 --log LOG",
    "tune-tasks tasks.txt --threads 1 --trials 5 --log LOG",
)


@dataclass
class Found:
    """What came out.

    Attributes:
        uses: how often a line or manifest was used, by the name of the use.
        outcomes: lines that were read or refused; manifests that were refused.
        faults: what should not have happened.
        slowest: seconds and name of the slowest use.
    """

    uses: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")

    def use(self, name: str, what: str, do: Callable[[], str]) -> None:
        """Use a line or manifest, and note the complaint that this gives, or the exception."""
        begin = time.monotonic()
        try:
            complaint = do()
        except Exception as error:  # whatever it is: it is what is counted here
            complaint = f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - begin
        self.uses[name] += 1
        self.slowest = max(self.slowest, (seconds, name))
        if seconds > LIMIT:
            complaint = complaint or f"it took {seconds:.1f} s"
        if complaint:
            self.faults.append(name)
            print(ascii(f"{name}: {complaint[-300:]} -- {what[:2000]}"), flush=True)


def task() -> Task:
    """The task of the log."""
    args = (16, 16, 16, False, False, "float32")
    return create_task(ops.WORKLOADS["matmul"].template, args, "llvm -num-threads=1")


def good_lines(path: Path) -> tuple[str, list[str]]:
    """A good record, and lines of every kind to start from."""
    steady = measure_option(runner=LocalRunner(racing=False))
    RandomTuner(task()).tune(n_trial=3, callbacks=[log_to_file(path)], measure_option=steady)
    one = next(r for r in records.load(path) if r.usable)
    verdict = records.Verdict(records.Outcome.FASTER, 0.1, 0.01, 20, "d", "FMA peak", 0.5)
    fast = replace(one, checked=records.Checked.YES, check_reason="", times=(1e-9,) * 3)
    more = [
        replace(fast, phase="playoff", verdict=verdict.to_json()),
        replace(fast, same_as=one.id),
        replace(fast, times_of=one.id, max_error=0.0),
        replace(one, times=(), error={"kind": "WRONG_ANSWER", "text": "off"}, code=""),
    ]
    return one.to_line(), of_all_kinds(path.read_text().splitlines(), more)


def hostile_lines(lines: Sequence[str], count: int, seed: int) -> Iterator[bytes]:
    """Lines with one field changed, three quarters of them; the rest are damaged in other ways."""
    source = random.Random(seed)
    data = [json.loads(line) for line in lines]
    places = [(k, at) for k, x in enumerate(data) for at in paths(x) if at and at != ("sum",)]
    for n in range(count):
        if n % 4 == 3:
            yield hostile_line(source, lines)
            continue
        k, at = source.choice(places)
        edited = _edited(data[k], at, source.choice(VALUES))
        edited.pop("sum", None)
        text = json.dumps(edited)
        with contextlib.suppress(LoopwrightError):  # longer or deeper than any writer makes it
            text = sealed(text)
        yield text.encode("utf-8", "surrogatepass")


def _edited(data: Json, at: Sequence[Any], value: Json) -> Json:
    """A copy of JSON with another value at a place."""
    edited = copy.deepcopy(data)
    place = edited
    for key in at[:-1]:
        place = place[key]
    place[at[-1]] = copy.deepcopy(value)
    return edited


def by_command(words: str, log: Path) -> str:
    """Run a verb with a log; returns what is wrong with what it did."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = loopwright([str(log) if word == "LOG" else word for word in words.split()])
    said = out.getvalue() + err.getvalue()
    # A line may be of another task or machine: which best is meant is then asked.
    unclear = code == 2 and "; name one with --" in said
    if code not in (0, 1) and not unclear:
        return f"exit code {code}: {said}"
    if "internal error" in said or "Traceback" in said:
        return said
    match = _TERMINAL.search(said)
    return f"prints {match[0]!r}" if match else ""


def by_script(path: Path) -> str:
    """Ask a log all that a script can ask; returns what is wrong with an answer."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        complaint = _asked(path)
    match = _TERMINAL.search(said.getvalue())
    return complaint or (f"warns with {match[0]!r}" if match else "")


def _asked(path: Path) -> str:
    log = records.load(path)
    asked: list[Callable[[], object]] = [
        lambda: [(r.id, r.candidate, r.to_line()) for r in log],
        lambda: [records.ranked(log), records.kept(log), records.distill(log)],
        *(lambda r=r: rebuild(log, r) for r in log),  # type: ignore[misc]
        LogJournal(task(), str(path), "run").close,
        lambda: apply_history_best(path).apply(task()),
        lambda: str(apply_history_best(path).explain(task())),
        lambda: learn(task(), log, "knob"),
        lambda: list(autotvm.record.load_from_file(path)),
    ]
    for ask in asked:
        try:
            ask()
        except LoopwrightError as error:
            if "\n" in str(error):
                return f"an error of several lines: {error}"
    return ""


def try_lines(found: Found, lines: Sequence[bytes], good: str) -> None:
    """Let every line meet every use."""
    Path("tasks.txt").write_text(f"{WORKLOAD.partition(' --')[0]}\n")
    log = Path("hostile.jsonl")
    for line in lines:
        text = line + b"\n" + good.encode() + b"\n"
        what = line.decode("utf-8", "backslashreplace")
        for words in ALONE:
            log.write_bytes(text)
            found.use(words, what, lambda words=words: by_command(words, log))  # type: ignore[misc]
        log.write_bytes(text)
        found.use("from Python", what, lambda: by_script(log))
        found.outcomes["refused" if records.load(log).skipped else "read"] += 1
        for name in ("picked.jsonl", "distilled.jsonl", "merged.jsonl"):
            Path(name).unlink(missing_ok=True)
    for at in range(0, len(lines), TOGETHER):
        text = b"\n".join([*lines[at : at + TOGETHER], good.encode()]) + b"\n"
        for words in MEASURING:
            log.write_bytes(text)
            found.use(words, f"from line {at}", lambda words=words: by_command(words, log))  # type: ignore[misc]


def try_manifests(found: Found, count: int, seed: int) -> None:
    """Load a built kernel with edited manifests; each must be refused."""
    if loopwright(["build", *WORKLOAD.split(), "-o", "kernel.o"]) != 0:
        raise RuntimeError("the kernel was not built")
    beside, source = Path("kernel.o.json"), random.Random(seed)
    good = json.loads(beside.read_text())
    places = [at for at in paths(good) if at]
    for n in range(count):
        edited = _edited(good, source.choice(places), source.choice(VALUES))
        if n % 2:
            edited["sha256"] = manifest_checksum(edited)
        if edited == good:
            continue
        beside.write_text(json.dumps(edited))
        found.use("manifest", json.dumps(edited), lambda: _refused(Path("kernel.o")))
        found.outcomes["manifests"] += 1


def _refused(path: Path) -> str:
    try:
        Artifact.load(path)
    except LoopwrightError as error:
        return "an error of several lines" if "\n" in str(error) else ""
    return "it was taken"


def tried(lines: int, manifests: int, seed: int) -> Found:
    """Try so many lines and manifests, in the present folder."""
    found = Found()
    good, written = good_lines(Path("good.jsonl"))
    try_lines(found, list(hostile_lines(written, lines, seed)), good)
    try_manifests(found, manifests, seed)
    return found


def main() -> None:
    """Try, and print what came out."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--lines", type=int, default=400, help="Hostile lines [400].")
    parser.add_argument("--manifests", type=int, default=1000, help="Edited manifests [1000].")
    parser.add_argument("--seed", type=int, default=0, help="Which are made [0].")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.environ["XDG_RUNTIME_DIR"] = os.environ["XDG_CACHE_HOME"] = folder
        found = tried(options.lines, options.manifests, options.seed)
    faulty = Counter(found.faults)
    print(
        f"{options.lines} hostile lines ({found.outcomes['refused']} refused, the others read) x "
        f"{len(found.uses) - 1} uses: {faulty.total() - faulty['manifest']} faults; the slowest "
        f"took {found.slowest[0]:.1f} s ({found.slowest[1]})\n"
        f"{found.outcomes['manifests']} manifests edited: "
        f"{found.outcomes['manifests'] - faulty['manifest']} refused"
    )


if __name__ == "__main__":
    main()
