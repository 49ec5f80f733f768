"""``python -m tests.pocl_kernels FOLDER``: how many kernels PoCL has built, and if too many.

PoCL takes about a second for a kernel. It keeps what it builds in the folder that the variable
``POCL_CACHE_DIR`` names, whichever process asks for it. So `.ci/run` gives it an empty one and
counts afterwards; ``POCL_CACHE_DIR=FOLDER make test ARGS=tests/unit/codegen`` tells those of some
tests.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from loopwright.runtime.devices.opencl import found_devices

#: So many kernels may all tests, tutorials and pages together have built.
MOST = 100


def _pocl_is_here() -> bool:
    devices, _ = found_devices()
    return bool(devices) and "Portable Computing" in devices[0].platform.name


needs_pocl = pytest.mark.skipif(
    not _pocl_is_here(), reason="needs PoCL: apt-get install pocl-opencl-icd ocl-icd-libopencl1"
)


def kernels_in(folder: Path) -> int:
    """The kernels in a cache of PoCL, each once: it links one for each size of its blocks.

    A library lies in ``XX/PROGRAM/KERNEL/BLOCK/KERNEL.so``.
    """
    return len({library.parents[1] for library in folder.rglob("*.so")})


def main(argv: Sequence[str] | None = None) -> int:
    """Print the number; 1 where it is above the limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.pocl_kernels")
    parser.add_argument("folder", type=Path, help="what POCL_CACHE_DIR was")
    parser.add_argument("--most", type=int, default=MOST, help=f"the limit (default {MOST})")
    options = parser.parse_args(argv)
    built = kernels_in(options.folder)
    print(f"PoCL built {built} kernels; {options.most} are allowed")
    if built <= options.most:
        return 0
    print(
        "error: too many; let tests share programs, draw fewer seeds, or compare on the "
        "interpreter what a device cannot do differently",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
