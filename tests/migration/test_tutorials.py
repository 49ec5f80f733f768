"""Scripts written for TVM run here after their import lines, and nothing else, were replaced.

Each script beside this file makes the calls of one of AutoTVM's tutorials. Where more has to change
than imports, ``NAME_ported.py`` is the script as it has to be, and the lines that differ are
counted. ``python -m tests.migration.changed_lines`` prints the counts.
"""

from __future__ import annotations

import json
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


#: Runs scripts one after the other, each in its folder; a line of JSON tells what each printed, and
#: the traceback of one that failed.
CHILD = """
import contextlib, io, json, os, runpy, sys, traceback
for path in sys.argv[1:]:
    os.chdir(os.path.dirname(path))
    said, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(path, run_name="__main__")
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps([said.getvalue(), error]), flush=True)
"""


def test_every_script_is_run() -> None:
    assert sorted(SCRIPTS) == sorted(LAST_WORDS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_more_lines_change_than_are_allowed(name: str) -> None:
    assert changed_lines(name) <= ALLOWED.get(name, 0)


@pytest.mark.docs
@pytest.mark.parametrize(
    "names",
    [
        # Those that tune nothing take longer to start than to run: by day they share a process.
        [name for name in SCRIPTS if not name.startswith("tune_")],
        ["tune_simple_template"],
        # By night each has a process of its own, those that tune longer among them.
        *(
            pytest.param([name], marks=pytest.mark.slow)
            for name in SCRIPTS
            if name != "tune_simple_template"
        ),
    ],
    ids="-".join,
)
def test_scripts_run_with_other_imports(names: list[str], tmp_path: Path) -> None:
    if ON_OPENCL.intersection(names) and not opencl().exist:
        pytest.skip(f"{opencl()} cannot be used: {opencl().why_absent()}")
    scripts = []
    for name in names:
        ported = HERE / f"{name}_ported.py"
        text = ported.read_text() if ported.exists() else imports_replaced(HERE / f"{name}.py")
        scripts.append(tmp_path / name / f"{name}.py")
        scripts[-1].parent.mkdir()
        scripts[-1].write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *map(str, scripts)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LOOPWRIGHT_VERIFY": "1"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    outcomes = zip(names, map(json.loads, done.stdout.splitlines()), strict=True)
    wrong = [
        f"{name}: {error or said[-2000:]}"
        for name, (said, error) in outcomes
        if error or LAST_WORDS[name] not in said
    ]
    assert not wrong, "\n".join(wrong)


def test_only_imports_are_replaced() -> None:
    for name in SCRIPTS:
        before = (HERE / f"{name}.py").read_text().splitlines()
        after = imports_replaced(HERE / f"{name}.py").splitlines()
        changed = [old for old, new in zip(before, after, strict=True) if old != new]
        assert changed
        assert all(line.startswith(("import tvm", "from tvm")) for line in changed)
