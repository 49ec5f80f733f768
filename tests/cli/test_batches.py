"""Models of any batch by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loopwright import executors, graph, records
from tests.cli.conftest import Cli
from tests.unit.graph.small_onnx import layers_by_numpy, perceptron

pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')

ONE = ("--threads", "1")
BATCHES = ("--batch", "1", "--batch", "4")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model whose batch is declared as 4, in the folder in which commands run."""
    (tmp_path / "m.onnx").write_bytes(perceptron().SerializeToString())
    return "m.onnx"


@pytest.mark.usefixtures("instant")
def test_all_batches_are_tuned_into_one_log(cli: Cli, model: str, tmp_path: Path) -> None:
    given = (model, "x=nx16", *ONE, *BATCHES)
    ran = cli("tune", *given, "--trials", "6", "--tuner", "random")
    assert ran.code == 0, ran.err
    assert "6 tasks" in ran.out
    assert f"bench {model} x=nx16 --threads 1 --batch 1 --batch 4 --history m.jsonl" in ran.out
    assert len({r.task for r in records.load(tmp_path / "m.jsonl")}) == 6
    told = cli("inspect", *given, "--history", "m.jsonl", "--no-time", "--json")
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert [(said["batch"], said["inputs"]["x"][1]) for said in lines] == [(1, 1), (4, 4)]
    assert all(row["record"] or row["note"] for said in lines for row in said["kernels"])


def test_a_model_of_any_batch_is_built_and_run(cli: Cli, model: str, tmp_path: Path) -> None:
    built = cli("build", model, "x=nx16", *ONE, *BATCHES, "-o", "m.lw")
    assert built.code == 0, built.err
    assert "any other n: one program, whose kernels have the schedules of n 4" in built.out
    x = np.random.default_rng(0).standard_normal((3, 16)).astype("float32")
    np.save(tmp_path / "x.npy", x)
    ran = cli("run", "m.lw", "--input", "x=x.npy", "--output", "y.npz", "--repeat", "1")
    assert ran.code == 0, ran.err
    assert "m.lw of n 3, 1 thread" in ran.out
    found = np.load(tmp_path / "y.npz")["p"]
    np.testing.assert_allclose(found, layers_by_numpy(x)[-1], rtol=1e-4, atol=1e-6)
    each = cli("run", "m.lw", "--repeat", "1", "--json")
    shapes = [json.loads(line)["outputs"]["p"]["shape"] for line in each.out.splitlines()]
    assert shapes == [[1, 8], [4, 8]]
    assert isinstance(graph.load(tmp_path / "m.lw"), executors.BatchedModel)


def test_a_library_has_the_kernels_of_one_batch(cli: Cli, model: str) -> None:
    built = cli("build", model, "x=nx16", *ONE, "--batch", "4", "-o", "m.so")
    assert built.code == 0, built.err
    assert built.out.startswith("wrote m.so")
    ran = cli("run", "m.so", "--repeat", "1")
    assert "x: float32[4, 16]" in ran.out


def test_what_has_no_batch_that_varies_is_refused(cli: Cli, model: str) -> None:
    ran = cli("build", model, *BATCHES, "-o", "m.lw")
    assert "every extent of the inputs is a number" in ran.err
    ran = cli("build", model, "x=nx16", *BATCHES, "-o", "m.so")
    assert "a library is of one batch; give --batch once" in ran.err
    ran = cli("build", model, "x=nx16", "-o", "m.lw")
    assert "n has no number; give --batch where it varies, else its shape" in ran.err
    ran = cli("tune", "matmul", "M=8", "N=8", "K=8", "--batch", "1")
    assert "--batch: for a model, not for a workload" in ran.err
    assert cli("build", model, *ONE, "-o", "m.lw").code == 0
    ran = cli("run", "m.lw", "--batch", "2")
    assert "--batch: m.lw was built for one batch; leave it out" in ran.err
