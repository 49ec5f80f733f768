"""A log is appended to where it begins as one, and no other file is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import loopwright as lw
from loopwright import auto_scheduler, autotvm
from loopwright.errors import RecordError
from loopwright.records import Store, load
from loopwright.records.line import BEGINNING, BOM, begins_log
from tests.unit.records.test_store import make

RECORD = make().to_line().encode() + b"\n"
HEADER = b'{"v":1,"header":{"run":"a","seed":0},"sum":"00000000"}\n'
AUTOTVM = (
    b'{"input": ["llvm", "m", [4], {}], "config": {"index": 1, "code_hash": null, "entity": '
    b'[["t", "ot", 1]]}, "result": [[1.0], 0, 1.0, 1.0], "version": 0.2, "tvm_version": "0.8"}\n'
)
ANSOR = b'{"i": [["[\\"x\\"]", "llvm"], [[], []]], "r": [[1.0], 0, 1.0, 1], "v": "v0.6"}\n'
OURS = [
    RECORD,
    RECORD[:-1],
    AUTOTVM,
    ANSOR,
    BOM + RECORD,
    b"\n \r\n" + RECORD,
    b"# of the night\n\n" + RECORD,
    b"\0" * 700 + b"\n" + RECORD,
    RECORD[:99] + b"\0" * 500,
    HEADER,  # whose checksum does not fit
    b'{"v": 99}\n',  # of a newer version
    b'{"v":1,"expression":{"dag":' + b"[1," * BEGINNING,  # longer than what is looked at
    b"\n\n",
    b"\0\0\0",
]
FOREIGN = [
    b"x = 1\n",
    b"#!/bin/sh\nrm -rf build\n",
    b"# only remarks\n",
    b"\x08\x08\x12\x07pytorch",
    b"\x89PNG\r\n\x1a\n",
    b'{\n  "v": 1\n}\n',
    b'{"v": 1}\n',
    b'{"v": 1, "records": []}\n',
    b'{"input": "a question", "output": "an answer"}\n',
    b'{"input": "a question", "result": "an answer"}\n',
    b'{"input": [1, 2], "result": [3]}\n',
    b'{"i": 1, "r": 2}\n',
    b'[{"v":1,"task":"t"}]\n',
    b"[1, 2]\n",
    b"v,task\n1,t\n",
    b"x = 1\n" + RECORD,
    b"\0" * BEGINNING + RECORD,
    b"\xff\xfe{\0",
]


@pytest.mark.parametrize("content", OURS, ids=lambda c: repr(c[:20]))
def test_a_log_goes_on(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    before = len(load(path).records)
    with Store(path) as store:
        store.append(make(5))
    assert path.read_bytes().startswith(content)
    assert [record.trial for record in load(path).records][before:] == [5]


@pytest.mark.parametrize("line", [RECORD, HEADER, AUTOTVM, ANSOR], ids=lambda c: repr(c[:12]))
def test_a_log_whose_first_line_was_cut_off_goes_on(line: bytes) -> None:
    for end in range(1, len(line)):
        for rest in (b"", b"\n", b"\n" + RECORD, b"\0\0", b"\0\0\n" + RECORD):
            assert begins_log(line[:end] + rest), (end, rest)


@pytest.mark.parametrize("content", FOREIGN, ids=lambda c: repr(c[:20]))
def test_another_file_stays(tmp_path: Path, content: bytes) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(content)
    link.symlink_to(path)
    for named in (path, link):
        with pytest.raises(RecordError, match=r"is no log .*; name another file") as caught:
            Store(named)
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_of_a_large_file_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.write(b"a disk")
        file.truncate(1 << 40)  # takes no room
    with pytest.raises(RecordError, match="is no log"):
        Store(path)


def test_a_file_that_takes_the_place_of_a_log_stays(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Store(path) as store:
        store.append(make())
        path.unlink()
        path.write_text("x = 1\n")
        with pytest.raises(RecordError, match="is no log"):
            store.append(make(1))
    assert path.read_text() == "x = 1\n"


@lw.auto_scheduler.register_workload
def _doubled(n: int) -> list[lw.te.Tensor]:
    A = lw.te.placeholder((n,), name="A")
    return [A, lw.te.compute((n,), lambda i: A[i] * 2, name="B")]


def _search(path: str) -> None:
    task = auto_scheduler.SearchTask(func=_doubled, args=(64,), target="llvm")
    task.tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=2, measure_callbacks=[auto_scheduler.RecordToFile(path)]
        )
    )


def _graph(path: str) -> None:
    module = lw.graph.IRModule.from_expr(lw.graph.op.nn.softmax(lw.graph.var("x", (4, 64))))
    lw.tune(module, "llvm", log=path, trials=2)


def _template(path: str) -> None:
    task = lw.create_task("matmul", (8, 8, 8), "llvm")
    option = autotvm.measure_option(autotvm.LocalBuilder(), autotvm.LocalRunner())
    autotvm.tuner.RandomTuner(task).tune(
        2, measure_option=option, callbacks=[autotvm.callback.log_to_file(path)]
    )


def _save(path: str) -> None:
    auto_scheduler.XGBModel().save(path)


@pytest.mark.parametrize(
    "tune",
    [
        lambda path: lw.auto_schedule(_doubled(64), "llvm", log=path, n_trial=2),
        _graph,
        _template,
        _search,
        _save,
        lambda path: auto_scheduler.save_records(path, [], []),
    ],
    ids=["auto_schedule", "tune", "log_to_file", "RecordToFile", "XGBModel.save", "save_records"],
)
def test_every_way_to_name_a_log_refuses_it(tmp_path: Path, tune: Callable[[str], object]) -> None:
    path = tmp_path / "keep.py"
    path.write_text("x = 1\n")
    with pytest.raises(lw.LoopwrightError, match=r"keep\.py.*no(t a)? log"):
        tune(os.fspath(path))
    assert path.read_text() == "x = 1\n"
    assert os.listdir(tmp_path) == ["keep.py"]
