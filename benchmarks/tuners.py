"""Compare the tuners on measured spaces: how many trials each needs to come near the optimum.

``python -m benchmarks.tuners`` (``make tuners``) replays the spaces of ``benchmarks/spaces``, so it
needs no quiet machine: the same seeds give the same figures anywhere. Random search is computed
exactly; the others run with many seeds. `benchmarks/tuner_plot.py` draws the curves.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.spaces.templates import SPACES
from benchmarks.tuner_runs import (
    CONTENDERS,
    SEEDS,
    TARGETS,
    Row,
    compare,
    judged_by,
    random_medians,
    rounded,
    shares,
)
from benchmarks.tuner_stats import random_curve


def tables(rows: Sequence[Row]) -> list[Table]:
    """A table a space."""
    made = []
    for space in dict.fromkeys(row.space for row in rows):
        known, medians = list(shares(space).values()), random_medians(space)
        judge = judged_by(space)
        near = sum(s >= TARGETS[0] for s in known)
        table = Table(
            title=f"{space}: {len(known)} points, {near} within 95 %; random needs "
            f"{medians['0.95']} trials to 95 % and {medians['0.99']} to 99 % (exact medians); "
            f"judged at {float(judge):.0%}",
            title_justify="left",
        )
        heads = ("tuner", "seeds", "to 95 %", "share of random", "to 99 %", "share of random")
        for head in (*heads, "reached 95 / 99 %", "own ms a trial"):
            table.add_column(head, justify="left" if head == "tuner" else "right")
        for row in rows:
            if row.space == space:
                table.add_row(*_cells(row))
        made.append(table)
    return made


def _cells(row: Row) -> list[str]:
    cells = [row.label, str(row.seeds)]
    for target in map(str, TARGETS):
        low, high = row.interval[target]
        cells.append(f"{row.trials[target]:.0f} [{low:.0f}, {high:.0f}]")
        low, high = row.share_interval[target]
        cells.append(f"{row.share[target]:.2f} [{low:.2f}, {high:.2f}]")
    reached = " / ".join(str(row.reached[str(target)]) for target in TARGETS)
    return [*cells, reached, f"{row.own_seconds * 1e3:.1f}"]


def main() -> None:
    """Print the tables, write the JSON, draw the curves."""
    options = _options()
    console = Console(width=150)
    chosen = [c for c in CONTENDERS if not options.only or c.label in options.only]
    rows: list[Row] = []
    for space in options.spaces:
        rows += compare(space, chosen, options.seeds, options.jobs)
        console.print(tables(rows)[-1])
    exact = {
        space: {
            "medians": random_medians(space),
            "judged_by": judged_by(space),
            "curve": rounded(random_curve(list(shares(space).values()), _longest(rows, space))),
        }
        for space in options.spaces
    }
    found = {"random": exact, "rows": [asdict(row) for row in rows]}
    options.out.write_text(json.dumps(found))
    if options.plot is not None:
        from benchmarks.tuner_plot import draw

        draw(found, options.plot)


def _longest(rows: Sequence[Row], space: str) -> int:
    return max(len(row.curve["mean"]) for row in rows if row.space == space)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuners", description=__doc__)
    parser.add_argument("spaces", nargs="*", metavar="SPACE", help=f"of {', '.join(SPACES)} [all]")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"default {SEEDS}")
    parser.add_argument("--jobs", type=int, default=2, help="processes; default 2")
    labels = [c.label for c in CONTENDERS]
    parser.add_argument("--only", nargs="*", choices=labels, help="contenders; default all")
    parser.add_argument("--out", type=Path, default=Path("bench_tuners.json"))
    parser.add_argument("--plot", type=Path, help="draw the curves into this PNG")
    options = parser.parse_args()
    options.spaces = options.spaces or list(SPACES)
    unknown = [s for s in options.spaces if s not in SPACES]
    if unknown:
        parser.error(f"unknown space {unknown[0]!r}; choose from {', '.join(SPACES)}")
    return options


if __name__ == "__main__":
    main()
