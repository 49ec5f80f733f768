"""What the others compute is what we compute: with a stand-in for PyTorch, which is not here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu.cases import CASES, Case
from benchmarks.gpu.data import inputs, problem
from benchmarks.gpu.folder import Purpose, begin
from benchmarks.gpu.libraries import environment, has_triton, library, prepare
from benchmarks.gpu.peers import LibrarySide

STAND_IN = Path(__file__).parents[1] / "stand_in"
COMPARED = [case for case in CASES if "library" in case.libraries]
BY_NAME = {case.name: case for case in CASES}


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("PyTorch itself is here")
    monkeypatch.syspath_prepend(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN), prepend=":")
    yield
    sys.modules.pop("torch", None)


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case.name)
def test_calls_of_pytorch_compute_the_case(case: Case) -> None:
    given = inputs(case, case.small)
    found = prepare("torch", case, case.small, given)
    if case.name == "matmul_4096_fp16":
        assert (found.answer.dtype, found.note) == (np.float16, "result in fp16")
    assert problem(case, given, found.answer.astype(np.float32)) == ""
    assert found.sample() > 0
    tf32 = case.name == "matmul_4096_tf32"
    assert found.device == f"tf32 {tf32}, {tf32}"


@pytest.mark.usefixtures("torch")
def test_a_library_takes_turns_in_a_process_of_its_own(tmp_path: Path) -> None:
    folder = begin(tmp_path, Purpose("cuda", "cuda", True, 0))
    with closing(LibrarySide(folder, BY_NAME["conv2d_64_56"], "torch")) as side:
        side.prepare(60)
        assert (side.problem, side.note) == ("", "torch")
        side.turn()
        side.turn()
        assert len(side.samples) == 2
    with closing(LibrarySide(folder, BY_NAME["copy"], "torch")) as side:
        side.prepare(60)
        assert "no call of PyTorch is known for copy" in side.problem
        side.turn()
        assert side.samples == []


def test_what_is_not_installed_is_not_compared() -> None:
    here = {x: importlib.util.find_spec(x) is not None for x in ("torch", "cupy", "triton")}
    assert library() == next((x for x in ("torch", "cupy") if here[x]), "")
    assert has_triton() == (here["triton"] and here["torch"])


def test_cupy_is_told_of_tf32_by_its_environment() -> None:
    assert environment("cupy", BY_NAME["matmul_4096_fp32"]) == {"CUPY_TF32": "0"}
    assert environment("cupy", BY_NAME["matmul_4096_tf32"]) == {"CUPY_TF32": "1"}
    assert environment("torch", BY_NAME["matmul_4096_tf32"]) == {}
