"""The pure parts of `benchmarks.expressions`: what is computed, who answers, what is reported."""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loopwright as lw
from benchmarks.expressions import report
from benchmarks.expressions.cases import EXPRESSIONS, Expression, part_of
from benchmarks.expressions.measuring import error_of, exact
from benchmarks.expressions.peers import Peer, PeerError, environment
from benchmarks.expressions.sides import numpy_calls
from benchmarks.expressions.sides.side import Side
from benchmarks.findings import Findings
from loopwright import te

#: Sizes at which those expressions are computed that have no small ones of their own.
SMALL = {
    "rms_norm": (3, 7), "cross_entropy": (3, 5), "masked_softmax": (2, 6), "gelu_dense": (3, 5, 4),
    "low_rank": (3, 5, 4, 2), "rotary": (2, 3, 6), "locally_connected": (2, 3, 5),
    "cost_volume": (3, 6, 4), "residual_block": (3, 5), "jacobi": (9, 11, 3), "sobel": (6, 8),
    "bilinear_resize": (2, 5), "nearest_resize": (2, 4), "gray": (3, 5),
    "global_average": (2, 3, 4), "power_spectrum": (3, 6),
    "quadratic_form": (4, 5), "kronecker": (3, 4), "variance_of_columns": (7, 5),
    "sum_of_squares": (4, 6), "joined": (3, 4, 5), "reflect_pad": (2, 5), "pixel_shuffle": (2, 3),
    "int8_dense": (4, 5, 6),
}  # fmt: skip


@pytest.mark.parametrize("e", {e.call: e for e in EXPRESSIONS}.values(), ids=lambda e: e.call)
def test_the_expression_and_numpy_compute_the_same(e: Expression) -> None:
    small = Expression(e.call, e.make, SMALL.get(e.call, ()), upper=min(e.upper, 9))
    tensors = small.tensors()
    inputs = small.inputs(tensors)
    out = np.empty(tensors[-1].static_shape, tensors[-1].dtype)
    lw.build(te.create_schedule(tensors[-1].op), tensors, "llvm -num-threads=1")(*inputs, out)
    assert error_of(out, numpy_calls.call(e.call)(*map(exact, inputs))) < 1e-5


def test_pytorch_has_a_function_for_every_expression() -> None:
    # It cannot be imported here: PyTorch has an environment of its own.
    path = Path(numpy_calls.__file__).with_name("torch_calls.py")
    functions = {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)}
    assert {e.call for e in EXPRESSIONS} <= functions


def test_there_are_enough_expressions_and_names_tell_them_apart() -> None:
    assert len(EXPRESSIONS) >= 40
    assert len({e.name for e in EXPRESSIONS}) == len(EXPRESSIONS)


def test_parts_are_all_of_them_and_each_once() -> None:
    names = [e.name for n in (1, 2, 3) for e in part_of(f"{n}/3")]
    assert sorted(names) == sorted(e.name for e in EXPRESSIONS)


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "1", "a/b"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 1/3"):
        part_of(text)


def test_a_private_function_is_no_expression() -> None:
    with pytest.raises(LookupError):
        numpy_calls.call("_softmax")


@pytest.mark.parametrize(
    ("answer", "error"),
    [([1.0, 2.0], 0.0), ([1.0, 1.0], 0.5), ([1.0, float("nan")], float("inf"))],
)
def test_an_error_is_relative_to_the_largest_element(answer: list[float], error: float) -> None:
    assert error_of(np.array(answer), np.array([1.0, 2.0])) == error


def test_another_shape_is_an_error() -> None:
    assert error_of(np.ones((2, 1)), np.ones(2)) == float("inf")


# ---------------------------------------------------------------- other processes


def _script(folder: Path, answer: str) -> Path:
    path = folder / "side.py"
    lines = ["import json, os, sys", "for line in sys.stdin:", "    asked = json.loads(line)"]
    path.write_text("\n".join([*lines, f"    {answer}", ""]))
    return path


def _wait_for_state(pid: int, state: str) -> None:
    """A process stops a moment after it was told to."""
    until = time.monotonic() + 20
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != state:
        assert time.monotonic() < until, f"process {pid} is not in state {state}"
        time.sleep(0.01)


