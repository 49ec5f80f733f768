"""Why a kernel is slower on a user's arrays than in the tuner: one cause at a time, in one run.

``python -m benchmarks.as_used`` times some kernels as the tuner does
(64-byte aligned arrays that stay where they are, pinned threads, the loop in compiled code), and
again with one thing changed. Samples of all ways are taken in turns, so that a busy machine hits
them alike; what is printed are medians of the ratios to the tuner's way in the same round, with
the middle half of them in brackets.

``--only call`` times what a call itself costs, on arrays so small that the kernel does not count,
beside a ufunc of NumPy on the same arrays.
"""

from __future__ import annotations

import argparse
import mmap
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from loopwright import runtime, te
from loopwright.cli.workload import find_workload
from loopwright.driver import build
from loopwright.inspection import bench
from loopwright.runtime import Module
from loopwright.runtime import ndarray as nd

Array = npt.NDArray[Any]
#: Takes a sample: seconds per call.
Sample = Callable[[], float]
_PAGE = 4096

#: A product that reads its operands where they lie, and not packed copies of them.
_UNPACKED = {
    "tile_i": [-1, 4, 4],
    "tile_j": [-1, 1, 16],
    "unroll_k": 4,
    "order": "ij",
    "pack": "none",
}

#: Words of a workload, and its configuration; None: the default one.
WORKLOADS: tuple[tuple[str, dict[str, Any] | None], ...] = (
    ("matmul M=512 N=512 K=512", None),
    ("matmul M=512 N=512 K=512", _UNPACKED),
    ("matmul M=1024 N=1024 K=1024", _UNPACKED),
    ("conv2d N=1 C=64 H=56 W=56 O=64 KH=3 KW=3 pad=1", None),
    ("softmax M=1024 N=1024", None),
    ("layer_norm M=1024 N=1024", None),
    ("depthwise_conv2d N=1 C=96 H=112 W=112 KH=3 KW=3 pad=1", None),
    ("transpose M=2048 N=2048", None),
)


def placed(like: Array, offset: int, advice: int | None = None) -> Array:
    """A copy of an array whose first byte lies `offset` bytes behind the start of a page.

    Args:
        like: what is copied.
        offset: 0 to 4095.
        advice: what the system is told of the pages before they are touched, as
            ``mmap.MADV_HUGEPAGE``.
    """
    block = mmap.mmap(-1, like.nbytes + 2 * _PAGE)
    if advice is not None:
        block.madvise(advice)
    raw = np.frombuffer(block, np.uint8)[offset : offset + like.nbytes]
    array: Array = raw.view(like.dtype).reshape(like.shape)
    np.copyto(array, like)
    return array


def ways(module: Module) -> dict[str, Sample]:
    """Samples of one kernel by the name of what is different from the tuner's way."""
    function = module[module.entry_name]
    plain = bench.random_arguments(module)
    outputs = [arg.output for arg in function.args]

    def loop(arrays: list[Array], pinned: bool = True) -> Sample:
        call = function.bind(*arrays)
        runtime.time_call(call, 1)
        estimate = runtime.time_call(call, 1)

        def sample() -> float:
            return runtime.measure_windows(call, windows=1, estimate=estimate)[0]

        def alone() -> float:
            with runtime.pinned():
                return sample()

        return alone if pinned else sample

    def called(arrays: list[Array], fresh: bool) -> Sample:
        """Calls from Python; with a new output for each where `fresh`."""
        function(*arrays)
        number = max(1, round(0.02 / max(1e-6, runtime.time_call(function.bind(*arrays), 1))))

        def sample() -> float:
            with runtime.pinned():
                start = time.perf_counter()
                for _ in range(number):
                    args = [
                        np.empty_like(a) if new and fresh else a
                        for a, new in zip(arrays, outputs, strict=True)
                    ]
                    function(*args)
                return (time.perf_counter() - start) / number

        return sample

    def at(offset: Callable[[int], int], advice: int | None = None) -> list[Array]:
        return [placed(a, offset(i), advice) for i, a in enumerate(plain)]

    aligned = [nd.array(a)._data for a in plain]
    tiny = [np.full_like(a, 1e-40) if a.dtype == np.float32 else a for a in plain]
    return {
        "the tuner's way": loop(aligned),
        "the same again": loop(aligned),
        "not pinned": loop(aligned, pinned=False),
        "NumPy's own arrays": loop([a.copy() for a in plain]),
        "16 bytes off, page offsets differ": loop(at(lambda i: 16 + 1088 * i % 4096)),
        "32 bytes off, page offsets differ": loop(at(lambda i: 32 + 1088 * i % 4096)),
        "aligned, page offsets differ": loop(at(lambda i: 1088 * i % 4096)),
        "aligned, page offsets equal": loop(at(lambda i: 0)),
        "small pages": loop(at(lambda i: 1088 * i % 4096, mmap.MADV_NOHUGEPAGE)),
        "huge pages": loop(at(lambda i: 1088 * i % 4096, mmap.MADV_HUGEPAGE)),
        "called from Python": called(aligned, fresh=False),
        "a new output for each call": called(aligned, fresh=True),
        "denormal inputs": loop([placed(a, 64 * i) for i, a in enumerate(tiny)]),
    }


