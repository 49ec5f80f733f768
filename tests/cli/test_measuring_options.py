"""How candidates are built and timed, from the command line."""

from __future__ import annotations

import pytest

from loopwright.cli.options import MeasuringOptions
from loopwright.measure import LocalBuilder, LocalRunner, measure_option
from loopwright.testing.tuner_contract import FakeMeasurer
from tests.cli.conftest import WORKLOAD

GIVEN = (
    *("--number", "2", "--repeat", "5", "--min-repeat-ms", "1.5"),
    *("--run-timeout", "7", "--build-timeout", "3", "--parallel", "1", "--device", "cpu:0"),
)
MEANT = measure_option(
    LocalBuilder(timeout=3.0, n_parallel=1),
    LocalRunner(timeout=7.0, number=2, repeat=5, min_repeat_ms=1.5, device="cpu:0"),
)


def test_what_is_not_given_stays_as_it_is():
    assert MeasuringOptions().settings() is None
    assert MeasuringOptions(repeat=7).settings() == measure_option("local", LocalRunner(repeat=7))
    one_builder = measure_option(LocalBuilder(n_parallel=1), "local")
    assert MeasuringOptions(parallel=1).settings() == one_builder


@pytest.mark.parametrize("verb", ["tune", "tune-tasks"])
def test_they_reach_the_measurer_and_the_command_to_go_on(cli, tmp_path, monkeypatch, verb):
    asked = []

    def fake(task, option, announce=None, beside=None):
        asked.append(option)
        return FakeMeasurer()

    monkeypatch.setattr("loopwright.tuner.run.loop.Measurer", fake)
    monkeypatch.setattr("loopwright.cli.tune._numpy", lambda workload, stack: None)
    (tmp_path / "one.txt").write_text("matmul M=16 N=16 K=16\n")
    words = WORKLOAD if verb == "tune" else ("one.txt", "--threads", "1")
    ran = cli(verb, *words, "--trials", "2", "--tuner", "random", *GIVEN)
    assert ran.code == 0, ran.err
    assert asked == [MEANT]
    assert (
        "--number 2 --repeat 5 --min-repeat-ms 1.5 --run-timeout 7.0 --build-timeout 3.0 "
        "--parallel 1 --device cpu:0 --trials"
    ) in ran.out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--number", "0"], "--number 0: give a number above zero"),
        (["--run-timeout", "-1"], "--run-timeout -1: give a number above zero"),
        (["--min-repeat-ms", "nan"], "--min-repeat-ms nan: give a number above zero"),
        (["--parallel", "two"], "Invalid value for '--parallel'"),
        (["--device", "cpu:1"], "cpu(1) does not exist"),
        (["--device", "opencl:0"], "runs on devices of type cpu, and opencl(0) is none"),
    ],
)
def test_values_that_mean_nothing(cli, words, text):
    ran = cli("tune", *WORKLOAD, *words)
    assert ran.code == 2
    assert text in ran.error
