"""An exported kernel is a Python file that makes the record's program, and gives right answers."""

from __future__ import annotations

import ast
import dataclasses
import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import RecordError, UsageError
from loopwright.inspection import export
from loopwright.ops import WORKLOADS
from loopwright.records import Log
from loopwright.task import Task, template
from tests.unit.inspection.logs import write

#: Every operator, with dtypes that are not computed in, and sizes that do not divide.
BY_DAY = [
    ("matmul", (16, 32, 8)),
    ("matmul", (13, 37, 11, True, True, "bfloat16")),
    ("batch_matmul", (2, 9, 17, 5, False, False, "float16")),
    ("matmul_int8", (16, 32, 16)),
    ("dense", (5, 37, 11)),
    ("conv2d", (1, 3, 8, 9, 5, 3, 3, 1, 1)),
    ("depthwise_conv2d", (1, 3, 8, 9, 3, 3, 1, 1)),
    ("pool2d", (1, 3, 12, 10, 3, 3, 2, 1, "avg")),
    ("reduce", (5, 37)),
    ("reduce", (40, 30, "max", 0)),
    ("softmax", (5, 37)),
    ("layer_norm", (5, 37)),
    ("elementwise", (9, 37, "exp,scale,sigmoid,mul,abs,sqrt,neg,tanh")),
    ("transpose", (33, 17, "int8")),
]
#: The same operators with other dtypes, layouts, groups and windows.
BY_NIGHT = [
    ("matmul", (9, 16, 8, False, True, "float64")),
    ("dense", (5, 16, 8, False, True, "int8", "KN")),
    ("conv2d", (1, 6, 8, 8, 16, 3, 3, 1, 1, "float32", 1, 2, "NHWC")),
    ("pool2d", (1, 2, 9, 9, 2, 3, (2, 3), 0, "max", False, "int32", "NCHW")),
]
#: Runs exported kernels in one process, as many processes would start slowly.
CHILD = """
import json, runpy, sys
for path in sys.argv[1:]:
    kernel = runpy.run_path(path)
    s, args = kernel["scheduled"]()
    print(json.dumps([kernel["check"](kernel["build"]()), s.dag.hash, s.trace_json()]), flush=True)
"""


@template("test/export/argmax")
def argmax(n):
    """Two outputs of one stage, and a layout."""
    A = te.placeholder((n, n), "float32", name="A")
    k = te.reduce_axis((0, n), name="k")
    i, v = te.compute((n,), lambda x: te.argmax((k.var, A[x, k]), axis=k), name="M")
    B = te.compute((n, n), lambda x, y: A[y, x] + v[x], name="B")
    C = te.compute((n, n), lambda x, y: B[x, y] * 2.0, name="C")
    s = te.create_schedule([i.op, C.op])
    s[B].transform_layout(lambda x, y: (y, x))
    cfg = lw.get_config()
    cfg.define_split("t", s[C].op.axis[1], num_outputs=2)
    cfg["t"].apply(s, C, s[C].op.axis[1])
    return s, [A, i, v, C]


@template("test/export/gather")
def gather(n):
    """An input that is used as an index."""
    A = te.placeholder((n,), "float32", name="A")
    at = te.placeholder((2 * n,), "int32", name="at")
    B = te.compute((2 * n,), lambda i: A[at[i]] * 2.0, name="B")
    s = te.create_schedule(B.op)
    cfg = lw.get_config()
    cfg.define_split("t", s[B].op.axis[0], num_outputs=2)
    cfg["t"].apply(s, B, s[B].op.axis[0])
    return s, [at, A, B]


