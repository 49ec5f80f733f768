"""Options of tuners: declared once, given by position or by name."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from loopwright.errors import UsageError
from loopwright.testing.tuner_contract import FakeSpace, FakeTask
from loopwright.tuner import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
from loopwright.tuner.options import TunerOptions, at_least, option


def test_by_position_and_by_name_as_autotvm_scripts_give_them():
    assert (
        GATuner(FakeTask(), 100, 5).settings
        == GATuner(FakeTask(), pop_size=100, elite_num=5).settings
    )
    tuner = XGBTuner(FakeTask(), 64, feature_type="knob", loss_type="rank", log_interval=10)
    assert tuner.plan_size == 64
    assert tuner.options["loss_type"] == "rank"
    assert RandomTuner(FakeTask(), (3, 9)).range_idx == (3, 9)
    assert RandomTuner(FakeTask(), (3, 9)).range_length == 7
    assert GATuner(FakeTask()).range_length == FakeTask().config_space.range_length


def test_an_unknown_option_is_named_with_the_nearest():
    with pytest.raises(TypeError, match=r"'popsize' \(did you mean 'pop_size'\?\); it takes pop_"):
        GATuner(FakeTask(), popsize=3)
    with pytest.raises(TypeError, match="positional"):
        GridSearchTuner(FakeTask(), (0, 1), 7)


def test_the_log_holds_what_proposals_depend_on():
    assert GATuner(FakeTask()).options == {"pop_size": 16, "elite_num": 3, "mutation_prob": 0.1}
    assert list(XGBTuner(FakeTask(), feature_type="knob").options) == [
        "plan_size",
        "feature_type",
        "loss_type",
        "optimizer",
        "diversity_filter_ratio",
        "epsilon",
        "analytical",
        "post_optimization",
        "adaptive_training",
    ]


@pytest.mark.parametrize("kind", [RandomTuner, GridSearchTuner, GATuner, XGBTuner])
def test_docstrings_say_every_option(kind):
    assert all(f"    {name}: " in kind.__doc__ for name in kind.Options.names())
    assert "log_interval" not in kind.Options.names()


@dataclass(frozen=True)
class StepOptions(TunerOptions):
    step: int = option(2, "distance of the indices.", at_least(1))


class StepTuner(Tuner):
    """Proposes every other point."""

    name = "step"
    Options = StepOptions
    settings: StepOptions

    def propose(self, n):
        yield from range(0, self.space.range_length, self.settings.step)


def test_a_tuner_of_ones_own_declares_options_alike():
    tuner = StepTuner(FakeTask(FakeSpace((3, 3))), step=3)
    assert [c.index for c in tuner.ask(9)] == [0, 3, 6]
    assert tuner.options == {"step": 3}
    assert StepTuner.__doc__.endswith("Options:\n    step: distance of the indices. Default 2.\n")
    with pytest.raises(UsageError, match="step must be an integer >= 1, got 0"):
        StepTuner(FakeTask(), 0)


class PlainTuner(Tuner):
    """Without options, with a constructor of its own."""

    name = "plain"

    def __init__(self, task, *, seed=0):
        super().__init__(task, seed=seed)

    def propose(self, n):
        return range(n)


def test_a_tuner_needs_no_options():
    assert PlainTuner(FakeTask(), seed=3).options == {}
    assert PlainTuner.__doc__ == "Without options, with a constructor of its own."