#: What the table of calls is called, for ``--only``.
_CALLS = "call from Python, C = A + B on 4 float32"
_CALLS_PER_SAMPLE = 20_000


def calls() -> dict[str, Sample]:
    """Samples of a call that has next to nothing to compute, by how it is made."""
    fixed, symbolic = (_sum_of(n) for n in (4, te.size_var("n")))
    a, b, c = (np.ones(4, np.float32) for _ in range(3))
    ours = [nd.array(x) for x in (a, b, c)]
    bound = fixed.bind(a, b, c)
    made: dict[str, Callable[[], object]] = {
        "np.add(a, b, c)": lambda: np.add(a, b, c),
        "f(a, b, c), arrays of NumPy": lambda: fixed(a, b, c),
        "f(a, b, c), NDArrays": lambda: fixed(*ours),
        "f(a, b, c), any size": lambda: symbolic(a, b, c),
        "g(), of g = f.bind(a, b, c)": bound,
        "a function of Python": lambda: None,
    }

    def sample(call: Callable[[], object]) -> float:
        start = time.perf_counter()
        for _ in range(_CALLS_PER_SAMPLE):
            call()
        return (time.perf_counter() - start) / _CALLS_PER_SAMPLE

    return {name: partial(sample, call) for name, call in made.items()}


def _sum_of(n: te.Expr | int) -> Module:
    x, y = (te.placeholder((n,), name=name) for name in "AB")
    z = te.compute((n,), lambda i: x[i] + y[i], name="C")
    return build(te.create_schedule(z.op), [x, y, z], "llvm -num-threads=1")


def print_calls(rounds: int) -> None:
    """The table of calls."""
    print(_CALLS)
    times = taken(calls(), rounds)
    first, *_ = times.values()
    for name, found in times.items():
        low, middle, high = statistics.quantiles(_by(found, first), n=4)
        absolute = f"{statistics.median(found) * 1e6:7.3f} us"
        print(f"  {name:36}{middle:6.2f} x  ({low:.2f} to {high:.2f}){absolute}")


def taken(samples: dict[str, Sample], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round, in which the order of the ways is drawn anew."""
    names = list(samples)
    rng = random.Random(0)
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in rng.sample(names, len(names)):
            found[name].append(samples[name]())
    return found


def ratios(samples: dict[str, Sample], rounds: int) -> dict[str, list[float]]:
    """Times by the first way's time in the same round."""
    times = taken(samples, rounds)
    first, *_ = times.values()
    return {name: _by(found, first) for name, found in times.items()}


def _by(times: list[float], first: list[float]) -> list[float]:
    return [t / one for t, one in zip(times, first, strict=True)]


def main() -> None:
    """Print a table for each workload."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.as_used", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="samples of each way [15]")
    parser.add_argument("--threads", type=int, help="threads of the kernels [all cores]")
    parser.add_argument("--only", default="", help="only workloads whose words hold this text")
    options = parser.parse_args()
    if options.only in _CALLS:
        print_calls(options.rounds)
    for text, config in WORKLOADS:
        if options.only not in text:
            continue
        words = text.split()
        workload = find_workload(words[0], words[1:], "llvm", options.threads)
        task = workload.task
        chosen = task.config_space.get(task.config_space.default_index).values | (config or {})
        module = build(*task.instantiate(chosen), task.target)
        print(text, config or "default configuration")
        for name, found in ratios(ways(module), options.rounds).items():
            low, middle, high = statistics.quantiles(found, n=4)
            print(f"  {name:36}{middle:6.2f} x  ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
