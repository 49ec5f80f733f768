"""Draws what `benchmarks.tuners` found: mean best-so-far by trial, one panel a space, as PNG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

#: Colours that differ in lightness too (Okabe and Ito), by position of the contender.
_COLOURS = ("#000000", "#999999", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the curves.

    Args:
        found: what ``python -m benchmarks.tuners`` writes as JSON.
        path: the PNG.
    """
    spaces = list(found["random"])
    figure, axes = plt.subplots(
        1, len(spaces), figsize=(5.2 * len(spaces), 4.2), squeeze=False, sharey=True
    )
    labels = list(dict.fromkeys(row["label"] for row in found["rows"]))
    for ax, space in zip(axes[0], spaces, strict=True):
        exact = found["random"][space]
        for row in (r for r in found["rows"] if r["space"] == space):
            colour = _COLOURS[labels.index(row["label"]) % len(_COLOURS)]
            trials = range(1, len(row["curve"]["mean"]) + 1)
            if row["label"] == "random":
                ax.plot(trials, exact["curve"], color=colour, label="random (exact)")
                continue
            ax.plot(trials, row["curve"]["mean"], color=colour, label=row["label"])
            ax.fill_between(
                trials, row["curve"]["low"], row["curve"]["high"], color=colour, alpha=0.2, lw=0
            )
        for target in (0.95, 0.99):
            ax.axhline(target, color="#666666", lw=0.6, ls=":")
        ax.set(title=space, xscale="log", xlabel="trials", ylim=(0.3, 1.01))
        ax.grid(alpha=0.3, lw=0.5)
    axes[0][0].set_ylabel("best so far, share of the optimum's speed")
    axes[0][-1].legend(loc="lower right", frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
