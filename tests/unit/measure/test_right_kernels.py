"""Every operator passes the check, alone with its default configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from loopwright import ops
from loopwright.measure import (
    LocalBuilder,
    LocalRunner,
    MeasureInput,
    Measurer,
    measure_option,
)
from loopwright.task import create_task

OPTION = measure_option(LocalBuilder(n_parallel=1, timeout=20), LocalRunner(timeout=5))
_IMAGE = {"N": 1, "C": 8, "H": 7, "W": 7, "KH": 3, "KW": 3, "pad": 1}
_LINES = {"M": 24, "N": 40}
SIZES: dict[str, dict[str, Any]] = {
    "conv2d": _IMAGE | {"O": 8},
    "dense": _LINES | {"K": 32},
    "depthwise_conv2d": _IMAGE,
    "elementwise": _LINES,
    "transpose": _LINES,
    "matmul": _LINES | {"K": 32, "dtype": "bfloat16"},
    "batch_matmul": _LINES | {"B": 2, "K": 32},
    "matmul_int8": _LINES | {"K": 32},
    "pool2d": _IMAGE,
    "reduce": _LINES,
    "softmax": _LINES | {"dtype": "bfloat16"},
    "layer_norm": _LINES,
}


def test_all_operators_are_here() -> None:
    assert set(SIZES) == set(ops.WORKLOADS)


@pytest.fixture(scope="module")
def processes() -> Iterator[Measurer]:
    task = create_task("transpose", (8, 8), "llvm -num-threads=1")
    with Measurer(task, OPTION) as m:
        yield m


@pytest.mark.parametrize("name", SIZES)
def test_a_right_kernel_is_accepted(name: str, processes: Measurer) -> None:
    operator = ops.WORKLOADS[name]
    task = create_task(operator.template, operator.args(SIZES[name]), "llvm -num-threads=1")
    said: list[str] = []
    config = task.config_space.get(task.config_space.default_index)
    with Measurer(task, OPTION, said.append, beside=processes) as m:
        (result,) = m.measure([MeasureInput(task, config)])
    assert result.error is None
    assert result.checked == "yes"
    assert said == []
