"""A kernel of nothing but mma.sync: the peak that products of 16-bit floats are held against.

Each warp multiplies fragments of ones again and again into accumulators that do not depend on each
other. They begin with different numbers, or the compiler would see that all are equal and keep one.
Nothing is loaded; what is stored in the end tells whether all of it was done.
"""

from __future__ import annotations

from loopwright.codegen.gpu import nvrtc
from loopwright.errors import UsageError
from loopwright.runtime import Artifact
from loopwright.runtime.artifacts.device_code import DeviceCode, LaunchSpec
from loopwright.runtime.artifacts.kinds import CUDA_CUBIN
from loopwright.runtime.artifacts.manifest import ArgSpec, FunctionSpec, Manifest
from loopwright.target import Target
from loopwright.version import __version__

#: Products in flight in a warp, and how often each is repeated.
_TILES, _REPEATS = 16, 4096
#: Threads of a block, and blocks for each processor.
_THREADS, _BLOCKS = 256, 8
_FLOP = 2 * 16 * 8 * 16
_DEPTH = 16
_NAME = "mma_peak"
#: Two ones of 16 bits in a register.
_ONES = "0x3c003c00u"

_SOURCE = f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) {_NAME}(float *out) {{
  float c[{_TILES}][4];
#pragma unroll
  for (int t = 0; t < {_TILES}; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) c[t][i] = (float)(4 * t + i);
  const unsigned int x = {_ONES};
#pragma unroll 1
  for (int r = 0; r < {_REPEATS}; ++r) {{
#pragma unroll
    for (int t = 0; t < {_TILES}; ++t) {{
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{{%0, %1, %2, %3}}, {{%4, %4, %4, %4}}, {{%4, %4}}, {{%0, %1, %2, %3}};"
          : "+f"(c[t][0]), "+f"(c[t][1]), "+f"(c[t][2]), "+f"(c[t][3])
          : "r"(x));
    }}
  }}
  float sum = 0.0f;
#pragma unroll
  for (int t = 0; t < {_TILES}; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += c[t][i];
  out[blockIdx.x * {_THREADS} + threadIdx.x] = sum;
}}
"""

#: What every thread stores: all of its accumulators, each a sum of ones and of what it began with.
EXPECTED = float(4 * _TILES * _REPEATS * _DEPTH + sum(range(4 * _TILES)))


def peak_artifact(target: Target) -> Artifact:
    """The kernel as a program of one array, which has an element a thread.

    Args:
        target: a target ``cuda`` of compute capability 8.0 or later.

    Raises:
        UsageError: an older one.
        BuildError: the compiler refuses.
    """
    arch = str(target.options["arch"])
    if int(arch.removeprefix("sm_").rstrip("af")) < 80:
        raise UsageError(f"{_NAME} needs sm_80 or later, the target is for {arch}")
    made = nvrtc.compile_cubin(_SOURCE, _NAME, arch)
    blocks = _BLOCKS * int(target.options["multi_processor_count"])
    launch = LaunchSpec(_NAME, (blocks, 1, 1), (_THREADS, 1, 1), (("parameter", 0),))
    code = DeviceCode(made.image, (launch,), (), nvrtc.resources(made.log), arch)
    spec = FunctionSpec(_NAME, (ArgSpec("out", (blocks * _THREADS,), "float32", True),))
    manifest = Manifest(
        CUDA_CUBIN.name, _NAME, "", "", "", 1, (spec,), format=1, loopwright=__version__
    )
    return Artifact(manifest.to_json(), code.to_bytes())


def peak_work(threads: int) -> int:
    """Floating-point operations of a call with so many threads."""
    return threads // 32 * _TILES * _REPEATS * _FLOP
