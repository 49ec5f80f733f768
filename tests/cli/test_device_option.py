"""``--device``: what is refused, and kernels of a device from tuning to running."""

from __future__ import annotations

import json

import pytest

from loopwright.runtime import cpu, cuda
from loopwright.testing.tuner_contract import FakeMeasurer
from tests.cli.conftest import WORKLOAD
from tests.unit.measure.device_kernels import needs_opencl

TEMPLATE = """
import loopwright as lw
from loopwright import te

@lw.template("bound_add", reference=lambda a: a + 1)
def bound_add(n: int):
    cfg = lw.get_config()
    a = te.placeholder((n,), "float32", name="A")
    b = te.compute((n,), lambda i: a[i] + 1, name="B")
    s = te.create_schedule(b.op)
    cfg.define_knob("threads", [16, 64])
    cfg.add_flop(n)
    blocks, threads = s[b].split(b.op.axis[0], factor=cfg["threads"].val)
    s[b].bind(blocks, te.thread_axis("blockIdx.x"))
    s[b].bind(threads, te.thread_axis("threadIdx.x"))
    return s, [a, b]
"""
BOUND = ("add.py:bound_add", "n=256", "--target", "opencl")


@pytest.mark.skipif(cuda(0).exist, reason="there is a GPU")
@pytest.mark.parametrize("verb", ["tune", "bench"])
def test_a_device_that_is_missing_is_said_at_once(cli, tmp_path, verb):
    ran = cli(verb, "matmul", "M=16", "N=16", "K=16", "--target", "cuda")
    assert ran.code == 2
    assert "cuda(0) cannot be used: " in ran.error
    assert "building for cuda alone does not: loopwright build, or lw.build" in ran.error
    assert not list(tmp_path.iterdir())


def test_kernels_are_compared_on_one_device_of_their_kind(cli, tuned):
    assert "runs on devices of type cpu" in cli("bench", *WORKLOAD, "--device", "opencl:0").error
    ran = cli("bench", *WORKLOAD, "--device", "cpu:0", "--rounds", "3", "--json")
    assert json.loads(ran.out)["device"] == "cpu(0)"


def test_a_built_kernel_runs_on_devices_of_its_kind(cli):
    assert cli("build", *WORKLOAD, "-o", "mm.o").code == 0
    assert "is for devices of type cpu; name one" in cli("run", "mm.o", "--device", "cuda").error
    told = json.loads(cli("run", "mm.o", "--device", "cpu", "--repeat", "1", "--json").out)
    assert (told["device"], told["threads"]) == ("cpu(0)", 1)


@pytest.mark.usefixtures("instant")
@pytest.mark.parametrize("verb", ["tune", "tune-tasks"])
def test_what_to_do_next_is_compared_on_the_first_of_several_devices(
    cli, tmp_path, monkeypatch, verb
):
    """How is not checked here: nothing is measured, and the machine has one CPU."""
    (tmp_path / "one.txt").write_text("matmul M=16 N=16 K=16\n")
    for place in ("cli.tune", "cli.tune_tasks", "tuner.run.loop"):
        monkeypatch.setattr(f"loopwright.{place}.measured_on", lambda target, wanted="": (cpu(0),))
    monkeypatch.setattr("loopwright.tuner.run.loop.Measurer", lambda *_, **__: FakeMeasurer())
    words = WORKLOAD if verb == "tune" else ("one.txt", "--threads", "1")
    ran = cli(verb, *words, "--trials", "1", "--tuner", "random", "--device", "cpu, cuda:1")
    assert ran.code == 0, ran.err
    assert "--device 'cpu, cuda:1' --trials" in ran.out
    [compare] = [line for line in ran.out.splitlines() if line.startswith("  compare:")]
    assert compare.endswith(".jsonl --device cpu")


@needs_opencl
@pytest.mark.slow
def test_a_kernel_of_a_device_is_tuned_compared_built_and_run(cli, tmp_path):
    (tmp_path / "add.py").write_text(TEMPLATE)
    device = ("--device", "opencl:0")
    measure = ("--number", "1", "--repeat", "1", "--parallel", "1")
    ran = cli("tune", *BOUND, *device, *measure, "--trials", "2", "--log", "log.jsonl")
    assert ran.code == 0, ran.err
    assert "opencl(0) (" in ran.out
    assert "% of the FMA peak (float32)" in ran.out
    assert "is not known" not in ran.out
    assert "--history log.jsonl --device opencl:0" in ran.out  # the next step names the device
    bench = cli("bench", *BOUND, *device, "--history", "log.jsonl", "--rounds", "3")
    assert bench.code == 0, bench.err
    assert "GFLOP/s of peak speed-up" in bench.out
    assert "\nFMA peak (float32) " in bench.out
    assert "memory bandwidth" not in bench.out  # its arrays stay in the cache
    rerun = cli("records", "rerun", "log.jsonl", "best", *device, "--json")
    assert json.loads(rerun.out)["checked"] == "yes", rerun.err
    assert cli("build", *BOUND, "--history", "log.jsonl", "-o", "add.clprog").code == 0
    run = cli("run", "add.clprog", "--repeat", "2")
    assert run.code == 0, run.err
    assert "opencl(0) (" in run.out
    assert "evaluated by NumPy, within 0" in run.out
