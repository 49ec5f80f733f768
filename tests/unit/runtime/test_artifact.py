"""Artifacts on disk: round trip, and every way in which a file can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loopwright.errors import TargetError, UsageError
from loopwright.runtime import Artifact, Module, linker
from tests.unit.runtime import kernels


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return kernels.add_one().artifact


def test_round_trip(artifact: Artifact, tmp_path: Path) -> None:
    path = artifact.save(tmp_path / "k.o")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["k.o", "k.o.json"]
    assert Artifact.load(path) == artifact
    assert artifact.save(path) == path, "an existing pair is replaced"
    assert Artifact.load(str(path)) == artifact


def test_missing_files_are_named(artifact: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "k.o"
    with pytest.raises(UsageError, match=r"the object file is missing: there is no file .*k\.o"):
        Artifact.load(path)
    artifact.save(path)
    (tmp_path / "k.o.json").unlink()
    with pytest.raises(UsageError, match=r"the manifest of .* is missing: .*k\.o\.json"):
        Artifact.load(path)
    with pytest.raises(UsageError, match="cannot write"):
        artifact.save(tmp_path / "no folder" / "k.o")


def change(path: Path, **fields: Any) -> None:
    manifest = json.loads(path.read_text())
    manifest.update(fields)
    path.write_text(json.dumps({k: v for k, v in manifest.items() if v is not None}))


BAD = {
    "newer": ({"format": 2}, "has format 2, this version of loopwright reads up to 1"),
    "foreign": ({"format": None}, "is not a manifest of loopwright"),
    "kind": ({"kind": "wasm"}, "holds a 'wasm'"),
    "lacking": ({"cpu": None, "entry": None}, "lacks entry, cpu"),
    "entry": ({"entry": "g"}, "the entry 'g' is not among"),
    "function": ({"functions": [{"name": "add_one"}]}, "function 'add_one' lacks args"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_manifest_is_refused(artifact: Artifact, tmp_path: Path, kind: str) -> None:
    fields, message = BAD[kind]
    path = artifact.save(tmp_path / "k.o")
    change(tmp_path / "k.o.json", **fields)
    with pytest.raises(UsageError, match=message):
        Artifact.load(path)


@pytest.mark.parametrize("text", ["", "{", "[1]", "3"])
def test_what_is_no_manifest_is_refused(artifact: Artifact, tmp_path: Path, text: str) -> None:
    path = artifact.save(tmp_path / "k.o")
    (tmp_path / "k.o.json").write_text(text)
    with pytest.raises(UsageError, match="is not a manifest"):
        Artifact.load(path)


def test_an_object_of_another_manifest_is_noticed(artifact: Artifact, tmp_path: Path) -> None:
    path = artifact.save(tmp_path / "k.o")
    path.write_bytes(artifact.objects[:-1])
    with pytest.raises(UsageError, match="is not the object that"):
        Artifact.load(path)


HOSTS = {
    "cpu": ({"cpu": "other-cpu"}, "built for the CPU other-cpu, this machine is a {cpu}"),
    "architecture": ({"triple": "riscv64-unknown-linux"}, "built for riscv64 "),
    "feature": ({"features": "+no-such,-x"}, "with no-such, which this machine's {cpu} lacks"),
}


@pytest.mark.parametrize("kind", HOSTS)
def test_another_cpu_is_refused_naming_both(artifact: Artifact, tmp_path: Path, kind: str) -> None:
    fields, message = HOSTS[kind]
    path = artifact.save(tmp_path / "k.o")
    change(tmp_path / "k.o.json", **fields)
    with pytest.raises(TargetError, match=message.format(cpu=linker.host_cpu())):
        Artifact.load(path)
    foreign = Artifact({**artifact.manifest, **fields}, artifact.objects)
    with pytest.raises(TargetError):
        _ = Module(foreign)["add_one"].address


def test_a_generic_program_runs_everywhere(artifact: Artifact, tmp_path: Path) -> None:
    fields = {"cpu": "generic", "features": ""}
    path = Artifact({**artifact.manifest, **fields}, artifact.objects).save(tmp_path / "k.o")
    assert Artifact.load(path).manifest["cpu"] == "generic"
