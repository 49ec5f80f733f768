"""The line of progress: as wide as the terminal, in its place, and alive in long steps."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from loopwright.testing.tuner_contract import FakeMeasurer, FakeSpace, FakeTask, bowl
from loopwright.tuner import GridSearchTuner, Monitor, RandomTuner, XGBTuner, tune_tasks
from loopwright.tuner.run import progress
from loopwright.tuner.run.phases import Phases, Ticker
from loopwright.tuner.run.progress import Part, ProgressBar, fitted, shows_progress
from loopwright.tuner.tasks.summary import TaskTable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


#: What a terminal obeys in one line: colours, the cursor hidden or shown, the line wiped.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def lines_of(text: str) -> list[str]:
    """What stood on the line, one text for each drawing; the terminal never went to another."""
    drawn, _, _ = text.partition("stopped:")
    parts = [CONTROL.sub("", part).rstrip(" ") for part in drawn.split("\r")]
    assert not any("\n" in part for part in parts[:-2])
    return [part.strip() for part in parts if part.strip()]


@pytest.fixture
def every_trial(monkeypatch):
    """The line is drawn at each chance, however quick the trials are."""
    monkeypatch.setattr(progress, "_DRAW_S", 0.0)


@pytest.mark.usefixtures("every_trial")
@pytest.mark.parametrize("width", [20, 40, 80, 140])
@pytest.mark.parametrize("prefix", ["", "[Task 1/3]"])
def test_one_line_of_any_width_that_never_scrolls(monkeypatch, width, prefix):
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal()
    bar = ProgressBar(20, prefix=prefix, si_prefix="M", file=terminal)
    RandomTuner(FakeTask()).tune(n_trial=20, measure_option=FakeMeasurer(bowl), callbacks=[bar])
    drawn = lines_of(terminal.getvalue())
    assert len(drawn) >= 20
    assert max(map(cell_len, drawn)) <= width
    assert any("20/20" in line for line in drawn)
    if width >= 40:
        assert any("best" in line and "MFLOP/s" in line for line in drawn)
    if width == 140:
        full = next(line for line in drawn if "16/20" in line)
        assert all(word in full for word in (prefix, "━", "current", "ETA", "measuring"))
    assert "best:    " in terminal.getvalue()


def test_what_does_not_fit_is_left_out_by_rank():
    parts = [Part(0, "64/200"), Part(2, "current 1"), Part(1, "best 2"), Part(3, "")]
    assert fitted(parts, 80) == "64/200  current 1  best 2"
    assert fitted(parts, 16) == "64/200  best 2"
    assert fitted(parts, 10) == "64/200"
    assert fitted(parts, 4) == "64/2"
    long = [Part(0, "64/200"), Part(1, "timing (a task of a long name)", shortens=True)]
    assert fitted(long, 26) == "64/200  timing (a task of…"
    assert fitted(long, 18) == "64/200"
    # A character may take two columns.
    assert fitted([Part(0, "行列"), Part(1, "x")], 5) == "行列"


def test_after_a_line_there_is_a_pause(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def three_seconds(index):
        now[0] += 3.0

    file = io.StringIO()
    measurer = FakeMeasurer(bowl, on_trial=three_seconds)
    RandomTuner(FakeTask()).tune(
        n_trial=20, measure_option=measurer, callbacks=[ProgressBar(file=file)]
    )
    counts = [int(n) for n in re.findall(r"^(\d+)/20 ", file.getvalue(), re.MULTILINE)]
    # A line each ten seconds, and one before the finalists are measured again.
    assert counts == [4, 8, 12, 16, 20, 20]


class Slow(RandomTuner):
    """Takes its time to choose, as a cost model does."""

    seconds = 1.8

    def propose(self, n):
        self.on_phase("fitting the cost model")
        time.sleep(self.seconds)
        return super().propose(n)


def test_a_long_silent_step_shows_what_it_is_and_that_time_goes_on():
    terminal = Terminal()
    bar = ProgressBar(4, file=terminal)
    Slow(FakeTask()).tune(n_trial=4, measure_option=FakeMeasurer(bowl), callbacks=[bar])
    fitting = [line for line in lines_of(terminal.getvalue()) if "fitting the cost model" in line]
    assert len(set(fitting)) >= 2, "the clock stands still"


def test_a_long_silent_step_is_a_line_elsewhere(monkeypatch):
    monkeypatch.setattr(progress, "_LINE_S", 0.2)
    monkeypatch.setattr(Slow, "seconds", 0.8)
    file = io.StringIO()
    Slow(FakeTask()).tune(
        n_trial=4, measure_option=FakeMeasurer(bowl), callbacks=[ProgressBar(file=file)]
    )
    assert "fitting the cost model" in file.getvalue()
    assert "\r" not in file.getvalue()
    assert "\x1b" not in file.getvalue()


def test_nothing_is_drawn_while_a_kernel_is_timed():
    drawn = []
    ticker = Ticker(lambda: drawn.append(time.perf_counter()), every=0.01)
    ticker.quiet(True)
    time.sleep(0.15)
    ticker.quiet(False)
    before = len(drawn)
    time.sleep(0.15)
    assert before > 0
    assert len(drawn) == before
    ticker.close()


def test_a_terminal_that_is_gone_ends_the_drawing_and_nothing_else():
    def gone():
        raise OSError("the terminal was closed")

    ticker = Ticker(gone, every=0.01)
    ticker.quiet(True)
    time.sleep(0.1)
    ticker.quiet(False)
    ticker.close()


class Heard(Monitor):
    def __init__(self):
        self.phases, self.notes, self.closed = [], [], 0

    def phase(self, text, quiet):
        self.phases.append((text, quiet))

    def note(self, text):
        self.notes.append(text)

    def close(self):
        self.closed += 1


def test_phases_nest_and_timing_is_never_quiet():
    heard = Heard()
    phases = Phases([heard])
    with phases.entered("playoff", quiet=False):
        phases.measuring("build")
        phases.measuring("run")
        phases.measuring("")
    with phases.entered("measuring", quiet=False):
        phases.measuring("reference")
        phases.measuring("")
    with phases.entered("choosing configurations"):
        phases.now("fitting the cost model")
    assert heard.phases == [
        ("playoff", False),
        ("playoff: compiling candidates", True),
        ("playoff: timing", False),
        ("playoff", False),
        ("", False),
        ("measuring", False),
        ("computing the right answer", True),
        ("measuring", False),
        ("", False),
        ("choosing configurations", True),
        ("fitting the cost model", True),
        ("", False),
    ]


def test_the_learned_model_says_what_it_does_and_the_end_is_told_also_after_an_error():
    heard = Heard()
    XGBTuner(FakeTask(FakeSpace((64, 64)))).tune(
        n_trial=20, measure_option=FakeMeasurer(bowl), callbacks=[heard]
    )
    said = [text for text, _ in heard.phases]
    assert {"reading the log", "fitting the cost model", "playoff"} <= set(said)
    assert heard.closed == 1

    def broken(index):
        raise RuntimeError("a fault")

    failing = FakeMeasurer(bowl, on_trial=broken)
    tuner = RandomTuner(FakeTask())
    with pytest.raises(RuntimeError, match="a fault"):
        tuner.tune(n_trial=20, measure_option=failing, callbacks=[heard])
    assert heard.closed == 2


SAID = "trials were asked for, but there are only {} valid configurations"


@pytest.mark.parametrize(
    ("space", "tuner", "options", "count"),
    [
        (FakeSpace((11, 11)), RandomTuner, {}, 121),
        (FakeSpace((11, 11), valid=lambda i: i % 2 == 0), RandomTuner, {}, 61),
        (FakeSpace((11, 11)), GridSearchTuner, {"range_idx": (50, 59)}, 11),  # and the default
    ],
)
def test_more_trials_than_there_can_be_are_announced_early(space, tuner, options, count):
    heard = Heard()
    summary = tuner(FakeTask(space), **options).tune(
        n_trial=200, measure_option=FakeMeasurer(bowl), callbacks=[heard]
    )
    assert summary.trials == count
    assert heard.notes[0].startswith("200 " + SAID.format(count))


@pytest.mark.usefixtures("every_trial")
def test_the_count_never_stands_still_below_its_total(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    fails = lambda i: "MEMORY" if i % 10 == 9 else None  # noqa: E731
    bar = ProgressBar(200, file=terminal)
    RandomTuner(FakeTask(FakeSpace((11, 11)))).tune(
        n_trial=200, measure_option=FakeMeasurer(bowl, fails=fails), callbacks=[bar]
    )
    text = CONTROL.sub("", terminal.getvalue())
    assert "/200" not in text
    assert "109/109" in text  # 121 points, of which 12 fail


def test_a_space_that_is_large_or_slow_to_count_is_not_counted(monkeypatch):
    heard = Heard()
    monkeypatch.setattr("loopwright.tuner.run.run._PATIENCE_S", 0.0)
    for space in (FakeSpace((200, 200)), FakeSpace((11, 11), valid=lambda i: True)):
        RandomTuner(FakeTask(space)).tune(
            n_trial=4, measure_option=FakeMeasurer(bowl), callbacks=[heard]
        )
    assert not heard.notes


def test_several_tasks_together_have_room_for_so_many(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    from rich.console import Console

    table = TaskTable(Console(file=terminal, highlight=False))
    tasks = [FakeTask(FakeSpace((3, 3)), name) for name in ("one", "two")]
    summary = tune_tasks(
        tasks, 50, FakeMeasurer(bowl), callbacks=[table], tuner="random", strategy="round-robin"
    )
    text = CONTROL.sub("", terminal.getvalue())
    assert (summary.trials, summary.total) == (18, 18)
    assert "50 trials were asked for, but there are only 18 valid configurations" in text
    assert "trials 18/18" in text


SCRIPT = """
import logging, sys
from loopwright.testing.tuner_contract import FakeMeasurer, FakeTask, bowl
from loopwright.tuner import RandomTuner, progress_bar
def tune(*bars):
    RandomTuner(FakeTask()).tune(n_trial=5, measure_option=FakeMeasurer(bowl), callbacks=bars)
