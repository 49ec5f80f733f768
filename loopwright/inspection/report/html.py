"""Report as one file of HTML: no network, no other files, readable without its script."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple
from xml.etree.ElementTree import Element

from loopwright.files import FileKind, marked
from loopwright.inspection.report.elements import (
    Cell,
    Child,
    best_cell,
    candidates,
    card,
    chart,
    element,
    embedded,
    facts,
    figures,
    markup,
    number,
    raw,
    table,
)
from loopwright.inspection.report.page_data import (
    FailureKind,
    KnobDistribution,
    LogPage,
    ModelKernel,
    ModelPage,
    Page,
    Series,
    TaskPage,
)
from loopwright.inspection.speed import duration_text, speed_text, threads_text, time_text


def task_sections(at: int, task: TaskPage, logs: Sequence[LogPage]) -> Element:
    several = len(task.series) > 1
    header = element("header", element("h2", element("bdi", task.name)), _subtitle(task, logs))
    parts: list[Child] = [header]
    for series in task.series:
        parts += [_heading(series) if several else None, figures(_figures(series))]
    parts += [_compared(at, task), _curve(at, task)]
    for place, series in enumerate(task.series):
        parts += [
            _heading(series) if several else None,
            element("div", _shares(at, place, series), _errors(at, place, series), class_="pair"),
            _structures(at, place, series),
            _top(at, place, series),
            _knobs(at, place, series),
            _parallel(at, place, series),
            element(
                "div", _roofline(at, place, series), _accuracy(at, place, series), class_="pair"
            ),
        ]
    return element("article", parts, id=f"task-{at}", data_part=f"task-{at}")


def _heading(series: Series) -> Element:
    return element("h4", element("bdi", series.label))


def _subtitle(task: TaskPage, logs: Sequence[LogPage]) -> Element:
    first = task.series[0]
    hardware = first.hardware or "hardware not known"
    targets = " and ".join(dict.fromkeys(one.target for one in task.series))
    parts = [hardware, threads_text(first.threads), targets] if len(task.series) == 1 else [targets]
    return element("p", ", ".join(filter(None, parts)), class_="soft")


def _figures(series: Series) -> Iterator[tuple[str, str, Child]]:
    best, default = series.best, series.default
    if best is not None:
        checked = "answer checked" if best.checked else "answer not checked"
        note = f"{time_text(best.seconds)} a call, {checked}" if series.flop else checked
        yield "best", speed_text(best.seconds, series.flop), note
    else:
        yield "best", "-", "no trial may be best"
    if default is not None:
        time = f"{time_text(default.seconds)} a call" if series.flop else None
        yield "default", speed_text(default.seconds, series.flop), time
    yield _gain(series)
    if best is not None:
        yield "record", best.id, f"trial {best.trial}"
    failed = series.failed / max(1, series.failed + series.trials)
    same = f"; {series.duplicates} more were the program of another" if series.duplicates else ""
    yield "trials", f"{series.trials:,}", f"and {series.failed:,} failed ({failed:.0%}){same}"
    done = f"building and running; {series.dropped:,} dropped early by racing"
    yield "time", duration_text(series.spent), done


def _gain(series: Series) -> tuple[str, str, Child]:
    words = {"faster": "good", "slower": "bad", "tie": "warn"}
    best = series.best
    if series.verdict and series.outcome in words:
        short = "no gain" if series.outcome == "tie" else f"{1 + (series.gain or 0):.2f}x"
        return (
            "verdict of the playoff",
            short,
            element("span", series.verdict, class_=words[series.outcome]),
        )
    if best is not None and best.of_default:
        note = "unverified: by two medians; the log has no verdict on this record"
        return "beside the default", f"{best.of_default:.2f}x", note
    return "beside the default", "-", "the log does not tell"


def _compared(at: int, task: TaskPage) -> Child:
    if not task.comparisons:
        return None
    rows = [
        [
            Cell(element("bdi", f"{one.one} and {one.other}"), kind="wrap"),
            number(time_text(one.one_s), one.one_s),
            number(time_text(one.other_s), one.other_s),
            Cell(one.text, kind="wrap"),
            Cell("; ".join(one.differences) or "nothing that is known", kind="mono wrap"),
        ]
        for one in task.comparisons
    ]
    titles = ("series", "best of the first", "best of the other", "comparison", "differences")
    shown = table(f"compare-{at}", titles, rows, "The best of each series")
    caption = (
        "The best of each, as each log measured it. The two were not measured in turns, so the "
        "interval holds what varies between windows, and not what changed between the runs."
    )
    return card("Beside each other", shown, caption=caption)


def _curve(at: int, task: TaskPage) -> Element:
    parts = []
    for series in task.series:
        steps, points = series.steps, series.points
        shown = len(points.trial)
        if shown < points.total:
            parts.append(
                f"{series.label}: {shown:,} of {points.total:,} trials are drawn, all steps and a "
                "random sample of the others."
            )
        if not steps.seconds:
            parts.append(f"{series.label}: no trial has a time that counts.")
    caption = (
        "Each dot is a trial, the line is the best until then, its band the range of the timed "
        "windows of that trial. The line rests on single measurements, of which the luckiest lead; "
        "the figures above on what was measured again."
    )
    details = element(
        "details",
        element("summary", "The steps as a table"),
        [_steps(at, place, series) for place, series in enumerate(task.series)],
        id=f"steps-{at}",
    )
    notes = [element("p", part, class_="caption") for part in parts]
    return card("Best so far", chart("curve", task=at), notes, details, caption=caption)


def _steps(at: int, place: int, series: Series) -> Child:
    steps = series.steps
    columns = zip(
        steps.trial, steps.clock, steps.seconds, steps.low, steps.high, steps.id, strict=True
    )
    rows = [
        [
            number(f"{trial:,}", trial),
            number(duration_text(clock), clock),
            number(time_text(seconds), seconds),
            number(f"{time_text(low)} to {time_text(high)}", low),
            number(speed_text(seconds, series.flop), series.flop / seconds or None),
            Cell(id_, kind="mono"),
        ]
        for trial, clock, seconds, low, high, id_ in columns
    ]
    titles = ["trials so far", "after", "time of a call", "windows", "speed", "record"]
    return table(f"steps-{at}-{place}", titles, rows, f"Steps of {series.label}")


def _errors(at: int, place: int, series: Series) -> Element:
    if not series.errors:
        return card("Failures", element("p", "No trial failed.", class_="soft"))
    rows = [
        [
            Cell(one.kind or "unknown"),
            number(f"{one.count}", one.count),
            number(f"{one.share:.1%}", one.share),
            Cell([one.text or "no text", *_example(one)], kind="wrap"),
        ]
        for one in series.errors
    ]
    titles = ["kind", "count", "share", "first example"]
    shown = table(f"errors-{at}-{place}", titles, rows, "Failures by kind")
    caption = "Why trials failed, with an example of each kind; further measurements count, too."
    return card("Failures", shown, caption=caption)


def _example(one: FailureKind) -> Iterator[Element]:
    yield element("div", f"record {one.first}, trial {one.trial}", class_="soft")
    if one.values:
        yield element("div", f"Goes with {'; '.join(one.values)}.", class_="soft")


def _shares(at: int, place: int, series: Series) -> Element:
    rows = [
        [Cell(knob.name, kind="mono"), number(f"{knob.share:.1%}", knob.share)]
        for knob in series.knobs
        if knob.share is not None
    ]
    if not rows:
        return card("Which knobs matter", caption=series.knobs_note)
    name = f"shares-{at}-{place}"
    shown = table(name, ("knob", "share of the variance"), rows, "Shares of the knobs")
    summary = element("summary", "As a table")
    details = element("details", summary, shown, id=f"{name}-details")
    caption = (
        f"Share of the variance of log(time) that each knob explains by itself. {series.knobs_note}"
    )
    return card(
        "Which knobs matter", chart("shares", task=at, series=place), details, caption=caption
    )


def _structures(at: int, place: int, series: Series) -> Child:
    if not series.structures:
        return None
    rows = [[Cell(number, kind="mono"), Cell(name)] for number, name in series.structures]
    shown = table(f"structures-{at}-{place}", ("id", "structure"), rows, "Structures")
    caption = "What the ids in the tables and plots stand for; they count what the log holds."
    return card("Structures", shown, caption=caption)


def _knobs(at: int, place: int, series: Series) -> Child:
    if not series.knobs:
        return None
    parts = []
    for n, knob in enumerate(series.knobs):
        shown = len(knob.values)
        title = f"{knob.name}, {shown} of {knob.total} values" if shown < knob.total else knob.name
        children = (
            element("summary", element("bdi", title)),
            chart("knob", task=at, series=place, knob=n),
            _values(f"values-{at}-{place}-{n}", knob),
        )
        is_open = "" if n < 2 else None
        parts.append(element("details", children, id=f"knob-{at}-{place}-{n}", open=is_open))
    caption = (
        "What was measured with each value, whatever the other knobs were: the bar is the middle "
        "half of the trials, the mark their median, the dot the best. A tuner tries good values "
        "more often, and in better company, so this is no experiment; the shares above average "
        "over the other knobs."
    )
    if len(series.knobs) < series.knobs_total:
        caption += f" {len(series.knobs)} of {series.knobs_total} knobs are shown."
    return card("Effect of each knob", parts, caption=caption)


def _values(name: str, knob: KnobDistribution) -> Child:
    rows = [
        [
            Cell(value.text, kind="mono"),
            number(str(value.count), value.count),
            number(time_text(value.middle), value.middle),
            number(f"{time_text(value.low)} to {time_text(value.high)}", value.low),
            number(time_text(value.best), value.best),
        ]
        for value in knob.values
    ]
    titles = ("value", "trials", "median", "middle half", "best")
    shown = table(name, titles, rows, f"Times by the value of {knob.name}")
    return element("details", element("summary", "As a table"), shown, id=f"{name}-details")


def _parallel(at: int, place: int, series: Series) -> Child:
    if series.parallel is None:
        return None
    caption = (
        f"The best {len(series.parallel.seconds)} candidates, each a line through the values of "
        "its knobs. Where lines meet, good candidates agree. Point at a line to read it."
    )
    shown, total = len(series.parallel.axes), series.parallel.total
    if shown < total:
        caption += f" {shown} of {total} knobs are drawn, those on which they agree most."
    return card("The best candidates", chart("parallel", task=at, series=place), caption=caption)


def _top(at: int, place: int, series: Series) -> Element:
    if not series.top:
        return card("The best", element("p", "No trial may be best.", class_="soft"))
    caption = (
        "Candidates whose answer was checked come first, then the fastest by their latest "
        "measurement. What is said of the default rests on the two medians."
    )
    shown = candidates(f"top-{at}-{place}", series.top, series.flop, f"The best {len(series.top)}")
    return card(f"The best {len(series.top)}", shown, caption=caption)


def _roofline(at: int, place: int, series: Series) -> Element:
    line = series.roofline
    if line is None:
        return card("Roofline", element("p", f"Not drawn: {series.roofline_note}.", class_="soft"))
    speed = f"{line.speed / 1e9:.4g} GFLOP/s"
    sentences = [f"{speed} at {line.intensity:.3g} operations a byte of its arguments."]
    if line.flops:
        share = line.speed / line.flops
        more = "; narrower types can be faster, else something disturbed the sampling"
        sentences.append(
            f"That is {share:.0%} of the float32 arithmetic limit{more if share > 1 else ''}."
        )
    if line.bandwidth:
        share = line.speed / line.intensity / line.bandwidth
        more = "; more than all is possible where data stay in caches" if share > 1 else ""
        sentences.append(f"It moves its arguments at {share:.0%} of the bandwidth of memory{more}.")
    caption = " ".join([*sentences, line.source])
    return card("Roofline", chart("roofline", task=at, series=place), caption=caption)


def _accuracy(at: int, place: int, series: Series) -> Element:
    title = "How well trees predict the next trials"
    if series.accuracy is None:
        return card(title, element("p", f"Not drawn: {series.accuracy_note}.", class_="soft"))
    shown = chart("accuracy", task=at, series=place)
    return card(title, shown, caption=series.accuracy_note)


def log_sections(page: Page) -> list[Element]:
    sections = []
    for at, log in enumerate(page.logs):
        title = element("h2", element("bdi", log.name))
        body = [
            _pace(at, log),
            _time(at, log),
            card("Provenance", facts(_provenance(log)), _runs(f"runs-{at}", log)),
        ]
        pair = element("div", body[:2], class_="pair")
        sections.append(element("section", title, pair, body[2], id=f"log-{at}", class_="log"))
    return sections


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
    parts = {
        "running and checking kernels": spent.run,
        "building": spent.build,
        "measuring again": spent.again,
        "the rest": spent.rest,
    }
    shares: dict[str, Child] = {
        name: f"{duration_text(seconds)} ({seconds / max(spent.wall, 1e-9):.0%})"
        for name, seconds in parts.items()
    }
    caption = (
        f"{duration_text(spent.wall)} of wall time, of all tasks of the log, by the clocks of its "
        f"records.{pauses} Builds "
        f"took {duration_text(spent.build_total)} added up over all builders; that they worked at "
        "the same time is allowed for. The rest is searching, waiting and writing."
    )
    text = element("div", facts(shares), class_="no-script")
    return card("Where the time went", chart("time", log=at), text, caption=caption)


def _provenance(log: LogPage) -> dict[str, Child]:
    complaint = element("span", log.complaint, class_="warn") if log.complaint else None
    entries: dict[str, Child] = {
        "log": element("span", log.path, class_="mono"),
        "records": f"{log.records:,}",
        "not understood": complaint,
    }
    for name, values in log.facts.items():
        entries[name] = "; ".join(values)
    return entries


def _runs(name: str, log: LogPage) -> Child:
    if not log.runs:
        return None
    titles = list(dict.fromkeys(fact for run in log.runs for fact in run))
    long = ("options", "measuring", "limits")
    rows = [
        [Cell(run.get(fact, "-"), kind="wrap" if fact in long else "") for fact in titles]
        for run in log.runs
    ]
    title = "Runs"
    if log.runs_total > len(log.runs):
        title += f", the last {len(log.runs)} of {log.runs_total}"
    shown = table(name, titles, rows, "Runs")
    return element("details", element("summary", title), shown, id=f"{name}-details")


_TITLES = (
    *("task", "calls", "GFLOP of a call", "trials", "time of a call", "of its default"),
    *("share of a run", "record"),
)


def model_section(model: ModelPage, page: Page) -> Element:
    places = {task.name: at for at, task in enumerate(page.tasks)}
    total = sum(_run(row) for row in model.kernels)
    rows = [_row(row, total, places.get(row.name)) for row in model.kernels]
    shown = table("model-table", _TITLES, rows, f"Kernels of {model.name}")
    part = "overview" if len(page.tasks) > 1 else None
    body = card(f"Model {model.name}", chart("model"), shown, caption=_caption(model, total))
    return element("article", body, id="model", data_part=part)


def _caption(model: ModelPage, total: float) -> str:
    missing = sum(row.seconds is None for row in model.kernels)
    if missing:
        text = f"{missing} of {len(model.kernels)} tasks have no time yet; the others take "
        text += f"{time_text(total)} of a run."
    else:
        text = f"A run is expected to take {time_text(total)}"
        defaults = [row.default for row in model.kernels]
        before = sum(row.calls * row.default for row in model.kernels if row.default is not None)
        if all(seconds is not None for seconds in defaults) and total > 0:
            text += f", {time_text(before)} by the default of each ({before / total:.2f}x)"
        text += "."
    return (
        f"{text} That is the sum of calls x time over its tasks, each called again and again; "
        "kernels that map elements one by one are not tuned, and not in it. The curve has the best "
        f"single measurements until then ({model.trials:,} trials in "
        f"{duration_text(model.spent)} of tuning), the table the latest one of each best."
    )


def _row(row: ModelKernel, total: float, place: int | None) -> Sequence[Cell]:
    name: Child = element("bdi", row.name)
    if place is not None:
        name = element("a", name, href=f"#task-{place}")
    ratio = row.default / row.seconds if row.default and row.seconds else None
    seconds, share = row.seconds, _run(row) / total if total else None
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
    return row.calls * (row.seconds or 0.0)


#: Signature of a page, in its first bytes.
_GENERATOR = "loopwright report"
PAGE = FileKind("a report", marked(f'<meta name="generator" content="{_GENERATOR}">'.encode()))
#: The parts of the script, in their order.
_SCRIPTS = ("svg.js", "curve.js", "bars.js", "lines.js", "tables.js", "page.js")


class PageParts(NamedTuple):
    nav: str
    main: str


def report_html(page: Page) -> str:
    """Render the page of a report, complete in one file."""
    return document(page, parts_of(page))


def document(page: Page, parts: PageParts, live: float = 0.0, stamp: str = "") -> str:
    """Whole page, which polls for updates every ``live`` seconds unless that is 0."""
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
    date = time.strftime("made %Y-%m-%d %H:%M", time.localtime(page.made))
    mark = element("span", "live", id="live", role="status") if live else date
    logs_line = element("p", element("bdi", logs_of(page), id="logs"), ", ", mark, class_="soft")
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
            f"<header><h1>Tuning report</h1>{markup([logs_line])}"
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
    nav = []
    if len(page.tasks) > 1:
        options = [element("option", "Overview of all tasks", value="-1")]
        options += [element("option", task.name, value=at) for at, task in enumerate(page.tasks)]
        nav = [element("label", "Show ", element("select", options, id="task"))]
    return PageParts(markup(nav), markup(main))


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


def _overview(page: Page) -> Element:
    beside = len(page.logs) > 1 and _in_several(page)
    rows = [_overview_row(at, task, beside) for at, task in enumerate(page.tasks)]
    titles = ["task", "best", "default", "best beside default", "verdict"]
    titles += ["trials", "failed", "time"]
    if beside:
        titles.insert(1, "logs beside each other")
    shown = table("overview-table", titles, rows, "All tasks")
    first = card("Tasks", shown, caption=_overview_caption(page))
    return element("article", first, id="overview", data_part="overview")


def _overview_caption(page: Page) -> str:
    sentences = [
        "Best beside default is the ratio of two medians; the verdict of a playoff, which measured "
        "both in turns, counts for more."
    ]
    if _in_several(page):
        sentences.append(
            "Of a task in several logs or on several machines, best, default and verdict are those "
            "of the first; trials, failures and time are those of all."
        )
    elif len(page.logs) > 1:
        sentences.append("Each task is in one of the logs only.")
    hidden = page.tasks_total - len(page.tasks)
    if hidden:
        tasks = f"{hidden} more task{'s are' if hidden != 1 else ' is'}"
        sentences.append(f"{tasks} left out, those with the fewest records; --task names one.")
    return " ".join(sentences)


def _in_several(page: Page) -> bool:
    return any(len(task.series) > 1 for task in page.tasks)


def _overview_row(at: int, task: TaskPage, beside: bool) -> Sequence[Cell]:
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
    if beside:
        text = "; ".join(one.text for one in task.comparisons) or "in one of them only"
        if not task.comparisons and len(task.series) > 1:
            text = "not compared: only one of them has a best, or none"
        cells.insert(1, Cell(text, kind="wrap"))
    return cells
