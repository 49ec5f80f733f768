"""Manifests with one wrong value: each is refused before anything of the object is mapped."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import loopwright as lw
from loopwright import te
from loopwright.errors import LoopwrightError, UsageError
from loopwright.runtime import Artifact, Module, linker
from loopwright.runtime.artifacts.artifact import manifest_checksum
from loopwright.runtime.objects import link_object

Json = Any
#: What stands in place of a value of each type.
WRONG: dict[type, tuple[Json, ...]] = {
    bool: (0, 1, None, "true", []),
    int: (-1, -(10**400), 10**400, 2**60, 1.5, True, None, "4", [], {}, ["*", 4, 4]),
    str: (None, 5, True, [], {}, ["x"], "x" * 30_000),
    list: (None, 5, "ab", {}, [None], [[[]]], [5], [{}]),
    dict: (None, 5, "ab", [], [None]),
}
GONE = object()
#: Fields of numbers and formulas.
NUMBERS = {"shape", "workspace_bytes", "parallel_workspace_bytes", "extents"}
#: Fields that a manifest may leave out.
OPTIONAL = ("loopwright", "llvmlite", "needs", "requires", "checks")


def fixed() -> Module:
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((4, 8), lambda i, j: B[3 - i, j] * 2.0, name="C")
    s = te.create_schedule(C.op)
    s[C].parallel(C.op.axis[0])
    with lw.transform.PassContext(config={"instrument_bound_checkers": True}):
        return lw.build(s, [A, C], "llvm -num-threads=1", name="f")


def symbolic() -> Module:
    n = te.size_var("n")
    A = te.placeholder((n, 8), name="A")
    B = te.compute((n, 8), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((n, 8), lambda i, j: B[n - 1 - i, j] * 2.0, name="C")
    return lw.build(te.create_schedule(C.op), [A, C], "llvm", name="f")


PROGRAMS = {"fixed": fixed, "symbolic": symbolic}


@pytest.fixture(scope="module", params=PROGRAMS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "f.o"
    return PROGRAMS[request.param]().save(path)


def manifest_of(path: Path) -> Json:
    return json.loads(path.with_name("f.o.json").read_text())


def places(x: Json, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    items = enumerate(x) if isinstance(x, list) else x.items() if isinstance(x, dict) else ()
    for key, value in items:
        yield from places(value, (*at, key))


def edits(manifest: Json) -> Iterator[tuple[tuple[Any, ...], Json]]:
    """Every field with every wrong value, and without it; the next one changes the manifest."""
    for at in places(manifest):
        edited = copy.deepcopy(manifest)
        parent = edited
        for key in at[:-1]:
            parent = parent[key]
        old = parent[at[-1]]
        for value in WRONG[type(old)]:
            if value == old and type(value) is type(old):
                continue
            parent[at[-1]] = value
            yield at, edited
        del parent[at[-1]]
        if not isinstance(parent, list) or len(parent) == at[-1]:
            yield at, edited


def get(x: Json, at: tuple[Any, ...]) -> Json:
    """The value at a place, or `GONE`."""
    for key in at:
        there = key < len(x) if isinstance(x, list) else key in x
        if not there:
            return GONE
        x = x[key]
    return x


def write(path: Path, manifest: Json) -> None:
    target = path.with_name("f.o.json")
    target.unlink()  # some file systems write the disk where a file is cut and filled again
    target.write_text(json.dumps(manifest))


@pytest.fixture
def pair(saved: Path, tmp_path: Path) -> Path:
    """A copy of the saved program."""
    for name in ("f.o", "f.o.json"):
        (tmp_path / name).write_bytes(saved.with_name(name).read_bytes())
    return tmp_path / "f.o"


def test_the_checksum_notices_every_edit(pair: Path) -> None:
    tried = 0
    for _, edited in edits(manifest_of(pair)):
        write(pair, edited)
        with pytest.raises(UsageError) as error:
            Artifact.load(pair)
        assert "\n" not in str(error.value)
        tried += 1
    assert tried > 250


def test_the_object_notices_an_edit_with_a_checksum_that_fits(pair: Path) -> None:
    for at, edited in edits(manifest_of(pair)):
        if at == ("sha256",):
            continue
        write(pair, {**edited, "sha256": manifest_checksum(edited)})
        with pytest.raises(UsageError) as error:
            Artifact.load(pair)
        assert "\n" not in str(error.value)


def test_validation_alone_refuses_every_wrong_value(pair: Path) -> None:
    """What nobody can have written is refused even where all checksums fit."""
    objects, tried = Artifact.load(pair).objects, 0
    manifest = {k: v for k, v in manifest_of(pair).items() if "sha256" not in k}
    for at, edited in edits(manifest):
        shorter = get(edited, at) is GONE
        if shorter and (isinstance(at[-1], int) or at[-1] in OPTIONAL):
            continue  # another manifest, which somebody can have written
        if NUMBERS & {*at} and get(edited, at) in ([5], 5, -1, ["*", 4, 4]):
            continue  # so is a number where a number belongs
        with pytest.raises(LoopwrightError) as error:
            _ = Module(Artifact(edited, objects))["f"].address
        text = str(error.value)
        assert "\n" not in text
        assert len(text) < 600
        tried += 1
    assert tried > 200


UNTRUE = {
    "an array that no machine has": (("args", 0, "shape"), [2**30, 2**30], "of at most"),
    "a name that C has not": (("name",), "f; g", "a name of letters"),
    "a function that is not there": (("name",), "g", "the code has no function 'g'"),
    "no pool": (("uses_pool",), False, "the code has parallel loops"),
    "a message that asks for more": (("checks", 0), "index {90}", "have no record"),
    "a message that looks into things": (("checks", 0), "{0.real}", "a format of numbered values"),
    "a dtype of nobody": (("args", 0, "dtype"), "float31", "one of float32"),
    "a workspace of all memory": (("workspace_bytes",), 2**60, "a whole number from 0"),
}


@pytest.mark.parametrize("kind", UNTRUE)
def test_what_cannot_be_true(kind: str) -> None:
    at, value, text = UNTRUE[kind]
    artifact = fixed_artifact()
    manifest = copy.deepcopy(json.loads(json.dumps(artifact.manifest)))
    parent = manifest["functions"][0]
    for key in at[:-1]:
        parent = parent[key]
    parent[at[-1]] = value
    manifest["entry"] = manifest["functions"][0]["name"]
    with pytest.raises(UsageError, match=text):
        link_object(Artifact(manifest, artifact.objects).contents, artifact.objects)


def fixed_artifact() -> Artifact:
    if "artifact" not in CACHE:
        CACHE["artifact"] = parallel().artifact
    return CACHE["artifact"]


CACHE: dict[str, Artifact] = {}


def parallel() -> Module:
    """A program with parallel loops and checks."""
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1.0, name="B")
    s = te.create_schedule(B.op)
    s[B].parallel(B.op.axis[0])
    with lw.transform.PassContext(config={"instrument_bound_checkers": True}):
        return lw.build(s, [A, B], "llvm -num-threads=2", name="f")


def test_nothing_is_linked_before(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = fixed_artifact()
    monkeypatch.setattr(linker, "link", lambda *_: pytest.fail("it was linked"))
    manifest = {**artifact.manifest, "entry": "g"}
    manifest["functions"] = [{**artifact.manifest["functions"][0], "name": "g"}]
    with pytest.raises(UsageError, match="the code has no function 'g'"):
        link_object(Artifact(manifest, artifact.objects).contents, artifact.objects)


def test_manifests_of_before_are_refused(pair: Path) -> None:
    manifest = manifest_of(pair)
    del manifest["sha256"]
    write(pair, manifest)
    with pytest.raises(UsageError, match="has no checksum, as manifests once had; build it again"):
        Artifact.load(pair)


@pytest.mark.parametrize("length", [0, 10, 63, 64, 200, 700])
def test_an_object_that_is_cut_short(length: int) -> None:
    artifact = fixed_artifact()
    with pytest.raises(LoopwrightError):
        _ = Module(Artifact(artifact.manifest, artifact.objects[:length]))["f"].address
