"""docs/from-autotvm.md: every name in its tables is there, or is not, as the table says."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.migration.changed_lines import SCRIPTS, changed_lines

TEXT = (Path(__file__).parents[2] / "docs" / "from-autotvm.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    section = TEXT.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`((?:tvm|loopwright)(?:\.\w+)+)`", cell)


NAMES = [
    (theirs, theirs.replace("tvm.", "loopwright.", 1) if ours == "same" else names(ours)[0])
    for their_cell, ours, _ in rows("Names")
    for theirs in names(their_cell)
]
ABSENT = [name for cell, _ in rows("What is not there") for name in names(cell)]


def look_up(dotted: str) -> object:
    """What a script reaches by attribute access."""
    found: object = importlib.import_module("loopwright")
    for part in dotted.split(".")[1:]:
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(("theirs", "ours"), NAMES)
def test_a_name_is_where_the_table_says(theirs: str, ours: str) -> None:
    # Where ours is another name, TVM's works as well: a script changes its imports alone.
    assert look_up(theirs.replace("tvm.", "loopwright.", 1)) is look_up(ours)
    assert getattr(look_up(ours), "__doc__", None)


@pytest.mark.parametrize("name", ABSENT)
def test_what_is_said_to_be_absent_is_so(name: str) -> None:
    # What takes its place stands in the message.
    last = name.rpartition(".")[2]
    with pytest.raises(AttributeError, match=rf"has no attribute '{last}': \S+ \S+"):
        look_up(name.replace("tvm.", "loopwright.", 1))


def test_the_tables_are_not_empty() -> None:
    assert len(NAMES) > 70
    assert len(ABSENT) > 10


def test_the_changed_lines_are_those_that_are_counted() -> None:
    told = {cells[0].strip("`"): int(cells[2]) for cells in rows("What was measured")}
    assert told == {name: changed_lines(name) for name in SCRIPTS}
