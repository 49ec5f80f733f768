"""Appending: whole lines under kill -9, several writers, torn tails, full disks."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from loopwright.errors import RecordError
from loopwright.records import Record, Store, load

ROOT = Path(__file__).parents[3]


def make(trial=0, **changes):
    fields = {
        "task": "t",
        "op": "t",
        "args": [],
        "target": {"kind": "llvm"},
        "config": {"a": trial},
        "times": (1.0,),
        "trial": trial,
    }
    return Record(**(fields | changes))


WRITER = """
import sys
from loopwright.records import Record, Store
store = Store(sys.argv[1])
print("ready", flush=True)
for trial in range(int(sys.argv[2])):
    store.append(Record(task="t", op=sys.argv[3], args=[], target={"kind": "llvm"},
                        config={"a": "x" * 3000}, times=(1.0,), trial=trial))
"""


def start(path, count, name):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(count), name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_append_header_and_load(tmp_path):
    path = tmp_path / "log.jsonl"
    with Store(path) as store:
        store.header({"run": "r1", "seed": 0})
        store.append(make(0))
        store.append(make(1))
        store.sync()
    log = load(path)
    assert log.headers == [{"run": "r1", "seed": 0}]
    assert [record.trial for record in log] == [0, 1]
    assert log.skipped == []
    assert path.read_bytes().count(b"\n") == 3


def test_kill_9_leaves_a_readable_log(tmp_path):
    path = tmp_path / "log.jsonl"
    for _ in range(3):
        process = start(path, 10**9, "victim")
        assert process.stdout.readline() == b"ready\n"
        before = path.stat().st_size
        while path.stat().st_size < before + 200_000:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
    log = load(path)
    # The kernel may stop a write that crosses a page: at most the one line that was being written.
    assert len(log.skipped) <= 3
    assert {reason for _, reason in log.skipped} <= {"torn line"}
    # Three runs, each of which counts from 0 without a gap.
    starts = [at for at, record in enumerate(log) if record.trial == 0]
    assert len(starts) == 3
    for begin, end in zip(starts, [*starts[1:], len(log)], strict=True):
        assert [record.trial for record in log.records[begin:end]] == list(range(end - begin))


def test_several_processes_write_whole_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    writers = [start(path, 200, f"w{number}") for number in range(2)]
    for writer in writers:
        _, err = writer.communicate()
        assert writer.returncode == 0, err
    log = load(path)
    assert log.skipped == []
    for number in range(2):
        mine = [record.trial for record in log if record.op == f"w{number}"]
        assert mine == list(range(200))


def test_several_threads_write_whole_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    store = Store(path)

    def work(base):
        for trial in range(100):
            store.append(make(base + trial))

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.close()
    found = sorted(record.trial for record in load(path))
    assert found == sorted(1000 * n + trial for n in range(4) for trial in range(100))


def test_a_torn_tail_spoils_one_line_only(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(make(0).to_line() + "\n" + make(1).to_line()[:40])
    with Store(path) as store:
        store.append(make(2))
    log = load(path)
    assert [record.trial for record in log] == [0, 2]
    assert log.skipped == [(2, "torn line")]


def test_a_full_disk_is_one_clear_line(tmp_path, monkeypatch):
    def full(fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = Store(tmp_path / "log.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(RecordError, match="the disk is full"):
            store.append(make())
    store.append(make())
    store.sync()
    store.close()
    assert len(load(store.path)) == 1


def test_what_is_no_regular_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    found = [("pipe", "a pipe"), ("link", "a pipe"), ("folder", "a directory")]
    for name, kind in [*found, (os.devnull, "a device")]:
        with pytest.raises(RecordError, match=f"it is {kind}.*; name a regular file") as caught:
            Store(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_link_to_a_file_is_a_log(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "log.jsonl")
    with Store(tmp_path / "link") as store:
        store.append(make())
    with Store(tmp_path / "link") as store:
        store.append(make(1))
    assert len(load(tmp_path / "log.jsonl")) == 2


LIMITED = """
import resource, signal, sys
from loopwright.errors import RecordError
from loopwright.records import Record, Store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
record = lambda n: Record("t", "t", [], {}, {"a": n}, (1.0,), trial=n)
store = Store(sys.argv[1])
store.append(record(0))
size = len(record(0).to_line()) + 1
resource.setrlimit(resource.RLIMIT_FSIZE, (size + size // 2, resource.RLIM_INFINITY))
try:
    store.append(record(1))
except RecordError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.append(record(2))
"""


def test_a_write_that_stops_half_way_leaves_no_torn_line(tmp_path):
    """The kernel itself cuts the write in the middle of the line: a short write, then an error."""
    path = tmp_path / "log.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "cannot write the log" in done.stdout
    assert len(done.stdout.splitlines()) == 1
    assert [record.trial for record in load(path)] == [0, 2]
    assert load(path).skipped == []


def test_short_writes_are_completed(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:7])))
    path = tmp_path / "log.jsonl"
    with Store(path) as store:
        store.append(make(5))
    monkeypatch.undo()
    assert path.read_text() == make(5).to_line() + "\n"


def test_a_stranger_that_wrote_in_between_keeps_its_line(tmp_path, monkeypatch):
    real = os.write
    path = tmp_path / "log.jsonl"
    stranger = json.dumps({"v": 1, "header": {"by": "stranger"}}) + "\n"
    calls = []

    def write(fd, data):
        calls.append(fd)
        if len(calls) == 1:
            done = real(fd, bytes(data[:7]))
            with open(path, "a") as other:  # takes no lock
                other.write("\n" + stranger)
            return done
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return real(fd, data)

    store = Store(path)
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(RecordError, match="disk is full"):
        store.append(make(1))
    monkeypatch.undo()
    store.append(make(2))
    log = load(path)
    assert log.headers == [{"by": "stranger"}]
    assert [record.trial for record in log] == [2]


def test_paths_that_cannot_be_written(tmp_path):
    with pytest.raises(RecordError, match="is a directory"):
        Store(tmp_path)
    with pytest.raises(RecordError, match="directory does not exist"):
        Store(tmp_path / "none" / "log.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="not a directory"):
        Store(tmp_path / "file" / "log.jsonl")


def test_permission_denied(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("")
    path.chmod(stat.S_IRUSR)
    if os.access(path, os.W_OK):
        pytest.skip("this user may write everything")
    with pytest.raises(RecordError, match="permission denied"):
        Store(path)


def test_a_log_removed_while_open_is_made_again(tmp_path):
    path = tmp_path / "log.jsonl"
    store = Store(path)
    store.append(make(0))
    path.unlink()
    store.append(make(1))
    assert [record.trial for record in load(path)] == [1]
    store.close()
    with pytest.raises(RecordError, match="was closed"):
        store.append(make(2))


def test_a_record_that_json_cannot_say_leaves_the_log_alone(tmp_path):
    path = tmp_path / "log.jsonl"
    store = Store(path)
    with pytest.raises(RecordError):
        store.append(make(config={"a": {1, 2}}))
    store.append(make(1))
    assert len(load(path)) == 1
