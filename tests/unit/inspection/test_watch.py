"""What a log that is being written says of its run, and who writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loopwright.inspection.watch import Watcher, writers_of
from loopwright.records import Record, Store
from loopwright.records.follow import Follower


def record(trial: int, seconds: float | None = 1e-3, **fields: object) -> Record:
    given = {
        "task": '["t",[8],"llvm"]', "op": "t", "args": [8], "target": {"kind": "llvm"},
        "config": {"tile": [-1, trial]}, "times": (seconds,) if seconds else (),
        "trial": trial, "run": "r1", "ts": 1000.0 + trial,
    }  # fmt: skip
    if seconds is None:
        given["error"] = {"kind": "COMPILE", "text": "no\nway"}
    return Record(**{**given, **fields})  # type: ignore[arg-type]


class Watched:
    """A log with somebody who watches it."""

    def __init__(self, path: Path) -> None:
        self.store = Store(path)
        self.follower, self.watcher = Follower(path), Watcher(path)

    def after(self, *records: Record, now: float = 2000.0):
        for one in records:
            self.store.append(one)
        self.watcher.take(self.follower.look())
        return self.watcher.status(now)


@pytest.fixture
def watched(tmp_path: Path):
    watched = Watched(tmp_path / "log.jsonl")
    yield watched
    watched.store.close()


def test_without_a_log(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "none.jsonl")
    watcher = Watcher(follower.path)
    watcher.take(follower.look())
    status = watcher.status()
    assert (status.exists, status.tasks, status.done) == (False, (), 0)


def test_the_best_so_far_is_that_of_the_one_rule(watched: Watched) -> None:
    status = watched.after(
        record(0, 8e-3),
        record(1, 5e-3),
        record(2, 1e-3, dropped=True),
        record(3, None),
        record(4, 2e-3, same_as="0123456789"),
    )
    (task,) = status.tasks
    assert (task.best_s, task.best_trial, task.default_s) == (5e-3, 1, 8e-3)
    assert (task.trials, task.failed) == (3, 1)  # one that is the same program is no trial
    assert status.failures == {"COMPILE": 1}
    assert status.event == "trial 4: 2 ms"
    wrong = {"kind": "WRONG_ANSWER", "text": "differs"}
    status = watched.after(record(1, None, error=wrong, phase="playoff", ts=3000.0))
    assert status.tasks[0].best_trial == 0
    assert status.event == "playoff of trial 1 failed: WRONG_ANSWER: differs"
    assert status.tasks[0].failed == 1  # a playoff is no trial


def test_no_record_of_autotvm_is_the_default(watched: Watched) -> None:
    status = watched.after(record(0, 8e-3, run=""), record(0, 5e-3, run="", config={"tile": 2}))
    assert (status.tasks[0].best_s, status.tasks[0].default_s) == (5e-3, None)


def test_pace_and_what_is_left(watched: Watched) -> None:
    watched.store.header({"run": "r1", "n_trial": 100, "resumed": 20, "ts": 1000.0})
    status = watched.after(*(record(trial, ts=1000.0 + 2 * trial) for trial in range(11)))
    assert (status.done, status.limit) == (31, 100)
    assert status.per_minute == pytest.approx(30)
    assert status.eta_s == pytest.approx(69 * 2)
    watched.store.header({"run": "r2", "timeout": 600.0, "n_trial": None, "ts": 1900.0})
    status = watched.after(now=2000.0)
    assert (status.limit, status.eta_s) == (None, 500.0)
    assert status.event == "a run began"


def test_the_pace_is_that_of_the_last_minutes(watched: Watched) -> None:
    slow = [record(t, ts=100.0 * t) for t in range(10)]
    status = watched.after(*slow, *(record(10 + t, ts=2000.0 + t) for t in range(121)))
    assert status.per_minute == pytest.approx(60)


def test_several_tasks_share_their_limit(watched: Watched) -> None:
    for n in range(3):
        task, run = f'["t",[{n}],"llvm"]', f"r{n}"
        watched.store.header({"run": run, "n_trial": 50, "tasks": 3, "resumed": 1, "ts": 1000.0})
        status = watched.after(*(record(t, task=task, args=[n], run=run) for t in range(n + 1)))
    assert (status.done, status.limit) == (3 + 6, 50)
    assert [task.trials for task in status.tasks] == [1, 2, 3]
    assert status.latest == 2


def test_a_log_that_was_cut_is_forgotten(watched: Watched) -> None:
    assert watched.after(*map(record, range(5))).records == 5
    os.truncate(watched.follower.path, 0)
    status = watched.after(record(7))
    assert (status.records, status.tasks[0].best_trial) == (1, 7)
    watched.follower.path.unlink()
    assert watched.after().exists is False


def test_headers_of_anything(watched: Watched) -> None:
    watched.store.header({"run": 3, "n_trial": "many", "timeout": True, "tasks": -1, "ts": None})
    status = watched.after(record(0))
    assert (status.done, status.limit, status.eta_s) == (0, None, None)


def test_lines_that_are_not_understood_are_counted(watched: Watched) -> None:
    with open(watched.follower.path, "ab") as file:
        file.write(b"\x89PNG\n{\n")
    assert watched.after().skipped == 2


def test_who_writes_a_log(tmp_path: Path) -> None:
    if not Path("/proc/self/fdinfo").exists():
        pytest.skip("this system does not show open files")
    path = tmp_path / "log.jsonl"
    with Store(path):
        assert writers_of(path).pids == (os.getpid(),)
    with open(path):
        assert writers_of(path).pids == ()  # a reader is no writer
    assert writers_of(tmp_path / "none").known is False


def fake_process(proc: Path, pid: int, file: Path, flags: str) -> None:
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "fdinfo").mkdir()
    (proc / str(pid) / "fd" / "4").symlink_to(file)
    (proc / str(pid) / "fdinfo" / "4").write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t21\n")


def test_processes_of_a_system(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.touch()
    proc = tmp_path / "proc"
    fake_process(proc, 30, log, "02102002")
    fake_process(proc, 7, log, "0100001")
    fake_process(proc, 8, log, "0100000")
    fake_process(proc, 9, tmp_path / "gone", "02")
    (proc / "10").mkdir()
    (proc / "cpuinfo").touch()
    assert writers_of(log, proc) == ((7, 30), True, False)
    assert writers_of(log, tmp_path / "none") == ((), False, False)
