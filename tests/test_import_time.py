"""`import loopwright` is cheap: the heavy libraries load when something needs them."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

HEAVY = ["click", "joblib", "llvmlite", "matplotlib", "msgspec", "rich", "scipy", "xgboost"]

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


#: What a saved program runs without: `import loopwright.runtime` leaves it for later.
LATER = {
    "checker": "RuntimeChecker",
    "memory.transfers": "memory.AsyncMemoryCopier",
    "params": "save_params",
    "peak": "fma_peak",
    "profiling": "profiling",
    "profiling.monitor": "profiling.PerformanceMonitor",
    "thread_pool": "ThreadPool",
}
#: Modules of Python that only those need.
THEIRS = ["concurrent.futures", "csv", "logging", "queue"]
#: What drives a device, and what compiles for it.
DRIVERS = ["cuda", "pyopencl", "llvmlite"]


def test_the_runtime_imports_what_runs_a_program() -> None:
    modules = set(loaded("import loopwright.runtime")["modules"])
    early = modules & {f"loopwright.runtime.{name}" for name in LATER}
    assert not early
    assert not modules & {*THEIRS, *DRIVERS}
    assert not modules & {f"loopwright.runtime.devices.{kind}" for kind in ("cuda", "opencl")}


def test_the_rest_of_the_runtime_is_imported_by_its_names() -> None:
    used = "".join(f"; loopwright.runtime.{name}" for name in LATER.values())
    modules = set(loaded(f"import loopwright.runtime.memory{used}")["modules"])
    assert {f"loopwright.runtime.{name}" for name in LATER} <= modules


@pytest.mark.parametrize("package", ["runtime", "runtime.memory"])
def test_names_that_are_imported_later_are_listed_and_others_are_refused(package: str) -> None:
    module = importlib.import_module(f"loopwright.{package}")
    assert set(module.__all__) <= set(dir(module))
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"'loopwright.{package}' has no attribute 'nothing'"):
        _ = module.nothing
