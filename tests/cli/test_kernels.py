"""The verbs that build: lower, build, run, bench, devices."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from loopwright.inspection.bench import device_rates
from loopwright.runtime import Artifact
from tests.cli.conftest import WORKLOAD
from tests.unit.runtime.test_artifact import change as change_manifest


def test_lower_before_and_after(cli, tuned):
    ran = cli("lower", *WORKLOAD, "--history", str(tuned))
    assert ran.code == 0, ran.err
    before, after = ran.out.split("# matmul(32, 32, 32")
    assert before.startswith("# default configuration\ndef matmul") or "for " in before
    assert "record" in after.splitlines()[0]
    assert "for " in after


def test_lower_without_a_log_prints_one_nest(cli):
    ran = cli("lower", *WORKLOAD)
    assert ran.out.count("# default configuration") == ran.out.count("\ndef ") == 1


def test_lower_as_python(cli):
    assert ".split(" in cli("lower", *WORKLOAD, "--python").out


def test_analyze_says_what_stages_are(cli):
    ran = cli("analyze", *WORKLOAD)
    assert ran.code == 0, ran.err
    assert "C: contraction, since each operand stays where it is" in ran.out
    (stage,) = json.loads(cli("analyze", *WORKLOAD, "--json").out)
    assert [o["alone"] for o in stage["operands"]] == [["i"], ["j"]]


def test_build_then_run(cli, tuned, tmp_path):
    built = cli("build", *WORKLOAD, "--history", str(tuned), "-o", "mm.o")
    assert built.code == 0, built.err
    assert "record" in built.out
    assert "loopwright run mm.o" in built.out
    manifest = json.loads((tmp_path / "mm.o.json").read_text())
    assert manifest["entry"] == "matmul"
    for file in ("mm.o", "mm.o.json"):
        ran = cli("run", file)
        assert ran.code == 0, ran.err
        assert "outputs: equal to the reference of matmul(32, 32, 32" in ran.out
        assert "C: float32[32, 32]" in ran.out
    data = json.loads(cli("run", "mm.o", "--json", "--repeat", "3").out)
    assert len(data["times"]) == 3
    assert all(t > 0 for t in data["times"])


def test_build_a_shared_object(cli, tmp_path):
    built = cli("build", *WORKLOAD, "-o", "mm.so")
    assert built.code == 0, built.err
    assert built.out.splitlines()[1].startswith("wrote mm.so (")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mm.h", "mm.so"]
    main = r"""
    #include "mm.h"
    #include <stdio.h>
    #include <stdlib.h>
    static float a[1024], b[1024], c[1024];
    int main(void) {
      for (int i = 0; i < 1024; ++i) a[i] = b[i] = 1;
      void *workspace = aligned_alloc(64, MATMUL_WORKSPACE_BYTES
                                            + 64 * MATMUL_THREAD_WORKSPACE_BYTES + 64);
      int code = matmul_run(a, b, c, workspace);
      printf("%d %g", code, c[1023]);
      return 0;
    }
    """
    (tmp_path / "main.c").write_text(main)
    words = ["cc", "-Wall", "-Werror", "main.c", "./mm.so", "-o", "main"]
    subprocess.run(words, check=True, cwd=tmp_path)
    done = subprocess.run(["./main"], check=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "0 32"
    # It stands alone: neither LLVM nor the compiler is loaded.
    code = (
        "import sys, numpy as np, loopwright.runtime as r\n"
        "f = r.load_module('mm.so')\n"
        "a, b, c = (np.ones((32, 32), 'float32') for _ in range(3))\n"
        "f(a, b, c)\n"
        "assert (c == 32).all() and 'llvmlite' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    ran = cli("run", "mm.so", "--repeat", "1")
    assert ran.code == 0, ran.err
    assert "outputs: equal to the reference of matmul(32, 32, 32" in ran.out


@pytest.mark.parametrize(
    "workload",
    [
        ("matmul_int8", "M=16", "N=16", "K=16"),
        ("reduce", "M=8", "N=16", "kind=max"),
        ("dense", "M=8", "N=16", "K=8", "dtype=bfloat16"),
        ("pool2d", "N=1", "C=2", "H=8", "W=8", "KH=2", "KW=2", "kind=max"),
    ],
)
def test_run_compares_with_the_reference(cli, workload):
    assert cli("build", *workload, "--threads", "1", "-o", "k.o").code == 0
    ran = cli("run", "k.o", "--repeat", "1")
    assert ran.code == 0, ran.err
    assert f"outputs: equal to the reference of {workload[0]}(" in ran.out


def test_run_notices_a_wrong_answer(cli, tmp_path):
    """A product whose manifest says that the first operand is transposed."""
    assert cli("build", *WORKLOAD, "-o", "mm.o").code == 0
    artifact = Artifact.load(tmp_path / "mm.o")
    says = artifact.manifest["workload"]
    assert says["name"] == "matmul"
    says = {**says, "args": [32, 32, 32, True, *says["args"][4:]]}
    Artifact({**artifact.manifest, "workload": says}, artifact.objects).save("mm.o")
    ran = cli("run", "mm.o")
    assert ran.code == 1
    assert "elements are wrong; build it again" in ran.error
    says = {**says, "args": [32, 32, 16, True, *says["args"][4:]]}
    Artifact({**artifact.manifest, "workload": says}, artifact.objects).save("mm.o")
    assert "mm.o does not have the arguments of matmul(32, 32, 16" in cli("run", "mm.o").error
    says = {**says, "args": [32]}
    Artifact({**artifact.manifest, "workload": says}, artifact.objects).save("mm.o")
    assert "names a workload that cannot be" in cli("run", "mm.o").error


def test_run_says_what_it_cannot_compare(cli, tmp_path):
    assert cli("build", *WORKLOAD, "-o", "mm.o").code == 0
    artifact = Artifact.load(tmp_path / "mm.o")
    manifest = {k: v for k, v in artifact.manifest.items() if k != "workload"}
    Artifact(manifest, artifact.objects).save("mm.o")
    ran = cli("run", "mm.o", "--repeat", "1")
    assert ran.code == 0
    assert "outputs: all finite (its workload is not known, so that they were not" in ran.out
    says = {"name": "os.system", "args": ["id"], "target": "llvm"}
    Artifact({**manifest, "workload": says}, artifact.objects).save("mm.o")
    assert "'os.system' is no operator of loopwright" in cli("run", "mm.o").out


GATED = """
from loopwright import te

