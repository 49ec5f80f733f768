"""The contract of stores of records, as a test class to subclass.

A store is opened on a path, takes records one at a time, and can be read again, also by another
process and after a writer was stopped in the middle. A test module derives from `StoreContract`::

    class TestFileStore(StoreContract):
        open = staticmethod(Store)
        read = staticmethod(load)

The class must be importable by its name: one test writes from several processes.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Protocol

import pytest

from loopwright.errors import RecordError
from loopwright.records import Record


class StoreLike(Protocol):
    """A store that is open for writing."""

    def append(self, record: Record) -> None:
        """Add a record; when it returns, another process can read it."""

    def header(self, data: Mapping[str, object]) -> None:
        """Add a header, which opens a run."""

    def sync(self) -> None:
        """Make everything safe against a loss of power."""

    def close(self) -> None:
        """Refuse further records."""


class LogLike(Protocol):
    headers: list[dict[str, object]]
    records: list[Record]
    skipped: list[object]


def record(trial: int, op: str = "matmul") -> Record:
    return Record(
        task="contract",
        op=op,
        args=[8],
        target={"kind": "llvm"},
        config={"tile": trial},
        times=(1e-3, 2e-3),
        trial=trial,
        trace=[["split", 1, "a0", 4, None]],
    )


_WRITER = """
import sys
from pathlib import Path
from loopwright.testing import store_contract
store_contract.write_many(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
"""


def write_many(contract: str, path: Path, op: str, count: int) -> None:
    """Append ``count`` records in another process, for a subclass as ``module:Class``."""
    module, _, name = contract.partition(":")
    store = getattr(importlib.import_module(module), name).open(path)
    for trial in range(count):
        store.append(record(trial, op))
    store.close()


class StoreContract:
    """Subclass, and set ``open`` and ``read`` to the functions under test."""

    open: ClassVar[Callable[[Path], StoreLike]]
    read: ClassVar[Callable[[Path], LogLike]]

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "log.jsonl"

    def tear(self, path: Path) -> None:
        """Cut off the end of the last write, as the death of a writer may do."""
        path.write_bytes(path.read_bytes()[:-20])

    def write(self, path: Path, *trials: int) -> None:
        store = type(self).open(path)
        for trial in trials:
            store.append(record(trial))
        store.close()

    def trials(self, path: Path) -> list[int | None]:
        return [r.trial for r in type(self).read(path).records]

    def test_records_are_read_back_as_they_were(self, path: Path) -> None:
        store = type(self).open(path)
        store.header({"run": "r1", "seed": 3})
        written = [record(n) for n in range(5)]
        for r in written:
            store.append(r)
        store.sync()
        store.close()
        log = type(self).read(path)
        assert log.headers == [{"run": "r1", "seed": 3}]
        assert [r.to_line() for r in log.records] == [r.to_line() for r in written]
        assert not log.skipped

    def test_a_record_can_be_read_while_the_store_is_open(self, path: Path) -> None:
        store = type(self).open(path)
        store.append(record(0))
        assert self.trials(path) == [0]
        store.append(record(1))
        assert self.trials(path) == [0, 1]
        store.close()

    def test_opening_again_keeps_what_is_there(self, path: Path) -> None:
        for n in range(3):
            self.write(path, n)
        assert self.trials(path) == [0, 1, 2]

    def test_a_torn_end_costs_one_record(self, path: Path) -> None:
        self.write(path, 0, 1)
        self.tear(path)
        assert self.trials(path) == [0]
        self.write(path, 2)
        log = type(self).read(path)
        assert [r.trial for r in log.records] == [0, 2]
        assert len(log.skipped) == 1

    def test_threads_may_write_at_once(self, path: Path) -> None:
        store = type(self).open(path)

        def work(first: int) -> None:
            for n in range(first, first + 50):
                store.append(record(n))

        threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.close()
        assert not type(self).read(path).skipped
        expected = {100 * n + k for n in range(4) for k in range(50)}
        assert set(self.trials(path)) == expected

    def test_processes_may_write_at_once(self, path: Path) -> None:
        contract = f"{type(self).__module__}:{type(self).__qualname__}"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-c", _WRITER, contract, str(path)]
        writers = [
            subprocess.Popen(
                [*command, f"writer{n}", "100"], env=environment, stderr=subprocess.PIPE, text=True
            )
            for n in range(3)
        ]
        for writer in writers:
            _, errors = writer.communicate(timeout=60)
            assert writer.returncode == 0, errors
        log = type(self).read(path)
        assert not log.skipped
        for n in range(3):
            own = [r.trial for r in log.records if r.op == f"writer{n}"]
            assert own == list(range(100))

    def test_a_closed_store_refuses_records(self, path: Path) -> None:
        store = type(self).open(path)
        store.append(record(0))
        store.close()
        with pytest.raises(RecordError):
            store.append(record(1))
        assert self.trials(path) == [0]

    def test_a_place_that_cannot_be_written_is_refused_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(RecordError) as refusal:
            type(self).open(tmp_path / "no such folder" / "log.jsonl")
        assert "no such folder" in str(refusal.value)
        assert len(str(refusal.value).splitlines()) == 1
