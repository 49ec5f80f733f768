"""What works on Windows and macOS works there, and what does not says so."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.other_system import POSIX_MODULES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "loopwright"
#: Run by POSIX systems alone.
WORKER = PACKAGE / "measure/workers/worker.py"


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []


def test_no_file_needs_what_only_posix_has_to_be_imported() -> None:
    bad = [
        (str(path.relative_to(PACKAGE)), name)
        for path in PACKAGE.rglob("*.py")
        if path != WORKER
        for node in ast.parse(path.read_text()).body
        for name in imported(node)
        if name in POSIX_MODULES
    ]
    assert not bad


def ran(system: str, cwd: Path, *verbs: str) -> tuple[list[int], str]:
    words = json.dumps([verb.split() for verb in verbs])
    command = [sys.executable, str(ROOT / "tests/other_system.py"), system, words]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(cwd)}
    environment["OCL_ICD_VENDORS"] = str(cwd)  # its package looks at the system once more
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    assert "internal error" not in text, text
    return json.loads(done.stdout.splitlines()[-1]), text


MATMUL = "matmul M=32 N=32 K=32"
READING = [
    "workloads",
    f"lower {MATMUL}",
    f"analyze {MATMUL}",
    f"explain {MATMUL}",
    "records list tuned.jsonl",
    "records best tuned.jsonl",
    "records curve tuned.jsonl",
    "records errors tuned.jsonl",
    "records pick tuned.jsonl -o best.jsonl",
    "records merge tuned.jsonl best.jsonl -o all.jsonl",
    "report tuned.jsonl -o report.html",
    "watch tuned.jsonl --once",
    "explain-error BUILD_CRASH",
]
BUILDING = [
    f"build {MATMUL} --history tuned.jsonl -o kernel.o",
    "run kernel.o",
    f"bench {MATMUL} --history tuned.jsonl --rounds 3",
    "devices",
]


# Each starts Python and LLVM anew, and times kernels.
@pytest.mark.slow
def test_windows_reads_builds_and_runs_and_says_that_it_cannot_tune(
    tuned: Path, tmp_path: Path
) -> None:
    (tmp_path / "tuned.jsonl").write_bytes(tuned.read_bytes())
    (tmp_path / "tasks.txt").write_text(f"{MATMUL}\n")
    tuning = [
        f"tune {MATMUL} --trials 2 --log new.jsonl",
        "tune-tasks tasks.txt --trials 2 --log new.jsonl",
    ]
    library = f"build {MATMUL} -o kernel.so"
    codes, text = ran("Windows", tmp_path, *READING, *BUILDING, "doctor", *tuning, library)
    assert codes == [0] * len(READING + BUILDING) + [1, 1, 1, 2], text
    assert "nothing can be tuned" in text
    assert text.count("tune on Linux or macOS (on Windows: in WSL), and bring the log") >= 2
    assert "export_library writes ELF files" in text
    assert not (tmp_path / "new.jsonl").exists()
    assert len((tmp_path / "all.jsonl").read_bytes().splitlines()) > 1
    assert b"\r" not in (tmp_path / "best.jsonl").read_bytes()


@pytest.mark.slow
def test_macos_tunes(tuned: Path, tmp_path: Path) -> None:
    (tmp_path / "tuned.jsonl").write_bytes(tuned.read_bytes())
    tuning = f"tune {MATMUL} --trials 4 --log new.jsonl"
    more = ["doctor", tuning, "records best new.jsonl"]
    codes, text = ran("Darwin", tmp_path, *READING, *BUILDING, *more)
    assert codes == [0] * len(codes), text
