"""Artifacts on disk: round trip, and every way in which a file can be wrong."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from loopwright.errors import RunError, TargetError, UsageError
from loopwright.runtime import Artifact, Module, linker
from loopwright.runtime.artifacts.artifact import manifest_checksum
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
    with pytest.raises(
        UsageError, match=r"the object file is missing: there is no file .*k\.o; Module"
    ):
        Artifact.load(path)
    artifact.save(path)
    (tmp_path / "k.o.json").unlink()
    with pytest.raises(UsageError, match=r"the manifest of .* is missing: .*k\.o\.json"):
        Artifact.load(path)
    with pytest.raises(RunError, match=r"cannot write .*: No such file or directory"):
        artifact.save(tmp_path / "no folder" / "k.o")


def change(path: Path, **fields: Any) -> None:
    """Edit a manifest on disk, with checksums on both sides that fit again."""
    manifest = json.loads(path.read_text())
    before = manifest["sha256"]
    manifest.update(fields)
    manifest = {k: v for k, v in manifest.items() if v is not None}
    manifest["sha256"] = manifest_checksum(manifest)
    path.write_text(json.dumps(manifest))
    objects = path.with_suffix("")
    objects.write_bytes(objects.read_bytes().replace(before.encode(), manifest["sha256"].encode()))


BAD = {
    "newer": ({"format": 3}, "has format 3, this version of loopwright reads up to 2"),
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


@pytest.mark.parametrize("which", ["k.o", "k.o.json"])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_not_replaced(
    artifact: Artifact, tmp_path: Path, which: str, kind: str
) -> None:
    taken = tmp_path / which
    taken.mkdir() if kind == "folder" else os.mkfifo(taken)
    with pytest.raises(RunError, match=rf"cannot write .*: it is a .*{kind}.*; name a file"):
        artifact.save(tmp_path / "k.o")
    assert [p.name for p in tmp_path.iterdir()] == [which]
    assert not taken.is_file()


def test_devices_survive(artifact: Artifact) -> None:
    with pytest.raises(RunError, match="it is a device"):
        artifact.save(os.devnull)
    assert not Path(os.devnull + ".json").exists()


def test_links_are_followed(artifact: Artifact, tmp_path: Path) -> None:
    real, link = tmp_path / "store" / "real.o", tmp_path / "k.o"
    real.parent.mkdir()
    real.write_bytes(b"old")
    link.symlink_to(real)
    with pytest.raises(UsageError, match="not an object file of loopwright"):
        artifact.save(link)
    assert real.read_bytes() == b"old"
    assert artifact.save(link, force=True) == link
    assert link.is_symlink()
    assert real.read_bytes().startswith(artifact.objects)
    assert Artifact.load(link) == artifact


def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Make the `number`-th `os.replace` from now on fail as on a full disk."""
    calls = []
    replace = os.replace

    def fail(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("before", [True, False])
def test_a_failure_leaves_the_old_pair_or_none(
    artifact: Artifact,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    before: bool,
) -> None:
    path = tmp_path / "k.o"
    old = Artifact({**artifact.manifest, "num_threads": 7}, artifact.objects + b"old")
    if before:
        old.save(path)
    failing(monkeypatch, number)
    with pytest.raises(RunError, match=r"cannot write .*: No space left"):
        artifact.save(path)
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == (["k.o", "k.o.json"] if before else [])
    if before:
        assert Artifact.load(path) == old


def test_a_disk_that_fills_up_while_writing_changes_nothing(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = artifact.save(tmp_path / "k.o")
    staged = []

    def full(descriptor: int, mode: int) -> None:
        staged.append(descriptor)
        if len(staged) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(RunError, match="No space left"):
        Artifact(artifact.manifest, b"new").save(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["k.o", "k.o.json"]
    assert Artifact.load(path) == artifact


def test_a_file_that_cannot_be_read_is_no_usage_error(artifact: Artifact, tmp_path: Path) -> None:
    path = artifact.save(tmp_path / "k.o")
    path.unlink()
    path.mkdir()
    with pytest.raises(RunError, match=r"cannot read .*: Is a directory"):
        Artifact.load(path)
