"""Random kernels under compute-sanitizer: out of bounds, races in shared memory, barriers."""

from __future__ import annotations

import shutil
import subprocess
import sys

#: Its tools; each runs all kernels once.
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
#: What it exits with where it has found something.
_FOUND = 9
NOT_THERE = "compute-sanitizer is not on PATH; it comes with the CUDA toolkit, in its folder bin"


def sanitize(count: int, seed: int, minutes: float) -> int:
    """Run random kernels under each tool; returns the exit code, 2 where the tool is missing.

    Args:
        count: kernels.
        seed: of the first.
        minutes: that one tool may take.
    """
    program = shutil.which("compute-sanitizer")
    if program is None:
        print(NOT_THERE)
        return 2
    codes = [_run(program, tool, count, seed, minutes) for tool in TOOLS]
    return max(codes)


def _run(program: str, tool: str, count: int, seed: int, minutes: float) -> int:
    fuzz = ("-m", "fuzzing.fuzz", "--kind", "threads", "--target", "cuda")
    command = [
        program, "--tool", tool, "--target-processes", "all", "--error-exitcode", str(_FOUND),
        sys.executable, *fuzz, "--count", str(count), "--seed", str(seed),
    ]  # fmt: skip
    try:
        code = subprocess.run(command, timeout=60 * minutes, check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"{tool}: did not end within {minutes:g} minutes; take fewer kernels (--count)")
        return 1
    said = {0: "nothing found", _FOUND: "it has found faults, see above"}
    print(f"{tool}: {said.get(code, f'ended with exit code {code}')}", flush=True)
    return code if code in (0, _FOUND) else 1
