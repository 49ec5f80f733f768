"""``loopwright watch``: follow a tuning run from another terminal."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import click

from loopwright.cli.console import echo, harmless
from loopwright.cli.options import argument, flag, option, verb
from loopwright.presenting import counted

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.table import Table

    from loopwright.inspection import Status, TaskStatus, Watcher, Writers
    from loopwright.records import Follower


#: Seconds between two looks at the log, and between two lines where there is no terminal.
_LOOK_S, _LINE_S = 1.0, 10.0
#: Seconds between two looks at who writes the log.
_WRITERS_S = 5.0
#: Reading this many bytes takes so long that it is said.
_LARGE = 32 << 20
#: Tasks that the table shows at once.
_MOST_TASKS = 20
#: Columns of a terminal that has room for the default's speed, too.
_WIDE = 100


@verb("watch")
def watch_command(
    log: str = argument(),
    every: float | None = option(
        "--every SECONDS",
        f"Time between two updates [default: {_LOOK_S:g} on a terminal, else {_LINE_S:g}].",
        type=click.FloatRange(0.1, 86400),
    ),
    once: bool = flag("--once", "Print once where the run stands, and end."),
) -> None:
    """Follow the tuning run that writes LOG: the best so far, trials a minute, failures, what is
    left, and whether a process still writes the log.

    Nothing is written and no lock is taken, so that the run is not disturbed. LOG need not exist
    yet, unless --once is given. Ctrl-C ends it; the run goes on.
    """
    from rich.console import Console

    from loopwright.inspection import Watcher, check_may_grow
    from loopwright.records import Follower, check_is_log, load

    check_may_grow(log)
    if once and (not os.path.exists(log) or not os.path.getsize(log)):
        check_is_log(load(log))  # says that there is none, or that it is empty
    follower = Follower(log)
    watcher = Watcher(follower.path)
    console = Console(highlight=False)
    if os.path.isfile(log) and os.path.getsize(log) > _LARGE:
        echo(harmless(f"reading {log} ({os.path.getsize(log) >> 20} MiB)"), err=True)
    watcher.take(follower.look())
    if once or not console.is_terminal:
        _print_lines(follower, watcher, None if once else every or _LINE_S)
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        _draw(live, follower, watcher, every or _LOOK_S)


def _draw(live: Live, follower: Follower, watcher: Watcher, every: float) -> None:
    from loopwright.inspection import writers_of

    writers, asked = writers_of(follower.path), time.monotonic()
    while True:
        live.update(_panel(watcher.status(), writers, *live.console.size), refresh=True)
        time.sleep(every)
        watcher.take(follower.look())
        if time.monotonic() - asked >= _WRITERS_S:
            writers, asked = writers_of(follower.path), time.monotonic()


def _print_lines(follower: Follower, watcher: Watcher, every: float | None) -> None:
    """Print a line now, and after every so many seconds if it changed; None: only once."""
    from loopwright.inspection import writers_of

    last = None
    while True:
        line = harmless(_line(watcher.status(), writers_of(follower.path)))
        if line != last:
            echo(line)
        last = line
        if every is None:
            return
        time.sleep(every)
        watcher.take(follower.look())


def _line(status: Status, writers: Writers) -> str:
    task = None if status.latest is None else status.tasks[status.latest]
    best = "" if task is None else f"{task.name}: best {_best(task)}"
    failed = f"failed: {_failed(status)}" if status.failures else ""
    parts = [_trials(status), best, _pace(status), failed, _skipped(status), status.event]
    return "; ".join(filter(None, [*parts, _state(status, writers)]))


def _panel(status: Status, writers: Writers, width: int, height: int) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from loopwright.inspection import duration_text

    grid = Table.grid(padding=(0, 2))
    seconds = time.time() - status.event_ts
    age = f" ({duration_text(seconds)} ago)" if status.event_ts and seconds >= 0 else ""
    rows = [
        ("log", f"{status.path}"),
        ("trials", ", ".join(filter(None, [_trials(status), _pace(status)]))),
        ("failed", _failed(status)),
        ("skipped", _skipped(status)),
        ("last", f"{status.event}{age}" if status.event else ""),
        ("run", _state(status, writers)),
    ]
    for name, text in rows:
        if text:
            grid.add_row(Text(name, style="bold"), Text(harmless(text)))
    if not status.tasks:
        return Group(grid)
    # Below the facts, one row each, come the titles and a last row that says what is left out.
    most = max(1, min(_MOST_TASKS, height - len(rows) - 3))
    return Group(grid, _task_table(status, width, most))


def _task_table(status: Status, width: int, most: int) -> Table:
    """A line for each of the first tasks, the last measured one bold; names are cut to fit."""
    from rich.table import Table
    from rich.text import Text

    wide = ("default",) if width >= _WIDE else ()
    titles = ("task", "trials", "failed", "best", *wide, "faster")
    first = max(0, min((status.latest or 0) - most + 1, len(status.tasks) - most))
    shown = list(enumerate(status.tasks))[first : first + most]
    rows = [(place, _cells(task, width)) for place, task in shown]
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("task", overflow="ellipsis", no_wrap=True, ratio=1)
    for at, title in enumerate(titles[1:], 1):
        longest = max(len(title), *(len(cells[at]) for _, cells in rows))
        table.add_column(title, justify="right", no_wrap=True, min_width=longest)
    for place, cells in rows:
        style = "bold" if place == status.latest else ""
        table.add_row(*(Text(harmless(text), style=style) for text in cells))
    if len(status.tasks) > len(shown):
        table.add_row(Text(f"... {len(status.tasks) - len(shown)} more", style="dim"))
    return table


def _cells(task: TaskStatus, width: int) -> tuple[str, ...]:
    from loopwright.inspection import speed_text

    faster = f"{task.default_s / task.best_s:.2f}x" if task.default_s and task.best_s else "-"
    default = speed_text(task.default_s, task.flop) if task.default_s else "-"
    wide = (default,) if width >= _WIDE else ()
    return (task.name, str(task.trials), str(task.failed), _best(task), *wide, faster)


def _best(task: TaskStatus) -> str:
    return task.speed if task.best_s is None or task.best_checked else f"{task.speed} (unchecked)"


def _trials(status: Status) -> str:
    if not status.exists:
        return f"waiting for {status.path}: there is no such log yet"
    if status.limit is None:
        return counted(status.done, "trial")
    return f"{status.done} of {counted(status.limit, 'trial')}"


def _pace(status: Status) -> str:
    from loopwright.inspection import duration_text

    pace = "" if status.per_minute is None else f"{status.per_minute:.0f} a minute"
    over = status.limit is not None and status.done >= status.limit
    eta = "" if status.eta_s is None or over else f"ETA {duration_text(status.eta_s)}"
    return ", ".join(filter(None, [pace, eta]))


def _failed(status: Status) -> str:
    return ", ".join(f"{count} x {kind}" for kind, count in status.failures.items())


def _skipped(status: Status) -> str:
    if not status.skipped:
        return ""
    return f"{status.skipped} line{'s are' if status.skipped != 1 else ' is'} not understood"


def _state(status: Status, writers: Writers) -> str:
    if not status.exists:
        return ""
    if writers.pids:
        return f"process {', '.join(map(str, writers.pids))} writes the log"
    if not writers.known:
        return "not known whether a process still writes the log"
    seen = ", as far as you may see" if writers.hidden else ""
    return f"no process here writes the log{seen}: it has ended, or was killed"
