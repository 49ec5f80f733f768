from __future__ import annotations

import pytest

from loopwright import create_task, te
from loopwright.task import get_config, template
from loopwright.task.task import refusals
from loopwright.testing.tuner_contract import FakeMeasurer
from loopwright.tuner import NothingRan, RandomTuner


def wide(c):
    return c["t"].size[1] >= 4


@template("test/refusals")
def narrow(n, accept, limit):
    A = te.placeholder((n,), "float32", name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    cfg = get_config()
    cfg.define_split("t", B.op.axis[0], num_outputs=2)
    cfg.define_knob("u", list(range(10)))
    cfg.multi_filter(wide)
    if not accept:
        cfg.multi_filter(lambda c: c["u"].val > 8 and c["u"].val < 0)
    if cfg["u"].val >= limit:
        cfg.raise_error(f"u = {cfg['u'].val} is beyond {limit}")
    cfg["t"].apply(s, B, B.op.axis[0])
    return s, [A, B]


def test_filters_share_what_they_refuse():
    # 8 has the inner sizes 1, 2, 4, 8: half are refused by the first filter, half by the second.
    first, second = refusals(create_task("test/refusals", args=(8, False, 99), target="llvm"))
    assert (first.share, second.share) == (0.5, 0.5)
    assert first.reason.startswith("filter wide (test_refusals.py:")
    assert "t=[-1, 1]" in first.example
    assert "lambda" in second.reason
    assert "50% of the space" in str(second)


def test_looking_ends_where_templates_do_not(monkeypatch):
    task = create_task("test/refusals", args=(8, True, 99), target="llvm")
    monkeypatch.setattr("loopwright.task.task.TEMPLATE_S", 0.05)

    def never(config):
        while True:
            pass

    task.instantiate = never
    found = {refusal.reason for refusal in refusals(task)}
    assert "the template took longer than 0.05 s" in found


def test_errors_of_the_template_are_told_apart_by_their_text():
    found = refusals(create_task("test/refusals", args=(8, True, 3), target="llvm"))
    assert [round(r.share, 2) for r in found] == [0.5, 0.35]
    assert found[1].reason == "the template raises InstantiationError: u = N is beyond N"
    assert "u=3" in found[1].example


def test_a_space_of_which_everything_is_valid():
    task = create_task("test/refusals", args=(8, True, 99), target="llvm")
    assert [r.reason.split()[1] for r in refusals(task)] == ["wide"]


def test_a_large_space_is_sampled():
    task = create_task("test/refusals", args=(4096 * 27, True, 99), target="llvm")
    (found,) = refusals(task, sample=100)
    assert 0 < found.share < 0.3


def test_a_space_of_more_points_than_64_bits_count_is_sampled(monkeypatch):
    task = create_task("test/refusals", args=(8, False, 99), target="llvm")
    space = task.config_space
    first = space.get(0)
    monkeypatch.setattr(type(space), "range_length", 1 << 200)
    monkeypatch.setattr(type(space), "get", lambda self, index: first)
    assert sum(r.share for r in refusals(task, sample=10)) == 1


@pytest.mark.parametrize(("accept", "limit"), [(False, 99), (True, 0)])
def test_a_run_in_which_nothing_is_valid_says_why(accept, limit):
    task = create_task("test/refusals", args=(8, accept, limit), target="llvm")
    measurer = FakeMeasurer(fails=lambda i: "INSTANTIATION")
    with pytest.raises(NothingRan) as caught:
        RandomTuner(task).tune(n_trial=40, measure_option=measurer)
    text = str(caught.value)
    assert "50% of the space: filter wide" in text
    assert ("is beyond" in text) == accept
    assert ("lambda" in text) != accept