def test_a_peer_answers_and_is_stopped_between_requests(tmp_path: Path) -> None:
    script = _script(tmp_path, "print(json.dumps([asked, sys.argv[1], os.getpid()]), flush=True)")
    with Peer("mine", script=script) as peer:
        asked, library, pid = peer.ask("add", a=1)
        assert (asked, library) == ({"ask": "add", "a": 1}, "mine")
        _wait_for_state(pid, "T")
        assert peer.ask("again")[0] == {"ask": "again"}
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("answer", "patience", "why"),
    [("sys.exit(3)", 60.0, "ended"), ("__import__('time').sleep(60)", 1.0, "did not answer")],
)
def test_a_peer_that_is_gone_says_so_once_and_again(
    tmp_path: Path, answer: str, patience: float, why: str
) -> None:
    with Peer("mine", script=_script(tmp_path, answer), patience=patience) as peer:
        with pytest.raises(PeerError, match=why):
            peer.ask("open", name="x")
        assert not peer.alive
        with pytest.raises(PeerError, match="has ended"):
            peer.ask("open", name="x")


def test_each_thread_of_a_peer_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    made = environment(2, [4, 5, 6])
    assert (made["GOMP_CPU_AFFINITY"], made["OMP_NUM_THREADS"]) == ("4 5", "2")
    assert "OPENBLAS_CORETYPE" not in made


class _Library:
    def ways(self, name: str, arrays: list[Any]) -> dict[str, Callable[[], Any]]:
        return {"good": lambda: arrays[0] + 1, "bad": lambda: [].index(name)}

    def load(self, data: Any, dtype: str) -> Any:
        return data.astype(dtype)

    def answer(self, found: Any) -> Any:
        return found


def test_a_way_that_raises_is_a_problem_and_the_others_go_on(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", np.zeros(3))
    side = Side(_Library())
    said = side.open("it", str(tmp_path / "x.npz"), ["float32"], f"{tmp_path}/a.")
    assert said["good"] == ""
    assert said["bad"].startswith("ValueError")
    assert np.load(tmp_path / "a.good.npy").tolist() == [1, 1, 1]
    assert side.sample("good") > 0
    with pytest.raises(KeyError):
        side.sample("bad")


# ---------------------------------------------------------------- what is told


def _row(what: str, one_call: str, numpy: float, ours: float, **more: Any) -> dict[str, Any]:
    seconds = {"numpy": [numpy], "torch": [10.0], "default": [2 * ours], "tuned": [ours]}
    chosen = {"tuned": "a=1,structure='rows'"}
    return {
        "what": what, "one_call": one_call, "seconds": seconds, "wrong": [], "problems": {},
        "chosen": chosen, **more,
    }  # fmt: skip


ROWS = [
    _row("quick", "mm", 4.0, 1.0),
    _row("slow", "mm", 0.8, 1.0),
    _row("level", "mm", 0.95, 1.0),
    _row("composed", "", 1.5, 1.0, wrong=["tuned"]),
]


def test_a_speedup_is_that_over_the_fastest_library() -> None:
    assert report.speedup(ROWS[0], "tuned") == 4.0
    assert report.speedup(ROWS[0], "default") == 2.0
    assert report.speedup({**ROWS[0], "seconds": {"tuned": [1.0]}}, "tuned") is None


def test_what_is_below_its_bar_is_named_lowest_first() -> None:
    assert report.below(ROWS) == [("slow", 0.8, 0.9), ("composed", 1.5, 2.0)]


def test_verdicts_have_both_means_and_wrong_answers() -> None:
    lines = report.verdicts(ROWS)
    mean = (4.0 * 0.8 * 0.95) ** (1 / 3)
    assert any("one call, tuned: 3 " in x and f"geomean {mean:.2f}" in x for x in lines)
    assert any("several calls, tuned: 1 " in x and "geomean 1.50" in x for x in lines)
    assert lines[-1] == "wrong answers of ours: 1 composed (tuned)"


def test_the_table_has_a_row_for_each() -> None:
    found = report.table(ROWS)
    assert found.row_count == len(ROWS)
    assert list(found.columns[-1].cells) == ["rows"] * len(ROWS)


def test_findings_go_on_where_a_run_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    first = Findings(path, {"trials": 2})
    first.add({"what": "a", "x": 1})
    first.add({"what": "a", "x": 2})
    again = Findings(path, {"trials": 2})
    assert again.has("a")
    assert not again.has("b")
    assert again.rows == [{"what": "a", "x": 2}]
    assert Findings(path, {"trials": 3}).rows == []
    assert json.loads(path.read_text())["trials"] == 2
