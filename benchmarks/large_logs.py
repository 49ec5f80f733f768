"""Time the verbs that read a log, and what taking a run up again costs, on a log of many records.

``python -m benchmarks.large_logs --records 100000`` writes two logs of about 2 KB a record, one of
many tasks and one of a single task, and runs each verb on them in a fresh process. Everything is
counted, from the start of the process. ``--plain`` reads without the index.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from loopwright.task import Task

#: Different schedules of each task; further records have other knobs and times.
_SCHEDULES = 16
#: Arguments of `matmul` in the log of many tasks: M, N, K. The first is of both logs.
SHAPES = tuple((1024, 1024, 256 * k) for k in range(6, 18))
_TEMPLATE = "benchmarks/large_logs"
#: Bytes of an output that are kept: the memory of a child counts from that of its parent.
_KEPT = 1 << 20
#: What stands before a verb to have it read logs without their indices.
_PLAIN = "from loopwright.records.index import open as reading; reading.SMALL = 1 << 60\n"


@dataclass(frozen=True)
class Cost:
    """What one process took.

    Attributes:
        seconds: wall time.
        cpu: seconds of processors; what to look at while something else uses the machine.
        megabytes: the most memory that it held at once.
        output: the end of what it printed.
    """

    seconds: float
    cpu: float
    megabytes: float
    output: str


def write_log(path: Path, records: int, tasks: int, seed: int = 0) -> None:
    """Write a log of about 2 KB a record, as a run on this machine would have.

    Every 10th record failed, every 5th was dropped, every 3rd of the others was checked; in each
    round of 16 trials the times differ by a factor of up to 8.

    Args:
        path: the log; what was there is replaced.
        records: how many.
        tasks: how many tasks take turns, round by round.
        seed: of configurations and times.
    """
    from loopwright.records import canonical_json

    path.unlink(missing_ok=True)
    turns = [_lines(shape, seed + n) for n, shape in enumerate(SHAPES[:tasks])]
    with open(path, "w") as file:
        header = {"run": "feedfacecafe", "seed": seed, "tuner": "xgb"}
        file.write(canonical_json({"header": header, "v": 1}) + "\n")
        for number in range(records):
            file.write(next(turns[number // 16 % tasks]) + "\n")


def matmul(shape: tuple[int, int, int]) -> Task:
    """The task of a product of matrices, with a space of some hundred thousand points."""
    import loopwright as lw
    from loopwright import te
    from loopwright.task import TASKS

    def product(M: int, N: int, K: int) -> object:
        a, b = te.placeholder((M, K), name="a"), te.placeholder((K, N), name="b")
        k = te.reduce_axis((0, K), name="k")
        c = te.compute((M, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
        s, cfg = te.create_schedule(c.op), lw.get_config()
        i, j = s[c].op.axis
        cfg.define_split("tile_i", i, num_outputs=3)
        cfg.define_split("tile_j", j, num_outputs=3)
        cfg.define_split("tile_k", k, num_outputs=2)
        cfg.define_knob("unroll", [False, True])
        i0, i1, i2 = cfg["tile_i"].apply(s, c, i)
        j0, j1, j2 = cfg["tile_j"].apply(s, c, j)
        k0, k1 = cfg["tile_k"].apply(s, c, k)
        s[c].reorder(i0, j0, i1, j1, k0, k1, i2, j2)
        s[c].parallel(i0)
        s[c].vectorize(j2)
        if cfg["unroll"].val:
            s[c].unroll(i2)
        return s, [a, b, c]

    template = TASKS.get(_TEMPLATE) or lw.template(_TEMPLATE)(product)
    return lw.create_task(template, shape)


def _lines(shape: tuple[int, int, int], seed: int) -> Iterator[str]:
    """Lines of one task, trial after trial."""
    import numpy as np

    from loopwright import records

    task = matmul(shape)
    space, rng = task.config_space, np.random.default_rng(seed)
    points = iter([space.default_index, *rng.permutation(len(space))[:200_000].tolist()])
    known = [next(points) for _ in range(_SCHEDULES)]
    traces = [task.instantiate(space.get(index))[0] for index in known]
    target, env = task.target.canonical, records.environment()
    build, space_hash = records.build_hash(target), space.space_hash
    for trial in range(sys.maxsize):
        config = space.get(known[trial] if trial < len(known) else next(points))
        schedule = traces[trial % len(traces)]
        failed, dropped = trial % 10 == 9, trial % 5 == 3
        seconds = (2e-3 if trial < len(known) else 3e-3) * float(rng.uniform(1.0, 8.0))
        times = () if failed else tuple(seconds * rng.uniform(1.0, 1.02, 1 if dropped else 5))
        error = {"kind": "RUN_TIMEOUT", "text": "the kernel ran for more than 1.3 s"}
        checked = trial % 3 == 0 and not failed and not dropped
        yield records.Record(
            task=task.alias,
            op=task.name,
            args=list(task.args),
            dag=schedule.dag.hash,
            target=target,
            config=config.values,
            trace=schedule.trace_json(),
            times=times,
            dropped=dropped,
            error=error if failed else None,
            build_s=float(rng.uniform(0.02, 0.05)),
            run_s=float(rng.uniform(0.02, 0.2)),
            space=space_hash,
            build=build,
            run="feedfacecafe",
            round=trial // 16,
            trial=trial,
            seed=0,
            ts=1.79e9 + 0.25 * trial,
            env=env,
            checked=records.Checked.YES if checked else records.Checked.NO,
            check_reason="" if checked else "not a would-be winner",
            program=f"{rng.integers(1 << 62):016x}" * 4,
            code=f"{rng.integers(1 << 62):016x}" * 4,
        ).to_line()


def run(code: str, folder: Path) -> Cost:
    """Run a program in a fresh process of Python.

    Args:
        code: the program.
        folder: where it runs.

    Raises:
        RuntimeError: it failed; with the end of what it said.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        env = {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", os.getcwd())}
        child = subprocess.Popen(
            [sys.executable, "-c", code], cwd=folder, stdout=out, stderr=err, env=env
        )
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(-min(_KEPT, out.seek(0, os.SEEK_END)), os.SEEK_END)
        err.seek(0)
        if child.returncode:
            raise RuntimeError(err.read().decode(errors="replace")[-2000:])
        cpu = usage.ru_utime + usage.ru_stime
        return Cost(seconds, cpu, usage.ru_maxrss / 1024, out.read().decode(errors="replace"))


def verb(*words: str) -> str:
    """The program of a verb of the command line."""
    return f"from loopwright.cli.app import run\nraise SystemExit(run({list(words)!r}))"


def applying(log: str) -> str:
    """The program that builds the first task under a log."""
    return (
        "import loopwright as lw\n"
        "from benchmarks.large_logs import SHAPES, matmul\n"
        "task = matmul(SHAPES[0])\n"
        f"context = lw.apply_history_best({log!r})\n"
        "assert context.apply(task) is not None\n"
        "print(context.explain(task))"
    )


def resuming(log: str, tuner: str) -> str:
    """The program that takes up the run of the first task, and prints when it got how far."""
    return f"from benchmarks.large_logs import resume; resume({log!r}, {tuner!r})"


def resume(log: str, name: str) -> None:
    """Take up the run of the first task in this process, up to the first new proposal.

    Prints the seconds until the state was known and until something was proposed, since the start
    of the process.
    """
    from loopwright.tuner.registry import find_tuner
    from loopwright.tuner.run.callbacks import LogToFile, Monitor

    start = _started()
    marks = {}

    class Watch(Monitor):
        def started(self, tuner: object, state: object) -> None:
            marks["state"] = time.time() - start

    class Asked:
        timing: ClassVar[dict[str, float]] = {}

        def __enter__(self) -> Asked:
            return self

        def __exit__(self, *exc: object) -> None:
            pass

        def measure(self, inputs: Sequence[object], incumbent: object = None) -> Iterator[object]:
            marks["proposal"] = time.time() - start
            print(json.dumps(marks), flush=True)
            os._exit(0)
            yield

    tuner = find_tuner(name)(matmul(SHAPES[0]))
    tuner.tune(n_trial=10**7, measure_option=Asked(), callbacks=[LogToFile(log), Watch()])


def _started() -> float:
    """When this process started, seconds since the epoch."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    boot = time.time() - float(Path("/proc/uptime").read_text().split()[0])
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Write the logs unless they are there, and print a line for each verb."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_logs", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="records of each log [100000]")
    parser.add_argument("--folder", help="where the logs are, and stay [a temporary folder]")
    parser.add_argument("--plain", action="store_true", help="read without the index")
    parser.add_argument("--tuners", default="xgb,random", help="tuners of the runs taken up again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        before = _PLAIN if options.plain else ""
        for tasks in (len(SHAPES), 1):
            _measure(folder, options.records, tasks, before, options.tuners.split(","))


def _measure(folder: Path, records: int, tasks: int, before: str, tuners: Sequence[str]) -> None:
    name = f"log_{records}_{tasks}.jsonl"
    log = folder / name
    if not log.exists():
        # In a process of its own: a child's peak of memory counts from that of its parent.
        writing = "from benchmarks.large_logs import write_log; from pathlib import Path; "
        run(f"{writing}write_log(Path({str(log)!r}), {records}, {tasks})", Path.cwd())
    for index in folder.glob(f".{name}.index*"):
        index.unlink()
    print(f"{name}: {log.stat().st_size / 1e6:.0f} MB, {records} records, tasks: {tasks}")
    identity, first = "", ",".join(map(str, SHAPES[0]))
    programs = {
        "first read": verb("records", "best", name),
        "list": verb("records", "list", name),
        "list --json": verb("records", "list", name, "--json"),
        "list --csv": verb("records", "list", name, "--csv"),
        "list --limit 20": verb("records", "list", name, "--limit", "20"),
        "best": verb("records", "best", name),
        "top": verb("records", "top", name),
        "show best": verb("records", "show", name, "best", "--task", first),
        "show ID": "",
        "curve": verb("records", "curve", name, "--task", first),
        "errors": verb("records", "errors", name),
        "importance": verb("records", "importance", name, "--task", first),
        "compare": verb("records", "compare", name, name),
        "validate": verb("records", "validate", name),
        "apply": applying(name),
        **{f"resume {tuner}": resuming(name, tuner) for tuner in tuners},
    }
    for what, program in programs.items():
        cost = run(before + (program or verb("records", "show", name, identity)), folder)
        if what == "list --limit 20":
            identity = cost.output.splitlines()[-2].split()[0]
        marks = json.loads(cost.output) if what.startswith("resume") else {}
        more = "".join(f"  {mark} after {seconds:.2f} s" for mark, seconds in marks.items())
        print(
            f"  {what:16} {cost.seconds:7.2f} s ({cost.cpu:6.2f} s of CPU) "
            f"{cost.megabytes:6.0f} MB{more}",
            flush=True,
        )
    index = sum(file.stat().st_size for file in folder.glob(f".{name}.index*"))
    print(f"  the index has {index / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
