"""How many candidates one core scores in a second: features, the trees, both, and the offset.

Candidates are drawn anew for each call. A template that branches on the size of a tile is derived
anew for each size; one that branches on all of them for each candidate.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.templates import BASELINES
from loopwright import ops, te
from loopwright.cost.analytical import AnalyticalModel
from loopwright.cost.features import Extractor
from loopwright.task import Task, create_task
from loopwright.tuner.model.cost_model import Batch, Samples
from loopwright.tuner.model.xgb_model import XGBCostModel

#: Rows a second and core that the project promises: symbolic, and template by template.
BARS = {False: 200_000, True: 1_000}
#: Rows that the trees learn from: a run of tuning is rarely longer.
_LEARNED = 256


@lw.template("benchmarks/branching")
def branching(M: int, N: int, K: int, every: bool) -> Any:
    """A matmul whose loops depend on the size of one tile, or on those of every tile."""
    A, B = te.placeholder((M, K), name="A"), te.placeholder((K, N), name="B")
    k = te.reduce_axis((0, K), name="k")
    C = te.compute((M, N), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    cfg = lw.get_config()
    i, j = s[C].op.axis
    for name, axis in (("tile_i", i), ("tile_j", j), ("tile_k", k)):
        cfg.define_split(name, axis, num_outputs=3)
    i0, i1, i2 = cfg["tile_i"].apply(s, C, i)
    j0, j1, j2 = cfg["tile_j"].apply(s, C, j)
    k0, k1, k2 = cfg["tile_k"].apply(s, C, k)
    deep = int(cfg["tile_k"].size[-1]) > 8
    s[C].reorder(i0, j0, k0, *((i1, j1, k1, k2) if deep else (i1, k1, j1, k2)), i2, j2)
    if not every or int(cfg["tile_i"].size[-1]) <= 16:
        s[C].unroll(i2)
    if not every or int(cfg["tile_j"].size[-1]) <= 64:
        s[C].vectorize(j2)
    return s, [A, B, C]


def scoring_rows(seconds: float) -> list[dict[str, Any]]:
    """Rows of the table, each measured for about so many seconds a column."""
    conv = (1, 64, 56, 56, 64, 3, 3, 1, 1)
    tasks = [
        ("matmul 1024", ops.matmul, (1024, 1024, 1024), False),
        ("conv2d 64x56x56, 3x3", BASELINES["conv2d"], conv, False),
        ("dense 128x1024x1024", ops.dense, (128, 1024, 1024), False),
        ("matmul that branches on a size", branching, (512, 512, 512, False), True),
        ("matmul that branches on all sizes", branching, (512, 512, 512, True), True),
    ]
    rows = [
        {"what": what, **measured_row(create_task(made, args=args, target="llvm"), slow, seconds)}
        for what, made, args, slow in tasks
    ]
    on_gpu = create_task(ops.matmul, args=(1024, 1024, 1024), target="cuda -arch=sm_90")
    return [*rows, {"what": "matmul 1024 for a GPU", **measured_row(on_gpu, False, seconds)}]


def measured_row(task: Task, slow: bool, seconds: float) -> dict[str, Any]:
    """Candidates of a task that are scored in a second, by part.

    Args:
        task: the task.
        slow: whether its template branches on sizes: fewer candidates are taken.
        seconds: of each measurement.
    """
    extractor, analytical = Extractor(task, "itervar"), AnalyticalModel(task)
    rng = np.random.default_rng(0)

    def fresh(n: int) -> np.ndarray:
        return np.stack([rng.integers(0, d, n) for d in task.config_space.dims], axis=1)

    n = 512 if slow else 8192
    model = _trained(extractor, analytical, fresh(_LEARNED))
    # Classes are derived once a task: a search comes back to them.
    extractor.rows(fresh(n)), analytical.predict(fresh(n))
    batch = _batch(extractor, fresh(n), np.zeros(n))

    def both(digits: np.ndarray) -> None:
        model.predict(_batch(extractor, digits, np.zeros(n)))

    def all_three(digits: np.ndarray) -> None:
        model.predict(_batch(extractor, digits, analytical.predict(digits)))

    def rate(f: Callable[[np.ndarray], object]) -> float:
        times: list[float] = []
        while sum(times) < seconds:
            digits = fresh(n)
            start = time.perf_counter()
            f(digits)
            times.append(time.perf_counter() - start)
        return n / float(np.median(times))

    return {
        "trees": model.rounds,
        "features_per_s": rate(extractor.rows),
        "model_per_s": rate(lambda _: model.predict(batch)),
        "both_per_s": rate(both),
        "offset_per_s": rate(analytical.predict),
        "all_per_s": rate(all_three),
        "bar_per_s": BARS[slow],
    }


def _trained(extractor: Extractor, analytical: AnalyticalModel, digits: np.ndarray) -> XGBCostModel:
    """Trees that learned what the analytical model says, with noise: as many as tuning grows."""
    rng = np.random.default_rng(1)
    score = analytical.predict(digits) + rng.normal(0, 0.1, len(digits))
    n = len(digits)
    model = XGBCostModel(extractor.names)
    samples = (_batch(extractor, digits, np.zeros(n)), score)
    model.fit(Samples(*samples, np.zeros(n, np.int64), np.zeros(n, np.int64)))
    return model


def _batch(extractor: Extractor, digits: np.ndarray, offset: np.ndarray) -> Batch:
    rows = extractor.rows(digits)
    return Batch(rows.values, offset, rows.failed)
