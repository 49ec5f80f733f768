"""Section of a report page about a model."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from loopwright.inspection.quantities import duration_text, time_text
from loopwright.inspection.report.cards import card, chart
from loopwright.inspection.report.elements import Child, element
from loopwright.inspection.report.page_data import ModelKernel, ModelPage, Page
from loopwright.inspection.report.tables import Cell, number, table

_TITLES = (
    *("task", "calls", "GFLOP of a call", "trials", "time of a call", "of its default"),
    *("share of a run", "record"),
)


def model_section(model: ModelPage, page: Page) -> Element:
    """Section on a model: the expected time of a run, how it fell, and its kernels."""
    places = {task.name: at for at, task in enumerate(page.tasks)}
    whole = sum(_run(row) for row in model.kernels)
    rows = [_row(row, whole, places.get(row.name)) for row in model.kernels]
    shown = table("model-table", _TITLES, rows, f"Kernels of {model.name}")
    part = "overview" if len(page.tasks) > 1 else None
    body = card(f"Model {model.name}", chart("model"), shown, caption=_caption(model, whole))
    return element("article", body, id="model", data_part=part)


def _caption(model: ModelPage, whole: float) -> str:
    """Expected time of a run, and its basis."""
    missing = sum(row.seconds is None for row in model.kernels)
    if missing:
        said = f"{missing} of {len(model.kernels)} tasks have no time yet; the others take "
        said += f"{time_text(whole)} of a run."
    else:
        said = f"A run is expected to take {time_text(whole)}"
        known = [row.default for row in model.kernels]
        before = sum(row.calls * row.default for row in model.kernels if row.default is not None)
        if all(seconds is not None for seconds in known) and whole > 0:
            said += f", {time_text(before)} by the default of each ({before / whole:.2f}x)"
        said += "."
    return (
        f"{said} That is the sum of calls x time over its tasks, each called again and again; "
        "kernels that map elements one by one are not tuned, and not in it. The curve has the best "
        f"single measurements until then ({model.trials:,} trials in "
        f"{duration_text(model.spent)} of tuning), the table the latest one of each best."
    )


def _row(row: ModelKernel, whole: float, place: int | None) -> Sequence[Cell]:
    name: Child = element("bdi", row.name)
    if place is not None:
        name = element("a", name, href=f"#task-{place}")
    ratio = row.default / row.seconds if row.default and row.seconds else None
    seconds, share = row.seconds, _run(row) / whole if whole else None
    return [
        Cell([name, f" by {row.way}" if row.way else None], kind="wrap"),
        number(f"{row.calls}", row.calls),
        number(f"{row.flop / 1e9:.4g}", row.flop or None),
        number(f"{row.trials:,}", row.trials),
        number("-" if seconds is None else time_text(seconds), seconds),
        number(f"{ratio:.2f}x" if ratio else "-", ratio),
        number("-" if share is None else f"{share:.1%}", share if row.seconds else None),
        Cell(row.id or "-", kind="mono"),
    ]


def _run(row: ModelKernel) -> float:
    """Seconds of its calls in a run, as far as they are known."""
    return row.calls * (row.seconds or 0.0)
