#!/usr/bin/env bash
# PyTorch 2.13.0: a step of a fused optimiser changes parameters and leaves their version counters as they were.
#
# Tensor._version counts in-place writes; caches of what was computed from a parameter compare it. The plain
# (for-loop or foreach) steps of Adam, AdamW, SGD and Adagrad raise it, those with fused=True do not, on the CPU.
# So whoever keeps packed or folded weights cannot rely on the counter alone.
# Output seen, for each of the four: "plain: changed, version raised" and "fused: changed, version kept".
# Source: the run itself; the counter's purpose is described in PyTorch's notes on autograd mechanics,
# "In-place correctness checks".
# Exit status 1 when this is no longer so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy
"$folder/venv/bin/python" - <<'PROGRAM'
import sys

import torch

print("torch", torch.__version__)
same = True
for name in ("Adam", "AdamW", "SGD", "Adagrad"):
    for fused in (False, True):
        weight = torch.nn.Parameter(torch.ones(64))
        weight.grad = torch.ones(64)
        version, before = weight._version, weight.detach().clone()
        getattr(torch.optim, name)([weight], lr=0.1, fused=fused).step()
        changed, raised = bool((weight != before).all()), weight._version > version
        print(name, "fused:" if fused else "plain:", "changed," if changed else "unchanged,",
              "version raised" if raised else "version kept")
        same &= changed and raised != fused
sys.exit(0 if same else 1)
PROGRAM
