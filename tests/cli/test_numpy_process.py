from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from loopwright.cli import numpy_process as numpy_side
from loopwright.cli.numpy_process import NumpySide, reference_of
from loopwright.cli.tune import input_specs
from loopwright.cli.workload import find_workload

WORDS = ("matmul", ["M=8", "N=16", "K=4", "trans_a=true"])


def test_samples():
    found = find_workload(*WORDS)
    specs = input_specs(found)
    assert specs == [((4, 8), "float32"), ((4, 16), "float32")]
    with NumpySide(found, specs, threads=1) as side:
        assert side.problem == ""
        samples = [side.sample() for _ in range(3)]
    assert all(0 < s < 1 for s in samples)


def test_inputs_that_do_not_fit_are_a_problem_and_no_exception():
    found = find_workload(*WORDS)
    with NumpySide(found, [((3, 8), "float32"), ((4, 16), "float32")], threads=1) as side:
        assert "ValueError" in side.problem
        assert side.sample() is None


@pytest.fixture
def environment(monkeypatch):
    """The environment that NumPy's process would get."""
    seen = {}
    script = "import sys; [print('{}', flush=True) for _ in sys.stdin]"

    def popen(command, env, **options):
        seen.update(env)
        return real([sys.executable, "-c", script], env=env, **options)

    real = numpy_side.subprocess.Popen
    monkeypatch.setattr(numpy_side.subprocess, "Popen", popen)
    return seen


def test_settings_that_halve_numpy_are_unset(environment, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "1")
    workload = SimpleNamespace(words=("x",), target="llvm")
    NumpySide(workload, [], threads=3).close()
    assert "OPENBLAS_CORETYPE" not in environment
    assert "OPENBLAS_L2_SIZE" not in environment
    assert environment["OPENBLAS_NUM_THREADS"] == "3"
    assert os.environ["OPENBLAS_CORETYPE"] == "Prescott"


def test_every_operator_has_a_reference():
    from loopwright import ops

    sizes = {"B": 2, "N": 1, "C": 4, "H": 8, "W": 8, "O": 4, "KH": 3, "KW": 3, "M": 8, "K": 8}
    for name, operator in ops.WORKLOADS.items():
        given = [f"{k}={sizes[k]}" for k in operator.params if k in sizes]
        assert json.dumps(given)
        assert callable(reference_of(find_workload(name, given)))


def test_a_killed_parent_leaves_no_stopped_process(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal\n"
        "from loopwright.cli.numpy_process import NumpySide\n"
        "from loopwright.cli.workload import find_workload\n"
        "found = find_workload('matmul', ['M=8', 'N=8', 'K=8'])\n"
        "side = NumpySide(found, [((8, 8), 'float32')] * 2, 1)\n"
        "side.sample()\n"
        "print(side._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    pid = int(done.stdout)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}/stat").exists() and time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        if state == "Z":  # ended; whoever adopted it has not looked yet
            break
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{pid}").exists()
