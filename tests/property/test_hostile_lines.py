"""No line of a log raises anything: it is a record, or it is counted."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopwright import autotvm, ops, records
from loopwright.cli import main
from loopwright.errors import RecordError
from loopwright.history.rebuilding import rebuild
from loopwright.measure import LocalRunner, measure_option
from loopwright.records import Checked, Conditions, Log, Store
from loopwright.task import apply_history_best, create_task
from loopwright.testing.tuner_contract import FakeMeasurer, bowl
from loopwright.tuner import RandomTuner, learn, log_to_file
from loopwright.tuner.run.journal import LogJournal
from tests.property.hostile_lines import hostile_line, of_all_kinds

WORKLOAD = ("matmul", "M=16", "N=16", "K=16", "--threads", "1")
OF_ONE_TASK = ("--task", "[16,16,16,")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def task():
    return create_task(
        ops.WORKLOADS["matmul"].template,
        (16, 16, 16, False, False, "float32"),
        "llvm -num-threads=1",
    )


class Good(list):
    """Good lines of all kinds; a failing example need not show them."""

    def __repr__(self):
        return f"{len(self)} lines"


@pytest.fixture(scope="module")
def lines(task, tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "log.jsonl"
    steady = measure_option(runner=LocalRunner(racing=False))
    RandomTuner(task).tune(n_trial=3, callbacks=[log_to_file(path)], measure_option=steady)
    written = path.read_text().splitlines()
    one = records.load(path).records[0]
    wrong = replace(one, times=(), error={"kind": "WRONG_ANSWER", "text": "off"}, code="")
    verdict = records.Verdict(records.Outcome.FASTER, 0.1, 0.01, 20, "d").to_json()
    more = [wrong, replace(one, phase="playoff", verdict=verdict, checked=Checked.YES)]
    more += [replace(one, build="b0"), replace(one, task="t", dag="x")]
    return Good(of_all_kinds(written, more))


def use(log: Log, task) -> None:
    """All that is asked of a log in one process."""
    taken = [*log.records, *(r for r in log if r.id)]
    now = Conditions(task.alias, task.config_space.space_hash, "b", "h", 1, task.target.canonical)
    assert all(r.candidate and r.to_line() and len(r.hardware) >= 0 for r in taken)
    assert len(records.ranked(log)) <= len(log)
    assert len(records.kept(log)) <= len(log)
    assert records.best(log) is None or records.best(log).usable
    assert len(records.by_task(records.distill(log))) <= len(log)
    for record in log:
        assert isinstance(records.reuse_of(record, now), records.Reuse)
        assert records.threads(record.target, record.env) >= 0
        assert all(0 < t < float("inf") for t in record.times)
    assert records.by_code(log, now).keys() <= {r.code for r in log}
    assert "\n" not in log.complaint()


def rebuilt(log: Log) -> None:
    for record in log:
        try:
            rebuild(log, record)
        except RecordError as exc:
            assert "\n" not in str(exc)  # noqa: PT017


@given(source=st.randoms(use_true_random=False), other=st.lists(json_values, max_size=2))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_line_is_a_record_or_counted(lines, task, tmp_path, source, other):
    written = [lines[0].encode(), *(hostile_line(source, lines) for _ in range(15))]
    written += [repr(value).encode("utf-8", "surrogatepass") for value in other]
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join([*written, lines[-1].encode()]))
    log = records.load(path)
    blank = sum(not line.strip() or line.strip().startswith(b"#") for line in written)
    dags = sum(map(len, log.dags.values()))
    pieces = 1 + sum(1 + line.count(b"\n") for line in written)
    assert len(log) + len(log.headers) + dags + len(log.skipped) + blank == pieces
    assert log.records[-1].to_line() == lines[-1]
    use(log, task)
    rebuilt(log)
    LogJournal(task, str(path), "run").close()
    apply_history_best(log).explain(task)
    records.pick([path], tmp_path / "best.jsonl")
    use(records.load(tmp_path / "best.jsonl"), task)


@pytest.fixture(scope="module")
def hostile_log(lines, tmp_path_factory):
    source = random.Random(5)
    path = tmp_path_factory.mktemp("hostile") / "log.jsonl"
    written = [hostile_line(source, lines) for _ in range(400)]
    path.write_bytes(b"\n".join([*written, *(line.encode() for line in lines)]))
    return path


def test_of_hostile_lines_many_are_read_and_many_refused(hostile_log):
    log = records.load(hostile_log)
    assert len(log.records) > 40
    assert len(log.skipped) > 150


@pytest.mark.parametrize(
    "verb",
    [
        ("records", "list"),
        ("records", "list", "--sort", "time"),
        ("records", "best", "-k", "3"),
        ("records", "show", "best"),
        ("records", "show", "best", *OF_ONE_TASK),
        ("records", "show", "best", "--ir", *OF_ONE_TASK),
        ("records", "top", "--json"),
        ("records", "compare", "best", "default", *OF_ONE_TASK),
        ("records", "curve", *OF_ONE_TASK),
        ("records", "errors"),
        ("records", "importance", *OF_ONE_TASK),
        ("records", "validate"),
        ("records", "export", "best"),
        ("records", "pick", "-o", "picked.jsonl"),
        ("records", "distill", "-o", "distilled.jsonl"),
        ("records", "merge", "-o", "merged.jsonl"),
        ("records", "split", "-o", "tasks"),
        ("explain", *WORKLOAD, "--history"),
        ("lower", *WORKLOAD, "--history"),
        ("build", *WORKLOAD, "-o", "k.o", "--history"),
        ("bench", *WORKLOAD, "--history"),
        ("tune", *WORKLOAD, "--trials", "5", "--log"),
    ],
    ids=" ".join,
)
def test_every_verb_takes_it(hostile_log, verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    log = tmp_path / "log.jsonl"
    log.write_bytes(hostile_log.read_bytes())
    argv = [*verb[:2], str(log), *verb[2:]] if verb[0] == "records" else [*verb, str(log)]
    code = main(argv)
    out, err = capsys.readouterr()
    # 2 where several tasks are in question and none is named.
    assert code in ((0, 1, 2) if verb[0] == "records" else (0, 1)), err
    assert "Usage:" not in err
    assert "no such option" not in err.lower()
    assert "internal error" not in err
    assert "Traceback" not in out + err
    # Neither control codes nor marks that turn the direction of writing around.
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out + err)


def test_text_of_a_log_is_no_markup(tmp_path, capsys):
    task = records.task_key("[red]x[/]", ["[bold]\\"], "llvm")
    one = records.Record(task, "[red]x[/]", ["[bold]\\"], {"kind": "llvm"}, {"[b]": "[i]"}, (1.0,))
    with Store(tmp_path / "log.jsonl") as store:
        store.append(one)
    assert main(["records", "list", str(tmp_path / "log.jsonl")]) == 0
    out = capsys.readouterr().out
    assert "[red]x[/]([bold]\\)" in out
    assert '[b]="[i]"' in out


def test_a_tuner_and_scripts_of_autotvm_take_it(hostile_log, task, tmp_path):
    log = records.load(hostile_log)
    assert list(autotvm.record.load_from_file(hostile_log))
    assert learn(task, log, "knob") is not None
    path = tmp_path / "log.jsonl"
    path.write_bytes(hostile_log.read_bytes())
    tuner = RandomTuner(task)
    tuner.load_history(log)
    tuner.tune(n_trial=20, measure_option=FakeMeasurer(bowl), callbacks=[log_to_file(path)])
    assert apply_history_best(path).apply(task) is not None
