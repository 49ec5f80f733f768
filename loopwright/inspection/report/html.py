"""Report as one file of HTML: no network, no other files, readable without its script."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple
from xml.etree.ElementTree import Element

from loopwright.files import FileKind, marked
from loopwright.inspection.report.elements import (
    Cell,
    Child,
    best_cell,
    card,
    element,
    embedded,
    markup,
    number,
    raw,
    table,
)
from loopwright.inspection.report.page_data import Page, TaskPage
from loopwright.inspection.report.sections import log_sections, model_section, task_sections
from loopwright.inspection.speed import duration_text

#: Signature of a page, in its first bytes.
_GENERATOR = "loopwright report"
PAGE = FileKind("a report", marked(f'<meta name="generator" content="{_GENERATOR}">'.encode()))
#: The parts of the script, in their order.
_SCRIPTS = ("svg.js", "curve.js", "bars.js", "lines.js", "tables.js", "page.js")


class PageParts(NamedTuple):
    """Parts of a page that change when its logs do, as text of HTML."""

    nav: str
    main: str


def report_html(page: Page) -> str:
    """Render the page of a report, complete in one file.

    Example:
        >>> from loopwright.inspection.report import page_of, report_html
        >>> text = report_html(page_of([lw.records.open_log("matmul.jsonl")]))
        >>> print(text.splitlines()[0])
        <!doctype html>
    """
    return document(page, parts_of(page))


def document(page: Page, parts: PageParts, live: float = 0.0, stamp: str = "") -> str:
    """Whole page with its parts and the stamp of this state of the logs.

    A page polls for updates every ``live`` seconds, or, if 0, stays as it is.
    """
    program = script()
    data = raw("script", embedded(page.to_json()), type="application/json", id="data")
    head: list[Child] = [
        element("meta", charset="utf-8"),
        element("meta", name="generator", content=_GENERATOR),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(program, live)),
        element("link", rel="icon", href="data:,"),
        element("title", title_of(page)),
        raw("style", _asset("page.css")),
    ]
    attributes = {"lang": "en"}
    if live:
        attributes |= {"data_live": f"{live:g}", "data_stamp": stamp}
    opening = f"<!doctype html>\n{markup([element('html', **attributes)]).removesuffix('</html>')}"
    footer = (
        f"Made by loopwright {page.loopwright} from the log alone. The data of this page stand in "
        "it as JSON (script element 'data')."
    )
    return "\n".join(
        [
            opening + markup([element("head", head)]),
            "<body>",
            f"<header><h1>Tuning report</h1>{markup([_logs_line(page, bool(live))])}"
            f'<nav id="choose" class="only-script" aria-label="task">{parts.nav}</nav></header>',
            f'<main id="page">{parts.main}</main>',
            markup([element("footer", element("p", footer)), data, raw("script", program)]),
            "</body></html>\n",
        ]
    )


def parts_of(page: Page, complaints: Sequence[str] = ()) -> PageParts:
    """Parts of a page, with complaints at its beginning, such as that a log is missing."""
    main = [element("p", text, class_="warn") for text in complaints]
    if page.model is not None:
        main.append(model_section(page.model, page))
    if len(page.tasks) > 1:
        main.append(_overview(page))
    main += [task_sections(at, task, page.logs) for at, task in enumerate(page.tasks)]
    main += log_sections(page)
    return PageParts(markup(_choice(page)), markup(main))


def waiting(reasons: Sequence[str]) -> PageParts:
    paragraphs = [element("p", reason) for reason in reasons]
    return PageParts(
        "", markup([card("Nothing to show yet", paragraphs, caption="The page looks again.")])
    )


@cache
def script() -> str:
    return '(() => {\n"use strict";\n' + "\n".join(map(_asset, _SCRIPTS)) + "})();\n"


@cache
def _asset(name: str) -> str:
    return files("loopwright.inspection.report").joinpath("assets", name).read_text("utf-8")


def _policy(program: str, live: float) -> str:
    """Content security policy: only this script and, if live, requests to its own server."""
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    asks = " connect-src 'self';" if live else ""
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline';"
        f" img-src data:;{asks} base-uri 'none'; form-action 'none'"
    )


def title_of(page: Page) -> str:
    what = page.tasks[0].name if len(page.tasks) == 1 else f"{page.tasks_total} tasks"
    return f"{what if page.tasks else 'no records'} - tuning report"


def logs_of(page: Page) -> str:
    return " and ".join(log.name for log in page.logs) or "no records"


def _logs_line(page: Page, live: bool) -> Element:
    mark = element("span", "live", id="live", role="status") if live else None
    date = time.strftime("made %Y-%m-%d %H:%M", time.localtime(page.made))
    return element(
        "p", element("bdi", logs_of(page), id="logs"), ", ", mark if live else date, class_="soft"
    )


def _choice(page: Page) -> list[Element]:
    if len(page.tasks) < 2:
        return []
    options = [element("option", "Overview of all tasks", value="-1")]
    options += [element("option", task.name, value=at) for at, task in enumerate(page.tasks)]
    return [element("label", "Show ", element("select", options, id="task"))]


def _overview(page: Page) -> Element:
    rows = [_overview_row(at, task, page) for at, task in enumerate(page.tasks)]
    titles = ["task", "best", "default", "best beside default", "verdict"]
    titles += ["trials", "failed", "time"]
    if len(page.logs) > 1:
        titles.insert(1, "logs beside each other")
    shown = table("overview-table", titles, rows, "All tasks")
    first = card("Tasks", shown, caption=_overview_caption(page))
    return element("article", first, id="overview", data_part="overview")


def _overview_caption(page: Page) -> str:
    sentences = [
        "Best beside default is the ratio of two medians; the verdict of a playoff, which measured "
        "both in turns, counts for more."
    ]
    if any(len(task.series) > 1 for task in page.tasks):
        sentences.append(
            "Of a task in several logs or on several machines, best, default and verdict are those "
            "of the first; trials, failures and time are those of all."
        )
    hidden = page.tasks_total - len(page.tasks)
    if hidden:
        tasks = f"{hidden} more task{'s are' if hidden != 1 else ' is'}"
        sentences.append(f"{tasks} left out, those with the fewest records; --task names one.")
    return " ".join(sentences)


def _overview_row(at: int, task: TaskPage, page: Page) -> Sequence[Cell]:
    first = task.series[0]
    best, default = first.best, first.default
    of_default = None if best is None else best.of_default
    trials, failed, spent = (
        sum(getattr(one, name) for one in task.series) for name in ("trials", "failed", "spent")
    )
    cells = [
        Cell(element("a", element("bdi", task.name), href=f"#task-{at}"), kind="wrap"),
        best_cell(best, first.flop),
        best_cell(default, first.flop),
        number(f"{of_default:.2f}x" if of_default else "-", of_default),
        Cell(first.verdict or "unverified: no verdict on the best", kind="wrap"),
        number(f"{trials:,}", trials),
        number(f"{failed:,}", failed),
        number(duration_text(spent), spent),
    ]
    if len(page.logs) > 1:
        beside = "; ".join(one.text for one in task.comparisons) or "in one of them only"
        if not task.comparisons and len(task.series) > 1:
            beside = "not compared: only one of them has a best, or none"
        cells.insert(1, Cell(beside, kind="wrap"))
    return cells
