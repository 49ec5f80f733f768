"""How fast candidates are measured, where the time goes, and how good the best gets."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import loopwright as lw
from loopwright.cli.numpy_process import NumpyProcess
from loopwright.cli.workload import WorkloadSubject, find_workload
from loopwright.runtime import pinned
from loopwright.runtime.peak import fma_peak
from loopwright.tuner import DEFAULT_TUNER, TUNERS

#: Rounds in which ours, NumPy and the peak take turns.
ROUNDS = 7


def tuning_row(
    name: str, params: list[str], trials: int, threads: int, seed: int
) -> dict[str, Any]:
    """Tune with the default tuner and default options, then time the winner.

    Args:
        name: an operator.
        params: its parameters, ``["M=512", ...]``.
        trials: valid records wanted.
        threads: threads of the kernel.
        seed: of the tuner.

    Returns:
        A row of the table; times in seconds, speeds in GFLOP/s. ``timing`` has the seconds of the
        whole run by what they went into; builders run beside the runner, so its sum may be more
        than ``seconds``.
    """
    workload = find_workload(name, params, "llvm", threads)
    task = workload.task
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "log.jsonl")
        start = time.perf_counter()
        summary = TUNERS[DEFAULT_TUNER](task, seed=seed).tune(
            n_trial=trials,
            measure_option=lw.measure_option(lw.LocalBuilder(), lw.LocalRunner()),
            callbacks=[lw.callback.log_to_file(log)],
        )
        elapsed = time.perf_counter() - start
        records = [r for r in lw.records.load(log).records if not r.phase]
        with task.target, lw.apply_history_best(log):
            s, tensors = task.template(*task.args)
            f = lw.build(s, tensors, name="f")
    row = _side_by_side(workload, f, tensors, threads)
    return {
        "what": " ".join([name, *params]),
        "threads": threads,
        "trials": len(records),
        "failed": sum(not r.valid for r in records),
        "seconds": elapsed,
        "trials_per_minute": len(records) / elapsed * 60,
        "timing": dict(summary.timing),
        **row,
    }


def _side_by_side(
    workload: WorkloadSubject, f: Any, tensors: list[Any], threads: int
) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = [lw.nd.array(rng.standard_normal(t.shape).astype(t.dtype)) for t in tensors]
    inputs = [(t.shape, t.dtype) for t in tensors[:-1]]
    evaluate = f.time_evaluator("f", lw.cpu(0), number=3, repeat=5)
    ours, numpy, peak = [], [], []
    with NumpyProcess(workload, inputs, threads) as side, pinned(threads):
        for _ in range(ROUNDS):
            peak.append(fma_peak(threads))
            ours.append(evaluate(*arrays).median)
            numpy.append(side.sample())
    flop = workload.task.flop
    seconds = statistics.median(ours)
    known = [x for x in numpy if x is not None]
    return {
        "gflops": flop / seconds / 1e9,
        "spread": (max(ours) - min(ours)) / seconds,
        "peak_gflops": statistics.median(peak) / 1e9,
        "share_of_peak": flop / seconds / statistics.median(peak),
        "numpy_gflops": flop / statistics.median(known) / 1e9 if known else None,
    }
