"""Makes the pictures of README.md from a real run: ``python docs/pictures/make.py``.

``terminal.svg`` shows what the commands below print on a terminal; ``report.png`` is the page that
``loopwright report`` makes of their log, where there is such a command and Chromium is installed.
Both are drawn anew from what this machine measures.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LOG = "dense.jsonl"
WORKLOAD = "dense M=1 N=1000 K=512"
#: What is run, and how the first line begins that is shown of it; empty: all of it.
COMMANDS = [
    (f"loopwright tune {WORKLOAD} --trials 64 --log {LOG}", "stopped"),
    (f"loopwright records best {LOG}", ""),
]
COLUMNS = 100
ROWS = 400
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def terminal(command: str, folder: str) -> Text:
    """What a command prints on a terminal, with its colours."""
    ours, theirs = pty.openpty()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "PATH": path}
    env.pop("CI", None)
    process = subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=env, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    out = io.BytesIO()
    while chunk := _read(ours):
        out.write(chunk)
    os.close(ours)
    if process.wait():
        sys.exit(f"{command}: exit code {process.returncode}\n{out.getvalue().decode()}")
    return settled(out.getvalue().decode("utf-8"))


def _read(descriptor: int) -> bytes:
    """The next bytes of a terminal; none once nobody writes any more, which Linux calls EIO."""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""


def settled(text: str) -> Text:
    """What a terminal shows in the end: lines that were written over are gone."""
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.Stream(screen).feed(text)
    out = Text()
    for row in range(screen.cursor.y):
        line = Text()
        for column in range(COLUMNS):
            char = screen.buffer[row][column]
            line.append(char.data, Style(bold=char.bold, color=_colour(char.fg)))
        line.rstrip()
        out.append_text(line).append("\n")
    return out


def _colour(name: str) -> str | None:
    """A colour of pyte by rich's name."""
    if name == "default":
        return None
    known = {"brown": "yellow"}.get(name, name)
    return f"#{known}" if re.fullmatch("[0-9a-f]{6}", known) else known.replace("bright", "bright_")


def picture(shown: list[tuple[str, Text, str]]) -> str:
    """Commands with what they printed, as SVG that fetches nothing.

    Args:
        shown: command, output, and how the first line begins that is shown of it.
    """
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command, output, begin in shown:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        lines = [line for line in output.split("\n") if line.plain]
        first = next((n for n, x in enumerate(lines) if begin and x.plain.startswith(begin)), 0)
        if first:
            console.print("...", style="dim")
        for line in lines[first:]:
            console.print(line)
        console.print()
    svg = console.export_svg(title="loopwright")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def report(folder: str) -> None:
    """Draw the page of the log, where that can be done."""
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    verb = [sys.executable, "-m", "loopwright", "report"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    known = subprocess.run([*verb, "--help"], capture_output=True, env=env)
    if browser is None or known.returncode:
        print("report.png is left as it is: it needs Chromium and `loopwright report`")
        return
    page = Path(folder) / "report.html"
    subprocess.run([*verb, LOG, "-o", str(page)], cwd=folder, env=env, check=True)
    target = HERE / "report.png"
    subprocess.run(
        [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--window-size=1200,900", f"--screenshot={target}", page.as_uri()],
        check=True, capture_output=True,
    )  # fmt: skip


def main() -> None:
    """Run the commands in an empty folder, and draw."""
    with tempfile.TemporaryDirectory() as folder:
        shown = [(command, terminal(command, folder), begin) for command, begin in COMMANDS]
        (HERE / "terminal.svg").write_text(picture(shown), encoding="utf-8")
        report(folder)


if __name__ == "__main__":
    main()
