"""The table of expressions, and where they stand beside the bars."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.automatic import geomean
from benchmarks.expressions.measuring import OURS, PEERS, medians

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Bar:
    """What is asked of a group of expressions.

    Attributes:
        title: which they are.
        mean: of the geometric mean of how much faster than the best library ours is.
        least: of each.
    """

    title: str
    mean: float
    least: float


ONE_CALL = Bar("a library has one call", 1.15, 0.9)
SEVERAL = Bar("libraries compose several calls", 2.0, 0.0)


def bar_of(found: Row) -> Bar:
    """What is asked of an expression."""
    return ONE_CALL if found["one_call"] else SEVERAL


def speedup(found: Row, way: str) -> float | None:
    """How much faster a way of ours is than the fastest library; None where one is missing."""
    taken = medians(found)
    others = [taken[p] for p in PEERS if p in taken]
    return min(others) / taken[way] if others and way in taken else None


def below(rows: Sequence[Row], way: str = "tuned") -> list[tuple[str, float, float]]:
    """Name, speedup and bar of those that are below: of one call below the least, of several below
    the mean."""
    found = []
    for r in rows:
        bar, x = bar_of(r), speedup(r, way)
        asked = bar.least or bar.mean
        if x is not None and x < asked:
            found.append((r["what"], x, asked))
    return sorted(found, key=lambda f: f[1])


def table(rows: Sequence[Row]) -> Table:
    """Microseconds of every way, speedups over the fastest library, and the structure that won."""
    out = Table(
        "", "one call", *(f"{p} us" for p in PEERS), *(f"{w} us" for w in OURS), "spread",
        "default x", "tuned x", "", "structure", title="expressions without a template",
    )  # fmt: skip
    for r in rows:
        taken = medians(r)
        out.add_row(
            r["what"],
            r["one_call"],
            *(_us(taken.get(way)) for way in (*PEERS, *OURS)),
            _spread(r["seconds"].get("tuned") or r["seconds"]["default"]),
            *(_times(speedup(r, way)) for way in OURS),
            " ".join([*(f"{way} is wrong" for way in r["wrong"]), *r["problems"]]),
            structure(r),
        )
    return out


def structure(found: Row) -> str:
    """Name of the structure of the best, shortened."""
    chosen = found["chosen"].get("tuned") or found["chosen"]["default"]
    name: str = chosen.partition("structure=")[2].strip("'\"") or "?"
    return name if len(name) < 60 else f"{name[:57]}..."


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Lines that say how each group stands beside its bar, and all that are below."""
    lines = []
    for bar in (ONE_CALL, SEVERAL):
        own = [r for r in rows if bar_of(r) is bar]
        for way in OURS:
            found = [x for r in own if (x := speedup(r, way)) is not None]
            if found:
                lines.append(
                    f"{bar.title}, {way}: {len(found)} expressions, geomean {geomean(found):.2f} "
                    f"(bar {bar.mean:g}), lowest {min(found):.2f}"
                )
    lines += [f"below: {name} {x:.2f} (bar {asked:g})" for name, x, asked in below(rows)]
    wrong = [f"{r['what']} ({way})" for r in rows for way in r["wrong"] if way in OURS]
    lines.append(f"wrong answers of ours: {len(wrong)} {', '.join(wrong)}".rstrip())
    return lines


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.0f}"


def _times(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}"


def _spread(taken: Sequence[float]) -> str:
    return f"{(max(taken) - min(taken)) / statistics.median(taken):.0%}"
