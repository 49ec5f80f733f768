"""Models of several batches as files: as those of one program, with kernels and weights once.

``model.json`` has a program for each batch, with the numbers of its kernels in the archive and the
names of its weights there, and a program of formulas for all other batches.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright.errors import RunError
from loopwright.runtime.executors import saved
from loopwright.runtime.executors.batches.shared_arrays import SharedArrays
from loopwright.runtime.executors.batches.sized_model import SizedModel
from loopwright.runtime.executors.batches.sized_program import SizedProgram, SizedValue
from loopwright.runtime.executors.model import Model
from loopwright.runtime.executors.program import Program
from loopwright.runtime.module import Module

Array = npt.NDArray[Any]
#: Of files that hold such a model.
VERSION = 2


def write(
    path: str | os.PathLike[str],
    size: str,
    inputs: Sequence[SizedValue],
    models: Mapping[int, Model],
    rest: SizedModel | None,
    *,
    force: bool = False,
) -> Path:
    """Write a model of several batches; arguments and errors as of `BatchedModel.save`."""
    parts = _Parts()
    head = {
        "format": saved.FORMAT,
        "version": VERSION,
        "size": size,
        "inputs": [[v.name, list(v.shape), v.dtype] for v in inputs],
        "batches": [[batch, parts.add(one)] for batch, one in models.items()],
        "rest": None if rest is None else parts.add(rest),
    }
    return saved.write_parts(path, head, parts.kernels, parts.weights, force=force)


class _Parts:
    """Distinct kernels and weights of several programs."""

    def __init__(self) -> None:
        self.kernels: list[Module] = []
        self.weights: dict[str, Array] = {}
        self._numbers: dict[tuple[str, bytes], int] = {}
        self._shared, self._names = SharedArrays(), dict[int, str]()

    def add(self, model: Model | SizedModel) -> dict[str, Any]:
        """Enter the parts of a model; returns its entry in ``model.json``."""
        used = [v.name for v in model.program.values if v.kind == "constant"]
        return {
            "program": model.program.to_json(),
            "kernels": {name: self._kernel(module) for name, module in model.kernels.items()},
            "weights": {name: self._weight(name, model.constants[name]) for name in used},
        }

    def _kernel(self, module: Module) -> int:
        artifact = module.artifact
        key = json.dumps(artifact.manifest, sort_keys=True), artifact.objects
        if key not in self._numbers:
            self._numbers[key] = len(self.kernels)
            self.kernels.append(module)
        return self._numbers[key]

    def _weight(self, name: str, array: Array) -> str:
        kept = self._shared.one_of(np.asarray(array, order="C"))
        found = self._names.get(id(kept))
        if found is None:
            found = name if name not in self.weights else f"{name}.{len(self.weights)}"
            self._names[id(kept)], self.weights[found] = found, kept
        return found


def read(
    archive: zipfile.ZipFile, head: Mapping[str, Any], source: Path
) -> tuple[str, list[SizedValue], dict[int, Model], SizedModel | None]:
    """Read the arguments of a `BatchedModel` from an archive that `saved.opened` gave."""
    reader = _Reader(archive, source)
    size = str(head["size"])
    inputs = [SizedValue(str(n), tuple(shape), d, "input") for n, shape, d in head["inputs"]]
    models: dict[int, Model] = {}
    for batch, part in head["batches"]:
        program = Program.from_json(part["program"])
        if type(batch) is not int or batch < 1:
            raise RunError(f"{source}: one of its batches is {batch!r:.40}")
        if program.input_values != tuple(v.at({size: batch}) for v in inputs):
            raise RunError(f"{source}: its program for {size} {batch} takes other inputs")
        kernels, weights = reader.kernels(part), reader.weights(part)
        saved.check(source, program, kernels, weights)
        models[batch] = Model(program, kernels, weights, shared=reader.shared)
    if head["rest"] is None:
        return size, inputs, models, None
    whole = SizedProgram.from_json(head["rest"]["program"])
    if whole.size != size or whole.input_values != tuple(inputs):
        raise RunError(f"{source}: its program for other batches takes other inputs")
    kernels, weights = reader.kernels(head["rest"]), reader.weights(head["rest"])
    saved.check(source, whole.at(2), kernels, weights)
    return size, inputs, models, SizedModel(whole, kernels, weights, shared=reader.shared)


class _Reader:
    """Kernels and weights of an archive, each read once."""

    def __init__(self, archive: zipfile.ZipFile, source: Path) -> None:
        self._archive, self._kernels = archive, dict[int, Module]()
        self._weights = saved.weights_of(archive, source)
        self.shared = SharedArrays()

    def kernels(self, part: Mapping[str, Any]) -> dict[str, Module]:
        for number in part["kernels"].values():
            if type(number) is not int:
                raise ValueError(f"the number of a kernel is {number!r:.40}")
            if number not in self._kernels:
                self._kernels[number] = saved.kernel_of(self._archive, number)
        return {str(name): self._kernels[n] for name, n in part["kernels"].items()}

    def weights(self, part: Mapping[str, Any]) -> dict[str, Array]:
        return {str(name): self._weights[stored] for name, stored in part["weights"].items()}
