"""A record's kernel once more: in a process of its own, from the log alone."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import RecordError, UsageError
from loopwright.history.rebuilding import rebuild
from loopwright.inspection import EMITTED, Rerun, emit, rerun, text_of
from loopwright.inspection.rerun import _busy
from loopwright.lowering import lower
from loopwright.records import Checked, Log
from loopwright.schedule import replay
from tests.unit.inspection.logs import write


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Two records of one task."""
    task = lw.create_task("matmul", (32, 32, 16), "llvm -num-threads=1")
    return write(tmp_path_factory.mktemp("rerun") / "log.jsonl", [task], each=2)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else runs on the machine of the tests is not said."""
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))


def test_a_machine_that_is_busy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _busy() == []
    monkeypatch.setattr("os.getloadavg", lambda: (1000.0, 0.0, 0.0))
    assert _busy()[0].startswith("load: 1000.0 on ")


@pytest.fixture(scope="module")
def done(log: Log) -> Rerun:
    """The first record, whose time in the log (1 ms, once) was made up."""
    return rerun(log, trial=0)


def test_the_answer_is_checked_and_the_time_has_an_interval(done: Rerun) -> None:
    assert done.result.checked is Checked.YES
    assert len(done.result.times) == 20
    assert not [text for text in done.differences if not text.startswith("load")]
    assert done.flop == 2 * 32 * 32 * 16
    lines = dataclasses.replace(done, differences=()).lines()
    assert [line.split(":")[0] for line in lines] == [
        "record",
        "trial",
        "answer",
        "time",
        "recorded",
    ]
    assert "right, equal to the NumPy reference" in lines[2]
    assert " per call (95 %: " in lines[3]
    assert lines[3].endswith("GFLOP/s")
    assert done.change is None  # of one sample nothing can be said
    assert done.to_json()["recorded_s"] == 1e-3


def test_what_is_recorded_is_compared_in_words(done: Rerun) -> None:
    times = tuple(1e-3 * (1 + k % 5 / 1000) for k in range(20))
    steady = dataclasses.replace(done, result=dataclasses.replace(done.result, times=times))

    def said(**fields: object) -> str:
        record = dataclasses.replace(done.record, **fields)
        return dataclasses.replace(steady, record=record).lines()[4]

    assert said(times=times) == (
        "recorded: 1.002 ms; now same within the noise (0.0 % slower +- 0.1 %)"
    )
    assert "now 66.7 % slower +- " in said(times=tuple(t / 3 for t in times))
    assert "now 200.0 % faster +- " in said(times=tuple(t * 3 for t in times))
    assert "in one run, after which it was dropped" in said(dropped=True)
    error = {"kind": "RUN_TIMEOUT", "text": "too long"}
    assert said(times=(), error=error) == "recorded: it failed: RUN_TIMEOUT: too long"
    assert said(times=()) == "recorded: no time"


def test_what_differs_from_then_is_said(
    log: Log, done: Rerun, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["loopwright.inspection.rerun"]  # a function has the same name
    monkeypatch.setattr(module, "_measured", lambda *_: done.result)
    other = dataclasses.replace(
        log.records[0], build="0" * 16, env={"cpu": "Elbrus", "cores": 1, "isa": ["x"]}
    )
    found = rerun(log, other)
    assert "CPU: Elbrus in the record" in found.differences[0]
    assert any(text.startswith("compiler: ") for text in found.differences)


def test_an_unknown_template_is_compared_with_the_naive_schedule(log: Log) -> None:
    done = rerun(log, dataclasses.replace(log.records[1], op="of another program"))
    assert "equal to the naive schedule" in done.lines()[2]


def test_a_kernel_that_fails_says_so(log: Log) -> None:
    record = log.records[0]
    s = replay(rebuild(log, record).schedule.dag, [])
    out = s.tensors[-1]
    s[out].bind(s[out].op.axis[0], te.thread_axis("threadIdx.x"))  # which a CPU has not
    done = rerun(log, dataclasses.replace(record, trace=s.trace_json()))
    assert done.result.error is not None
    assert done.lines()[2].startswith("answer:   none, it failed: ")
    assert done.lines()[3] == "time:     none"
    assert done.to_json()["error"]


def test_what_is_no_kernel_is_refused(log: Log) -> None:
    broken = dataclasses.replace(log.records[0], trace=[["nonsense", 1]])
    with pytest.raises(RecordError, match="cannot be rebuilt: trace: unknown primitive"):
        rerun(log, broken)
    with pytest.raises(UsageError, match="timeout"):
        rerun(log, log.records[0], timeout=0.0)


def test_texts_are_those_of_the_record(log: Log) -> None:
    rebuilt = rebuild(log, log.records[1])
    assert text_of(log, None, "nest", trial=1) == str(lower(rebuilt.schedule, rebuilt.args))
    texts = {kind: text_of(log, log.records[1], kind) for kind in EMITTED}
    assert "define" in texts["llvm"]
    assert "#include" in texts["c"]
    assert ".globl" in texts["asm"]
    assert "\t" not in texts["asm"]
    with pytest.raises(UsageError, match=r"no text 'lllvm' of a kernel .did you mean 'llvm'"):
        text_of(log, "best", "lllvm")


def test_texts_of_another_kind_are_for_the_same_cpu() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B.op)
    s[B].vectorize(s[B].op.axis[0])
    narrow = lw.Target("c -mcpu=x86-64-v3")
    assert '"target-cpu"="x86-64-v3"' in emit(s, [A, B], narrow, "llvm") or "<8 x float>" in emit(
        s, [A, B], narrow, "llvm"
    )
    assert "#include" in emit(s, [A, B], lw.Target("interp"), "c")
    with pytest.raises(UsageError, match="asm"):
        emit(s, [A, B], lw.Target("interp"), "asm")


def test_a_log_on_disk_is_read(log: Log, tmp_path: Path) -> None:
    assert text_of(str(log.path), log.records[0].id, "nest") == text_of(log, log.records[0], "nest")
