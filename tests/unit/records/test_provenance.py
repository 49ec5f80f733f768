"""What a record says of where it was made."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from loopwright.records import (
    build_hash,
    device_of,
    environment,
    hardware,
    new_run,
    provenance,
    threads,
)

ROOT = Path(__file__).parents[3]


def test_environment_describes_this_machine():
    env = environment()
    assert env["cores"] == len(os.sched_getaffinity(0))
    assert env["numpy"] == np.__version__
    assert env["llvmlite"] == importlib.metadata.version("llvmlite")
    assert env["cpu"]
    assert json.loads(json.dumps(env)) == env
    assert isinstance(env["isa"], list)
    env["cpu"] = "changed"
    assert environment()["cpu"] != "changed"


def test_hardware_and_threads():
    env = {"cpu": "EPYC", "isa": "avx2", "cores": 4}
    assert hardware(env, {"mcpu": "znver4", "mattr": "+a,+b"}) == "EPYC | avx2 | znver4 | +a,+b"
    assert hardware(env, {}) == hardware({**env, "isa": ["avx2"]}, {})
    assert hardware({}, {}) == ""
    assert threads({"num_threads": 3}, env) == 3
    assert threads({}, env) == 4
    assert threads({"num_threads": "many"}, {}) == 0


GPU = {"kind": "cuda", "name": "H200", "uuid": "cuda 01", "arch": "sm_90", "processors": 132}


def test_hardware_of_a_device_is_its_model_whatever_the_host_is():
    env = environment({**GPU, "driver": "13.0"})
    assert device_of(env)["uuid"] == "cuda 01"
    assert hardware(env, {"kind": "cuda"}) == "H200 | 132 | sm_90"
    other = {"cpu": "another host", "cores": 96, "device": {**GPU, "uuid": "cuda 02"}}
    assert hardware(other, {"kind": "cuda"}) == hardware(env, {"kind": "cuda"})
    assert threads({"kind": "cuda"}, env) == threads({"kind": "cuda"}, other) == 0
    part = {**env, "device": {**GPU, "processors": 16}}
    assert hardware(part, {}) != hardware(env, {})
    assert device_of(environment()) == {}


def test_where_the_driver_compiles_its_version_is_part_of_the_hardware():
    device = {"kind": "opencl", "name": "a GPU", "processors": 4, "driver": "3.1"}
    assert hardware({"device": device}, {}) == "a GPU | 4 | driver 3.1"
    assert hardware({"device": {**device, "driver": "4.0"}}, {}) == "a GPU | 4 | driver 4.0"


def test_the_compiler_of_cuda_is_part_of_the_build(monkeypatch):
    one = build_hash({"kind": "cuda"})
    assert one != build_hash({"kind": "opencl"})
    monkeypatch.setattr("loopwright.records.provenance.version", lambda name: "1.0")
    assert build_hash({"kind": "cuda"}) != one


def test_runs_have_names_of_their_own():
    assert len({new_run() for _ in range(100)}) == 100


def test_build_hash_is_equal_in_another_process_and_imports_nothing_heavy():
    code = (
        "import sys; from loopwright.records import build_hash; print(build_hash());"
        "print(sorted({'llvmlite','scipy','xgboost'} & set(sys.modules)),"
        "[m for m in sys.modules if m.startswith(('loopwright.schedule','loopwright.runtime'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert len(first) == 16
    assert second == "[] []"
    int(first, 16)
    assert len(build_hash()) == 16


def test_an_upgrade_of_the_c_compiler_is_another_build_for_target_c_alone(tmp_path):
    def compiler(name: str, version: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho '{version}'\necho 'Copyright {name}'\n")
        path.chmod(0o755)
        return str(path)

    old, same, new = compiler("a", "cc 12.2"), compiler("b", "cc 12.2"), compiler("c", "cc 13.1")
    builds = [build_hash({"kind": "c", "cc": cc}) for cc in (old, same, new)]
    assert builds[0] == builds[1] != builds[2]
    assert build_hash() not in builds
    assert all(len(b) == 16 for b in builds)
    llvm = [build_hash({"kind": "llvm", "cc": cc}) for cc in (old, new)]
    assert llvm == [build_hash()] * 2
    missing = {"kind": "c", "cc": str(tmp_path / "none")}
    assert build_hash(missing) not in builds


def test_build_hash_tells_pass_contexts_apart():
    assert build_hash(None, {}) == build_hash({"kind": "llvm"}, {}) == build_hash()
    settings = [{"opt_level": 3}, {"opt_level": 1}, {"disabled_pass": ["Simplify"]}]
    targets = [{"kind": "llvm"}, {"kind": "c", "cc": "cc"}]
    hashes = {build_hash(t, s) for t in targets for s in [{}, *settings]}
    assert len(hashes) == 8


SOURCE = '''"""Tiles."""

def tile(n, m=4):
    """How `n` is split."""
    return f"{n:>{m}}", min(n, m)  # the remainder is a tail

class Tile:
    """A tile."""

    size = 8
    """Its elements."""
'''


def test_prose_and_layout_keep_the_hash_of_the_sources(tmp_path):
    file = tmp_path / "ir" / "tile.py"
    file.parent.mkdir()

    def hash_of(source):
        file.write_text(source)
        return provenance._tree_hash(tmp_path)

    first = hash_of(SOURCE)
    for old, new in (
        ('"""Tiles."""', '"""What is\ncomputed at a time."""'),
        ('"""Tiles."""', ""),
        ("How `n` is split", "Split `n`"),
        ("  # the remainder is a tail", ""),
        ("m=4):", "\n    m=4,  # elements\n):\n"),
        ("Its elements", "Elements"),
    ):
        assert old in SOURCE
        assert hash_of(SOURCE.replace(old, new)) == first
    changed = {
        hash_of(SOURCE.replace(old, new))
        for old, new in (
            ("m=4", "m=5"),
            ("m=4", "m=4.0"),
            ("8", "-8"),
            (":>", ":<"),
            ("min", "max"),
        )
    }
    assert len(changed) == 5
    assert first not in changed
    assert hash_of(SOURCE) == first
    file.rename(file.with_name("tiles.py"))
    assert provenance._tree_hash(tmp_path) != first


def test_the_hash_of_the_sources_is_kept_while_they_stay(tmp_path):
    (tmp_path / "te").mkdir()
    (tmp_path / "te" / "a.py").write_text("x = 1\n")
    first = provenance._tree_hash(tmp_path)
    kept = tmp_path / "records" / "__pycache__" / "compiler.sha256"
    key = kept.read_text().split()[0]
    kept.write_text(f"{key} kept")
    assert provenance._tree_hash(tmp_path) == "kept"
    kept.write_bytes(b"\xff damaged")
    assert provenance._tree_hash(tmp_path) == first
    (tmp_path / "te" / "a.py").write_text("x = 2\n")
    assert provenance._tree_hash(tmp_path) not in (first, "kept")


def test_where_no_folder_can_be_written_the_sources_are_hashed_anew(tmp_path):
    (tmp_path / "records").write_text("no folder")
    (tmp_path / "te").mkdir()
    (tmp_path / "te" / "a.py").write_text("x = 1\n")
    assert provenance._tree_hash(tmp_path) == provenance._tree_hash(tmp_path)
    assert (tmp_path / "records").read_text() == "no folder"
