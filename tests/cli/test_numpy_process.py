from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from loopwright.cli.numpy_process import NumpyProcess, environment, input_specs
from loopwright.cli.workload import find_workload

WORDS = ("matmul", ["M=8", "N=16", "K=4", "trans_a=true"])


def test_samples():
    found = find_workload(*WORDS)
    specs = input_specs(found)
    assert specs == [((4, 8), "float32"), ((4, 16), "float32")]
    with NumpyProcess(found, specs, threads=1) as side:
        assert side.problem == ""
        samples = [side.sample() for _ in range(3)]
        assert all(0 < s < 1 for s in samples)
        # Inputs that do not fit are a problem, and no exception.
        side.prepare(found, [((3, 8), "float32"), ((4, 16), "float32")])
        assert "ValueError" in side.problem
        assert side.sample() is None


def test_settings_that_halve_numpy_are_unset():
    changes = environment(threads=3)
    assert changes["OPENBLAS_CORETYPE"] is None
    assert changes["OPENBLAS_L2_SIZE"] is None
    assert changes["OPENBLAS_NUM_THREADS"] == "3"


def test_a_library_that_cannot_be_loaded_is_a_problem():
    class Missing(NumpyProcess):
        module = "loopwright.cli.no_such_module"
        library = "Missing"

    found = find_workload(*WORDS)
    with Missing(found, [], threads=1) as process:
        assert process.problem.startswith("cannot start a Missing process")
        assert process.sample() is None


def test_a_process_that_dies_is_a_problem():
    found = find_workload(*WORDS)
    with NumpyProcess(found, input_specs(found), threads=1) as process:
        os.kill(process.pid, signal.SIGKILL)
        assert process.sample() is None
        assert "SIGKILL" in process.problem or "had died" in process.problem
        assert process.pid is None


def test_every_operator_has_a_reference():
    from loopwright import ops

    sizes = {"B": 2, "N": 1, "C": 4, "H": 8, "W": 8, "O": 4, "KH": 3, "KW": 3, "M": 8, "K": 8}
    for name, operator in ops.WORKLOADS.items():
        given = [f"{k}={sizes[k]}" for k in operator.params if k in sizes]
        assert json.dumps(given)
        assert callable(find_workload(name, given).task.reference)


def test_a_killed_parent_leaves_no_stopped_process(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal\n"
        "from loopwright.cli.numpy_process import NumpyProcess\n"
        "from loopwright.cli.workload import find_workload\n"
        "found = find_workload('matmul', ['M=8', 'N=8', 'K=8'])\n"
        "side = NumpyProcess(found, [((8, 8), 'float32')] * 2, 1)\n"
        "side.sample()\n"
        "print(side.pid, flush=True)\n"
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
