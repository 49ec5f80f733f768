"""Automatic spaces beside templates written by hand: how good, and after how many trials.

    python -m benchmarks.automatic [--cases TEXT] [--trials 64] [--template-trials 200] [--quick]
    python -m benchmarks.automatic --target opencl --trials 32 --template-trials 32 [--add]

For each workload four kernels of one expression take turns: the default of the automatic space (no
trial), its best after some trials, the default of the template, and its best after more. Speeds are
told as shares of the last one. Operators that have no template any more are compared with the one
that they had, which `benchmarks.templates` keeps. With a target of devices kernels run on the first
of them; with ``--add`` the JSON's rows of other workloads stay, so that a slow device can be
measured in parts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import loopwright as lw
from benchmarks.templates import BASELINES
from benchmarks.workloads import CASES, MORE_CASES, Case
from loopwright import te
from loopwright.cli.workload import find_workload
from loopwright.env import machine, usable_cpus
from loopwright.measure.devices import measured_on
from loopwright.runtime import Device, pinned
from loopwright.task import Task
from loopwright.testing.target_contract import is_for_devices
from loopwright.tuner import DEFAULT_TUNER, TUNERS

#: Rounds in which the kernels take turns.
ROUNDS = 9
#: Kernels of a workload, in the order of the table.
KERNELS = ("automatic default", "automatic", "template default", "template")


#: Workloads that tell something of the spaces of devices, of those that a slow device can run.
ON_DEVICES = (
    "matmul_512",
    "matmul_1000x777x333",
    "matmul_512_transposed",
    "batch_matmul_12x128x128x64",
    "conv2d_64_56_3x3",
    "conv2d_256_56_1x1_64",
    "depthwise_96_112_3x3",
    "softmax_1024x1024",
    "layer_norm_1024x768",
    "sum_last_4096x4096",
    "transpose_4096x4096",
)


def row(
    case: Case, trials: int, template_trials: int, target: str, threads: int | None, seed: int
) -> dict[str, Any]:
    """Measure one workload.

    Args:
        case: the workload.
        trials: valid records of the automatic space.
        template_trials: of the template.
        target: what kernels are built for.
        threads: of all kernels; None for targets of devices.
        seed: of the tuners.

    Returns:
        A row of the table: ``seconds`` and ``shares`` by kernel, what deriving and ranking took,
        how many structures and points there are, and which structure won.
    """
    template = template_of(case, target, threads)
    _, args = template.instantiate(template.config_space.default_index)
    begin = time.perf_counter()
    automatic = derived_of(case, list(args), template)
    derived = time.perf_counter()
    default = automatic.config_space.default_index
    ranked = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = {
            "automatic default": _kernel(automatic, automatic.config(default)),
            "automatic": _tuned(automatic, Path(folder) / "automatic.jsonl", trials, seed),
            "template default": _kernel(template, template.fallback()),
            "template": _tuned(template, Path(folder) / "template.jsonl", template_trials, seed),
        }
    (device, *_) = measured_on(template.target)
    seconds = _in_turns({name: f for name, (f, _) in found.items()}, args, device, threads)
    reference = statistics.median(seconds["template"])
    return {
        "what": case.name,
        "structures": len(automatic.structures),  # type: ignore[attr-defined]
        "points": automatic.config_space.range_length,
        "derive_s": derived - begin,
        "rank_s": ranked - derived,
        "seconds": seconds,
        "shares": {name: reference / statistics.median(taken) for name, taken in seconds.items()},
        "chosen": {name: text for name, (_, text) in found.items()},
    }


def derived_of(case: Case, args: list[te.Tensor], template: Task) -> Task:
    """The task whose space is derived: the operator's own, or that of the template's expression."""
    own = find_workload(case.op, list(case.params), "llvm", None).task
    own = lw.create_task(own.template, own.args, template.target)
    return own if own.automatic else lw.create_task(args, target=template.target)


def template_of(case: Case, target: str, threads: int | None) -> Task:
    """The task of the template by hand: the operator's own, or the one that it had once."""
    task = find_workload(case.op, list(case.params), target, threads).task
    return lw.create_task(BASELINES[case.op], task.args, task.target) if task.automatic else task


def _kernel(task: Task, config: Any) -> tuple[Any, str]:
    s, args = task.instantiate(config)
    return lw.build(s, args, task.target, name="f"), str(config)


