"""Which of ONNX's own conformance cases a compiled model passes, and why others do not.

``python -m benchmarks.onnx_conformance --list docs/onnx-cases.md`` runs the node cases that come
with the package onnx, models of mostly one node, and writes the list of those that do not pass.

A case passes when the outputs have the expected shapes, dtypes and elements within the case's own
tolerance, without any fallback. Data inputs are given when the model runs; inputs that decide sizes
(`SIZES`) are bound when it is imported, and a case where anything else would have to be bound does
not pass. Cases whose outputs the import decides alone (shapes, windows) are counted apart.

A sequence is given and taken as its parts, of which the shapes are known when the model is
imported; floats of 8 and 4 bits, and integers of 4 and 2, as `stored` makes them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loopwright import graph
from loopwright.errors import LoopwrightError
from loopwright.graph.frontend.onnx import UnboundInputsError, from_onnx, stored

#: Inputs, as the cases call them, that may be known when a model is imported: shapes, axes, bounds,
#: counts, factors of sizes, and flags. All others are data.
_SIZES = """
    shape axes axis k K starts start ends end steps step sizes scales roi pads repeats split depth
    limit delta trip_count cond training_mode t output_shape output_size size target_shape new_shape
    block_shape crops image_shape length dft_length frame_length frame_step r ratio
    num_mel_bins sample_rate lower_edge_hertz upper_edge_hertz
"""
SIZES = frozenset(_SIZES.split())
#: Nodes whose input of some number decides sizes, under whatever name.
_NODES = frozenset(
    {
        ("Tile", 1),
        ("ConstantOfShape", 0),
        ("HannWindow", 0),
        ("HammingWindow", 0),
        ("BlackmanWindow", 0),
    }
)
TARGET = "llvm -num-threads=1"


@dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
        name: of the case.
        operator: the type of its first node.
        kind: ``passed``, ``decided`` (passed, and no kernel runs), ``refused``, ``wrong`` or
            ``failed``.
        reason: why, where it did not pass.
        bound: inputs that were bound.
        seconds: that it took.
    """

    name: str
    operator: str
    kind: str
    reason: str
    bound: tuple[str, ...]
    seconds: float

    @property
    def passes(self) -> bool:
        """Whether it has the expected outputs."""
        return self.kind in ("passed", "decided")


class _UncheckedError(Exception):
    """The case cannot be run as it should: data would have to be bound."""


def cases(kind: str, only: str) -> Iterator[Any]:
    """The cases of a kind whose names contain a text."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what onnx computes to make them overflows
        found = load_model_tests(kind=kind)
    for case in found:
        if only in case.name:
            yield case


def _data(case: Any) -> tuple[Any, list[Any], list[Any]]:
    """The model, the inputs and the expected outputs of a case."""
    if case.model is not None:
        inputs, outputs = case.data_sets[0]
        return case.model, [_array(x) for x in inputs], [_array(x) for x in outputs]
    import onnx

    folder = Path(case.model_dir)
    model = onnx.load(str(folder / "model.onnx"))
    data = folder / "test_data_set_0"
    found = [_tensors(data, kind) for kind in ("input", "output")]
    return model, found[0], found[1]


def _array(x: Any) -> Any:
    """Some cases hold tensors of onnx in place of arrays."""
    from onnx import TensorProto, numpy_helper

    return numpy_helper.to_array(x) if isinstance(x, TensorProto) else x


def _tensors(folder: Path, kind: str) -> list[Any]:
    import onnx

    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))
    found = []
    for file in files:
        tensor = onnx.TensorProto()
        tensor.ParseFromString(file.read_bytes())
        found.append(onnx.numpy_helper.to_array(tensor))
    return found


def _imported(model: Any, given: dict[str, Any]) -> tuple[graph.IRModule, tuple[str, ...]]:
    """The module, with the inputs bound that it asks for."""
    bound: dict[str, Any] = {n: None for n, v in given.items() if v is None}
    while True:
        try:
            shapes = _shapes(model, {n: v for n, v in given.items() if n not in bound})
            module = from_onnx(model, shape=shapes, constants=bound, fallback=False)
            return module, tuple(bound)
        except UnboundInputsError as exc:
            more = [name for name in exc.inputs if name not in bound]
            data = [n for n in more if n not in given or not _may_be_bound(model, n, given[n])]
            if data:
                raise _UncheckedError(f"{exc}") from exc
            if not more:
                raise
            bound.update({name: given[name] for name in more})


def _shapes(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The shapes that the model leaves open: of the parts of sequences, and extents with a name."""
    found: dict[str, Any] = {}
    for info in model.graph.input:
        dims = info.type.tensor_type.shape.dim
        if isinstance(given.get(info.name), list):
            found[info.name] = [np.shape(x) for x in given[info.name]]
        elif info.name in given and any(d.dim_param for d in dims):
            found[info.name] = np.shape(given[info.name])
    return found