tune()
print("----", file=sys.stderr)
tune(progress_bar())
print("----", file=sys.stderr)
logging.getLogger("loopwright").setLevel(logging.WARNING)
tune()
"""


@pytest.mark.parametrize(
    ("verbose", "terminal", "callbacks", "shown"),
    [
        (None, True, [], True),
        (None, False, [], False),
        (True, False, [], True),
        (False, True, [], False),
        (None, True, [ProgressBar()], False),
        (True, True, [Monitor(), TaskTable()], False),
    ],
)
def test_progress_is_shown_where_somebody_looks(verbose, terminal, callbacks, shown, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal() if terminal else io.StringIO())
    assert shows_progress(verbose, callbacks) is shown


def test_a_run_that_nobody_watches_says_its_result_in_one_line():
    """Not one that somebody watches, nor one whose logger was told to be silent."""
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert not ran.stdout
    line = re.compile(r"^.*: best [\d.]+ ms, .*\(5 trials, \d+s; stopped: .*\)$", re.M)
    alone, watched, silent = ran.stderr.split("----\n")
    assert [len(line.findall(text)) for text in (alone, watched, silent)] == [1, 0, 0], ran.stderr


def test_with_logging_set_up_the_result_goes_there(caplog, capfd):
    with caplog.at_level(logging.INFO, "loopwright"):
        RandomTuner(FakeTask()).tune(n_trial=5, measure_option=FakeMeasurer(bowl))
    assert any("(5 trials" in record.message for record in caplog.records)
    assert not capfd.readouterr().err
