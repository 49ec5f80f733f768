"""The short form of `benchmarks.hostile`: nothing that a log or a manifest says does harm."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hostile import ALONE, MEASURING, Found, tried


def test_no_line_and_no_manifest_does_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    found = tried(lines=4, manifests=80, seed=0)
    assert found.faults == []
    assert {*ALONE, *MEASURING, "from Python", "manifest"} == {*found.uses}
    assert found.outcomes["manifests"] > 60


def test_what_goes_wrong_is_a_fault() -> None:
    def fails() -> str:
        raise ZeroDivisionError

    found = Found()
    found.use("good", "", lambda: "")
    found.use("bad", "", fails)
    found.use("bad", "", lambda: "it prints escapes")
    assert found.faults == ["bad", "bad"]
    assert found.uses == {"good": 1, "bad": 2}
