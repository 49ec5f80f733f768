"""Small tasks for the measurer: anything that is a `TaskLike` will do."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from loopwright import te
from loopwright.measure import (
    LocalBuilder,
    LocalRunner,
    MeasureInput,
    MeasureOption,
    Measurer,
    MeasureResult,
    measure_option,
)
from loopwright.schedule import create_schedule
from loopwright.target import Target

#: How the processes measure that tests share, see `conftest.py`.
OPTION = measure_option(LocalBuilder(n_parallel=2, timeout=20), LocalRunner(timeout=2))


def matmul(n: int, tile: int) -> tuple[Any, list[Any]]:
    """A matmul of n x n x n whose columns are cut by `tile`."""
    a = te.placeholder((n, n), "float32", name="A")
    b = te.placeholder((n, n), "float32", name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = create_schedule(c.op)
    i, j = s[c].op.axis
    jo, ji = s[c].split(j, factor=tile)
    s[c].reorder(i, jo, k, ji)
    return s, [a, b, c]


_NUMBERS = itertools.count()


class MatmulTask:
    """Configurations are tile sizes; 0 is refused by the template."""

    name = "test/matmul"
    key = "test/matmul"

    def __init__(
        self,
        n: int = 32,
        reference: Callable[..., Any] | None = None,
        make_inputs: Callable[[], list[Any]] | None = None,
    ) -> None:
        self.n = n
        # Processes that serve several tasks tell them apart by name and arguments.
        self.args = (n, next(_NUMBERS))
        self.target = Target("llvm -num-threads=1")
        self.reference = reference
        self.make_inputs = make_inputs

    def instantiate(self, config: int) -> tuple[Any, list[Any]]:
        if config == 0:
            raise ValueError("a tile of 0 columns")
        return matmul(self.n, config)

    def inputs(self, *configs: int) -> list[MeasureInput]:
        return [MeasureInput(self, c, i) for i, c in enumerate(configs)]


def under(option: MeasureOption, m: Measurer) -> Measurer:
    """A measurer with other limits than the one whose processes it shares, and equal processes."""
    m.option = m.session.option = option
    m.session.builds.option, m.session.runner.option = option.builder, option.runner
    return m


def product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(a.astype("float64") @ b.astype("float64"))


def error_kinds(results: list[MeasureResult]) -> list[str | None]:
    return [r.error.kind if r.error else None for r in results]


def never(*inputs: Any) -> Any:
    """Does not return."""
    while True:
        pass
