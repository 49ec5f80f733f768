"""Converters of ONNX's operators, a file for each kind; importing them registers them."""

from __future__ import annotations

import importlib

_KINDS = "control elementwise nn quantized reductions resizing shapes trees windows"
for _kind in _KINDS.split():
    importlib.import_module(f"{__name__}.{_kind}")
