"""No line of a log raises anything: it is a record, or it is counted."""

from __future__ import annotations

import contextlib
import json
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
from loopwright.measure import LocalBuilder, LocalRunner, measure_option
from loopwright.records import Checked, Conditions, Log, Store
from loopwright.records.line import sealed
from loopwright.task import apply_history_best, create_task
from loopwright.testing.tuner_contract import FakeMeasurer, bowl
from loopwright.tuner import RandomTuner, learn, log_to_file
from loopwright.tuner.run.journal import LogJournal
from tests.covering import examples
from tests.property.hostile_lines import changed, hostile_line, of_all_kinds

WORKLOAD = ("matmul", "M=16", "N=16", "K=16", "--threads", "1")
OF_ONE_TASK = ("--task", "[16,16,16,")
#: Lines of the log that verbs read.
HOSTILE = examples(120, 400)
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
    steady = measure_option(LocalBuilder(n_parallel=1), LocalRunner(racing=False))
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
    max_examples=examples(12),
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
    written = [hostile_line(source, lines) for _ in range(HOSTILE)]
    path.write_bytes(b"\n".join([*written, *(line.encode() for line in lines)]))
    return path


def test_of_hostile_lines_many_are_read_and_many_refused(hostile_log):
    log = records.load(hostile_log)
    assert len(log.records) > HOSTILE / 10
    assert len(log.skipped) > HOSTILE * 3 / 8


#: Verbs that read a log, and measure nothing.
VERBS = [
    ("records", "list"),
    ("records", "show", "best", "--ir", *OF_ONE_TASK),
    ("records", "compare", "best", "default", *OF_ONE_TASK),
    ("records", "validate"),
    ("records", "pick", "-o", "picked.jsonl"),
    ("lower", *WORKLOAD, "--history"),
    ("records", "list", "--sort", "time"),
    ("records", "list", "--json"),
    ("records", "best", "-k", "3"),
    ("records", "show", "best"),
    ("records", "show", "best", "--expr"),
    ("records", "show", "best", "--code", *OF_ONE_TASK),
    ("records", "show", "best", *OF_ONE_TASK),
    ("records", "top", "--json"),
    ("records", "curve", *OF_ONE_TASK),
    ("records", "errors"),
    ("records", "importance", *OF_ONE_TASK),
    ("records", "export", "best"),
    ("records", "distill", "-o", "distilled.jsonl"),
    ("records", "merge", "-o", "merged.jsonl"),
    ("records", "split", "-o", "tasks"),
    ("explain", *WORKLOAD, "--history"),
    ("build", *WORKLOAD, "-o", "k.o", "--history"),
]
#: Verbs that start processes for each candidate, which takes long.
TUNING = [
    ("tune", *WORKLOAD, "--trials", "5", "--log"),
    ("tune-tasks", "tasks.txt", "--threads", "1", "--trials", "5", "--log"),
]
MEASURING = [
    ("bench", *WORKLOAD, "--history"),
    *(pytest.param(verb, marks=pytest.mark.slow) for verb in TUNING),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which verbs run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "tasks.txt").write_text("matmul M=16 N=16 K=16\n")
    return tmp_path


def complaint(verb, log, capsys):
    """What a verb does wrong with a log; empty for nothing."""
    argv = [*verb[:2], str(log), *verb[2:]] if verb[0] == "records" else [*verb, str(log)]
    code = main(argv)
    out, err = capsys.readouterr()
    # Several tasks are in question and none is named.
    unclear = code == 2 and verb[0] == "records" and "; name one with --" in err
    if code not in (0, 1) and not unclear:
        return f"{code}: {err}"
    wrong = ("Usage:", "no such option", "No such option", "internal error", "Traceback")
    said = [word for word in wrong if word in out + err]
    # Neither control codes nor marks that turn the direction of writing around.
    said += re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out + err)
    return f"{said}: {out[-300:]}{err[-300:]}" if said else ""


@pytest.mark.parametrize("verb", [*VERBS, *MEASURING], ids=" ".join)
def test_every_verb_takes_it(hostile_log, verb, folder, capsys):
    log = folder / "log.jsonl"
    log.write_bytes(hostile_log.read_bytes())
    assert complaint(verb, log, capsys) == ""


@pytest.mark.parametrize("verb", TUNING, ids=lambda verb: verb[0])
def test_tuning_takes_it(hostile_log, verb, folder, capsys, monkeypatch):
    """Nothing is built or timed: each candidate takes a time that is made up."""
    monkeypatch.setattr("loopwright.tuner.run.loop.default_option", FakeMeasurer)
    monkeypatch.setattr("loopwright.cli.tune._numpy", lambda workload, stack: None)
    log = folder / "log.jsonl"
    log.write_bytes(hostile_log.read_bytes())
    assert complaint(verb, log, capsys) == ""
    assert len(records.load(log)) > len(records.load(hostile_log))


@pytest.mark.parametrize(
    "seeds", [range(1), pytest.param(range(1, 101), marks=pytest.mark.slow)], ids=["one", "100"]
)
def test_a_line_beside_a_good_record_does_no_harm(lines, seeds, folder, capsys):
    """The line may be the best of its log: nothing stands before it."""
    log, complaints = folder / "log.jsonl", {}
    good = records.best(records.load_lines(lines)).to_line()
    for seed in seeds:
        source = random.Random(seed)
        data = json.loads(source.choice(lines))
        data.pop("sum", None)
        fast = json.dumps({**changed(source, data), "times": [1e-9] * 3})
        with contextlib.suppress(RecordError):  # longer or deeper than any writer makes it
            fast = sealed(fast)
        for verb in VERBS:
            log.write_text(f"{fast}\n{good}\n", encoding="utf-8", errors="surrogatepass")
            if text := complaint(verb, log, capsys):
                complaints[seed, " ".join(verb)] = text
            for name in ("picked.jsonl", "distilled.jsonl", "merged.jsonl"):
                (folder / name).unlink(missing_ok=True)
    assert complaints == {}


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
