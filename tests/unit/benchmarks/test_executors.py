"""The benchmark of executors: every way of running a model is timed, beside the kernels."""

from __future__ import annotations

import numpy as np

from benchmarks.executors import chain, lines, runs


def test_every_way_runs_the_model() -> None:
    model = chain()
    ways = runs(model)
    assert next(iter(ways)) == "kernels alone"
    assert all(run() > 0 for run in ways.values())
    np.testing.assert_allclose(model(np.zeros(4, "float32"))[0], 0.25)


def test_what_lies_between_kernels_is_told_for_each_call() -> None:
    told = lines("m.onnx", 4, {"kernels alone": 1e-3, "graph": 1.25e-3})
    assert told == [
        "m.onnx: 4 calls of kernels",
        "  kernels alone             1.0000 ms   100.0% in kernels",
        "  graph                     1.2500 ms    80.0% in kernels   62.500 us a call beside",
    ]
