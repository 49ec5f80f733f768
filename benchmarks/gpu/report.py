"""The tables: what building told, and our kernels beside the others with the bars."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.gpu.building import figures
from benchmarks.gpu.cases import BY_NAME, PEAK, Case
from benchmarks.gpu.folder import Folder
from benchmarks.gpu.journal import Line
from benchmarks.gpu.peak import peak_work
from loopwright.runtime import Artifact

#: Sides in the order of the columns.
_SIDES = ("ours", "default", "library", "triton", "copy", PEAK)
NOTHING_MEANT = (
    "OpenCL serves to try this script out: on PoCL, a device made of the CPU, the figures mean "
    "nothing."
)


def rows(folder: Folder, cases: Sequence[Case]) -> list[dict[str, Any]]:
    """A row a case: of each side seconds, spread and speed, and what became of the bars."""
    return [_row(folder, case) for case in cases if case.libraries or case.bars]


def _row(folder: Folder, case: Case) -> dict[str, Any]:
    line = folder.turns(case) or _alone(folder, case)
    sides = {
        name: _figures(samples, _work(folder, case, name))
        for name, samples in line["sides"].items()
    }
    return {
        "case": case.name,
        "bound": case.bound,
        "sides": sides,
        "bars": [_bar(sides, name, share) for name, share in case.bars.items()],
        "problems": line["problems"],
        "notes": line["notes"],
    }


def _alone(folder: Folder, case: Case) -> Line:
    """What is known of a case whose sides have not taken turns."""
    best = folder.best(case)
    if best is None:
        return {"sides": {}, "problems": {}, "notes": {}}
    times = folder.trials(case)[best]["times"]
    note = "measured alone; python -m benchmarks.gpu peers compares it"
    return {"sides": {"ours": times}, "problems": {}, "notes": {"ours": note}}


def _work(folder: Folder, case: Case, side: str) -> int:
    """Operations or bytes of a call of one side."""
    small = folder.purpose.small
    if side != PEAK:
        return BY_NAME.get(side, case).work(small)
    peak = Artifact.load(folder.artifact(BY_NAME[PEAK], 0))
    (threads,) = peak.contents.function(peak.entry).args[0].shape
    assert isinstance(threads, int)
    return peak_work(threads)


def _figures(samples: Sequence[float], work: int) -> dict[str, float]:
    middle = statistics.median(samples)
    spread = (max(samples) - min(samples)) / middle
    return {"seconds": middle, "spread": spread, "speed": work / middle}


def _bar(sides: dict[str, dict[str, float]], name: str, share: float) -> dict[str, Any]:
    """How our speed compares with that of a side, and whether that is enough."""
    if "ours" not in sides or name not in sides:
        return {"side": name, "least": share, "reached": None, "verdict": "not measured"}
    reached = sides["ours"]["speed"] / sides[name]["speed"]
    verdict = "pass" if reached >= share else "MISS"
    return {"side": name, "least": share, "reached": reached, "verdict": verdict}


def report(folder: Folder, cases: Sequence[Case], console: Console) -> dict[str, Any]:
    """Print the tables; returns what they hold."""
    found: dict[str, Any] = {
        "purpose": vars(folder.purpose),
        "devices": [x["device"] for x in folder.sessions],
        "building": [figures(folder, case) for case in cases if folder.rounds(case)],
        "kernels": rows(folder, cases),
    }
    console.print(_building_table(found["building"], folder.purpose.target))
    console.print(_kernel_table(found["kernels"], ", ".join(found["devices"])))
    for row in found["kernels"]:
        _print_remarks(row, console)
    if folder.damaged:
        console.print(f"{folder.damaged} damaged lines were passed over")
    if folder.purpose.device == "opencl":
        console.print(NOTHING_MEANT)
    (folder.path / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def _print_remarks(row: dict[str, Any], console: Console) -> None:
    note = BY_NAME[row["case"]].note
    remarks = [note] if note else []
    remarks += [f"{side}: {text}" for kind in ("notes", "problems") for side, text in
                row[kind].items()]  # fmt: skip
    for text in remarks:
        console.print(f"{row['case']}: {text}", markup=False)


def _building_table(found: list[dict[str, Any]], target: str) -> Table:
    table = Table(
        "", "proposed", "done", "pruned", "refused", "illegal", "failed", "built",
        "compile s [10 %, 90 %]", "spill", "registers", "measured", "right",
        title=f"building for {target}",
        caption="pruned: of the points that were looked at; refused: by a limit before a build; "
        "spill: of those built; registers: of the best by the model",
    )  # fmt: skip
    for f in found:
        table.add_row(
            f["case"],
            str(f["proposed"]),
            str(f["done"]),
            *(_percent(f[x]) for x in ("pruned", "refused", "illegal", "failed")),
            str(f["built"]),
            _seconds(f),
            _percent(f["spills"]),
            _text(f["registers_of_best"]),
            str(f["measured"]),
            str(f["good"]),
        )
    return table


def _seconds(f: dict[str, Any]) -> str:
    if f["compile_s"] is None:
        return "-"
    low, high = f["compile_spread"]
    return f"{f['compile_s']:.2f} [{low:.2f}, {high:.2f}]"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _kernel_table(found: list[dict[str, Any]], devices: str) -> Table:
    table = Table(
        "", *_SIDES, "bars", title=f"kernels, {devices or 'not measured'}", show_lines=True
    )
    for row in found:
        scale, unit = (1e12, "TFLOP/s") if row["bound"] == "compute" else (1e9, "GB/s")
        cells = [_side(row["sides"].get(side), scale, unit) for side in _SIDES]
        table.add_row(row["case"], *cells, "\n".join(map(_bar_text, row["bars"])))
    return table


def _side(f: dict[str, float] | None, scale: float, unit: str) -> str:
    if f is None:
        return "-"
    return f"{f['seconds'] * 1e3:.4g} ms ({f['spread']:.1%})\n{f['speed'] / scale:.4g} {unit}"


def _bar_text(bar: dict[str, Any]) -> str:
    reached = "" if bar["reached"] is None else f"{bar['reached']:.1%} "
    return f"{bar['verdict']}: {reached}of {bar['side']}, bar {bar['least']:.0%}"
