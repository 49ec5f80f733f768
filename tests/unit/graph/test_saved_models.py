"""Models in files: the same outputs afterwards, nothing that runs on loading, no broken file."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopwright import graph
from loopwright.errors import LoopwrightError, RunError, UsageError
from loopwright.executors import load_model
from loopwright.graph import op
from loopwright.runtime import Module, load_params
from loopwright.runtime.kernels import image

TARGET = "llvm -num-threads=1"
W = np.random.default_rng(1).standard_normal((5, 8)).astype("float32")
X = np.random.default_rng(2).standard_normal((2, 8)).astype("float32")
WANTED = np.maximum(X @ W.T, 0) + np.float32(1)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a weight, in a file; do not write to it."""
    x = graph.var("x", (2, 8))
    y = op.add(op.nn.relu(op.nn.dense(x, graph.const(W, name="w"))), np.float32(1))
    model = graph.compile(graph.IRModule.from_expr(y), TARGET)
    return model.save(tmp_path_factory.mktemp("saved") / "model.lw")


def test_a_model_computes_the_same_afterwards(saved: Path, tmp_path: Path) -> None:
    model = graph.load(saved)
    np.testing.assert_allclose(model(X)[0], WANTED, rtol=1e-5)
    again = model.save(tmp_path / "again.lw")
    assert again.read_bytes() == saved.read_bytes()
    assert repr(model) == "<Model of x: float32[2, 8]: 1 kernels>"


def test_weights_are_a_safetensors_file(saved: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(saved) as archive:
        (tmp_path / "w.safetensors").write_bytes(archive.read("weights.safetensors"))
    weights = load_params(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(weights["w"].numpy(), W)


def test_loading_runs_nothing(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(_: object) -> None:
        raise AssertionError("code was linked")

    monkeypatch.setattr(image.Image, "_link_once", link)
    model = graph.load(saved)
    with pytest.raises(AssertionError, match="code was linked"):
        model(X)


RUN_ALONE = """
import sys
import numpy as np
from loopwright.executors import load_model
model = load_model(sys.argv[1])
print(float(model(np.load(sys.argv[2]))[0].sum()))
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("loopwright.")}
print(sorted(rooms & {"graph", "te", "ir", "schedule", "lowering", "codegen", "driver", "tuner"}))
"""


def test_a_saved_model_runs_with_the_runtime_alone(saved: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    ran = subprocess.run(
        [sys.executable, "-c", RUN_ALONE, str(saved), str(tmp_path / "x.npy")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    total, rooms = ran.stdout.splitlines()
    assert float(total) == pytest.approx(WANTED.sum(), rel=1e-5)
    assert rooms == "[]"


def test_a_file_of_which_a_byte_was_changed_is_refused_or_the_same(
    saved: Path, tmp_path: Path
) -> None:
    whole = saved.read_bytes()
    before = _content(saved)
    path = tmp_path / "changed.lw"
    refusals = []
    for at in np.random.default_rng(3).choice(len(whole), 250, replace=False):
        changed = bytearray(whole)
        changed[at] ^= 0x41
        path.unlink(missing_ok=True)  # to cut and fill a file takes longer than to make one
        path.write_bytes(changed)
        try:
            same = _content(path) == before
        except LoopwrightError as error:
            refusals.append(str(error))
            continue
        assert same, f"byte {at}"  # a date, or an attribute of a file
    assert len(refusals) > 200
    assert not [text for text in refusals if "\n" in text]


def _content(path: Path) -> tuple[Any, ...]:
    model = load_model(path)
    kernels = {n: (k.artifact.manifest, k.artifact.objects) for n, k in model.kernels.items()}
    return model.program, kernels, {n: a.tobytes() for n, a in model.constants.items()}


def test_the_loaders_of_models_and_of_kernels_name_each_other(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is a model, .* lw\.graph\.load\('.*model\.lw'\) reads"):
        Module.load(saved)
    kernel = next(iter(load_model(saved).kernels.values())).save(tmp_path / "kernel.o")
    with pytest.raises(UsageError, match=r"kernel\.o is no model .* lw\.load_module reads"):
        graph.load(kernel)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_refused(saved: Path, tmp_path: Path, share: float) -> None:
    whole = saved.read_bytes()
    path = tmp_path / "cut.lw"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UsageError, match=r"cut\.lw is no model of loopwright, or was damaged"):
        graph.load(path)


def _parts(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _head(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, bytes]], object]:
    """A change of ``model.json``."""

    def changed(parts: dict[str, bytes]) -> None:
        head = json.loads(parts["model.json"])
        change(head)
        parts["model.json"] = json.dumps(head).encode()

    return changed


def _other_weights(parts: dict[str, bytes]) -> None:
    parts["weights.safetensors"] = parts["weights.safetensors"].replace(b'"w"', b'"v"')


CHANGES = {
    "another format": (_head(lambda h: h.update(format="zip")), "is no model of loopwright$"),
    "a list": (lambda p: p.update({"model.json": b"[]"}), "is no model of loopwright$"),
    "a newer version": (
        _head(lambda h: h.update(version=3)),
        "has version 3, and 1 and 2 are known",
    ),
    "no kernels": (_head(lambda h: h.update(kernels=[])), "kernel '.*' is missing"),
    "other kernels": (_head(lambda h: h.update(kernels=["x"])), "kernel '.*' is missing"),
    "more kernels": (_head(lambda h: h["kernels"].append("x")), "or was damaged"),
    "another program": (_head(lambda h: h.update(program={})), "this is no program"),
    "no part": (lambda p: p.pop("weights.safetensors"), "or was damaged"),
    "a weight of another name": (_other_weights, "its weight 'w' is missing"),
    "no manifest": (lambda p: p.update({"kernels/0.json": b"{}"}), "manifest"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_parts_that_do_not_belong_together_are_refused(
    saved: Path, tmp_path: Path, what: str
) -> None:
    change, text = CHANGES[what]
    parts = _parts(saved)
    change(parts)
    path = tmp_path / "changed.lw"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises((UsageError, RunError)) as caught:
        graph.load(path)
    assert re.search(text, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_of_another_shape_than_its_kernel_takes_is_refused(
    saved: Path, tmp_path: Path
) -> None:
    parts = _parts(saved)
    head = json.loads(parts["model.json"])
    for value in head["program"]["values"]:
        if value[0] == "x":
            value[1] = [8, 2]
    parts["model.json"] = json.dumps(head).encode()
    path = tmp_path / "changed.lw"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    with pytest.raises(RunError, match="is missing, or takes other values"):
        graph.load(path)


def test_files_that_are_none_are_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        graph.load(tmp_path / "missing.lw")
    with pytest.raises(RunError, match="cannot read"):
        graph.load(tmp_path)
    path = tmp_path / "squeezed.lw"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _parts(saved).items():
            archive.writestr(name, data)
    with pytest.raises(UsageError, match="is compressed"):
        graph.load(path)
    with pytest.raises(RunError, match="cannot write"):
        graph.load(saved).save(tmp_path / "missing" / "model.lw")
