"""Logs with known contents for the tests of report pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from loopwright.records import Checked, Outcome, Record, Store, Verdict

#: A workload whose name is markup; the page must show it as it stands here.
SCRIPT = "</script><script>window.broken = 1</script><img src=x onerror=window.broken=2>"


def trial(number: int, op: str = "matmul", **fields: object) -> Record:
    """A trial with made-up knobs: the tile decides, ``unroll`` hardly matters.

    Every seventh fails, every eleventh of the others was dropped.
    """
    tile, unroll = 2 ** (number % 5), bool(number // 5 % 2)
    seconds = (8.0 - math.log2(tile) - 0.25 * unroll) * 1e-3 / (1 + number / 500)
    failed = number % 7 == 6
    given = {
        "task": f'["{"x" if op == SCRIPT else op}",[256,256],"llvm"]', "op": op, "args": [256, 256],
        "target": {"kind": "llvm", "mcpu": "znver4", "num_threads": 2},
        "config": {"tile": [-1, tile], "unroll": unroll, "order": "ijk"[number % 3 :]},
        "times": () if failed else tuple(seconds * x for x in (1.0, 1.02, 0.99, 1.0, 1.01)),
        "error": {"kind": "RUN_TIMEOUT", "text": "longer than\n 1 s"} if failed else None,
        "dropped": not failed and number % 11 == 5, "build_s": 0.2, "run_s": 0.1,
        "trial": number, "round": number // 8, "run": "r1", "seed": 3, "ts": 1e9 + 0.5 * number,
        "env": {"cpu": "Made-up CPU", "isa": ["avx2"], "cores": 2, "loopwright": "0.1.0"},
        "checked": Checked.YES, "build": "b1",
    }  # fmt: skip
    return Record(**{**given, **fields})  # type: ignore[arg-type]


def playoff(winner: Record, default: Record, ts: float = 2e9) -> Record:
    """The winner once more, with its verdict."""
    verdict = Verdict(Outcome.FASTER, 1.5, 0.1, 20, default.candidate, "FMA peak (AVX2)", 0.5)
    return trial(
        winner.trial, op=winner.op, phase="playoff", ts=ts, run_s=2.0, dropped=False, error=None,
        times=tuple(0.9 * time for time in winner.times), verdict=verdict.to_json(),
    )  # fmt: skip


def write(path: Path, records: Sequence[Record], **header: object) -> Path:
    """A log of one run."""
    said = {"run": "r1", "tuner": "xgb", "seed": 3, "n_trial": 200, "ts": 1e9 - 1, **header}
    with Store(path) as store:
        store.header(said)
        for record in records:
            store.append(record)
    return path


def made_up(path: Path, count: int = 80, ops: Sequence[str] = ("matmul",)) -> Path:
    """A log of some tasks with as many trials each, and a playoff of each best one."""
    records = []
    for op in ops:
        trials = [trial(number, op) for number in range(count)]
        best = min((one for one in trials if one.usable), key=lambda one: one.median or 0)
        records += [*trials, playoff(best, trials[0], 1e9 + count)]
    return write(path, records)
