"""The examples in pages of the documentation are true; pictures show the nests that they are of."""

from __future__ import annotations

import inspect
import io
import re
import shutil
import sys
from pathlib import Path

import pytest

import loopwright as lw
from loopwright import te
from loopwright.measure import DeviceLock
from tests.test_examples import LOG, ROOMS, log, named, run

__all__ = ["log"]  # a fixture

DOCS = Path(__file__).parents[1] / "docs"
REFERENCE = "\n".join(p.read_text(encoding="utf-8") for p in sorted((DOCS / "api").glob("*.md")))
#: Modules of reports and checks, which have pages of the reference of their own.
REPORTS = """
    inspection.doctor inspection.report inspection.schedules inspection.ties inspection.watch
    records.reports.curve records.reports.differences records.reports.errors
    records.reports.importance records.reports.knobs records.reports.neighbours
    records.reports.setups records.reports.spread records.reports.standings records.validation
"""
#: Classes that users hold: the reference shows the methods that they inherit.
HELD = """
    te.BufferView te.Dag te.IRBuilder te.Operation te.Tensor te.TensorIntrin
    schedule.Schedule schedule.Stage schedule.stage.Group target.Target transform.PassContext
    runtime.memory.AsyncMemoryCopier runtime.memory.DeviceCommunicator
    runtime.memory.MemoryPrefetcher runtime.memory.NaiveAllocator runtime.memory.PooledAllocator
    runtime.memory.WorkspacePool
    runtime.Module runtime.Function runtime.NDArray runtime.Device runtime.Artifact
    runtime.RuntimeCache runtime.RuntimeChecker runtime.ThreadPool
    runtime.profiling.PerformanceMonitor
    task.ApplyHistoryBest task.ConfigSpace task.Task graph.dataflow_pattern.DFPattern
    measure.LocalRunner measure.MeasuredSpace tuner.Tuner
    records.Log records.Ranking records.Record records.Store
"""
PAGES = [p for p in sorted(DOCS.rglob("*.md")) if "```pycon" in p.read_text(encoding="utf-8")]


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page(
    page: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```pycon\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    text = "\n".join(blocks)
    if "lw.opencl(" in text and not lw.opencl().exist:
        pytest.skip(f"{lw.opencl()} cannot be used: {lw.opencl().why_absent()}")
    if LOG in text:
        shutil.copy(request.getfixturevalue("log"), tmp_path)
    report = run(text, page.name)
    assert not report, report


def test_the_reference_has_every_room() -> None:
    """Its module, or what of it is documented one by one."""
    rooms = {*ROOMS.split(), *REPORTS.split()}
    entry = r"^\.\. auto\w+:: loopwright\."
    missing = [
        r for r in rooms if not re.search(rf"{entry}{re.escape(r)}\b", REFERENCE, re.MULTILINE)
    ]
    assert not missing


def inherits(cls: object) -> bool:
    """Whether a class has public methods of a base class of ours."""
    assert isinstance(cls, type)
    return any(
        inspect.isfunction(getattr(member, "__func__", member)) and not name.startswith("_")
        for base in cls.__mro__[1:]
        if base.__module__.startswith("loopwright.")
        for name, member in vars(base).items()
        if name not in vars(cls)
    )


def test_the_reference_has_inherited_methods() -> None:
    """Sphinx leaves them out unless it is told."""
    heirs = [name for name in HELD.split() if inherits(named(name))]
    assert "schedule.Schedule" in heirs
    told = re.findall(
        r"^\.\. autoclass:: loopwright\.(\S+)\n +:inherited-members:", REFERENCE, re.MULTILINE
    )
    assert not {*heirs} - {*told}


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that draw, which are no part of the package."""
    monkeypatch.setattr(sys, "path", [str(DOCS), *sys.path])


def tiled() -> str:
    """A tiled nest of 4 x 4 elements, by tiles of 2 x 2."""
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] + 1, name="B")
    s = te.create_schedule(b.op)
    s[b].tile(*b.op.axis, 2, 2)
    return str(lw.lower(s, [a, b]))


@pytest.mark.usefixtures("pictures")
def test_a_picture_has_a_box_for_each_loop() -> None:
    from extension.drawing import boxes, svg

    (top,) = boxes(tiled())
    depth = 0
    while top.kind == "serial":
        assert top.text.startswith("for ")
        (top,), depth = top.inside, depth + 1
    assert depth == 4
    assert top.text.startswith("B[")
    assert svg(tiled(), "tiles <2>").count("<rect") == 4
    assert "<title>tiles &lt;2&gt;</title>" in svg(tiled(), "tiles <2>")


@pytest.mark.usefixtures("pictures")
def test_visits_are_in_the_order_of_the_nest() -> None:
    from extension.visits import order

    tile = [(0, 0), (0, 1), (1, 0), (1, 1)]
    corners = [(0, 0), (0, 2), (2, 0), (2, 2)]
    assert order(tiled(), "B") == [(i + y, j + x) for i, j in corners for y, x in tile]


@pytest.mark.usefixtures("pictures")
def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    from extension.links import broken

    (tmp_path / "a.html").write_text(
        '<h1 id="top">x</h1><a href="#top">1</a><a href="b.html#no">2</a><a href="c.html">3</a>'
        '<a href="https://example.org">4</a><script src="https://example.org/x.js"></script>'
        '<link href="https://example.org/x.css">',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<p id="yes">y</p>', encoding="utf-8")
    assert broken(tmp_path) == [
        "a.html: b.html#no: there is no such place",
        "a.html: c.html: there is no such file",
        "a.html: https://example.org/x.css: is fetched from another site",
        "a.html: https://example.org/x.js: is fetched from another site",
    ]


@pytest.mark.docs
@pytest.mark.usefixtures("pictures")
def test_a_tutorial_waits_for_no_other_run_and_its_failure_stops_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = pytest.importorskip("sphinx.application", reason="needs Sphinx: make docs")
    pytest.importorskip("myst_parser", reason="needs MyST: make docs")
    from extension import tutorials

    monkeypatch.setattr(tutorials, "SCRIPTS", tmp_path)
    script = (
        "from loopwright.measure import DeviceLock\nprint('free', DeviceLock().acquire() < 1)\n"
    )
    (tmp_path / "01_locks.py").write_text(f'"""One: it locks."""\n{script}')
    (tmp_path / "02_fails.py").write_text('"""Two: it fails."""\nraise SystemExit("no luck")\n')
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text("# Pages\n\n```{toctree}\n:glob:\ntutorials/*\n```\n")
    overrides = {"extensions": "myst_parser,sphinx.ext.autodoc,extension.directives"}
    site, warnings = tmp_path / "site", io.StringIO()
    lock = DeviceLock()
    lock.acquire()
    try:
        app = application.Sphinx(
            str(source), None, str(site), str(tmp_path / "trees"), "html", overrides,
            status=None, warning=warnings,
        )  # fmt: skip
        app.build()
    finally:
        lock.release()
    assert "free True" in (site / "tutorials" / "01_locks.html").read_text(encoding="utf-8")
    assert "It failed" in (site / "tutorials" / "02_fails.html").read_text(encoding="utf-8")
    assert re.findall("(02_fails.py: exit code 1)", warnings.getvalue())
