"""Where and with what something was measured: the ``env`` and ``build`` fields of a record.

What is compared between a record and a run is made here, so that writer and reader agree.
"""

from __future__ import annotations

import functools
import hashlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopwright.env import machine, version

#: The packages whose source decides what code a trace becomes.
_COMPILER = ("ir", "te", "schedule", "lower", "codegen", "driver")


def new_run() -> str:
    """A fresh identifier of a tuning run: 12 hexadecimal digits."""
    return uuid.uuid4().hex[:12]


def environment() -> dict[str, Any]:
    """Describe this machine and these libraries, for a record's ``env``: ``env.machine()``."""
    return dict(machine())


def hardware(env: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Name the hardware that decides a time: CPU model, vector extensions, and what code is for.

    Args:
        env: A record's ``env``, or :func:`environment` for this machine.
        target: Canonical form of the target.

    Returns:
        One line of text to compare; empty when nothing is known.
    """
    machine = [env.get("cpu"), env.get("isa")]
    code = [target.get("mcpu"), target.get("mattr")]
    if not any(machine) and not any(code):
        return ""
    return " | ".join(_text(part) for part in (*machine, *code))


def _text(part: object) -> str:
    if isinstance(part, (list, tuple)):
        return " ".join(map(str, part))
    return str(part or "")


def threads(target: Mapping[str, Any], env: Mapping[str, Any]) -> int:
    """Threads that a kernel uses: the target's, else all usable cores; 0 when neither is known."""
    for known in (target.get("num_threads"), env.get("cores")):
        if isinstance(known, int) and known > 0:
            return known
    return 0


@functools.lru_cache(maxsize=1)
def build_hash() -> str:
    """Hash of the compiler's own source and of the LLVM binding: the ``build`` of a record.

    Any edit of a file that may change the code made from a trace changes it, so that times of other
    code are never counted as measured. 16 hexadecimal digits.
    """
    digest = hashlib.sha256(f"llvmlite {version('llvmlite')}\n".encode())
    root = Path(__file__).parent.parent
    for package in _COMPILER:
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0")
            digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
