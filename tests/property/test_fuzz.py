"""The long fuzz: its seeds, and what it makes of a failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import loopwright as lw
from fuzzing import fuzz
from fuzzing.differential import Case, Checker, ExecutionPath
from fuzzing.random.expr import Draw, Info
from fuzzing.shrink import reproducer, shortest, shrink, without
from loopwright import te
from loopwright.errors import ScheduleError, TooMuchCodeError
from loopwright.runtime.devices.device import Device
from loopwright.schedule.schedule import replay
from loopwright.te.dag import Dag
from tests.property import mistakes

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run() -> Iterator[fuzz.Fuzz]:
    run = fuzz.Fuzz(shrink_seconds=2)
    yield run
    run.checker.close()


# ---------------------------------------------------------------- what a seed is


def test_the_seed_decides_the_kind(run: fuzz.Fuzz) -> None:
    """What the kinds cover is asked where their seeds run: in the other files of this folder."""
    for seed in range(5):
        run.run(seed)
    assert not run.failures, run.summary()
    assert [kind for kind, _ in run.ends] == ["cpu", "sizes", "threads"]
    assert "split " in run.summary()
    assert "failures: 0" in run.summary()


def test_an_example_is_drawn_from_its_seed_alone() -> None:
    (first, targets, _), (second, same, _) = fuzz.example(77), fuzz.example(77)
    assert (first.dag, first.trace, targets) == (second.dag, second.trace, same)
    assert Draw(lambda lo, hi: hi).pick("abc") == "c"


# ---------------------------------------------------------------- a failure


def executed(program: str, tmp_path: Path, mistake: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, which makes a mistake first if one is named."""
    plant = (
        f"import pytest\nfrom tests.property import mistakes\n"
        f"mistakes.plant({mistake!r}, pytest.MonkeyPatch())\n"
    )
    path = tmp_path / "program.py"
    path.write_text((plant if mistake else "") + program)
    return subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def printed(text: str) -> str:
    return re.findall(r"# ---- a program that fails in this way\n(.*?)# ---- end", text, re.S)[0]


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (mistakes.NO_GUARD, "outside"),
        pytest.param(
            mistakes.NO_MASK,
            "ProcessKilledError: the function killed its process",
            marks=pytest.mark.slow,  # a guarded process is by day what `test_guarded.py` tests
        ),
    ],
)
def test_a_failure_is_printed_as_a_program_that_fails(
    mistake: str,
    error: str,
    run: fuzz.Fuzz,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The program is run in another process: with the mistake it fails, without it does not."""
    mistakes.plant(mistake, monkeypatch)
    seed = next(n for n in range(200) if not run.run(n, "cpu"))
    text = capsys.readouterr().out
    assert f"seed {seed} (cpu): " in text
    program = printed(text)
    failed = executed(program, tmp_path, mistake)
    assert failed.returncode == 1
    assert error in failed.stderr
    kind = run.failures[0].split(": ")[2]
    assert kind in failed.stderr
    good = executed(program, tmp_path)
    assert good.returncode == 0, good.stderr


def test_a_failing_case_becomes_small() -> None:
    """What matters here is a vectorized loop of a stage that multiplies; all else goes."""
    seed = next(n for n in range(200) if _multiplies(fuzz.example(n)[0]))
    case = fuzz.example(seed)[0]
    small = shrink(case, _multiplies, 20)
    dag = Dag.from_json(small.dag)
    # The loop may be one that a split made.
    assert [step[0] for step in small.trace] in (["annotate"], ["split", "annotate"])
    assert len(dag.outputs) == 1
    assert max(n for op in dag.ops for n in (*op.shape, 1)) <= 2
    assert str(dag.as_python()).count(" * ") <= 2
    assert len(small.arrays) == len(small.arg_ids) == len(small.infos)


def _multiplies(case: Case) -> bool:
    try:
        s = replay(Dag.from_json(case.dag), case.trace)
    except ScheduleError:  # a stage that the trace schedules became an input
        return False
    marked = [step.stage for step in s.trace if getattr(step, "kind", "") == "vectorized"]
    own = [i for i in marked if isinstance(i, int)]
    return any(" * " in repr(s.dag.ops[i].body) for i in own)


def test_a_failing_trace_is_made_shorter() -> None:
    case, _, _ = fuzz.example(1)
    trace: list[list[Any]] = [
        ["cache_write", 2, "local"],
        ["split", 2, "a0", 4, None],
        ["split", 2, "1.0", 2, None],
        ["compute_at", "s0", 2, "2.1"],
        ["annotate", 2, "a1", "vectorized"],
        ["annotate", 2, "1.1", "unrolled"],
    ]
    assert without(trace, 0) == [
        ["split", 2, "a0", 4, None],
        ["split", 2, "0.0", 2, None],
        ["annotate", 2, "a1", "vectorized"],
        ["annotate", 2, "0.1", "unrolled"],
    ]
    assert without(trace, 1) == [["cache_write", 2, "local"], trace[4]]
    case.trace = trace
    small = shortest(case, lambda c: ["annotate", 2, "a1", "vectorized"] in c.trace)
    assert small.trace == [["annotate", 2, "a1", "vectorized"]]


@pytest.mark.parametrize(
    "kind", ["sizes", *(pytest.param(k, marks=pytest.mark.slow) for k in ("cpu", "threads"))]
)
def test_every_path_is_printed_as_a_program_that_runs(kind: str, tmp_path: Path) -> None:
    """Of a case without fault each program ends without complaint."""
    checker = Checker()
    seeds = (n for n in range(100) if _runs(checker, n, kind))
    cases, targets, _ = fuzz.examples(next(seeds), kind)
    checker.close()
    sizes = cases[-1].sizes
    paths = [
        ExecutionPath("round trip", sizes=sizes),
        ExecutionPath("interpreter", sizes=sizes),
        ExecutionPath("passes", sizes=sizes),
        checker.path,
    ]
    program = "import runpy\n"
    for k, path in enumerate(dict.fromkeys(paths)):
        script = tmp_path / f"script_{k}.py"
        script.write_text(reproducer(cases[-1], path, "no failure"))
        program += f"runpy.run_path({str(script)!r})\n"
    done = executed(program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert targets


def test_a_printed_program_fails_where_its_path_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Checker, "_compile", lambda *_: None)
    monkeypatch.setattr(Device, "exist", False)
    path = ExecutionPath("target", "cuda -arch=sm_80")
    text = reproducer(fuzz.example(1)[0], path, "without a device")
    with pytest.raises(AssertionError, match="compiled only"):
        exec(text, {})


def test_a_program_that_checks_of_bounds_make_too_long_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> NoReturn:
        raise TooMuchCodeError("lower: 'main' would be written out to more than 262144 nodes")

    with closing(Checker()) as checker:
        monkeypatch.setattr(checker, "_compile", refused)
        seed = next(n for n in range(100) if _runs(checker, n, "cpu"))
        checker.runs.clear()
        assert _runs(checker, seed, "cpu")
    assert checker.runs["refused as too long"] >= 1
    assert checker.runs["interpreter"] >= 1
    assert not any("llvm" in path for path in checker.runs)


def test_a_schedule_of_too_much_code_is_refused() -> None:
    with closing(Checker()) as checker, lw.PassContext(config={"code_limit": 1}):
        case = fuzz.example(1)[0]
        assert checker.check(case, ["interp"]) == "refused"


def test_inputs_by_which_a_smaller_case_would_read_outside_stay() -> None:
    """Ones and zeros are no indices of this program; of what is picked they may be the values."""
    index = te.placeholder((2,), "int32", name="index")
    table = te.placeholder((4,), name="table")
    picked = te.compute((2,), lambda i: table[index[i] - 2], name="picked")
    dag, at = Dag.from_ops([picked.op])
    case = Case(
        dag=dag.to_json(),
        trace=[],
        arg_ids=[at[t.op] for t in (index, table, picked)],
        arrays=[np.array([2, 5], "int32"), np.arange(4, dtype="float32"), np.zeros(2, "float32")],
        infos=[Info(True, 8, 1, 0)] * 3,
    )

    def picks(c: Case) -> bool:
        text = Dag.from_json(c.dag).as_python()
        return [a.size for a in c.arrays] == [2, 4, 2] and "table[index[i] - 2]" in text

    assert picks(case)
    small = shrink(case, picks, 5)
    assert small.arrays[0].tolist() == [2, 5]
    assert small.arrays[1].tolist() == [0, 0, 0, 0]


def _runs(checker: Checker, seed: int, kind: str) -> bool:
    cases, targets, _ = fuzz.examples(seed, kind)
    return bool(cases) and checker.check(cases[-1], targets) == "ran"


# ---------------------------------------------------------------- the command


def test_the_command_tells_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.main(["--seed", "5", "--count", "3", "--target", "llvm -num-threads=1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"seeds 5 to 7 in \d+ s", lines[0])
    assert lines[1].startswith("cpu: 3 schedules: ")
    assert lines[-1] == "failures: 0"


def test_an_interrupted_run_tells_what_it_did(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = fuzz.Fuzz.run

    def interrupted(self: fuzz.Fuzz, seed: int, kind: str = "") -> bool:
        if seed == 2:
            raise KeyboardInterrupt
        return plain(self, seed, kind)

    monkeypatch.setattr(fuzz.Fuzz, "run", interrupted)
    assert fuzz.main(["--minutes", "5"]) == 0
    text = capsys.readouterr().out
    assert "interrupted at seed 2\nseeds 0 to 1 in " in text
    assert "cpu: 2 schedules: " in text
