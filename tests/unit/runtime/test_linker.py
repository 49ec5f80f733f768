"""Linking: symbols of the C library resolve, and unlinking gives the memory back."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from loopwright.errors import InternalError, RunError
from loopwright.runtime import Module, linker
from tests.unit.runtime import kernels


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_libm_and_libc_resolve() -> None:
    args = [kernels.arg("x", [1]), kernels.arg("o", [1], output=True)]
    module = Module(kernels.artifact(kernels.LIBM, "libm", args))
    out = np.zeros(1, np.float32)
    module(np.array([0.5], np.float32), out)
    assert out[0] == pytest.approx(math.exp(math.tanh(0.5)), rel=1e-6)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_dropping_a_module_frees_its_code() -> None:
    artifact = kernels.count().artifact
    counter = np.zeros(1, np.int64)

    def rounds(n: int) -> None:
        for _ in range(n):
            Module(artifact)(counter)
        gc.collect()

    engine = linker.LINKS_PER_ENGINE
    rounds(2 * engine)
    before = resident()
    rounds(engine)
    assert counter[0] == 3 * engine
    assert resident() - before < 1 << 20, "an engine that is never replaced keeps 9 KB a link"


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_compiling_keeps_no_pass_manager() -> None:
    text = "define i32 @f(i32 %x) {\n %y = add i32 %x, 1\n ret i32 %y\n}"
    for _ in range(20):
        linker.compile_text(text)
    before = resident()
    for _ in range(50):
        linker.compile_text(text)
    assert resident() - before < 1 << 20, "llvmlite keeps 60 kB of each by itself"


def test_a_function_keeps_its_code_after_the_module_is_gone() -> None:
    function = kernels.count()["count"]
    gc.collect()
    counter = np.zeros(1, np.int64)
    function(counter)
    assert counter[0] == 1


def test_what_is_no_object_is_refused() -> None:
    with pytest.raises(RunError, match="linking f failed"):
        linker.link(b"not an object", ["f"])


def test_a_missing_symbol_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        "declare i32 @lw_no_such()\ndefine i32 @f() {\n %r = call i32 @lw_no_such()\n ret i32 %r\n}"
    )
    with pytest.raises(RunError, match="linking f failed"):
        linker.link(linker.compile_text(text), ["f"])
    assert "lw_no_such" in capfd.readouterr().err


def test_bad_text_is_a_fault_of_ours() -> None:
    with pytest.raises(InternalError, match="LLVM refuses"):
        linker.compile_text("define nonsense")


def test_importing_the_runtime_loads_no_llvm() -> None:
    code = "import sys, loopwright.runtime; print('llvmlite' in sys.modules)"
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
