"""Where and with what something was measured: the ``env`` and ``build`` fields of a record.

What is compared between a record and a run is made here, so that writer and reader agree.
"""

from __future__ import annotations

import functools
import hashlib
import json
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from loopwright.env import machine, version
from loopwright.records.json_value import Json

#: The packages whose source decides what code a trace becomes.
_COMPILER = ("ir", "te", "schedule", "lowering", "codegen", "driver")


def new_run() -> str:
    """A fresh identifier of a tuning run: 12 hexadecimal digits.

    Example:
        >>> print(len(lw.records.new_run()))
        12
    """
    return uuid.uuid4().hex[:12]


def environment(device: Mapping[str, Json] | None = None) -> dict[str, Json]:
    """Describe this machine and these libraries, for a record's ``env``: ``env.machine()``.

    Args:
        device: What `loopwright.runtime.devices.facts.device_facts` says of the device that kernels
            run on: ``{"kind", "name", "uuid", "driver", "arch", "processors"}``; None: the CPU.

    Example:
        >>> print(sorted(lw.records.environment())[:2])
        ['arch', 'cores']
    """
    return {**machine(), **({} if device is None else {"device": dict(device)})}


def device_of(env: Mapping[str, Json]) -> Mapping[str, Json]:
    """What an ``env`` says of the device that kernels ran on; empty for the CPU.

    Example:
        >>> print(lw.records.device_of(lw.records.environment({"name": "a GPU"})))
        {'name': 'a GPU'}
    """
    said = env.get("device")
    return said if isinstance(said, dict) else {}


def hardware(env: Mapping[str, Json], target: Mapping[str, Json]) -> str:
    """Name the hardware that decides a time: CPU model, vector extensions, and what code is for.

    Of a device it is the model, the number of its processors and the architecture of its code;
    where there is no such architecture, the driver compiles, and its version is named.

    Args:
        env: A record's ``env``, or :func:`environment` for this machine.
        target: Canonical form of the target.

    Returns:
        One line of text to compare; empty when nothing is known.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> print(bool(lw.records.hardware(lw.records.environment(), records[0].target)))
        True
    """
    if device := device_of(env):
        code = device.get("arch") or f"driver {_text(device.get('driver'))}"
        return f"{_text(device.get('name'))} | {_text(device.get('processors'))} | {_text(code)}"
    machine = [env.get("cpu"), env.get("isa")]
    code = [target.get("mcpu"), target.get("mattr")]
    if not any(machine) and not any(code):
        return ""
    return " | ".join(_text(part) for part in (*machine, *code))


def _text(part: object) -> str:
    if isinstance(part, (list, tuple)):
        return " ".join(map(str, part))
    return str(part or "")


def threads(target: Mapping[str, Json], env: Mapping[str, Json]) -> int:
    """Threads that a kernel uses: the target's, else all usable cores; 0 when neither is known,
    and on a device, whose processors are part of its model.

    Example:
        >>> print(lw.records.threads({"kind": "llvm", "num_threads": 2}, lw.records.environment()))
        2
    """
    if device_of(env):
        return 0
    for count in (target.get("num_threads"), env.get("cores")):
        if isinstance(count, int) and count > 0:
            return count
    return 0


def build_hash(
    target: Mapping[str, Json] | None = None, passes: Mapping[str, Json] | None = None
) -> str:
    """Hash of what makes code from a trace: the ``build`` of a record.

    That is the compiler's own source, the LLVM binding, settings of the pass context where they are
    not the default ones, for the target ``c`` what the C compiler says of itself (``cc --version``)
    and for ``cuda`` the version of NVRTC: any edit of a file that may change the code, and an
    upgrade of one of these compilers for its records alone, so that times of other code are never
    counted as measured.

    Args:
        target: Canonical form of the target; None for any that needs no other compiler.
        passes: What ``PassContext.to_json`` gives; None or empty for the default context.

    Returns:
        16 hexadecimal digits.

    Example:
        >>> print(lw.records.build_hash() == lw.records.build_hash())
        True
    """
    texts = [_source_hash()]
    if target and target.get("kind") == "c":
        texts.append(compiler_version(str(target.get("cc", "cc"))))
    if target and target.get("kind") == "cuda":
        texts.append(f"NVRTC {version('nvidia-cuda-nvrtc')}")
    if passes:
        texts.append(f"passes {json.dumps(passes, sort_keys=True)}")
    if len(texts) == 1:
        return texts[0]
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@functools.lru_cache(maxsize=8)
def compiler_version(cc: str) -> str:
    """The first line of ``cc --version``; empty when there is no such compiler."""
    try:
        done = subprocess.run(
            [cc, "--version"], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0]


@functools.lru_cache(maxsize=1)
def _source_hash() -> str:
    digest = hashlib.sha256(f"llvmlite {version('llvmlite')}\n".encode())
    root = Path(__file__).parent.parent
    for package in _COMPILER:
        for file in sorted((root / package).rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0")
            digest.update(file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
