"""The tests on a CPU that lacks what this one has, or whose caches have other sizes.

`make test CPU=x86-64-v3 CACHES=32K,1M,8M` asks for it. What this process and its workers decide by
the host is decided by the other CPU; a command line that a test starts still sees the real one.
"""

from __future__ import annotations

from pathlib import Path

import llvmlite.binding as llvm
import pytest

from loopwright.target import hardware
from loopwright.target.cpu import changes_code, features_among


def pretend_cpu(patch: pytest.MonkeyPatch, name: str) -> None:
    """Have LLVM name another CPU as the host's.

    Raises:
        pytest.UsageError: this machine's CPU lacks what code for the other one may use.
    """
    here = llvm.get_host_cpu_features()
    features = features_among(filter(changes_code, here), name, "")
    if missing := sorted(f for f in features if not here[f]):
        raise pytest.UsageError(f"--cpu {name}: this machine's CPU lacks {', '.join(missing)}")
    found = llvm.FeatureMap({f: f in features if changes_code(f) else here[f] for f in here})
    patch.setattr(llvm, "get_host_cpu_name", lambda: name)
    patch.setattr(llvm, "get_host_cpu_features", lambda: found)


def pretend_caches(patch: pytest.MonkeyPatch, folder: Path, sizes: str) -> None:
    """Have the system name data caches of these sizes, such as ``32K,1M,8M`` of levels 1 to 3."""
    for level, size in enumerate(sizes.split(","), 1):
        index = folder / f"index{level}"
        index.mkdir(parents=True)
        facts = {"type": "Data", "size": size, "level": level, "coherency_line_size": 64}
        for name, value in facts.items():
            (index / name).write_text(f"{value}\n")
    patch.setattr(hardware, "_SYSFS", folder)
