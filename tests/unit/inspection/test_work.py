"""The work of a record's kernel, counted by hand."""

from __future__ import annotations

import dataclasses

import pytest

import loopwright as lw
from loopwright.inspection import Work, work_of
from loopwright.records import Log
from tests.unit.inspection.logs import write


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    task = lw.create_task("matmul", (8, 4, 6), "llvm -num-threads=1")
    return write(tmp_path_factory.mktemp("work") / "log.jsonl", [task])


def test_a_product_has_two_operations_a_term_and_three_operands(log: Log) -> None:
    work = work_of(log, log.records[0])
    assert work == Work(flop=2 * 8 * 4 * 6, bytes=4 * (8 * 6 + 6 * 4 + 8 * 4))
    assert work is not None
    assert work.gflops(1e-6) == work.flop / 1e3
    assert Work(0, 8).gflops(1.0) is None


def test_a_record_whose_expression_is_not_there_has_none(log: Log) -> None:
    stranger = dataclasses.replace(log.records[0], dag="0123456789abcdef")
    assert work_of(log, stranger) is None
