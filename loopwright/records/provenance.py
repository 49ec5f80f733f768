"""The machine and the compiler of a measurement: the ``env`` and ``build`` fields of a record, made
here for writer and reader, so that they agree.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import subprocess
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from loopwright.env import cache_folder, machine, version
from loopwright.files import replaced
from loopwright.records.line import Json

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

    ``device`` are the facts of the device that kernels run on (None: the CPU), as `device_facts` of
    `loopwright.runtime` gives them: ``{"kind", "name", "uuid", "driver", "arch", "processors"}``.

    Example:
        >>> print(sorted(lw.records.environment())[:2])
        ['arch', 'cores']
    """
    return {**machine(), **({} if device is None else {"device": dict(device)})}


def device_of(env: Mapping[str, Json]) -> Mapping[str, Json]:
    """The part of an ``env`` about the device that kernels ran on; empty for the CPU.

    Example:
        >>> print(lw.records.device_of(lw.records.environment({"name": "a GPU"})))
        {'name': 'a GPU'}
    """
    device = env.get("device")
    return device if isinstance(device, dict) else {}


_FAMILY = ("keys", "mtriple", "arch")
_NAMED = {"kind", "model", "mcpu", "mattr", "num_threads", *_FAMILY}


def hardware(env: Mapping[str, Json], target: Mapping[str, Json]) -> str:
    """Name the hardware that decides a time: CPU model, vector extensions, target of the code, and
    the board that the target names by its ``-model``.

    For a device: the model, the number of its processors and the architecture of its code, or the
    version of the driver where the driver compiles the code. Where the machine is not known, as in
    logs of AutoTVM, families (``-device``, ``-keys``), triple, architecture and other options of
    the target are part of the board. One line of text to compare; empty when nothing is known.

    Example:
        >>> records = lw.records.load("matmul.jsonl").records
        >>> print(bool(lw.records.hardware(lw.records.environment(), records[0].target)))
        True
    """
    machine = machine_of(env, target)
    family, others = ((), []) if env else (_FAMILY, sorted(target.keys() - _NAMED))
    words = [_text(target.get(name)) for name in family]
    words += [f"{name}={value}" for name in others if (value := _text(target[name]))]
    board = [_text(target.get("model")), " ".join(filter(None, words))]
    if not any(board):
        return machine
    parts = machine.split(" | ")
    return " | ".join([*parts, *[""] * (4 - len(parts)), *board])


def machine_of(env: Mapping[str, Json], target: Mapping[str, Json]) -> str:
    """The part of `hardware` that leaves the target's words for the board out."""
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
    """Number of threads of a kernel: the target's, else all usable cores.

    0 when neither is known, and on a device, whose processors are part of its model.

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
    """Hash of everything that turns a trace into code: the ``build`` of a record.

    It covers the compiler's own source without comments and docstrings, the LLVM binding, settings
    of the pass context that differ from the defaults, for the target ``c`` the output of ``cc
    --version`` and for ``cuda`` the version of NVRTC. An edit that may change code changes the
    hash, and an upgrade of one of these compilers changes that of its records alone: times of other
    code are never counted as measured.

    Args:
        target: Canonical form of the target; None for any that needs no other compiler.
        passes: Result of ``PassContext.to_json``; None or empty for the default context.

    Example:
        >>> print(len(lw.records.build_hash()))
        16
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


@functools.cache
def _source_hash() -> str:
    trees = _tree_hash(Path(__file__).parent.parent)
    return hashlib.sha256(f"llvmlite {version('llvmlite')}\n{trees}".encode()).hexdigest()[:16]


def _tree_hash(root: Path) -> str:
    """Hash of the compiler's syntax trees below a folder. Parsing takes a second, so it is cached
    under a hash of the bytes: beside Python's bytecode, or with the kernels.
    """
    sources = _sources(root, _COMPILER)
    bytes_hash = _digest([Path(__file__).read_bytes(), *chain.from_iterable(sources.items())])
    folders = (root / "records" / "__pycache__", cache_folder())
    places = [folder / "compiler.sha256" for folder in folders if folder is not None]
    for place in places:
        with suppress(OSError):  # not there, or not readable: the next one, or parsing
            key, _, tree_hash = place.read_text("ascii", "replace").partition(" ")
            if key == bytes_hash:
                return tree_hash
    trees = ((name, repr(_tree(ast.parse(code))).encode()) for name, code in sources.items())
    tree_hash = _digest(chain.from_iterable(trees))
    for place in places:
        with suppress(OSError):  # it can be computed again
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with replaced(place, durable=False) as file:
                file.write(f"{bytes_hash} {tree_hash}".encode())
            break
    return tree_hash


def source_hash(packages: Iterable[str]) -> str:
    """Hash of the files of some packages of loopwright and of the modules beside these, with
    comments: any edit changes it."""
    root = Path(__file__).parent.parent
    modules = (file.read_bytes() for file in sorted(root.glob("*.py")))
    return _digest([*modules, *chain.from_iterable(_sources(root, packages).items())])


def _sources(root: Path, packages: Iterable[str]) -> dict[bytes, bytes]:
    """The contents of the files of packages below a folder, by their paths."""
    files = sorted(file for package in packages for file in (root / package).rglob("*.py"))
    return {file.relative_to(root).as_posix().encode(): file.read_bytes() for file in files}


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part + b"\0")
    return digest.hexdigest()


def _tree(node: Any) -> Any:
    """A syntax tree as lists, without positions, statements that are only a constant, as docstrings
    are, and empty fields, since the latter differ between versions of Python.
    """
    if isinstance(node, list):
        kept = (
            n for n in node if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
        )
        return [_tree(n) for n in kept]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, _tree(value)) for name, value in ast.iter_fields(node)]
    return [type(node).__name__, *(f for f in fields if f[1] is not None and f[1] != [])]
