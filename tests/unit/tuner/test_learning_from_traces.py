"""Records whose configuration means nothing to a task teach it, and apply to it, by their trace.

``logs`` holds what 40 trials of two templates, and of the automatic spaces of the same expressions,
wrote while tasks were still known by the names of templates, on a busy machine.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import loopwright as lw
from loopwright import te
from loopwright.cli import main
from loopwright.cost.analytical import AnalyticalModel, predicted
from loopwright.cost.features import Extractor
from loopwright.cost.features.extract import StateFeatures
from loopwright.history.rebuilding import dag_of
from loopwright.measure import MeasureResult
from loopwright.records import Log, load
from loopwright.schedule import replay
from loopwright.task.sampling import digits_of
from loopwright.testing.tuner_contract import FakeMeasurer
from loopwright.tuner import XGBTuner, log_to_file
from loopwright.tuner.model.transfer_model import ExpressionTable, traced_batch

LOGS = Path(__file__).parent / "logs"
OPS = ("matmul", "dense")


def log_of(name: str, tmp_path: Path) -> Log:
    path = tmp_path / f"{name}.jsonl"
    path.write_bytes(gzip.decompress((LOGS / f"{name}.jsonl.gz").read_bytes()))
    return load(path)


def automatic_task(log: Log, op: str) -> lw.Task:
    """The automatic task of an operator, made of the very expression that the log holds."""
    expression = next(e for there in log.dags.values() for e in there if e.op == op)
    record = next(r for r in log if r.dag == expression.hash)
    target = lw.Target({k: v for k, v in record.target.items() if k in ("kind", "num_threads")})
    task = lw.create_task(op, tuple(expression.args), target)
    _, args = task.instantiate(task.config_space.default_index)
    made = lw.create_task(list(args), target=target)
    assert made.dag_hash == expression.hash == dag_of(expression).hash
    return made


@pytest.mark.parametrize("op", OPS)
def test_a_record_of_a_template_applies_to_the_automatic_task(op, tmp_path):
    log = log_of("templates", tmp_path)
    own = [r for r in log if r.op == op]
    history = lw.apply_history_best(log, any_hardware=True, verdicts=False)
    s, _ = history.apply(automatic_task(log, op))
    assert own[0].task.startswith(f'["{op}"')  # the key of that time
    assert s.trace_json() == lw.records.best(own).trace


@pytest.mark.slow
@pytest.mark.parametrize("op", ["matmul", "dense"])
def test_records_of_templates_order_what_the_automatic_space_measured(op, tmp_path):
    log = log_of("templates", tmp_path)
    task = automatic_task(log, op)
    automatic = log_of("automatic", tmp_path)
    held_out = [r for r in automatic if r.dag == task.dag_hash and r.valid and not r.phase]
    tuner = XGBTuner(task, seed=0, analytical=False)
    tuner.load_history(log)
    assert len(tuner.ask(4)) == 4
    model = tuner.taught
    assert model is not None
    expressions = ExpressionTable()
    expressions.add(log.dags)
    batch = traced_batch(held_out, expressions, tuner.task.target, "itervar", False)
    assert not batch.failed.any()
    speed = [-np.log2(r.median) for r in held_out]
    # Without records there is nothing to go by: the analytical model is left out.
    untaught = XGBTuner(task, seed=0, analytical=False)
    untaught.ask(4)
    assert untaught.taught is None
    assert spearmanr(model.predict(batch), speed).statistic > 0.35


def products(m, n, k):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [A, B, te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")]


@pytest.mark.parametrize("kind", ["itervar", "curve", "per_store"])
def test_a_schedule_has_the_features_of_its_point(kind):
    task = lw.create_task(products(64, 96, 32), target="llvm -num-threads=2")
    for structure in task.structures[:4]:
        digits = digits_of(structure.config_space, structure.config_space.sample_ints(3, 0))
        rows = Extractor(structure, kind).rows(digits).values
        speeds = AnalyticalModel(structure).predict(digits)
        features = StateFeatures(task.target, kind)
        for row, speed, index in zip(
            rows, speeds, structure.config_space.sample_ints(3, 0), strict=True
        ):
            s, _ = structure.instantiate(structure.config_space.get(index))
            state = replay(s.dag, s.trace_json()).state
            np.testing.assert_allclose(features.row(state), row, rtol=1e-5, atol=1e-5)
            assert predicted(state, task.target) == pytest.approx(float(speed), abs=1e-4)


class ByThreads(FakeMeasurer):
    """Fast where there is a parallel loop and vectors are long, whatever the space."""

    def measure(self, inputs, incumbent):
        self.tasks = {i.config.index: (i.task, i.config) for i in inputs}
        yield from super().measure(inputs, incumbent)

    def result(self, index):
        task, config = self.tasks[index]
        s, _ = task.instantiate(config)
        return MeasureResult(
            times=(seconds_of(s.trace_json()),),
            ts=1.0,
            dag=s.dag.hash,
            trace=lw.records.canonical_json(s.trace_json()),
            expression=lw.records.Expression(
                s.dag.hash, s.dag.to_json(), [], task.name, list(task.args)
            ),
        )


def seconds_of(trace):
    """A time that follows from the steps alone."""
    text = str(trace)
    return 1e-3 / (1 + 3 * ("parallel" in text.lower())) / (1 + text.lower().count("unroll"))


def tuned(task, path, n_trial, **options):
    tuner = XGBTuner(task, seed=0, analytical=False, **options)
    call = {"n_trial": n_trial, "measure_option": ByThreads(), "callbacks": [log_to_file(path)]}
    return tuner, tuner.tune(**call)


@pytest.fixture(scope="module")
def eight(tmp_path_factory) -> Path:
    """A log of eight trials, which is only read."""
    path = tmp_path_factory.mktemp("eight") / "log.jsonl"
    tuned(lw.create_task(products(64, 64, 64), target="llvm"), path, 8)
    return path


def test_records_of_a_template_in_the_log_teach_by_themselves(tmp_path):
    path = tmp_path / "log.jsonl"
    template = lw.create_task("matmul", (48, 64, 32), "llvm")
    tuned(template, path, 16)
    tuned(lw.create_task(products(32, 32, 64), target="llvm"), path, 4)  # another expression
    _, args = template.instantiate(template.config_space.default_index)
    automatic = lw.create_task(list(args), target="llvm")
    tuner, summary = tuned(automatic, path, 8)
    assert {record.op for record, _ in tuner.relatives} == {"matmul"}
    assert len(tuner.relatives) == 16
    assert "pretrained on 16 results of 1 other task" in "\n".join(summary.lines())
    # Taken up again it learns from the same ones, not from its own.
    again, _ = tuned(automatic, path, 12)
    assert len(again.relatives) == 16


def test_knobs_of_another_space_are_said_and_not_used(eight):
    task = lw.create_task(products(48, 96, 80), target="llvm")
    tuner = XGBTuner(task, seed=0, analytical=False, feature_type="knob")
    tuner.load_history(load(eight))
    tuner.ask(4)
    assert tuner.taught is None


def test_without_its_log_a_record_of_another_expression_cannot_teach(eight):
    tuner = XGBTuner(lw.create_task(products(48, 96, 80), target="llvm"), seed=0, analytical=False)
    tuner.load_history(list(load(eight)))
    tuner.ask(4)
    assert tuner.taught is None
    assert tuner.history.foreign == len(tuner.pretrained) > 0
    assert "their log holds no expression of them" in tuner.history.notes[0]


def test_a_damaged_expression_teaches_nothing(tmp_path, caplog, eight):
    log = load(eight)
    other = load(eight)
    tuned(lw.create_task(products(32, 64, 64), target="llvm"), tmp_path / "other.jsonl", 1)
    (digest,) = log.dags
    (wrong,) = load(tmp_path / "other.jsonl").dags.values()
    log.dags[digest] = [lw.records.Expression(digest, wrong[0].dag, [])]
    batches = [_batch(log), _batch(other)]
    assert batches[0].failed.all()
    assert not batches[1].failed.any()
    assert "is another one" in caplog.text


def _batch(log):
    expressions = ExpressionTable()
    expressions.add(log.dags)
    records = [r for r in log if not r.phase]
    return traced_batch(records, expressions, lw.Target("llvm"), "itervar", False)


def test_the_command_line_pretrains(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("loopwright.tuner.run.loop.default_option", FakeMeasurer)
    monkeypatch.setattr("loopwright.cli.tune._numpy", lambda workload, stack: None)
    path = tmp_path / "many.jsonl"
    tuned(lw.create_task(products(64, 64, 64), target="llvm"), path, 12)
    source = tmp_path / "sums.py"
    source.write_text(
        "from loopwright import te\n"
        "def total(n):\n"
        "    A = te.placeholder((n, 64), name='A')\n"
        "    k = te.reduce_axis((0, 64), name='k')\n"
        "    return [A, te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name='B')]\n"
    )
    words = ["tune", f"{source}:total", "n=32", "--trials", "2", "--log", str(tmp_path / "l.jsonl")]
    assert main([*words, "--pretrain", str(path), "--threads", "1"]) in (0, None)
    out = capsys.readouterr()
    assert "pretrained on 12 results of 1 other task" in out.out + out.err
