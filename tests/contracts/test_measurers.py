"""The measurer of this machine keeps to the contract of measurers."""

from __future__ import annotations

from loopwright.measure import LocalBuilder, LocalRunner, Measurer, measure_option
from loopwright.task import Task
from loopwright.testing.measurer_contract import MeasurerContract


class TestLocalMeasurer(MeasurerContract):
    @staticmethod
    def make(task: Task, timeout: float) -> Measurer:
        builder = LocalBuilder(n_parallel=1)
        runner = LocalRunner(timeout=timeout, number=1, repeat=2)
        return Measurer(task, measure_option(builder, runner))
