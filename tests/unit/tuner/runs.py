"""Runs of the tuning loop into a log, with a measurer that only pretends to measure."""

from __future__ import annotations

from loopwright.testing.tuner_contract import FakeMeasurer, FakeTask, bowl
from loopwright.tuner import RandomTuner, log_to_file


def tune(tmp_path, measurer=None, *, tuner=RandomTuner, seed=0, space=None, callbacks=(), **budget):
    """A run of a fresh tuner into the log of ``tmp_path``."""
    measurer = measurer or FakeMeasurer(bowl)
    made = tuner(FakeTask(space), seed=seed)
    log = log_to_file(tmp_path / "log.jsonl")
    summary = made.tune(measure_option=measurer, callbacks=[log, *callbacks], **budget)
    return measurer, summary


def lines(tmp_path):
    return (tmp_path / "log.jsonl").read_text().splitlines()