def _may_be_bound(model: Any, name: str, value: Any) -> bool:
    """Whether an input decides sizes, or has no elements that could be data."""
    if not np.size(value) or name in SIZES:
        return True
    readers = [(n.op_type, i) for n in model.graph.node for i, x in enumerate(n.input) if x == name]
    if readers and set(readers) <= _NODES:
        return True
    whole = np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iu"
    return whole and _leads_to_range(model.graph, name)


def _leads_to_range(graph: Any, name: str) -> bool:
    """Whether how many elements there are depends on an input."""
    reached = {name}
    for node in graph.node:
        if reached.intersection(node.input):
            if node.op_type == "Range":
                return True
            reached.update(node.output)
    return False


def _run(case: Any) -> tuple[str, str, tuple[str, ...]]:
    model, inputs, outputs = _data(case)
    weights = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in weights]
    given = dict(zip(names, inputs, strict=False))
    module, bound = _imported(model, given)
    compiled = graph.compile(module, TARGET)
    parts = {
        f"{n}.{i}": x for n, v in given.items() if isinstance(v, list) for i, x in enumerate(v)
    }
    params = [p.name for p in module["main"].params]
    found = compiled(*(stored({**given, **parts}[name]) for name in params))
    wanted = [x for o in outputs for x in (o if isinstance(o, list) else [o])]
    if len(found) != len(wanted):
        return "wrong", f"{len(found)} outputs for {len(wanted)}", bound
    for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
        reason = _difference(a, np.asarray(b), case.rtol, case.atol)
        if reason:
            return "wrong", f"output {n}: {reason}", bound
    return ("passed" if compiled.planned.program.steps else "decided"), "", bound


def _difference(found: Any, wanted: Any, rtol: float, atol: float) -> str:
    bits = stored(wanted)
    if bits.dtype != wanted.dtype and bits.dtype == found.dtype:
        # Floats are compared as such: there are several bits of what is no number.
        as_floats = "float" in wanted.dtype.name
        found, wanted = (found.view(wanted.dtype), wanted) if as_floats else (found, bits)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if found.dtype.kind not in "fiub":
        found, wanted = found.astype("float32"), wanted.astype("float32")
    if found.dtype.kind != "f":
        return "" if np.array_equal(found, wanted) else "other elements"
    close = np.isclose(found, wanted, rtol=rtol, atol=atol, equal_nan=True)
    return "" if close.all() else f"{np.count_nonzero(~close)} of {close.size} elements differ"


def outcome(case: Any) -> Outcome:
    """What becomes of a case."""
    begin = time.perf_counter()
    bound: tuple[str, ...] = ()
    try:
        kind, reason, bound = _run(case)
    except _UncheckedError as exc:
        kind, reason = "refused", str(exc)
    except LoopwrightError as exc:
        kind, reason = "refused", str(exc).partition("\n")[0]
    except Exception as exc:  # a defect of loopwright's own: it is told as such
        kind, reason = "failed", f"{type(exc).__name__}: {' '.join(str(exc).split())}"
    operator = case.model.graph.node[0].op_type if case.model is not None else ""
    seconds = round(time.perf_counter() - begin, 3)
    return Outcome(case.name, operator, kind, reason[:240], bound, seconds)


