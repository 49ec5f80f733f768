"""What is computed: each case with its sizes, its work, its bars, and who computes it beside us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Literal

from loopwright import te
from loopwright.errors import UsageError, did_you_mean
from loopwright.ops import gpu
from loopwright.schedule import Schedule
from loopwright.task import template

#: What limits a case: arithmetic or memory. A limit is what others are compared with.
Bound = Literal["compute", "memory"]
Sizes = tuple[int, ...]
COPY, PEAK = "copy", "mma_peak"
_BYTES = 4


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        name: row of the tables.
        template: name of the operator; empty where the kernel is written by hand.
        full, small: sizes, the first arguments of the template, and those of a trial run.
        more: what else the template takes.
        dtype: of the inputs.
        bound: what limits it.
        kinds: kinds of devices that it runs on.
        libraries: who computes it beside us, where it is installed.
        bars: by side, the least share of that side's speed that ours is to reach.
        note: what a reader of the table must know.
        trials: candidates at most; None: as many as the command says.
    """

    name: str
    template: str
    full: Sizes
    small: Sizes
    bound: Bound = "compute"
    more: tuple[bool | str, ...] = ()
    dtype: str = "float32"
    kinds: tuple[str, ...] = ("cuda", "opencl")
    libraries: tuple[str, ...] = ("library", "triton")
    bars: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    note: str = ""
    trials: int | None = None

    def sizes(self, small: bool) -> Sizes:
        """Sizes, for a trial run or not."""
        return self.small if small else self.full

    def args(self, small: bool) -> tuple[int | bool | str, ...]:
        """Arguments of the template."""
        return (*self.sizes(small), *self.more)

    @property
    def tf32(self) -> bool:
        """Whether float32 is multiplied as tf32, by all sides."""
        return "tf32" in self.more

    def work(self, small: bool) -> int:
        """Floating-point operations, or bytes that must be moved, of one call."""
        sizes = self.sizes(small)
        match self.template:
            case "matmul" | "matmul_tensor_core" | "batch_matmul":
                return 2 * prod(sizes)
            case "conv2d":
                n, c, h, w, o, kh, kw, _, _ = sizes
                return 2 * n * c * h * w * o * kh * kw
            case "layer_norm":
                return _BYTES * (2 * prod(sizes) + 2 * sizes[1])
        return _BYTES * 2 * prod(sizes)


def _bars(**shares: float) -> Mapping[str, float]:
    return MappingProxyType(shares)


_FP32 = _bars(library=0.88)
_MOVED = _bars(copy=0.90, triton=1.0)
_GIB = (65536, 4096)

CASES = (
    Case(COPY, "benchmarks/gpu_copy", _GIB, (16, 64), "memory", libraries=(), trials=40),
    Case(PEAK, "", (), (), kinds=("cuda",), libraries=()),
    Case("matmul_4096_fp32", "matmul", (4096, 4096, 4096), (64, 64, 64), bars=_FP32),
    Case(
        "matmul_4096_tf32",
        "matmul_tensor_core",
        (4096, 4096, 4096),
        (64, 64, 64),
        more=(False, "tf32"),
        kinds=("cuda",),
    ),
    Case(
        "matmul_4096_fp16",
        "matmul_tensor_core",
        (4096, 4096, 4096),
        (64, 64, 64),
        dtype="float16",
        kinds=("cuda",),
        bars=_bars(**{PEAK: 0.75, "library": 0.45}),
        note="sums in fp32; a library that cannot store them as fp32 rounds them to fp16",
    ),
    Case(
        "batch_matmul_64x1024x1024x256",
        "batch_matmul",
        (64, 1024, 1024, 256),
        (2, 32, 32, 32),
        bars=_FP32,
    ),
    Case(
        "conv2d_64_56",
        "conv2d",
        (32, 64, 56, 56, 64, 3, 3, 1, 1),
        (2, 4, 8, 8, 8, 3, 3, 1, 1),
        libraries=("library",),
        bars=_FP32,
    ),
    Case(
        "conv2d_256_14",
        "conv2d",
        (32, 256, 14, 14, 256, 3, 3, 1, 1),
        (2, 8, 6, 6, 8, 3, 3, 1, 1),
        libraries=("library",),
        bars=_FP32,
    ),
    Case("softmax_1GiB", "softmax", _GIB, (16, 64), "memory", bars=_MOVED),
    Case("layer_norm_1GiB", "layer_norm", _GIB, (16, 64), "memory", bars=_MOVED),
)
BY_NAME = {case.name: case for case in CASES}


def chosen(names: str, kind: str) -> list[Case]:
    """The cases that run on a kind of devices.

    Args:
        names: names with commas; empty: all.
        kind: such as ``"cuda"``.

    Raises:
        UsageError: a name is not known, or that case does not run on such devices.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in BY_NAME:
            raise UsageError(
                f"unknown task {name!r}{did_you_mean(name, list(BY_NAME))}; known: "
                f"{', '.join(BY_NAME)}"
            )
        if kind not in BY_NAME[name].kinds:
            kinds = " and ".join(BY_NAME[name].kinds)
            raise UsageError(f"the task {name} does not run on {kind}, only on {kinds}")
    return [c for c in CASES if kind in c.kinds and (not wanted or c.name in wanted)]


@template("benchmarks/gpu_copy")
def copy(M: int, N: int, dtype: str = "float32") -> tuple[Schedule, list[te.Tensor]]:
    """B (M, N) = A: what it reaches is the bandwidth that others are held against."""
    A = te.placeholder((M, N), dtype, name="A")
    B = te.compute((M, N), lambda i, j: A[i, j], name="B")
    return gpu.scheduled(B, [A])
