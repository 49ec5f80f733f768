"""Layouts of a model in a file: `tune` writes it, the other verbs apply it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from loopwright import graph, records
from tests.cli.conftest import Cli
from tests.unit.graph.small_onnx import convolutional, perceptron

pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')

ONE = ("--threads", "1")
X = np.random.default_rng(0).standard_normal((1, 8, 6, 6)).astype("float32")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model with places for layouts, in the folder in which commands run."""
    (tmp_path / "c.onnx").write_bytes(convolutional().SerializeToString())
    return "c.onnx"


@pytest.fixture
def chosen(model: str, tmp_path: Path) -> str:
    """A file of layouts of the model that `ConvertLayout` does not give."""
    module = graph.transform.pipeline.before_layouts(graph.from_onnx(convolutional()))
    graph.LayoutChoice.of(module, ["NCHW8c", "NCHW8c"]).save(tmp_path / "c.layouts")
    return "c.layouts"


# By day of a pool alone: candidates of a convolution take seconds to search.
@pytest.mark.parametrize("places", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("instant")
def test_layouts_are_measured_once_and_tuned(
    cli: Cli, model: str, tmp_path: Path, places: int
) -> None:
    if places == 1:
        pool = convolutional()
        del pool.graph.node[:2], pool.graph.initializer[:]
        pool.graph.node[0].input[0] = "x"
        (tmp_path / model).write_bytes(pool.SerializeToString())
    words = (model, *ONE, "--layouts", "c.layouts", "--log", "c.jsonl", "--tuner", "random")
    ran = cli("tune", *words, "--trials", "2")
    assert ran.code == 0, ran.err
    choice = graph.LayoutChoice.load(tmp_path / "c.layouts")
    assert (choice.unit, len(choice.layouts), choice.cost is not None) == ("seconds", places, True)
    assert f"layouts: {choice}; written to c.layouts" in ran.out
    for verb in ("inspect", "bench"):
        again = f"loopwright {verb} {model} --threads 1 --layouts c.layouts --history c.jsonl"
        assert again in ran.out
    measured = len(records.load(tmp_path / "c.jsonl"))
    written = (tmp_path / "c.layouts").read_bytes()
    ran = cli("tune", *words, "--trials", "2")
    assert ran.code == 0, ran.err
    assert f"layouts: {choice}, of c.layouts" in ran.out
    assert (tmp_path / "c.layouts").read_bytes() == written
    assert len(records.load(tmp_path / "c.jsonl")) == measured
    told = json.loads(
        cli("inspect", model, *ONE, "--layouts", "c.layouts", "--no-time", "--json",
            "--history", "c.jsonl").out
    )  # fmt: skip
    assert told["layouts"] == choice.to_json()
    assert all(row["record"] or row["note"] for row in told["kernels"] if row["tuned"])


def test_ctrl_c_prints_the_command_with_its_layouts(
    cli: Cli, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loopwright.graph.tune_layouts", interrupt)
    ran = cli("tune", model, *ONE, "--layouts", "c.layouts", "--timeout", "10m")
    assert ran.code == 130
    words = "--threads 1 --layouts c.layouts --log c.jsonl --timeout 10m"
    assert f"  loopwright tune {model} {words}\n" in ran.out


def test_a_model_in_layouts_of_a_file_computes_the_same(
    cli: Cli, model: str, chosen: str, tmp_path: Path
) -> None:
    ran = cli("inspect", model, *ONE, "--layouts", chosen, "--no-time")
    assert ran.code == 0, ran.err
    assert "nn.conv_channels_blocked" in ran.out
    assert "layouts:   2 NCHW8c" in ran.out
    ran = cli("build", model, *ONE, "--layouts", chosen, "-o", "c.lw")
    assert ran.code == 0, ran.err
    np.save(tmp_path / "x.npy", X)
    given = ("--input", "x=x.npy", "--output", "y.npz", "--repeat", "1")
    found = []
    for words in (("c.lw",), (model, "--layouts", chosen), (model,)):
        ran = cli("run", *words, *given)
        assert ran.code == 0, ran.err
        with np.load(tmp_path / "y.npz") as written:
            found.append(written["y"])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], rtol=1e-4, atol=1e-5)


def test_bench_compares_layouts_with_those_of_the_default(
    cli: Cli, model: str, chosen: str
) -> None:
    ran = cli("bench", model, *ONE, "--layouts", chosen, "--rounds", "3")
    assert ran.code == 0, ran.err
    assert "layouts of tuned: 2 NCHW8c" in ran.out
    assert [line.split()[0] for line in ran.out.splitlines() if line.endswith("x")][:2] == [
        "default", "tuned",
    ]  # fmt: skip


def test_files_that_hold_no_layouts_of_the_model_are_refused(
    cli: Cli, model: str, chosen: str, tmp_path: Path
) -> None:
    (tmp_path / "m.onnx").write_bytes(perceptron().SerializeToString())
    (tmp_path / "text").write_text("no layouts")
    assert (
        "c.layouts: the layouts were chosen for another module"
        in cli("build", "m.onnx", "--layouts", chosen, "-o", "m.lw").error
    )
    assert (
        "c.layouts: the layouts were chosen for another"
        in cli("tune", "m.onnx", "--layouts", chosen, "--trials", "3").error
    )
    assert (
        "text: these are no layouts of a model" in cli("inspect", model, "--layouts", "text").error
    )
    assert "--layouts none: there is no such file" in cli("run", model, "--layouts", "none").error
    for verb in ("tune", "bench"):
        batches = ("--batch", "1", "--layouts", chosen)
        assert "leave --batch out" in cli(verb, model, "x=nx8x6x6", *batches).error
    assert (
        "for a model, not for a workload"
        in cli("tune", "matmul", "M=8", "N=8", "K=8", "--layouts", chosen).error
    )
    assert cli("build", model, *ONE, "-o", "c.lw").code == 0
    assert "c.lw is built already" in cli("run", "c.lw", "--layouts", chosen).error
