"""Plugin of pytest for `benchmarks.mistakes`: which tests run, in which order, and which runs now.

``python -m pytest -p benchmarks.mistakes_side``. It imports nothing of the package: what runs may
be a tree with a mistake in it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

#: A file of JSON: names of tests in ``order``, and ``files`` of which all tests are wanted, or null
#: in place of both for all that pytest collects; and tests that are left out, ``without``.
CHOSEN = "MISTAKES_CHOSEN"
#: A file that keeps the name of the test that was started last.
STARTED = "MISTAKES_STARTED"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep and order what is wanted."""
    if CHOSEN not in os.environ:
        return
    chosen = json.loads(Path(os.environ[CHOSEN]).read_text(encoding="utf-8"))
    kept = [i for i in items if i.nodeid not in chosen["without"]]
    if chosen["order"] is not None:
        place = {name: n for n, name in enumerate(chosen["order"])}
        files = tuple(f"{file}::" for file in chosen["files"])
        kept = [i for i in kept if i.nodeid in place or i.nodeid.startswith(files)]
        kept.sort(key=lambda i: place.get(i.nodeid, len(place)))
    items[:] = kept


def pytest_runtest_logstart(nodeid: str) -> None:
    if STARTED in os.environ:
        Path(os.environ[STARTED]).write_text(nodeid, encoding="utf-8")