def gated(n):
    X, W = te.placeholder((n, 8), name="X"), te.placeholder((8, 24), name="W")
    k = te.reduce_axis((0, 8), name="k")
    G = te.compute((n, 24), lambda i, j: te.sum(X[i, k] * W[k, j], axis=k), name="G")
    return [X, W, G, te.compute((n, 24), lambda i, j: te.exp(-G[i, j] * G[i, j]), name="Y")]
"""


@pytest.mark.parametrize(
    ("most", "how"), [(1 << 22, "evaluated by NumPy"), (1, "compiled without a schedule")]
)
def test_run_compares_tensors_with_their_expression(cli, tmp_path, monkeypatch, most, how):
    """In calling order G is a result that comes before one that is made of it."""
    monkeypatch.setattr("loopwright.cli.kernel_files._MOST_POINTS", most)
    (tmp_path / "gated.py").write_text(GATED)
    assert cli("build", "gated.py:gated", "n=19", "-o", "gated.o").code == 0
    ran = cli("run", "gated.o", "--repeat", "1")
    assert ran.code == 0, ran.error
    assert re.search(rf"outputs: equal to its expression, {how}, within [0-9.e-]+\n", ran.out)
    artifact = Artifact.load(tmp_path / "gated.o")
    says = artifact.manifest["workload"]

    def said(**changes):
        workload = {**says, "expression": {**says["expression"], **changes}}
        Artifact({**artifact.manifest, "workload": workload}, artifact.objects).save("gated.o")
        return cli("run", "gated.o", "--repeat", "1")

    text = json.dumps(says["expression"]["dag"])
    ran = said(dag=json.loads(text.replace('"exp"', '"tanh"')))
    assert ran.code == 1
    assert "elements are wrong; build it again" in ran.error
    assert "does not have the arguments of its expression" in said(args=[0, 1, 2]).error
    for wrong in ({"dag": {}}, {"dag": 5}, {"args": None}, {"args": ["x"]}, {"args": [0, 1, 2, 9]}):
        ran = said(**wrong)
        assert ran.code == 2, ran.err
        assert "its manifest holds no expression that can be" in ran.error


def test_run_refuses_what_it_cannot_run(cli, tuned, tmp_path):
    assert cli("run", "nope.o").code == 2
    assert "there is no file nope.o" in cli("run", "nope.o").error
    assert cli("build", *WORKLOAD, "-o", "mm.o").code == 0
    for change, text in (
        ({"cpu": "other", "needs": []}, "built for the CPU other"),
        ({"needs": ["sse2", "warp9"]}, "with warp9, which this machine"),
        ({"format": 99}, "upgrade"),
    ):
        change_manifest(tmp_path / "mm.o.json", **change)
        ran = cli("run", "mm.o")
        assert ran.code == 2
        assert text in ran.error
    (tmp_path / "mm.o.json").write_text("{")
    assert "not a manifest" in cli("run", "mm.o").error


def test_run_refuses_outputs_that_are_not_finite(cli, tmp_path):
    (tmp_path / "inf.py").write_text(
        "from loopwright import te\n"
        "from loopwright.schedule import create_schedule\n"
        "from loopwright.task import template\n"
        "@template('test/infinite')\n"
        "def infinite(n):\n"
        "    a = te.placeholder((n,), 'float32', name='a')\n"
        "    b = te.compute((n,), lambda i: a[i] / (a[i] - a[i]), name='b')\n"
        "    return create_schedule(b.op), [a, b]\n"
    )
    assert cli("build", "inf.py:infinite", "n=8", "-o", "inf.o").code == 0
    # As its expression says; but where nobody says what it computes, that looks like a mistake.
    assert "equal to its expression" in cli("run", "inf.o", "--repeat", "1").out
    artifact = Artifact.load(tmp_path / "inf.o")
    manifest = {k: v for k, v in artifact.manifest.items() if k != "workload"}
    Artifact(manifest, artifact.objects).save("inf.o")
    ran = cli("run", "inf.o")
    assert ran.code == 1
    assert "8 of 8 elements of output 'b' are not finite" in ran.error


def test_build_to_a_folder_that_does_not_exist(cli):
    ran = cli("build", *WORKLOAD, "-o", "no/such/mm.o")
    assert ran.code == 1
    assert "cannot write no/such/mm.o" in ran.error


@pytest.mark.parametrize("verb", ["lower", "bench", "build"])
def test_a_missing_history_is_an_error(cli, verb):
    more = ["-o", "mm.o"] if verb == "build" else []
    ran = cli(verb, *WORKLOAD, "--history", "nope.jsonl", *more)
    assert ran.code == 2
    assert "no log at 'nope.jsonl'" in ran.error


def test_a_history_of_another_task_is_said_and_the_default_built(cli, tuned):
    other = ["matmul", "M=16", "N=16", "K=16", "--threads", "1"]
    for verb in (["build", "-o", "mm.o"], ["bench"], ["lower"]):
        ran = cli(verb[0], *other, "--history", str(tuned), *verb[1:])
        assert ran.code == 1
        assert "no record of matmul(16, 16, 16" in ran.error
        assert "--allow-default" in ran.error
    ran = cli("build", *other, "--history", str(tuned), "--allow-default", "-o", "mm.o")
    assert ran.code == 0
    assert "no record" in ran.err
    assert "default configuration" in ran.out


def test_a_history_with_torn_lines_is_used_and_they_are_counted(cli, tuned, tmp_path):
    path = tmp_path / "torn.jsonl"
    path.write_text(tuned.read_text() + '{"v": 1, "ta')
    ran = cli("lower", *WORKLOAD, "--history", str(path))
    assert ran.code == 0
    assert "1 line skipped" in ran.err
    assert "record" in ran.out


def test_bench(cli, tuned):
    ran = cli("bench", *WORKLOAD, "--history", str(tuned), "--rounds", "6")
    assert ran.code == 0, ran.err
    rows = [line.split()[0] for line in ran.out.splitlines()[3:7]]
    assert rows == ["default", "tuned", "NumPy", "FMA"]
    figures = r"(an uncertain amount \()?([\d.]+ % \+- [\d.]+ %|a factor of [\d.]+ \+- [\d.]+)\)?"
    for name in ("the default", "NumPy"):
        factor = r"a factor of [\d.]+ \+- [\d.]+"
        amount = rf"({figures}|{factor}|an uncertain amount \({figures}\))"
        words = rf"tuned (beats|is slower than) {name} by {amount}"
        tie = rf"tie: tuned and {name} differ by {figures}"
        no_gain = rf"no measurable gain: {name} has \d+ % of the FMA peak \([\w., -]+\)"
        assert re.search(rf"^({words}|{tie}|{no_gain})$", ran.out, re.MULTILINE), ran.out


def test_bench_as_json(cli, monkeypatch):
    # What halves NumPy's speed must not reach its process; a bad value would end it at once.
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    ran = cli("bench", *WORKLOAD, "--rounds", "3", "--json")
    data = json.loads(ran.out)
    assert [row["name"] for row in data["rows"]] == ["default", "NumPy"]
    assert all(len(row["times"]) == 3 for row in data["rows"])
    assert all(0 < row["of_peak"] < 10 for row in data["rows"])
    assert data["fma_peak_gflops"] > 0
    assert data["flop"] == 2 * 32**3
    (gain,) = data["gains"]
    assert (gain["one"], gain["other"], gain["gain"]) == ("default", "NumPy", None)
    assert "too few rounds for an interval; give 6 or more" in gain["text"]


def test_a_share_above_the_peak_is_measured_again_and_said(cli, monkeypatch):
    asked = []
    monkeypatch.setattr("loopwright.runtime.fma_peak", lambda *_, **__: asked.append(1) or 1.0)
    ran = cli("bench", *WORKLOAD, "--rounds", "3")
    assert len(asked) == 6
    assert "default and NumPy: above the peak, measured twice" in ran.out


@pytest.mark.parametrize("measure", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_devices(cli, monkeypatch, measure):
    # Bandwidths, and limits of other devices, take seconds: by night they are measured, once; by
    # day made up.
    measured = {}
    if not measure:
        monkeypatch.setattr("loopwright.runtime.bandwidth", lambda threads: 2e10)

    def once(one, announce):
        if str(one) not in measured:
            measured[str(one)] = device_rates(one, announce) if measure else (2e9, 3e9, "")
        return measured[str(one)]

    monkeypatch.setattr("loopwright.inspection.device_rates", once)
    ran = cli("devices", "--json", "--threads", "1")
    assert ran.code == 0, ran.err
    data = json.loads(ran.out)
    assert data["device"] == "cpu(0)"
    assert data["fma_peak_gflops"] > 0
    assert data["bandwidth_gbytes"] > 0
    text = cli("devices").out
    assert "float32 peak" in text
    assert data["cpu"] in text
    for other in data["others"]:
        assert f"{other['device']}: {other['device_name']}" in text
        assert other["max_threads_per_block"] > 0
        assert other["limits_unknown"] == ""
        limits = other["fma_peak_gflops"], other["bandwidth_gbytes"]
        assert min(limits) > 0 if measure else limits == (2, 3)
        for told, unit in zip(limits, ("GFLOP/s", "GB/s"), strict=True):
            assert f": {told:.1f} {unit}" in text
    names = {other["device"].partition("(")[0] for other in data["others"]}
    for name in {"cuda", "opencl"} - names:
        assert f"{name}: none (" in text


def test_lower_writes_the_code_of_devices(cli):
    matmul = ("lower", "matmul", "M=16", "N=16", "K=16", "--target", "opencl", "--emit", "opencl")
    text = cli(*matmul).out
    assert text.startswith("// default configuration")
    assert "__kernel" in text
    assert "get_local_id(0)" in text
    pytest.importorskip("cuda")
    on_cuda = ("lower", "matmul", "M=16", "N=16", "K=16", "--target", "cuda", "--emit")
    assert "__global__" in cli(*on_cuda, "cuda").out
    assert ".target sm_90" in cli(*on_cuda, "ptx").out
    assert "#include <hip/hip_runtime.h>" in cli(*on_cuda, "hip").out
