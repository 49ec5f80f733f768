"""A record is rebuilt from its log alone."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loopwright
from loopwright import records, te
from loopwright.errors import RecordError
from loopwright.history.rebuilding import rebuild
from loopwright.measure.candidate import Candidate, describe
from loopwright.records import Expression, Log, Record
from loopwright.task import Task, template

ROOT = Path(__file__).parents[3]


@template("test/rebuilt")
def rebuilt(n):
    """Arguments in another order than their operations."""
    A = te.placeholder((n, n), "float32", name="A")
    B = te.compute((n, n), lambda i, j: A[i, j] * 2 + A[j, i], name="B")
    s = te.create_schedule(B.op)
    cfg = loopwright.autotvm.get_config()
    cfg.define_split("t", s[B].op.axis[1], num_outputs=2)
    _, inner = cfg["t"].apply(s, B, s[B].op.axis[1])
    s[B].vectorize(inner)
    return s, [B, A]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A log of two records with their expression."""
    path = tmp_path_factory.mktemp("rebuild") / "log.jsonl"
    task = Task("test/rebuilt", (16,), "llvm")
    with records.Store(path) as store:
        for index in range(2):
            schedule, tensors = task.instantiate(index)
            ids = schedule.arg_ids(tensors)
            if not index:
                store.expression(describe(task, Candidate(schedule.dag, [], ids, "main"), 0))
            store.append(
                Record(
                    task.alias,
                    task.name,
                    list(task.args),
                    task.target.canonical,
                    task.config_space.get(index).values,
                    (1.0,),
                    dag=schedule.dag.hash,
                    trace=schedule.trace_json(),
                )
            )
    return records.load(path)


def test_the_program_is_that_of_the_template(written):
    task = Task("test/rebuilt", (16,), "llvm")
    for index, record in enumerate(written):
        made = rebuild(written, record)
        own, args = task.instantiate(index)
        assert str(loopwright.lower(made.schedule, made.args)) == str(loopwright.lower(own, args))
        assert made.target.canonical == task.target.canonical
    a = np.arange(256, dtype=np.float32).reshape(16, 16)
    b = np.empty_like(a)
    loopwright.build(made.schedule, made.args, made.target)(b, a)
    np.testing.assert_array_equal(b, a * 2 + a.T)


WRITER = """
import sys
from loopwright.records import Store, load
(expression,), = load(sys.argv[1]).dags.values()
with Store(sys.argv[2]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(100):
        store.expression(expression)
"""


def test_two_processes_that_write_one_expression_do_no_harm(written, tmp_path):
    # Each run writes the expression once, whatever another one, which began with it, has written.
    path = tmp_path / "log.jsonl"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    argv = [sys.executable, "-c", WRITER, str(written.path), str(path)]
    writers = [subprocess.Popen(argv, cwd=ROOT, **pipes) for _ in range(2)]
    assert [writer.stdout.readline() for writer in writers] == [b"ready\n"] * 2
    for writer in writers:
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    for writer in writers:
        _, err = writer.communicate()
        assert writer.returncode == 0, err
    with records.Store(path) as store:
        for record in written:
            store.append(record)
    log = records.load(path)
    assert log.skipped == []
    (copies,) = log.dags.values()
    (expression,) = written.dags[written.records[0].dag]
    assert [copy.to_line() for copy in copies] == [expression.to_line()] * 200
    own = rebuild(written, written.records[0])
    made = rebuild(log, log.records[0])
    assert str(loopwright.lower(made.schedule, made.args)) == str(
        loopwright.lower(own.schedule, own.args)
    )
    # A log that is made from it holds the line once.
    records.merge([path], tmp_path / "merged.jsonl")
    (once,) = records.load(tmp_path / "merged.jsonl").dags.values()
    assert [copy.to_line() for copy in once] == [expression.to_line()]


def changed(log, **fields):
    """The log with another expression under the same hash."""
    (expression,) = log.dags[log.records[0].dag]
    other = replace(expression, **fields)
    return Log(log.path, log.records, dags={expression.hash: [other]})


def other_dag():
    A = te.placeholder((16, 16), "float32", name="A")
    return te.create_schedule(te.compute((16, 16), lambda i, j: A[i, j] * 3, name="B").op).dag


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dag": other_dag().to_json()}, "another one"),
        ({"dag": {}}, "malformed"),
        ({"dag": {"v": 1, "ops": [[]], "outputs": [0]}}, "malformed"),
        ({"arg_ids": [0, 7]}, "no operation"),
        ({"arg_ids": ["x"]}, "cannot be rebuilt"),
        ({"passes": {"opt_level": "x"}}, "cannot be rebuilt"),
        ({"passes": {"shiny": 1}}, "cannot be rebuilt"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(written, fields, words):
    with pytest.raises(RecordError, match=words) as caught:
        rebuild(changed(written, **fields), written.records[0])
    assert "\n" not in str(caught.value)


def test_a_log_without_the_expression_says_so(written):
    bare = Log(written.path, written.records)
    with pytest.raises(RecordError, match="before logs kept them"):
        rebuild(bare, written.records[0])
    foreign = replace(written.records[0], dag="", trace=[])
    with pytest.raises(RecordError, match="AutoTVM keeps none"):
        rebuild(written, foreign)
    twisted = replace(written.records[0], trace=[["no such step", 0]])
    with pytest.raises(RecordError, match="cannot be rebuilt"):
        rebuild(written, twisted)


def test_a_log_names_no_program_to_be_run(written, tmp_path):
    one = written.records[0]
    evil = tmp_path / "gcc"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    twin = replace(written.dags[one.dag][0], passes={"opt_level": 1})
    log = Log(written.path, [], dags={one.dag: [*written.dags[one.dag], twin]})
    made = rebuild(log, replace(one, target={"kind": "c", "cc": str(evil)}))
    loopwright.build(made.schedule, made.args, made.target)
    assert not (tmp_path / "ran").exists()


def test_a_log_does_not_lift_the_limit_of_work(written):
    (one,) = written.dags[written.records[0].dag]
    config = {"tir.code_limit": 1 << 40, "unroll_max_step": 4}
    log = Log(written.path, [], dags={one.hash: [replace(one, passes={"config": config})]})
    made = rebuild(log, written.records[0])
    assert made.passes.config == {"unroll_max_step": 4}


def test_identity_tells_what_a_log_needs_a_line_for(written):
    (one,) = written.dags[written.records[0].dag]
    same = Expression.from_json({**vars(one), "inputs": {"a": 1}})
    assert same.identity == one.identity
    assert replace(one, passes={"opt_level": 1}).identity != one.identity


@pytest.mark.parametrize(
    "flags", ["-wrapper touch,pwned", "-fplugin=x.so", "-O2 -o /tmp/x", "@file", "-B. -g", "'"]
)
def test_a_log_passes_no_flag_that_makes_a_compiler_run_or_write_something(written, flags):
    record = written.records[0]
    target = {"kind": "c", "cflags": flags}
    with pytest.raises(RecordError, match="cannot be rebuilt"):
        rebuild(written, replace(record, target=target))


def test_a_log_passes_flags_that_optimise(written):
    target = {"kind": "c", "cflags": "-mtune=generic -g -fno-unroll-loops"}
    rebuilt = rebuild(written, replace(written.records[0], target=target))
    assert rebuilt.target.options["cflags"] == target["cflags"]
