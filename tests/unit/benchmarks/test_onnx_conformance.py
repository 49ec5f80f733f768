"""The conformance benchmark tells what passes from what does not, by cases that come as files."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("onnx", reason='needs the package onnx: pip install "loopwright[onnx]"')

from benchmarks import onnx_conformance
from benchmarks.onnx_conformance import Outcome, cases, listed, outcome


def test_a_case_passes_by_compiled_kernels(tmp_path: Path) -> None:
    (case,) = cases("pytorch-operator", "test_operator_addmm")
    assert outcome(case).kind == "passed"


#: Of each kind of reason one, and of each kind of input and output; `make conformance` runs all.
SAMPLE = {
    "add_bcast": "passed",
    "cast_FLOAT16_to_FLOAT8E4M3FN": "passed",
    "castlike_INT4_to_FLOAT": "passed",
    "causal_conv_with_state_basic": "passed",
    "det_nd": "passed",
    "hannwindow_expanded": "decided",
    "layer_normalization_2d_axis1_expanded": "passed",
    "lstm_with_peepholes": "passed",
    "momentum_multiple": "passed",
    "nonzero_example": "refused",
    "not_2d": "passed",
    "optional_get_element_optional_tensor": "decided",
    "reduce_l1_empty_set": "decided",
    "sequence_map_identity_1_sequence_1_tensor": "decided",
    "split_to_sequence_2": "passed",
    "string_concat": "refused",
    "top_k": "passed",
}
QUICK = ("causal_conv_with_state_basic", "det_nd", "hannwindow_expanded", "string_concat")


def _check(wanted: dict[str, str]) -> None:
    chosen = {c.name.removeprefix("test_"): c for c in cases("node", "")}
    found = {name: outcome(chosen[name]) for name in wanted}
    kinds = {name: f"{o.kind} {o.reason if not o.passes else ''}" for name, o in found.items()}
    assert {n: k.split()[0] for n, k in kinds.items()} == wanted, kinds


def test_cases_of_operators_that_no_other_test_has(monkeypatch: pytest.MonkeyPatch) -> None:
    # Making all cases takes onnx half a minute.
    monkeypatch.setattr("onnx.backend.test.loader.import_recursive", lambda package: None)
    for module in ("causal_conv_with_state", "det", "hannwindow", "string_concat"):
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    _check({name: SAMPLE[name] for name in QUICK})


@pytest.mark.slow
def test_a_sample_of_the_cases_that_come_with_onnx() -> None:
    _check({name: kind for name, kind in SAMPLE.items() if name not in QUICK})


def test_too_few_that_pass_are_told(tmp_path: Path) -> None:
    known = tmp_path / "known.jsonl"
    known.write_text(json.dumps(asdict(Outcome("a", "Add", "refused", "why", (), 0.1))) + "\n")
    kind = ["--kind", "pytorch-operator", "--only", "no such case"]
    given = [*kind, "--known", str(known), "--least"]
    onnx_conformance.main([*given, "0"])
    with pytest.raises(SystemExit, match="0 cases pass, 1 were asked for"):
        onnx_conformance.main([*given, "1"])


def test_a_result_that_differs_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    (case,) = cases("pytorch-operator", "test_operator_addmm")
    model, inputs, outputs = onnx_conformance._data(case)
    monkeypatch.setattr(
        onnx_conformance, "_data", lambda _: (model, inputs, [x + 1e-2 for x in outputs])
    )
    found = outcome(case)
    assert (found.kind, found.reason) == ("wrong", "output 0: 8 of 8 elements differ")


def test_the_page_tells_a_reason_once() -> None:
    outcomes = [
        Outcome("test_a", "Add", "passed", "", (), 0.1),
        Outcome("test_b", "Shape", "decided", "", (), 0.1),
        Outcome("test_c", "If", "refused", "1 node cannot be converted: If 'x' (why)", (), 0.1),
        Outcome("test_d", "If", "refused", "1 node cannot be converted: If 'x' (why)", (), 0.1),
    ]
    page = listed(outcomes, "1.2")
    assert "Of the 4 node cases of onnx 1.2 that were run, 2 pass" in page
    assert "* refused: If (why) (2): `c`, `d`" in page
