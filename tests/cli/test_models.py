"""From an ONNX file to a tuned, saved, running model by the command line."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from loopwright import records
from loopwright.extras import install
from loopwright.runtime import load_module, opencl
from tests.cli.conftest import Cli
from tests.unit.graph.small_onnx import branching, layers_by_numpy, perceptron

onnx = pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')

ONE = ("--threads", "1")
X = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The name of a model in the folder in which commands run."""
    (tmp_path / "m.onnx").write_bytes(perceptron().SerializeToString())
    return "m.onnx"


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A log in which the model has been tuned, really; do not write to it."""
    from loopwright import LocalRunner, measure_option, tune

    path = tmp_path_factory.mktemp("models") / "m.jsonl"
    tune(
        perceptron(),
        "llvm -num-threads=1",
        log=path,
        trials=5,
        tuner="random",
        measure_option=measure_option(runner=LocalRunner(number=1, repeat=1)),
    )
    return str(path)


@pytest.mark.usefixtures("instant")
def test_a_model_is_tuned_into_one_log_and_goes_on(cli: Cli, model: str, tmp_path: Path) -> None:
    ran = cli("tune", model, *ONE, "--trials", "6", "--tuner", "random")
    assert ran.code == 0, ran.err
    assert "m.onnx on llvm -num-threads=1: 3 tasks, tuner random, log m.jsonl" in ran.out
    row = r"^graph/dense_add_relu\(\(4, 16\), \(16, 16\), \(16,\)\) +\d+ .* 2 +[\d.]+ ms$"
    assert re.search(row, ran.out, re.MULTILINE)
    assert re.search(
        r"^model: +[\d.]+ ms a run is expected of these kernels", ran.out, re.MULTILINE
    )
    again = f"loopwright tune {model} --threads 1 --log m.jsonl --tuner random"
    assert f"continue: {again} --trials 12" in ran.out
    for verb in ("inspect", "bench"):
        assert f"loopwright {verb} {model} --threads 1 --history m.jsonl" in ran.out
    assert (
        f"loopwright build {model} --threads 1 --history m.jsonl --finalists 3 -o m.lw" in ran.out
    )
    assert len({r.task for r in records.load(tmp_path / "m.jsonl")}) == 3
    more = cli("tune", model, *ONE, "--trials", "7", "--tuner", "random", "--json")
    said = json.loads(more.out)
    assert (said["from_log"], said["measured"]) == (6, 1)
    assert [row["weight"] for row in said["tasks"]] == [2, 1, 1]


# By day no model: `test_device_option.py` takes a kernel through the same verbs.
@pytest.mark.slow
@pytest.mark.skipif(not opencl().exist, reason="no OpenCL device")
def test_a_model_for_a_device_is_tuned_inspected_timed_and_run(cli: Cli, model: str) -> None:
    """The kernels are measured where they run, whose times are those that are told."""
    there = ("--target", "opencl")
    short = ("--number", "1", "--repeat", "1", "--tuner", "random")
    ran = cli("tune", model, *there, "--trials", "3", *short)
    assert ran.code == 0, ran.err
    built = f"loopwright build {model} --target opencl --history m.jsonl -o m.lw"
    assert f"build:    {built}" in ran.out
    applied = (model, *there, "--history", "m.jsonl")
    inspected = cli("inspect", *applied, "--json")
    kernels = json.loads(inspected.out)["kernels"]
    assert all(row["seconds"] > 0 for row in kernels)
    assert cli("build", *applied, "-o", "m.lw").code == 0
    benched, run = cli("bench", *applied, "--rounds", "3"), cli("run", "m.lw", "--repeat", "1")
    assert "3 of 3 kernels have a record" in benched.out
    for said in (benched.out, run.out):
        assert said.splitlines()[0].split(", ")[1].startswith("opencl(0) (")
    assert "ONNX Runtime" not in benched.out


@pytest.mark.usefixtures("instant")
def test_quiet_says_results_alone(cli: Cli, model: str) -> None:
    ran = cli("tune", model, *ONE, "--trials", "3", "--tuner", "random", "--quiet")
    assert ran.out.startswith("task ")
    assert ran.out.splitlines()[-1].startswith("model:")
    assert ran.err == ""


def test_ctrl_c_prints_the_command_that_goes_on(
    cli: Cli, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loopwright.measure.measurer.Measurer.measure_new", interrupt)
    ran = cli("tune", model, *ONE, "--timeout", "10m", "--seed", "3")
    assert ran.code == 130
    assert "interrupted; every finished trial is in m.jsonl" in ran.out
    words = "--threads 1 --log m.jsonl --seed 3 --timeout 10m"
    assert f"  loopwright tune {model} {words}\n" in ran.out


def test_inspect_tells_kernels_tasks_and_records(cli: Cli, model: str, log: str) -> None:
    ran = cli("inspect", model, *ONE, "--history", log)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0] == (
        "m.onnx on llvm -num-threads=1: 9 operators in 4 calls of 3 kernels, 3 tasks"
    )
    assert "inputs:    x float32[4, 16]" in lines
    assert "operators: 3 nn.dense, 3 add, 2 nn.relu, 1 nn.softmax" in lines
    rows = [line for line in lines if re.match(r"\w+_\d ", line)]
    assert [int(row.split()[1]) for row in sorted(rows)] == [1, 2, 1]
    # The record of a kernel may hold percents, too.
    shares = [float(re.findall(r"([\d.]+)% ", row)[0]) for row in rows]
    assert sum(shares) == pytest.approx(100, abs=0.3)
    assert shares == sorted(shares, reverse=True)
    assert re.match(r"3 of 3 tasks have records \(100.0% of the time\), [0-3] are", lines[-1])
    said = json.loads(cli("inspect", model, *ONE, "--history", log, "--json").out)
    assert sum(kernel["calls"] for kernel in said["kernels"]) == 4
    assert all(kernel["record"] or kernel["note"] for kernel in said["kernels"])


def test_inspect_without_times_builds_nothing(
    cli: Cli, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loopwright.driver.build", None)
    ran = cli("inspect", model, "--no-time")
    assert ran.code == 0, ran.err
    assert re.search(r"^softmax_2 +1 +0.000 +- +- +- +default$", ran.out, re.MULTILINE)
    assert "have records" not in ran.out


def test_a_model_is_built_and_run_on_given_data(
    cli: Cli, model: str, log: str, tmp_path: Path
) -> None:
    ran = cli("build", model, *ONE, "--history", log, "-o", "m.lw")
    assert ran.code == 0, ran.err
    assert re.search(r"^wrote m\.lw \(\d+ bytes, 3 kernels\)$", ran.out, re.MULTILINE)
    assert ran.out.count("record ") >= 3
    assert ran.out.endswith("run it: loopwright run m.lw\n")
    np.save(tmp_path / "x.npy", X)
    for file in ("m.lw", model):
        ran = cli("run", file, "--input", "x=x.npy", "--output", "y.npz", "--repeat", "2")
        assert ran.code == 0, ran.err
        assert "random data" not in ran.out
        assert re.search(r"^outputs: p float32\[4, 8\]: min 0\.", ran.out, re.MULTILINE)
        with np.load(tmp_path / "y.npz") as written:
            np.testing.assert_allclose(written["p"], layers_by_numpy(X)[-1], rtol=1e-4)
    said = json.loads(cli("run", "m.lw", "--repeat", "2", "--json").out)
    assert said["outputs"]["p"]["shape"] == [4, 8]
    assert (len(said["times"]), said["threads"]) == (2, 1)


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
def test_a_model_is_built_as_a_library(cli: Cli, model: str, tmp_path: Path) -> None:
    ran = cli("build", model, *ONE, "-o", "net.so")
    assert ran.code == 0, ran.err
    assert ran.out.endswith("wrote net.h\nrun it: loopwright run net.so\n")
    assert "int32_t net(void **args, void *workspace);" in (tmp_path / "net.h").read_text()
    found = np.empty((4, 8), "float32")
    load_module(tmp_path / "net.so")(X, found)
    np.testing.assert_allclose(found, layers_by_numpy(X)[-1], rtol=1e-4)
    ran = cli("run", "net.so", "--repeat", "2")
    assert ran.code == 0, ran.err


def test_bench_times_a_model_in_turns(cli: Cli, model: str, log: str) -> None:
    ran = cli("bench", model, *ONE, "--history", log, "--rounds", "6", "--json")
    assert ran.code == 0, ran.err
    said = json.loads(ran.out)
    assert list(said["times"])[:2] == ["default", "tuned"]
    assert {len(times) for times in said["times"].values()} == {6}
    assert len(said["gains"]) == len(said["times"]) - 1
    text = cli("bench", model, *ONE, "--rounds", "3").out
    assert re.search(r"^default +[\d.e-]+ ms +[\d.]+% +1\.00x$", text, re.MULTILINE)


def test_finalists_take_turns_inside_the_model(cli: Cli, model: str, log: str) -> None:
    words = (model, *ONE, "--history", log, "--finalists", "2")
    ran = cli("build", *words, "-o", "m.lw")
    assert ran.code == 0, ran.err
    found = re.search(
        r"^inside the model (\d) of (\d) kernels? with several candidates changed$",
        ran.out,
        re.MULTILINE,
    )
    nothing = "no kernel has another candidate than the one that is built" in ran.out
    assert bool(found) != nothing
    if found:
        changes = re.findall(r"^  \w+_\d: .* in place of .* faster\)$", ran.out, re.MULTILINE)
        assert len(changes) == int(found[1])
    assert cli("run", "m.lw", "--repeat", "1").code == 0
    ran = cli("bench", *words, "--rounds", "3")
    assert ran.code == 0, ran.err
    assert "candidate" in ran.out


def test_the_report_shows_the_model(cli: Cli, model: str, log: str, tmp_path: Path) -> None:
    ran = cli("report", log, "--model", model, "-o", "page.html")
    assert ran.code == 0, ran.err
    text = (tmp_path / "page.html").read_text()
    assert "A run is expected to take" in text
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    kernels = data["model"]["kernels"]
    assert sorted(row["calls"] for row in kernels) == [1, 1, 2]
    medians = {record.id: record.median for record in records.load(log)}
    assert [row["seconds"] for row in kernels] == pytest.approx(
        [medians[row["id"]] for row in kernels]
    )
    assert all(row["trials"] for row in kernels)
    totals = data["model"]["steps"]["seconds"]
    assert totals
    assert totals == sorted(totals, reverse=True)
    (tmp_path / "n.onnx").write_bytes(_named(3))
    ran = cli("report", log, "--model", "n.onnx")
    assert "no record of any kernel of n.onnx; it is a log of something else" in ran.err
    assert "name it with --model" in cli("report", log, "--shape", "x=1x2").error
    assert "no file 'none.onnx'" in cli("report", log, "--model", "none.onnx").error


def _named(extent: str | int) -> bytes:
    """A model whose batch is an extent, or a name."""
    from onnx import TensorProto, helper

    x = helper.make_tensor_value_info("in.1", TensorProto.FLOAT, [extent, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [extent, 4])
    node = helper.make_node("Softmax", ["in.1"], ["y"], axis=-1)
    made = helper.make_graph([node], "g", [x], [y])
    opset = helper.make_opsetid("", 17)
    found: bytes = helper.make_model(made, opset_imports=[opset]).SerializeToString()
    return found


def test_shapes_of_inputs_stand_behind_the_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "n.onnx").write_bytes(_named("batch"))
    error = cli("inspect", "n.onnx").error
    assert "'in.1' is float32[batch, 4], and batch has no number" in error
    assert error.endswith("such as in.1=1x4")
    ran = cli("inspect", "n.onnx", "in.1=3x4", "--no-time")
    assert "inputs:    in.1 float32[3, 4]" in ran.out
    assert "'in.1' is no shape" in cli("inspect", "n.onnx", "in.1").error
    assert "'in.1=3x+' is no shape" in cli("tune", "n.onnx", "in.1=3x+").error


def test_files_that_are_no_model_are_one_line(
    cli: Cli, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (tmp_path / model).read_bytes()
    (tmp_path / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.onnx").write_text("no model at all")
    (tmp_path / "empty.lw").touch()
    for verb in ("tune", "inspect", "bench", "run"):
        for file in ("cut.onnx", "text.onnx"):
            assert f"'{file}' is no ONNX model" in cli(verb, file).error
        assert "no file 'none.onnx'; name an ONNX model" in cli(verb, "none.onnx").error
    assert "empty.lw is no model of loopwright, or was damaged" in cli("run", "empty.lw").error
    assert "there is no file none.lw" in cli("run", "none.lw").error
    assert cli("run", "none.lw").code == 2
    monkeypatch.setitem(sys.modules, "onnx", None)
    for verb in ("tune", "inspect"):
        assert f"the package onnx: {install('onnx')}" in cli(verb, model).error


def test_options_that_mean_nothing_for_a_model_are_refused(
    cli: Cli, model: str, log: str, tmp_path: Path
) -> None:
    (tmp_path / "other.jsonl").touch()
    (tmp_path / "x.npy").write_bytes(b"nothing")
    np.save(tmp_path / "y.npy", X[:2])
    for words, text in {
        ("tune", model, "--gflops", "3"): "--gflops: for a workload, not for a model",
        ("tune", model, "--trials", "2"): "less than one trial for each of the 3 tasks",
        ("tune", model, "--timeout", "soon"): "is not a duration",
        (
            "build",
            model,
            "-o",
            "m.so.1",
        ): "m.so.1: a model is written as one file that",
        ("bench", model, "--history", log, "--trial", "0"): "--trial: for a workload",
        ("bench", model, "--finalists", "3"): "name their log with --history",
        ("build", model, "--finalists", "0", "-o", "m.lw"): "0 is not in the range x>=1",
        ("build", model, "--history", "other.jsonl", "-o", "m.lw"): "no record of any kernel",
        ("run", model, "--input", "y=x.npy"): "the model has no input 'y'; it has x",
        ("run", model, "--input", "x"): "write it as name=file.npy",
        ("run", model, "--input", "x=none.npy"): "cannot read none.npy",
        ("run", model, "--input", "x=x.npy"): "x.npy is no array of NumPy",
        ("run", model, "--input", "x=y.npy"): "'x' is float32[4, 16], got float32[2, 16]",
        ("run", model, "--output", "y.csv"): "name such a file",
        ("run", "kernel.o", "--input", "x=y.npy"): "--input and --output are for models",
    }.items():
        assert text in cli(*words, *(() if words[0] == "run" else ONE)).error, words
    assert not (tmp_path / "m.lw").exists()


def test_nodes_without_a_kernel_are_listed_or_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "b.onnx").write_bytes(branching().SerializeToString())
    ran = cli("inspect", "b.onnx", *ONE)
    assert ran.code == 0, ran.err
    assert "in 3 calls of 2 kernels, 0 tasks; without a kernel: 1" in ran.out
    row = (
        r"^if_by_onnx_reference_0 +1 +- +\S+ \ws +[\d.]+% +[\d.]+% +no kernel, onnx.reference: "
        r"its .*'flag'"
    )
    assert re.search(row, ran.out, re.MULTILINE)
    told = json.loads(cli("inspect", "b.onnx", *ONE, "--no-time", "--json").out)
    assert [k["by"] for k in told["kernels"]] == ["", "", "onnx.reference"]
    ran = cli("run", "b.onnx", "--repeat", "1")
    assert "no kernel: if_by_onnx_reference_0 (onnx.reference); `loopwright inspect`" in ran.out
    for words in (
        ("inspect", "b.onnx", "--no-time", "--no-fallback"),
        ("run", "b.onnx", "--no-fallback"),
        ("bench", "b.onnx", "--no-fallback"),
        ("tune", "b.onnx", "--trials", "1", "--no-fallback"),
        ("build", "b.onnx", "-o", "b.lw"),
    ):
        ran = cli(*words)
        assert ran.code != 0
        assert "1 node cannot be converted: If 'choice' (" in ran.err
    ran = cli("tune", "matmul", "M=8", "N=8", "K=8", "--no-fallback")
    assert "--no-fallback: for a model, not for a workload; leave it out" in ran.err
    ran = cli("bench", "matmul", "M=8", "N=8", "K=8", "--finalists", "3")
    assert "--finalists: for a model, not for a workload; leave it out" in ran.err
