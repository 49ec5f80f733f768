"""What shows itself in a notebook: HTML that is well-formed, small, without colours, harmless."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import loopwright as lw
from loopwright import te
from loopwright.inspection import rerun
from loopwright.presenting import harmless, html_block, html_folded, html_table, html_text
from loopwright.records import Log, Record, Skipped
from loopwright.task import Report
from tests.unit.inspection.logs import write

EVIL = "</pre><script>alert(1)</script>&amp;\x1b[2J\u202e\ud800"


class Parsed(HTMLParser):
    """The elements of some HTML, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.styles: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open, f"{self.open} is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"style"}
        self.styles += [value or "" for _, value in attrs]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def shown(thing: object) -> Parsed:
    """What a notebook is given of a thing."""
    html = thing._repr_html_()  # type: ignore[attr-defined]
    assert len(html) < 100_000
    html.encode()
    parsed = Parsed(html)
    assert set(parsed.tags) <= {
        *("div", "b", "pre", "table", "tr", "th", "td", "details", "summary")
    }
    # Colours are the notebook's, light or dark.
    styles = re.sub(r"solid currentColor", "", " ".join(parsed.styles))
    assert not re.search(r"color|background|#[0-9a-f]{3}|rgb", styles)
    return parsed


# ---------------------------------------------------------------- the parts


def test_text_becomes_no_markup_and_no_control_code() -> None:
    for html in (
        html_block(EVIL),
        html_text(EVIL),
        html_folded(EVIL, html_text(EVIL)),
        html_table([(EVIL, 1)], (EVIL, "n")),
    ):
        parsed = Parsed(html)
        assert "script" not in parsed.tags
        assert harmless(EVIL) in parsed.text
        html.encode()


def test_long_texts_tables_and_cells_are_cut() -> None:
    text = Parsed(html_text("\n".join(f"line {k}" for k in range(5000))))
    assert "line 999\n... and 4000 more lines" in text.text
    table = Parsed(html_table((k, "x" * 10_000) for k in range(5000)))
    assert len(table.rows) == 1001
    assert table.rows[-1] == ["... and more"]
    assert len(table.rows[0][1]) == 300


# ---------------------------------------------------------------- what users have


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Some records of two tasks."""
    tasks = [
        lw.create_task(name, args, "llvm -num-threads=1")
        for name, args in (("matmul", (16, 32, 8)), ("reduce", (5, 37)))
    ]
    return write(tmp_path_factory.mktemp("notebook") / "log.jsonl", tasks, each=3)


def test_programs_and_schedules() -> None:
    A = te.placeholder((64, 8), name=EVIL)
    k = te.reduce_axis((0, 8), name="k")
    B = te.compute((64,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    s[B].split(s[B].op.axis[0], factor=4)
    schedule, dag, nest = shown(s), shown(s.dag), shown(lw.lower(s, [A, B]))
    assert ": 1 step" in schedule.text
    assert ".split(i, factor=4)" in schedule.text
    assert s.dag.hash in dag.text
    assert "te.sum(" in dag.text
    assert "Loop nest of main" in nest.text
    assert "for i.0 in range(16)" in nest.text


def test_spaces_and_configurations() -> None:
    task = lw.create_task("matmul", (64, 64, 64))
    space = shown(task.config_space)
    assert space.rows[0] == ["knob", "kind", "candidates", "default", "which"]
    assert [row[0] for row in space.rows[1:]] == list(task.config_space.knobs)
    assert f"{len(task.config_space):,} points" in space.text
    assert "more" in space.text
    config = task.config_space.get(7)
    assert shown(config).rows == [[name, str(config[name])] for name in config.values]
    assert "number 7" in shown(config).text


def test_logs_and_records(log: Log) -> None:
    whole = shown(log)
    assert "6 records of 2 tasks, 0 runs" in whole.text
    assert [row[1:4] for row in whole.rows[1:]] == [["3", "0", "1 ms"], ["3", "0", "1 ms"]]
    record = log.records[0]
    one = shown(record)
    assert record.id in one.text
    assert "1 ms (1 to 1 ms, 1 window)" in one.text
    assert all(name in one.text for name in record.config)
    assert shown(Log(Path("empty.jsonl"))).text == "empty.jsonl: 0 records of 0 tasks, 0 runs"


def test_strange_records_are_shown_as_text() -> None:
    strange = Record(
        *(EVIL, EVIL, [EVIL], {"kind": EVIL, "mcpu": EVIL}, {EVIL: EVIL}, ()),
        error={"kind": EVIL, "text": EVIL},
        env={"cpu": [EVIL]},
        ts=1e300,
        trace=[[EVIL]],
        run=EVIL,
    )
    parsed = shown(strange)
    assert "script" not in parsed.tags
    assert "<script>alert(1)</script>" in parsed.text
    log = shown(Log(Path(EVIL), [strange, strange], [], {}, [Skipped(1, EVIL)]))
    assert "<script>alert(1)</script>" in log.text


def test_reports_and_measurements(log: Log) -> None:
    assert "Nothing was built" in shown(Report()).text
    with lw.apply_history_best(log) as history, lw.Target("llvm -num-threads=1"):
        lw.ops.matmul(16, 32, 8)
    report = shown(history.report())
    assert report.rows[0][:3] == ["task", "built from", "match"]
    assert report.rows[1][1].startswith("record ")
    again = shown(rerun(log, log.records[0]))
    assert [row[0] for row in again.rows][:2] == ["record", "trial"]


# ---------------------------------------------------------------- a notebook that runs


CELLS = [
    "import loopwright as lw\n"
    "task = lw.create_task('matmul', (16, 16, 16), 'llvm -num-threads=1')\n"
    "task.config_space",
    "tuner = lw.tuner.RandomTuner(task, seed=0)\n"
    "from loopwright.testing.tuner_contract import FakeMeasurer\n"
    "progress = lw.callback.progress_bar(6)\n"
    "summary = tuner.tune(6, measure_option=FakeMeasurer(), callbacks=[progress])\n"
    "summary",
    "s, args = task.instantiate(0)\ns",
]


@pytest.mark.filterwarnings("ignore")  # of the libraries that run notebooks
def test_a_notebook_shows_html_and_draws_progress_in_one_place(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    resources = {"metadata": {"path": tmp_path}}
    nbclient.NotebookClient(notebook, timeout=240, resources=resources).execute(env=environment)
    ran = [cell["outputs"] for cell in notebook.cells]
    for outputs, word in zip(ran, ("Space of ", "Tuned ", "Schedule of "), strict=True):
        assert word in Parsed(outputs[-1]["data"]["text/html"]).text
    drawn = [x for x in ran[1] if x["output_type"] == "display_data"]
    assert len(drawn) == 1
    assert "stopped: " in drawn[0]["data"]["text/plain"]
    assert "trials: " not in drawn[0]["data"]["text/plain"], "the summary stands below"
    assert not [x for x in ran[1] if x["output_type"] == "stream"]
