"""Sections of a report page about a log as a whole: pace, time and provenance."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from loopwright.inspection.quantities import duration_text
from loopwright.inspection.report.cards import card, chart
from loopwright.inspection.report.elements import Child, element
from loopwright.inspection.report.page_data import LogPage, Page
from loopwright.inspection.report.tables import Cell, facts, table


def log_sections(page: Page) -> list[Element]:
    """Sections on each log as a whole: pace, time and provenance."""
    found = []
    for at, log in enumerate(page.logs):
        title = element("h2", element("bdi", log.name))
        body = [
            _pace(at, log),
            _time(at, log),
            card("Provenance", facts(_provenance(log)), _runs(at, log)),
        ]
        pair = element("div", body[:2], class_="pair")
        found.append(element("section", title, pair, body[2], id=f"log-{at}", class_="log"))
    return found


def _pace(at: int, log: LogPage) -> Child:
    if log.throughput is None:
        return card("Throughput", element("p", "The log has no clock.", class_="soft"))
    pace = f"{log.throughput.per_minute:.0f} trials a minute"
    caption = (
        f"{pace} of searching, of all tasks of the log, failed ones included; playoffs and pauses "
        "are left out."
    )
    return card("Throughput", chart("throughput", log=at), caption=caption)


def _time(at: int, log: LogPage) -> Child:
    spent = log.time
    if spent is None:
        return card("Where the time went", element("p", "The log has no clock.", class_="soft"))
    pauses = f" Pauses of {duration_text(spent.pauses)} are left out." if spent.pauses >= 1 else ""
    shares = {
        "running and checking kernels": spent.run,
        "building": spent.build,
        "measuring again": spent.again,
        "the rest": spent.rest,
    }
    listed = {
        name: f"{duration_text(seconds)} ({seconds / max(spent.wall, 1e-9):.0%})"
        for name, seconds in shares.items()
    }
    caption = (
        f"{duration_text(spent.wall)} of wall time, of all tasks of the log, by the clocks of its "
        f"records.{pauses} Builds "
        f"took {duration_text(spent.build_total)} added up over all builders; that they worked at "
        "the same time is allowed for. The rest is searching, waiting and writing."
    )
    text = element("div", facts(dict(listed)), class_="no-script")
    return card("Where the time went", chart("time", log=at), text, caption=caption)


def _provenance(log: LogPage) -> dict[str, Child]:
    complaint = element("span", log.complaint, class_="warn") if log.complaint else None
    found: dict[str, Child] = {
        "log": element("span", log.path, class_="mono"),
        "records": f"{log.records:,}",
        "not understood": complaint,
    }
    for name, values in log.facts.items():
        found[name] = "; ".join(values)
    return found


def _runs(at: int, log: LogPage) -> Child:
    if not log.runs:
        return None
    titles = list(dict.fromkeys(name for run in log.runs for name in run))
    rows = [
        [
            Cell(
                run.get(name, "-"),
                kind="wrap" if name in ("options", "measuring", "limits") else "",
            )
            for name in titles
        ]
        for run in log.runs
    ]
    more = (
        f", the last {len(log.runs)} of {log.runs_total}" if log.runs_total > len(log.runs) else ""
    )
    shown = table(f"runs-{at}", titles, rows, "Runs")
    name = f"runs-{at}-details"
    return element("details", element("summary", f"Runs{more}"), shown, id=name)
