"""Measured spaces: frozen templates, the script that measures them, and what it measured.

``python -m benchmarks.spaces`` does the work; ``benchmarks/tuners.py`` compares tuners on the files
``*.npz`` of this folder, which `loopwright.measure.Replay` plays back as a device.
"""

from pathlib import Path


def path_of(name: str) -> Path:
    """The file of a measured space."""
    return Path(__file__).parent / f"{name}.npz"
