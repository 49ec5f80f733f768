"""Every operator can be tuned in every dtype that it offers."""

from __future__ import annotations

import pytest

import loopwright as lw
from loopwright.errors import LoopwrightError
from loopwright.ops.operator import WORKLOADS
from loopwright.records import Checked, load
from loopwright.task import Task
from loopwright.tuner import log_to_file

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool",
)  # fmt: skip
#: The type that is tuned each time, in which the most can go wrong; the others run by night.
QUICK = "bfloat16"
#: Extents by the name of the parameter, none of them a multiple of a vector.
EXTENTS = {"M": 9, "N": 21, "K": 10, "B": 2, "C": 3, "H": 6, "W": 7, "O": 5, "KH": 3, "KW": 3}
TRIALS = 2


def offered(name: str, dtype: str) -> Task | None:
    """The task of an operator in a dtype; None where the operator refuses the dtype."""
    operator = WORKLOADS[name]
    if "dtype" not in operator.params and dtype != "float32":
        return None
    chosen = {"dtype": dtype} if "dtype" in operator.params else {}
    extents = {k: v for k, v in EXTENTS.items() if k in operator.params}
    try:
        return lw.create_task(name, operator.args({**extents, **chosen}), "llvm -num-threads=1")
    except LoopwrightError as refusal:
        if dtype in str(refusal):
            return None
        raise


@pytest.mark.parametrize(
    "dtype",
    [d if d == QUICK else pytest.param(d, marks=pytest.mark.slow) for d in DTYPES],
)
def test_operators_are_tuned_in_a_dtype(dtype: str, tmp_path: object) -> None:
    tasks = [task for name in WORKLOADS if (task := offered(name, dtype)) is not None]
    assert len(tasks) >= (1 if dtype == "bool" else 8)
    log = f"{tmp_path}/log.jsonl"
    summary = lw.tune_tasks(
        tasks,
        n_trial=TRIALS * len(tasks),
        tuner="random",
        callbacks=[log_to_file(log)],
        measure_option=lw.measure_option("local", lw.LocalRunner(number=1, repeat=1)),
    )
    assert summary is not None
    records = load(log).records
    best = {r.task: r for r in records if r.usable and r.checked is Checked.YES}
    assert best.keys() == {task.alias for task in tasks}, [r.error for r in records if r.error]
