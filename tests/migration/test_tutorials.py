"""Scripts written for TVM run here after their import lines, and nothing else, were replaced.

Each script beside this file makes the calls of one of AutoTVM's tutorials. Where more has to change
than imports, ``NAME_ported.py`` is the script as it has to be, and the lines that differ are
counted. ``python -m tests.migration.changed_lines`` prints the counts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from loopwright.runtime import opencl
from tests.migration.changed_lines import HERE, SCRIPTS, changed_lines, imports_replaced

#: Changed lines that are allowed, beside imports, for the scripts that need any.
ALLOWED = {
    "intrin_math": 20,
    "shared_schedule": 1,
    "tensorize": 49,
    "tune_conv2d_cuda": 2,
    "tune_conv2d_layer_cuda": 30,
    "tune_network_x86": 15,
}
#: Scripts that run on a device of OpenCL.
ON_OPENCL = {"tune_conv2d_cuda"}
#: What a script prints when everything in it was right.
LAST_WORDS = {
    "get_started": "the loaded library adds as well",
    "intrin_math": "all functions are right",
    "tune_simple_template": "the tuned product is right",
    "opt_gemm": "parallel: ",
    "schedule_primitives": "def main(A: float32[m], C: out float32[m], m: int32):",
    "tuple_inputs": "all results are right",
    "shared_schedule": "the product of shared tiles is right",
    "reduction": "sums and products are right",
    "tensorize": "the tensorized product is right",
    "tune_conv2d": "Time cost of this operator: ",
    "tune_conv2d_cuda": "Time cost of this operator: ",
    "tune_conv2d_layer_cuda": "the search went on",
    "tune_matmul_x86": "the search went on",
    "tune_network_x86": "the network was tuned",
}


def test_every_script_is_run() -> None:
    assert sorted(SCRIPTS) == sorted(LAST_WORDS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_with_other_imports(name: str, tmp_path: Path) -> None:
    assert changed_lines(name) <= ALLOWED.get(name, 0)
    if name in ON_OPENCL and not opencl().exist:
        pytest.skip(f"{opencl()} cannot be used: {opencl().why_absent()}")
    ported = HERE / f"{name}_ported.py"
    text = ported.read_text() if ported.exists() else imports_replaced(HERE / f"{name}.py")
    script = tmp_path / f"{name}.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LOOPWRIGHT_VERIFY": "1"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert LAST_WORDS[name] in done.stdout


def test_only_imports_are_replaced() -> None:
    for name in SCRIPTS:
        before = (HERE / f"{name}.py").read_text().splitlines()
        after = imports_replaced(HERE / f"{name}.py").splitlines()
        changed = [old for old, new in zip(before, after, strict=True) if old != new]
        assert changed
        assert all(line.startswith(("import tvm", "from tvm")) for line in changed)
