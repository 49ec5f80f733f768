from __future__ import annotations

import json

import pytest

from benchmarks.large_logs import Cost, applying, matmul, resuming, run, verb, write_log
from loopwright.records import load, open_log
from loopwright.records.index import open as opening
from loopwright.records.index.block import index_path


@pytest.mark.slow
@pytest.mark.usefixtures("processes_share_the_cpu")
def test_a_large_log_answers_alike_with_and_without_its_index(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "SMALL", 0)
    path = tmp_path / "log.jsonl"
    write_log(path, 400, 2)
    open_log(path)
    assert index_path(path).exists()
    ours, plain = open_log(path), load(path)
    assert [r.to_line() for r in ours] == [r.to_line() for r in plain]
    assert 1500 < path.stat().st_size / len(ours) < 2500
    outputs = []
    for before in ("", "from loopwright.records.index import open as o; o.SMALL = 1 << 60\n"):
        asked = [
            verb("records", "list", path.name),
            verb("records", "list", path.name, "--sort", "time", "--status", "usable"),
            verb("records", "list", path.name, "--task", "1536", "--target", "llvm", "--end", "40"),
            verb("records", "best", path.name, "-k", "3"),
            verb("records", "show", path.name, "best", "--task", "1536"),
            verb("records", "show", path.name, ours.records[77].id),
            applying(path.name),
        ]
        outputs.append([run(before + code, tmp_path).output for code in asked])
    assert outputs[0] == outputs[1]
    assert len(outputs[0][0].splitlines()) == 402


@pytest.mark.usefixtures("processes_share_the_cpu")
def test_applying_and_resuming_are_timed_in_processes_of_their_own(tmp_path):
    write_log(tmp_path / "log.jsonl", 64, 2)
    cost = run(applying("log.jsonl"), tmp_path)
    assert isinstance(cost, Cost)
    assert "record" in cost.output
    marks = json.loads(run(resuming("log.jsonl", "random"), tmp_path).output)
    assert 0 < marks["state"] <= marks["proposal"]
    assert str(matmul((1024, 1024, 1536))).startswith("benchmarks/large_logs")
