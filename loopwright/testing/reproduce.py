"""A failing case as a Python program that fails in the same way, with nothing but loopwright."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from loopwright import dtypes
from loopwright.schedule.schedule import replay
from loopwright.te.dag import Dag, read_arg_id
from loopwright.testing.differential import Array, Case
from loopwright.testing.execution_path import ExecutionPath

_IMPORTS = {
    "round trip": (
        "import json",
        "from loopwright.lowering import lower_ids",
        "from loopwright.schedule import replay",
        "from loopwright.te.dag import Dag",
    ),
    "interpreter": (
        "from loopwright.ir.interp.interpreter import interpret",
        "from loopwright.lowering import lower_ids",
        "from loopwright.testing.numpy_eval import evaluate",
    ),
    "passes": (
        "from loopwright.ir.interp.interpreter import interpret",
        "from loopwright.lowering import lower_ids",
        "from loopwright.transform import PassContext",
    ),
    "target": (
        "from loopwright.driver import compile",
        "from loopwright.target import Target",
        "from loopwright.testing.guarded import GuardedRunner",
        "from loopwright.testing.numpy_eval import evaluate",
        "from loopwright.transform import PassContext",
    ),
}
_ROUND_TRIP = """\
again = replay(Dag.from_json(json.loads(json.dumps(s.dag.to_json()))), s.trace_json())
assert str(lower_ids(again, ids)) == str(lower_ids(s, ids))
scope = {"te": te}
exec(s.as_python(), scope)
fresh = replay(s.dag, [])
scope["schedule"](fresh, *fresh.tensors)
assert fresh.trace == s.trace
"""


def reproducer(case: Case, path: ExecutionPath, title: str) -> str:
    """The program: te source, schedule calls, arrays, and the comparison that fails on an execution
    path; ``title`` is the first line of its docstring.
    """
    s = replay(Dag.from_json(case.dag), case.trace)
    source = case_source(s.dag)
    wrapped = "\n".join(textwrap.wrap(title, 96)) or "A failure."
    head = wrapped.replace("\\", "/").replace('"""', "'''")
    imports = sorted((*_IMPORTS[path.kind], "from loopwright import te"))
    lines = [f'"""{head}\n"""', "", *(x for x in imports if x.startswith("import"))]
    lines += ["import numpy as np", "from numpy import inf, nan", ""]
    lines += [x for x in imports if x.startswith("from")]
    lines += ["", source, "", s.as_python(), "", "s = te.create_schedule(outputs)"]
    lines += ["schedule(s, *s.tensors)", ""]
    lines += [f"ids = {[_plain(i) for i in case.arg_ids]!r}  # operation, or [operation, output]"]
    lines += ["arrays = [", *(f"    {_array(a)}," for a in case.arrays), "]"]
    return "\n".join([*lines, *_comparison(case, path, s.dag)]) + "\n"


def case_source(dag: Dag) -> str:
    """The te source of a DAG without its import."""
    return dag.as_python().split("\n", 2)[2]


def _plain(i: Any) -> Any:
    return list(i) if isinstance(i, tuple) else i


def _comparison(case: Case, path: ExecutionPath, dag: Dag) -> list[str]:
    inputs = [
        f"{read_arg_id(i)[0]}: arrays[{k}]"
        for k, i in enumerate(case.arg_ids)
        if dag.ops[read_arg_id(i)[0]].is_placeholder
    ]
    sizes = repr(case.sizes or None)

    def run(f: str, got: str) -> str:
        return f"interpret({f}, {got}, {sizes}, thread_order={path.order}, races=True)"

    if path.kind == "round trip":
        return [_ROUND_TRIP]
    if path.kind == "passes":
        return [
            "plain, other = [a.copy() for a in arrays], [a.copy() for a in arrays]",
            run("lower_ids(s, ids)", "plain"),
            f"with PassContext(3, config={path.config!r}):",
            "    f = lower_ids(s, ids)",
            run("f", "other"),
            "for a, b in zip(plain, other):",
            "    np.testing.assert_array_equal(a, b)",
        ]
    bound = f".bind({case.sizes!r})" if case.sizes else ""
    want = f"want = evaluate(s.dag{bound}, {{{', '.join(inputs)}}})"
    if path.kind == "interpreter" and path.prepared:
        order = f"thread_order={path.order}, races=True"
        lines = [
            "f, got = lower_ids(s, ids), [a.copy() for a in arrays]",
            "place = dict(zip(f.params, got))",
            "place |= {b: np.full(b.extents, 77).astype(b.dtype) for b in f.kept}",
            "for part in (f.prepare, f.main):",
            f"    interpret(part, [place[b] for b in part.params], {order})",
        ]
    elif path.kind == "interpreter":
        lines = ["got = [a.copy() for a in arrays]", run("lower_ids(s, ids)", "got")]
    else:
        target, in_parts = f"Target({path.target!r})", ", True" if path.prepared else ""
        lines = [
            f"with PassContext({path.level}, config={path.config!r}):",
            f"    code = compile(s.dag, s.trace, ids, {target})",
            f"got = GuardedRunner().run(code, arrays, {path.side!r}{in_parts})",
        ]
    return [*lines, want, *_results(case, dag)]


def _results(case: Case, dag: Dag) -> list[str]:
    """One comparison an argument."""
    out = []
    for k, i in enumerate(case.arg_ids):
        op, output = read_arg_id(i)
        info, dtype = case.infos[k], dag.ops[op].dtypes[output]
        if dag.ops[op].is_placeholder:
            out.append(f"assert arrays[{k}].tobytes() == got[{k}].tobytes()")
            continue
        key = op if output == 0 else (op, output)
        if (info.exact and not case.rtol) or not dtypes.is_float(dtype):
            wide = ".astype(float)" if dtype in dtypes.HALVES else ""
            out.append(f"np.testing.assert_array_equal(got[{k}]{wide}, want[{key}]{wide})")
            continue
        near = f"rtol={case.rtol!r}, atol={4 * info.err + 1e-30!r}"
        both = f"got[{k}].astype(float), want[{key}].astype(float)"
        out.append(f"np.testing.assert_allclose({both}, {near})")
    return out


def _array(a: Array) -> str:
    flat = a.ravel()
    same = flat.size > 4 and (flat.tobytes() == np.full_like(flat, flat[0]).tobytes())
    if same:
        return f"np.full({a.shape!r}, {_items(flat[:1])[0]}).astype({a.dtype.name!r})"
    items = _items(flat)
    text = f"np.array([{', '.join(items)}]).reshape({a.shape!r}).astype({a.dtype.name!r})"
    return "\n        ".join(
        textwrap.wrap(text, 92, break_on_hyphens=False, break_long_words=False)
    )


def _items(flat: Array) -> Sequence[str]:
    wide = flat.astype(np.float64) if dtypes.is_float(flat.dtype.name) else flat
    return [repr(x) for x in wide.tolist()]