def listed(outcomes: Sequence[Outcome], version: str) -> str:
    """The cases that do not pass with their reasons, as a page of Markdown."""
    counts = Counter(o.kind for o in outcomes)
    passed = counts["passed"] + counts["decided"]
    lines = [
        "# ONNX's node cases",
        "",
        f"Of the {len(outcomes)} node cases of onnx {version} that were run, {passed} pass by "
        f"compiled kernels without a fallback; in {counts['decided']} of these the import decides "
        "the outputs and no kernel runs. The others, by the reason that they meet first "
        "(`python -m benchmarks.onnx_conformance --list docs/onnx-cases.md` makes this page):",
        "",
    ]
    by_reason: dict[str, list[str]] = {}
    for o in outcomes:
        if not o.passes:
            by_reason.setdefault(f"{o.kind}: {_general(o.reason)}", []).append(o.name)
    for reason, names in sorted(by_reason.items(), key=lambda e: (-len(e[1]), e[0])):
        shown = ", ".join(f"`{n.removeprefix('test_')}`" for n in sorted(names))
        lines += [f"* {reason} ({len(names)}): {shown}"]
    return "\n".join([*lines, ""])


def _general(reason: str) -> str:
    """A reason without what only some cases have, so that equal ones are told once."""
    text = reason.partition(" cannot be converted: ")[2] or reason
    for hint in ("; use one of", "; if nodes can", "; give constants"):
        text = text.partition(hint)[0]
    text = re.sub(r"^(\S+) '[^']*' (?=\()|input '[^']*':? |\(did you mean [^)]*\)", r"\1 ", text)
    return " ".join(text.replace("`", "'").split())[:160]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run cases, print how many pass, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kind", default="node", help="node, pytorch-converted, pytorch-operator")
    parser.add_argument("--only", default="", help="cases whose names contain this text")
    parser.add_argument("--part", default="1/1", help="such as 2/4: the second of four parts")
    parser.add_argument(
        "--out", type=Path, help="a file to which outcomes are appended, as JSON lines"
    )
    parser.add_argument(
        "--known", type=Path, nargs="*", default=[], help="outcomes of earlier runs: not run again"
    )
    parser.add_argument("--list", type=Path, help="a page of the cases that do not pass")
    parser.add_argument("--show", type=int, default=40, help="how many reasons are printed")
    parser.add_argument("--least", type=int, help="how many must pass; else the status is 1")
    options = parser.parse_args(arguments)
    part, parts = map(int, options.part.split("/"))
    found = {o.name: o for path in options.known for o in _stored(path)}
    for n, case in enumerate(cases(options.kind, options.only)):
        if n % parts == part - 1 and case.name not in found:
            found[case.name] = outcome(case)
            if options.out:  # after each one: what was found survives a run that is ended
                with options.out.open("a") as file:
                    file.write(json.dumps(asdict(found[case.name])) + "\n")
    _print(list(found.values()), options.show)
    if options.list:
        import onnx

        options.list.write_text(listed(list(found.values()), onnx.__version__))
    total = sum(o.passes for o in found.values())
    if options.least is not None and total < options.least:
        sys.exit(f"{total} cases pass, {options.least} were asked for")


def _stored(path: Path) -> Iterator[Outcome]:
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        yield Outcome(**{**entry, "bound": tuple(entry["bound"])})


def _print(outcomes: Sequence[Outcome], most: int) -> None:
    counts = Counter(o.kind for o in outcomes)
    total = counts["passed"] + counts["decided"]
    print(f"{total} of {len(outcomes)} pass ({counts['decided']} decided by the import)")
    print(", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    reasons = Counter(f"{o.kind}: {_general(o.reason)}" for o in outcomes if not o.passes)
    for reason, n in reasons.most_common(most):
        print(f"{n:5} {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
