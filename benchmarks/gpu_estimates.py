"""What kernels take by the cost model's estimate beside what NVRTC says: needs no GPU.

Random points of the spaces of GPU templates, those included that the filters of the spaces refuse,
are sorted by what stops them: an estimate that exceeds a limit widely (the tuners do not propose
such a point), or the exact check of the lowered program. What is left is compiled to a cubin, and
its registers, spills and shared memory are compared with the estimates.

    python -m benchmarks.gpu_estimates --points 60 --arch sm_90
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from loopwright import ops
from loopwright.cost.analytical import Excess
from loopwright.cost.gpu.device import GpuProperties, device_of
from loopwright.cost.gpu.kernel import GpuKernel, kernels_of
from loopwright.driver import compile_schedule
from loopwright.env import machine
from loopwright.errors import BuildError, InstantiationError, LowerError, ScheduleError
from loopwright.lowering import lower_ids
from loopwright.lowering.gpu_limits import limits_of, verify_gpu_limits
from loopwright.runtime.artifacts.device_code import DeviceCode, KernelResources
from loopwright.task import Task, create_task
from loopwright.task.sampling import indices_of, random_digits

#: Name, operator, arguments.
CASES = (
    ("matmul 1024", ops.matmul, (1024, 1024, 1024)),
    ("batch_matmul 16x128x64", ops.batch_matmul, (16, 128, 128, 64)),
    ("conv2d 64x56x56, 3x3", ops.conv2d, (8, 64, 56, 56, 64, 3, 3, 1, 1)),
    ("softmax 512x1000", ops.softmax, (512, 1000)),
    ("layer_norm 512x1024", ops.layer_norm, (512, 1024)),
    ("transpose 1024x512", ops.transpose, (1024, 512)),
    ("elementwise 1024x512", ops.elementwise, (1024, 512)),
)
#: Copies of a statement beyond which a kernel is left out: compiling it takes minutes.
MOST_COPIES = 4096


@dataclass
class Estimates:
    """Kernels of random points of one space, estimated and compiled.

    Attributes:
        drawn: points.
        filtered: points that the filter of the space refuses.
        pruned: points whose estimates exceed a limit widely.
        pruned_valid: those of them that the filter of the space accepts.
        refused: points that the exact check, or the template, or the compiler refuses.
        skipped: points whose code would be too long to compile here.
        kernels: of the others, the estimate and what the compiler says.
        seconds: of lowering and compiling each of them.
    """

    drawn: int = 0
    filtered: int = 0
    pruned: int = 0
    pruned_valid: int = 0
    refused: int = 0
    skipped: int = 0
    kernels: list[tuple[GpuKernel, KernelResources]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def estimates_of(task: Task, points: int, seed: int) -> Estimates:
    """Estimate and compile points of a task until so many were compiled, or 20 times as many drawn.

    Args:
        task: a task of the target ``cuda``.
        points: how many to compile.
        seed: of the draws.
    """
    out, excess, device = Estimates(), Excess(task), device_of(task.target)
    for digits in random_digits(task.config_space, 20 * points, np.random.default_rng(seed)):
        if len(out.seconds) == points:
            break
        out.drawn += 1
        index = indices_of(task.config_space, digits[None])[0]
        valid = task.config_space.is_valid(index)
        out.filtered += not valid
        if excess.widely(digits[None]).any():
            out.pruned += 1
            out.pruned_valid += valid
            continue
        try:
            _compile(task, index, device, out)
        except (InstantiationError, ScheduleError, LowerError, BuildError):
            out.refused += 1
    return out


def _compile(task: Task, index: int, device: GpuProperties, out: Estimates) -> None:
    """Compile one point, and note its kernels."""
    s, args = task.instantiate(task.config_space.get(index))
    kernels = kernels_of(s.state, device)
    if any(int(x.written) > MOST_COPIES for k in kernels for x in k.stages):
        out.skipped += 1
        return
    ids = s.arg_ids(args)
    verify_gpu_limits(lower_ids(s, ids), limits_of(task.target.options))
    start = time.perf_counter()
    artifact, _ = compile_schedule(s, ids, task.target, "candidate")
    out.seconds.append(time.perf_counter() - start)
    code = DeviceCode.from_bytes(artifact.objects, len(args))
    taken = [code.resources[name] for name in code.kernels]
    out.kernels += zip(kernels, taken, strict=True)


def figures(e: Estimates) -> dict[str, Any]:
    """The figures of the table, of one space."""
    estimated = np.array([float(min(k.registers, k.register_cap)) for k, _ in e.kernels])
    registers = np.array([float(r.registers or 0) for _, r in e.kernels])
    shared = [(int(k.shared_bytes), r.shared_bytes or 0) for k, r in e.kernels]
    spilled = np.array([(r.spill_bytes or 0) > 0 for _, r in e.kernels], bool)
    foreseen = np.array([float(k.spilled) > 0 for k, _ in e.kernels], bool)
    varied = len(e.kernels) > 2 and np.ptp(estimated) > 0 and np.ptp(registers) > 0
    return {
        "drawn": e.drawn,
        "filtered": e.filtered / max(e.drawn, 1),
        "pruned": e.pruned / max(e.drawn, 1),
        "pruned_valid": e.pruned_valid / max(e.drawn - e.filtered, 1),
        "refused": e.refused / max(e.drawn, 1),
        "skipped": e.skipped / max(e.drawn, 1),
        "compiled": len(e.seconds),
        "kernels": len(e.kernels),
        # The gap behind the last buffer is not the compiler's.
        "shared_equal": _share([0 <= a - b < 16 for a, b in shared]),
        # Where all kernels take about as many, a correlation says little.
        "registers_range": [int(registers.min()), int(registers.max())] if len(registers) else None,
        "registers_correlation": float(np.corrcoef(estimated, registers)[0, 1]) if varied else None,
        "registers_error": _median(np.abs(estimated / registers - 1)),
        "spills": _share(spilled),
        "spills_foreseen": _share(foreseen[spilled]),
        "warnings_right": _share(spilled[foreseen]),
        "build_s": _median(e.seconds),
    }


def _median(values: Any) -> float | None:
    return float(np.median(values)) if len(values) else None


def _share(flags: Any) -> float | None:
    """The share of those that are true; None of none."""
    return float(np.mean(flags)) if len(flags) else None


def _table(rows: list[dict[str, Any]], arch: str) -> Table:
    table = Table(
        "", "points", "filtered", "pruned", "of valid", "refused", "too long", "kernels",
        "shared equal", "registers", "r", "median error", "spill", "foreseen", "rightly", "build s",
        title=f"estimates beside NVRTC, {arch}",
    )  # fmt: skip
    shares = ("filtered", "pruned", "pruned_valid", "refused", "skipped")
    compared = ("registers_error", "spills", "spills_foreseen", "warnings_right")
    for r in rows:
        correlation, between = r["registers_correlation"], r["registers_range"]
        table.add_row(
            r["what"],
            str(r["drawn"]),
            *(_percent(r[x]) for x in shares),
            str(r["kernels"]),
            _percent(r["shared_equal"]),
            "-" if between is None else "{}-{}".format(*between),
            "-" if correlation is None else f"{correlation:.2f}",
            *(_percent(r[x]) for x in compared),
            "-" if r["build_s"] is None else f"{r['build_s']:.2f}",
        )
    return table


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def main() -> None:
    """Print the table and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_estimates", description=__doc__)
    parser.add_argument("--points", type=int, default=60, help="points to compile of each space")
    parser.add_argument("--arch", default="sm_90", help="architecture [sm_90]")
    parser.add_argument("--cases", default="", help="only spaces whose name holds this text")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    parser.add_argument("--out", default="bench_gpu_estimates.json", help="where the JSON goes")
    options = parser.parse_args()
    rows = []
    for name, operator, args in CASES:
        if options.cases not in name:
            continue
        task = create_task(operator, args=args, target=f"cuda -arch={options.arch}")
        found = estimates_of(task, options.points, options.seed)
        rows.append({"what": name, **figures(found)})
    Console(width=170).print(_table(rows, options.arch))
    result = {"machine": machine(), "arch": options.arch, "rows": rows}
    Path(options.out).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
