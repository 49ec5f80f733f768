"""Tutorial 20: a model of PyTorch, by torch.compile and by export; what falls back, and tuning.

Run it with ``python tutorials/20_torch_compile.py``; it needs PyTorch (``pip install
torch``). docs/models.md says what else models can do.
"""

import os
import tempfile
import time
from pathlib import Path

import torch

import loopwright as lw
from loopwright.graph.torch_backend import loopwright as backend

# Where the package is installed, PyTorch finds the backend by its name: backend="loopwright".
SMALL = os.environ.get("LOOPWRIGHT_TUTORIAL_SMALL")
WIDE = 32 if SMALL else 512
OPTIONS = {"target": "llvm -num-threads=2"}


class Classifier(torch.nn.Module):
    """Two layers, and a spectrum that no operator of ours computes."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDE, WIDE)
        self.last = torch.nn.Linear(WIDE, 10)

    def forward(self, x):
        hidden = torch.nn.functional.gelu(self.first(x))
        spectrum = torch.fft.fft(hidden).abs()
        return self.last(hidden + spectrum / WIDE)


def through_torch_compile(model, x):
    """The model as before, with one line more."""
    compiled = torch.compile(model, backend=backend, options=OPTIONS)
    begin = time.perf_counter()
    with torch.inference_mode():
        found, wanted = compiled(x), model(x)
    print(f"   first call, kernels built: {time.perf_counter() - begin:.1f} s")
    print(f"   largest difference from PyTorch: {(found - wanted).abs().max():.1e}")
    with torch.no_grad():
        model.last.weight.mul_(2)  # a change of weights counts in the next call
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    print("   a weight changed, and the outputs with it")
    try:
        compiled(x)
    except Exception as error:
        text = next(line for line in str(error).splitlines() if "inference" in line)
        print("   with gradients:", text)


def by_export(model, x):
    """A model of its own, which needs no PyTorch to run as far as nothing falls back."""
    compiled = lw.compile(model, OPTIONS["target"], example_inputs=(x,))
    print(f"   {compiled}")
    for line in str(compiled.report).splitlines():
        print("  ", line)
    try:
        lw.compile(model, OPTIONS["target"], example_inputs=(x,), fallback=False)
    except lw.LoopwrightError as error:
        print("   without fallback:", error)


def tuned(model, x):
    """A few trials for each kernel, into a log that later calls build from."""
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "classifier.jsonl")
        lw.tune(model, OPTIONS["target"], log=log, trials=4 if SMALL else 64, example_inputs=(x,))
        compiled = torch.compile(model, backend=backend, options={**OPTIONS, "history": log})
        with torch.inference_mode():
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
    print("   built from the records of the log")


def main():
    torch.manual_seed(0)
    model, x = Classifier().eval(), torch.randn(4, WIDE)
    print("1. torch.compile")
    through_torch_compile(model, x)
    print("2. by export")
    by_export(model, x)
    print("3. tuned")
    torch._dynamo.reset()
    tuned(model, x)


if __name__ == "__main__":
    main()
