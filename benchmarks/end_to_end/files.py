"""What is kept of a model in the folder of a comparison: its ONNX file, its log, one JSON for each
way in which it was timed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.torch_models import BUILT, VISION, model_of
from loopwright.errors import UsageError, did_you_mean

#: All models that there are, the smallest first.
MODELS = (
    "mlp",
    "squeezenet1_1",
    "mobilenet_v2",
    "resnet18",
    "efficientnet_b0",
    "resnet50",
    "bert4",
    "vit_b_16",
)
assert set(MODELS) == {*VISION, *BUILT}


@dataclass(frozen=True)
class Subject:
    """A model for one size of a batch, with its files.

    Attributes:
        folder: where they are.
        name: of the model.
        batch: images, or rows of sequences, of one run.
    """

    folder: Path
    name: str
    batch: int

    @property
    def onnx(self) -> Path:
        """The model with random weights, in one file."""
        return self.folder / f"{self.name}_{self.batch}.onnx"

    @property
    def log(self) -> Path:
        """The log of its tuning."""
        return self.folder / f"{self.name}_{self.batch}.jsonl"

    def result(self, threads: int) -> Path:
        """What came of timing it with so many threads."""
        return self.folder / f"{self.name}_{self.batch}_{threads}_threads.json"

    def saved(self, side: str) -> Path:
        """The model compiled in one way."""
        return self.folder / f"{self.name}_{self.batch}_{side.replace(' ', '_')}.lw"

    def export(self) -> None:
        """Write the ONNX file, if it is not there yet; it needs torch and onnxscript."""
        if self.onnx.exists():
            return
        import torch

        model, inputs = model_of(self.name, self.batch)
        part = self.onnx.with_suffix(".part")
        torch.onnx.export(model, inputs, str(part), dynamo=True, external_data=False)
        part.rename(self.onnx)


def subjects(folder: Path, names: list[str], batch: int) -> list[Subject]:
    """The models of some names, all where none is given.

    Raises:
        UsageError: there is no model of a name.
    """
    for name in names:
        if name not in MODELS:
            raise UsageError(
                f"there is no model {name!r}{did_you_mean(name, MODELS)}; there are "
                f"{', '.join(MODELS)}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    return [Subject(folder, name, batch) for name in MODELS if name in (names or MODELS)]


def results(folder: Path) -> list[dict[str, Any]]:
    """All that was timed in a folder."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*_threads.json"))]