def _tuned(task: Task, log: Path, trials: int, seed: int) -> tuple[Any, str]:
    summary = TUNERS[DEFAULT_TUNER](task, seed=seed).tune(
        n_trial=trials, callbacks=[lw.callback.log_to_file(str(log))]
    )
    assert summary.best_config is not None
    return _kernel(task, summary.best_config)


def _in_turns(
    kernels: Mapping[str, Any], args: Sequence[Any], device: Device, threads: int | None
) -> dict[str, list[float]]:
    """Seconds of a call of each kernel, one round after the other."""
    rng = np.random.default_rng(0)
    inputs = [np.abs(rng.standard_normal(t.static_shape) * 4).astype(t.dtype) for t in args]
    arrays = [lw.nd.array(x, device) for x in inputs]
    clocks = {n: f.time_evaluator("f", device, number=3, repeat=3) for n, f in kernels.items()}
    seconds: dict[str, list[float]] = {name: [] for name in kernels}
    with nullcontext() if threads is None else pinned(threads):
        for _ in range(ROUNDS):
            for name, clock in clocks.items():
                seconds[name].append(clock(*arrays).median)
    return seconds


def geomean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def table(rows: Sequence[Mapping[str, Any]], trials: int, template_trials: int) -> Table:
    """Shares of the tuned template's speed, with the spread of the automatic space's best."""
    found = Table(
        *("", "structures", "points", "derive ms", "rank ms", "default", f"{trials} trials"),
        *("spread", "template default", "structure"),
        title=f"automatic spaces, as share of the template after {template_trials} trials",
    )
    for r in rows:
        taken = r["seconds"]["automatic"]
        name = r["chosen"]["automatic"].partition("structure=")[2].strip("'")
        found.add_row(
            *(r["what"], str(r["structures"]), f"{r['points']:,}"),
            *(f"{r['derive_s'] * 1e3:.0f}", f"{r['rank_s'] * 1e3:.0f}"),
            *(f"{r['shares'][n]:.2f}" for n in KERNELS[:2]),
            f"{(max(taken) - min(taken)) / statistics.median(taken):.0%}",
            f"{r['shares']['template default']:.2f}",
            name if len(name) < 50 else f"{name[:47]}...",
        )
    means = [geomean([r["shares"][n] for r in rows]) for n in KERNELS[:3]]
    found.add_row("geomean", *[""] * 4, f"{means[0]:.2f}", f"{means[1]:.2f}", "", f"{means[2]:.2f}")
    return found


def chosen(text: str, device: bool) -> list[Case]:
    """The workloads whose name holds a text; on devices those that are measured there."""
    found = [c for c in (*CASES, *MORE_CASES) if text in c.name]
    return [c for c in found if c.name in ON_DEVICES] if device else found


def main() -> None:
    """Print the table, a line after each workload, and write the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.automatic", description=__doc__)
    parser.add_argument("--cases", default="", help="only workloads whose name holds this text")
    parser.add_argument("--trials", type=int, default=64, help="of the automatic space [64]")
    parser.add_argument("--template-trials", type=int, default=200, help="of the template [200]")
    parser.add_argument("--target", default="llvm", help="what kernels are built for [llvm]")
    parser.add_argument("--threads", type=int, default=len(usable_cpus()), help="[all CPUs]")
    parser.add_argument("--seed", type=int, default=0, help="of the tuners")
    parser.add_argument("--quick", action="store_true", help="few trials")
    parser.add_argument("--add", action="store_true", help="keep other rows of the JSON")
    parser.add_argument("--out", default="automatic.json", help="where the JSON goes")
    options = parser.parse_args()
    console = Console(width=150)
    trials, most = (8, 8) if options.quick else (options.trials, options.template_trials)
    device = is_for_devices(options.target)
    out = Path(options.out)
    rows = json.loads(out.read_text())["rows"] if options.add and out.exists() else []
    for case in chosen(options.cases, device):
        threads = None if device else options.threads
        new = row(case, trials, most, options.target, threads, options.seed)
        rows = [r for r in rows if r["what"] != case.name] + [new]
        shares = ", ".join(f"{n} {new['shares'][n]:.2f}" for n in KERNELS[:3])
        console.print(f"{case.name}: {shares}")
        made = {"machine": machine(), "trials": trials, "template_trials": most, "rows": rows}
        out.write_text(json.dumps(made, indent=1) + "\n")
    if rows:
        console.print(table(rows, trials, most))


if __name__ == "__main__":
    main()
