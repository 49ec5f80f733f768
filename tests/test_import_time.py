"""`import loopwright` is cheap: the heavy libraries load when something needs them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ["click", "joblib", "llvmlite", "matplotlib", "rich", "scipy", "xgboost"]

SCRIPT = """
import json, sys, time
begin = time.perf_counter()
import numpy
middle = time.perf_counter()
{statement}
end = time.perf_counter()
print(json.dumps({{
    "modules": sorted(sys.modules),
    "numpy_s": middle - begin,
    "loopwright_s": end - middle,
}}))
"""


def loaded(statement: str) -> dict:
    """What a fresh interpreter has loaded after `statement`, and how long that took."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(statement=statement)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("statement", ["import loopwright", "from loopwright import te"])
def test_heavy_libraries_stay_out(statement: str) -> None:
    seen = loaded(statement)
    # The time is for the reader of `pytest -rP`; a machine under load may take any.
    print(f"numpy {seen['numpy_s']:.3f} s, then {statement}: {seen['loopwright_s']:.3f} s")
    assert "loopwright" in seen["modules"]
    roots = {name.partition(".")[0] for name in seen["modules"]}
    assert roots.isdisjoint(HEAVY), sorted(roots.intersection(HEAVY))


@pytest.mark.parametrize(
    ("leaf", "strangers"),
    [
        ("runtime", ["ir", "te", "schedule", "lowering", "codegen", "records", "measure", "tuner"]),
        ("records", ["ir", "te", "schedule", "lowering", "codegen", "runtime", "measure", "tuner"]),
    ],
)
def test_leaves_work_alone(leaf: str, strangers: list[str]) -> None:
    modules = loaded(f"import loopwright.{leaf}")["modules"]
    assert f"loopwright.{leaf}" in modules
    for stranger in strangers:
        assert f"loopwright.{stranger}" not in modules