def branching() -> te.TensorIntrin:
    """An intrinsic that is right, and that no proof admits: data decide on a branch."""
    a = te.placeholder((4,), "float32", name="a")
    c = te.compute((4,), lambda i: a[i] + 1.0, name="c")

    def statements(ins, outs):
        ib = te.ir_builder()
        with ib.for_range(4, "i") as i:
            ib.emit(outs[0].store(i, ins[0][i] + 1.0))
            with ib.if_scope(ins[0][i] > 0.0):
                ib.emit(outs[0].store(i, ins[0][i] + 1.0))
        return ib.get()

    return te.decl_tensor_intrin(c.op, statements, name="add_one")


@template("test/export/declared")
def declared(n):
    """A nest that an intrinsic of this program does."""
    A = te.placeholder((n,), "float32", name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    _, inner = s[B].split(s[B].op.axis[0], 4)
    s[B].tensorize(inner, branching())
    lw.get_config().define_knob("k", [1])
    return s, [A, B]


def children(paths: list[Path]) -> list[list]:
    """What exported kernels say of themselves in a process of their own."""
    command = [sys.executable, "-c", CHILD, *map(str, paths)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.parametrize(
    "chosen",
    [BY_DAY, pytest.param(BY_NIGHT, marks=pytest.mark.slow)],
    ids=["each operator", "others of them"],
)
def test_every_operator_is_exported_so_that_it_is_right(
    chosen: list[tuple[str, tuple]], tmp_path: Path
) -> None:
    assert {name for name, _ in BY_DAY} == set(WORKLOADS), "each operator is tried"
    tasks = [lw.create_task(name, args, "llvm -num-threads=1") for name, args in chosen]
    tasks += [Task("test/export/argmax", (24,), "llvm"), Task("test/export/gather", (8,), "llvm")]
    log = write(tmp_path / "log.jsonl", tasks)
    paths = [tmp_path / f"kernel_{record.id}.py" for record in log]
    for record, path in zip(log, paths, strict=True):
        assert "json.loads(" not in export(log, record, path)
    for record, said in zip(log, children(paths), strict=True):
        assert said == [said[0], record.dag, record.trace]
        assert said[0].startswith("right: equal to the naive schedule")


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log of one record."""
    task = lw.create_task("matmul", (16, 32, 8), "llvm -num-threads=1")
    return write(tmp_path / "log.jsonl", [task])


class Done(NamedTuple):
    """What running a file gave."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a file in this process: a new one takes a second to start."""

    def here(path: Path, *args: str) -> Done:
        capsys.readouterr()
        code = runpy.run_path(str(path))["main"](args)
        return Done(code, *capsys.readouterr())

    return here


def test_a_file_that_is_run_says_whether_it_is_right_and_how_fast(log: Log, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    assert export(log.path, log.records[0].id[:4], path) == path.read_text()
    command = [sys.executable, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    right, time = done.stdout.splitlines()
    assert right.startswith("right: equal to the naive schedule")
    assert time.startswith("time:  ")
    assert time.endswith("; the log has 1 ms")


def test_a_file_takes_inputs_and_refuses_others(log: Log, tmp_path: Path, run: Run) -> None:
    path, data = tmp_path / "kernel.py", tmp_path / "data.npz"
    export(log, log.records[0], path)
    np.savez(data, A=np.ones((16, 8)), B=np.ones((8, 32)))
    assert run(path, "--inputs", str(data)).returncode == 0
    np.savez(data, A=np.ones((16, 8)))
    missing = run(path, "--inputs", str(data))
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: ")
    assert "'B" in missing.stderr
    np.savez(data, A=np.ones((3, 8)), B=np.ones((8, 32)))
    assert "A" in run(path, "--inputs", str(data)).stderr
    assert run(path, "--inputs", str(path)).stderr.startswith("error: ")


def test_a_file_that_computes_something_else_says_so(log: Log, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "kernel.py"
    text = export(log, log.records[0], path)
    path.write_text(text.replace("A[i, k] *", "A[i, k] * 2.0 *"))
    changed = run(path)
    assert changed.returncode == 1
    assert "makes another program" in changed.stderr
    assert "--as-data" in changed.stderr


def test_a_wrong_answer_is_found(log: Log, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "kernel.py"
    text = export(log, log.records[0], path)
    line = "        got = call(f, make_arrays(f, number, given))\n"
    assert line in text
    path.write_text(text.replace(line, f"{line}        got[-1][0] += 1\n"))
    wrong = run(path, "--no-check")
    assert wrong.returncode == 0
    wrong = run(path)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: wrong: C[0, ")


def test_a_file_prints_its_texts(log: Log, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "kernel.py"
    export(log, log.records[0], path)
    assert run(path, "--emit", "nest").stdout.startswith("def main(A: float32[16, 8]")
    assert "define" in run(path, "--emit", "llvm", "--target", "llvm").stdout
    assert json.loads(run(path, "--trace").stdout) == log.records[0].trace


def test_as_data_it_is_the_same_kernel(log: Log, tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    text = export(log, log.records[0], path, form="data")
    assert "stand here as data, since it was exported as data" in text
    ((said, dag, trace),) = children([path])
    assert said.startswith("right")
    assert (dag, trace) == (log.records[0].dag, log.records[0].trace)


def test_where_python_cannot_say_it_there_is_data(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "loopwright.te.dag.program_source", lambda *a: f"import\n\n{'(' * 300}\noutputs = []"
    )
    text = export(log, log.records[0], tmp_path / "kernel.py")
    assert "since Python cannot say it: " in text
    assert "TRACE = json.loads(" in text


def test_nothing_in_a_record_becomes_code(log: Log) -> None:
    evil = 'x\n"""\nimport os; os.abort()  # coding: utf-7\u202e\x1b[2J\ud800'
    record = dataclasses.replace(
        log.records[0],
        op=evil,
        args=[evil],
        run=evil,
        config={evil: evil},
        env={"cpu": evil, "loopwright": evil},
        check_reason=evil,
    )
    text = export(log, record)
    text.encode()
    assert all(line.isprintable() for line in text.splitlines())
    assert "coding" not in "".join(text.splitlines()[:2])
    plain = export(log, log.records[0])
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(plain))


def test_an_intrinsic_that_the_program_has_declared_is_vouched_for(tmp_path: Path) -> None:
    task = Task("test/export/declared", (16,), "llvm -num-threads=1")
    log = write(tmp_path / "log.jsonl", [task])
    path = tmp_path / "kernel.py"
    assert f'vouch_for(["{branching().digest}"])' in export(log, "best", path).replace("'", '"')
    ((said, _, trace),) = children([path])
    assert said.startswith("right")
    assert trace == log.records[0].trace


def test_what_cannot_be_exported_is_said_in_one_line(log: Log, tmp_path: Path) -> None:
    stranger = dataclasses.replace(log.records[0], dag="0123456789abcdef")
    with pytest.raises(RecordError, match="does not hold the expression"):
        export(log, stranger)
    failed = dataclasses.replace(
        stranger, dag="", times=(), error={"kind": "INSTANTIATION", "text": "no"}
    )
    with pytest.raises(RecordError, match="has no schedule, since it failed before: INSTANTIATION"):
        export(log, failed)
    with pytest.raises(lw.LoopwrightError, match="cannot write"):
        export(log, log.records[0], tmp_path / "no" / "kernel.py")
    with pytest.raises(UsageError, match="is the log itself"):
        export(log, log.records[0], log.path)
    with pytest.raises(UsageError, match="no form 'yaml'"):
        export(log, log.records[0], form="yaml")  # type: ignore[arg-type]


def test_a_failed_record_is_exported_with_its_failure(log: Log) -> None:
    error = {"kind": "WRONG_ANSWER", "text": "C[0] is 1"}
    record = dataclasses.replace(log.records[0], times=(), error=error)
    text = export(log, record)
    assert "none: it failed (WRONG_ANSWER: C[0] is 1)" in text
    assert "RECORDED_S = None" in text
