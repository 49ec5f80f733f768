"""Every workload with one thread and with all: ours, NumPy, PyTorch and the machine's limit.

Ours is the best of the default schedule and a short random search. All sides take turns in one run,
each in cores of its own making: NumPy and PyTorch run in processes that stand still meanwhile.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from benchmarks.torch_side import TorchSide, installed
from benchmarks.workloads import Case, traffic
from loopwright.cli.numpy_process import NumpyProcess
from loopwright.cli.workload import WorkloadSubject, find_workload
from loopwright.runtime import pinned
from loopwright.runtime.peak import bandwidth, fma_peak

#: Rounds in which all sides take turns.
ROUNDS = 7


def kernel_row(case: Case, threads: int, trials: int, seed: int = 0) -> dict[str, Any]:
    """Tune one workload, then time it beside the others.

    Args:
        case: the workload.
        threads: of every side.
        trials: most trials of random search, the default configuration first; 0 for that alone.
        seed: of the tuner.

    Returns:
        A row; times in seconds, ``limit`` and the speeds in flop/s or byte/s as the case is bound.
    """
    workload = find_workload(case.op, list(case.params), "llvm", threads)
    start = time.perf_counter()
    f, tensors, config, build_s = _best(workload, trials, seed)
    elapsed = time.perf_counter() - start
    work = workload.task.flop if case.bound == "compute" else traffic(tensors)
    limit = fma_peak if case.bound == "compute" else bandwidth
    times = _interleaved(workload, f, tensors, threads, limit)
    best_limit = statistics.median(times.pop("limit"))
    row: dict[str, Any] = {
        "name": case.name,
        "bound": case.bound,
        "threads": threads,
        "trials": trials,
        "tuning_s": elapsed,
        "build_s": build_s,
        "config": config,
        "work": work,
        "limit": best_limit,
    }
    for side, seconds in times.items():
        if not seconds:
            continue
        middle = statistics.median(seconds)
        row[f"{side}_s"] = middle
        row[f"{side}_spread"] = (max(seconds) - min(seconds)) / middle
        row[f"{side}_share"] = work / middle / best_limit
    return row


def _best(
    workload: WorkloadSubject, trials: int, seed: int
) -> tuple[Any, list[Any], dict[str, Any], float]:
    task = workload.task
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log.jsonl")
        if trials:
            lw.tuner.RandomTuner(task, seed=seed).tune(
                n_trial=trials,
                measure_option=lw.measure_option(lw.LocalBuilder(), lw.LocalRunner()),
                callbacks=[lw.callback.log_to_file(log)],
            )
        space = task.config_space
        config = dict(space.get(space.default_index).values)
        if trials:
            config = dict(lw.records.best(lw.records.load(log).records, task=task.key).config)
    start = time.perf_counter()
    s, tensors = task.instantiate(space.get(space.find(config)))
    f = lw.build(s, tensors, task.target, name="f")
    return f, tensors, config, time.perf_counter() - start


def _interleaved(
    workload: WorkloadSubject, f: Any, tensors: list[Any], threads: int, limit: Any
) -> dict[str, list[float]]:
    rng = np.random.default_rng(0)
    arrays = [lw.nd.array((rng.standard_normal(t.shape) * 4).astype(t.dtype)) for t in tensors]
    inputs = [(t.shape, t.dtype) for t in tensors[:-1]]
    f(*arrays)
    evaluate = f.time_evaluator("f", lw.cpu(0), number=1, repeat=5, min_repeat_ms=10)
    out: dict[str, list[float]] = {"limit": [], "ours": [], "numpy": [], "torch": []}
    with ExitStack() as stack:
        sides: dict[str, Any] = {"numpy": NumpyProcess(workload, inputs, threads)}
        if installed():
            sides["torch"] = TorchSide(workload, inputs, threads)
        for side in sides.values():
            stack.enter_context(side)
        stack.enter_context(pinned(threads))
        for _ in range(ROUNDS):
            out["limit"].append(limit(threads))
            out["ours"].append(evaluate(*arrays).median)
            for name, side in sides.items():
                seconds = side.sample()
                if seconds is not None:
                    out[name].append(seconds)
    return out
