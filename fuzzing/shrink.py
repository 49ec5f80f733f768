"""Makes a failing case smaller: fewer steps, fewer stages, smaller extents, simpler expressions.

Every candidate is written as Python (`Dag.as_python`) and executed, so that the rules of te refuse
invalid programs.
"""

from __future__ import annotations

import itertools
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from fuzzing.differential import Array, Case, ExecutionPath
from fuzzing.random.expr import Info, poison
from loopwright import dtypes
from loopwright.errors import InternalError, LoopwrightError
from loopwright.ir.expr import Cast, Const, IterVar, Read, const
from loopwright.ir.reduction import Combiner, Reduce, Tuple
from loopwright.schedule.schedule import replay
from loopwright.schedule.steps import Step
from loopwright.te.dag import ArgId, Dag, arg_id, read_arg_id
from loopwright.te.op_node import OpNode
from loopwright.te.source import tensor_names
from loopwright.testing.numpy_eval import evaluate

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, seconds: float = 60.0) -> Case:
    end = time.monotonic() + seconds
    case = shortest(case, fails, end)
    changed = True
    while changed and time.monotonic() < end:
        changed = False
        for smaller in (_stages, _extents, _expressions, _arrays):
            smallest = _descend(case, fails, smaller, end)
            changed, case = changed or smallest is not case, smallest
        case = shortest(case, fails, end)
    return case


def _descend(
    case: Case, fails: Fails, smaller: Callable[[Case], Iterator[Case]], end: float
) -> Case:
    while True:
        in_time = itertools.takewhile(lambda _: time.monotonic() <= end, smaller(case))
        failing = next(filter(fails, in_time), None)
        if failing is None:
            return case
        case = failing


def without(trace: list[list[Any]], k: int) -> list[list[Any]]:
    """A trace without step ``k`` and all steps that use its results; ids are renumbered."""
    gone = {k}
    for t in range(k + 1, len(trace)):
        used = {int(n) for x in _words(trace[t]) for n in re.findall(r"^s?(\d+)(?:\.\d)?$", x)}
        if used & gone:
            gone.add(t)
    number = {t: i for i, t in enumerate(t for t in range(len(trace)) if t not in gone)}

    def renamed(x: Any) -> Any:
        if isinstance(x, list):
            return [renamed(v) for v in x]
        match = re.fullmatch(r"(s?)(\d+)((?:\.\d)?)", x) if isinstance(x, str) else None
        return f"{match[1]}{number[int(match[2])]}{match[3]}" if match else x

    return [[s[0], *(renamed(v) for v in s[1:])] for t, s in enumerate(trace) if t in number]


def _words(x: Any) -> list[str]:
    if isinstance(x, list):
        return [w for v in x for w in _words(v)]
    return [x] if isinstance(x, str) else []


def shortest(case: Case, fails: Fails, end: float = float("inf")) -> Case:
    k = len(case.trace) - 1
    while k >= 0 and time.monotonic() < end:
        traces = [without(case.trace, k), *_with_its_loops(case.trace, k)]
        smaller = (replace(case, trace=t) for t in traces)
        case = next(filter(fails, smaller), case)
        k = min(k, len(case.trace)) - 1
    return case


def _with_its_loops(trace: list[list[Any]], k: int) -> Iterator[list[list[Any]]]:
    """A trace without the split or fusion of step ``k``: later steps use one of its loops."""
    name, _, *fields = trace[k]
    made_of = {"fuse": fields[:2], "split": fields[:1]}.get(name, [])
    for loop in made_of:

        def renamed(x: Any, loop: str = loop) -> Any:
            if isinstance(x, list):
                return [renamed(v) for v in x]
            return loop if isinstance(x, str) and re.fullmatch(rf"{k}\.\d", x) else x

        yield without([*trace[: k + 1], *map(renamed, trace[k + 1 :])], k)


def _stages(case: Case) -> Iterator[Case]:
    """Fewer outputs; the result of a stage given as an input instead."""
    dag = Dag.from_json(case.dag)
    for o in dag.outputs:
        if len(dag.outputs) > 1:
            yield from _made(case, dag, list(dag.ops), [i for i in dag.outputs if i != o])
    if dag.sizes:
        return
    values = _values(case, dag)
    for i in reversed(range(len(dag.ops))):
        op = dag.ops[i]
        if op.is_placeholder or op.num_outputs > 1 or i in dag.outputs:
            continue
        given = OpNode(op.name, op.shape, op.dtype)
        ops = [*dag.ops[:i], given, *dag.ops[i + 1 :]]
        yield from _made(case, dag, ops, list(dag.outputs), {i: np.asarray(values[i])})


def _extents(case: Case) -> Iterator[Case]:
    """Smaller extents: all that are equal together, then one by one, outputs first."""
    dag = Dag.from_json(case.dag)
    known = sorted({n for op in dag.ops for n in op.extents if isinstance(n, int) and n > 1})
    for n in reversed(known):
        for m in _less(n):
            ops = [_resized(op, [m if x == n else x for x in op.extents]) for op in dag.ops]
            yield from _made(case, dag, ops, list(dag.outputs))
    for i in reversed(range(len(dag.ops))):
        for op in _with_one_smaller_extent(dag.ops[i]):
            ops = [*dag.ops[:i], op, *dag.ops[i + 1 :]]
            yield from _made(case, dag, ops, list(dag.outputs))


def _with_one_smaller_extent(op: OpNode) -> Iterator[OpNode]:
    extents = op.extents
    for d, n in enumerate(extents):
        for m in _less(n) if isinstance(n, int) else ():
            yield _resized(op, [*extents[:d], m, *extents[d + 1 :]])


def _less(n: int) -> list[int]:
    return sorted({m for m in (1, 2, n // 2, n - 1) if 0 < m < n})


def _resized(op: OpNode, extents: Sequence[Any]) -> OpNode:
    shape = tuple(extents[: len(op.shape)])
    if op.body is None:
        return replace(op, shape=shape)
    axes = tuple(IterVar(a.var, n, a.kind) for a, n in zip(op.axes, shape, strict=True))
    rest = extents[len(shape) :]
    reduced = {a: IterVar(a.var, n, a.kind) for a, n in zip(op.reduce_axes, rest, strict=True)}
    body = op.body
    if isinstance(body, Reduce):
        parts = {name: getattr(body, name) for name in body._fields}
        body = Reduce(**{**parts, "axes": tuple(reduced[a] for a in body.axes)})
    return replace(op, shape=shape, axes=axes, reduce_axes=tuple(reduced.values()), body=body)


def _expressions(case: Case) -> Iterator[Case]:
    """A part of a body replaced by zero or by a part of its own; conditions and starts dropped."""
    dag = Dag.from_json(case.dag)
    for i in reversed(range(len(dag.ops))):
        op = dag.ops[i]
        for body in _simpler(op.body) if op.body is not None else ():
            ops = list(dag.ops)
            ops[i] = replace(op, body=body)
            yield from _made(case, dag, ops, list(dag.outputs), loose=True)


def _simpler(body: Any) -> Iterator[Any]:
    if isinstance(body, Reduce):
        parts = {name: getattr(body, name) for name in body._fields}
        given = [name for name in ("where", "init") if parts[name] is not None]
        yield from (Reduce(**{**parts, name: None}) for name in given)
    nodes: list[Any] = []
    _renewed(body, lambda n: nodes.append(n))
    for k, n in enumerate(nodes):
        if isinstance(n, Reduce | Tuple | Const):
            continue
        choices: list[Any] = [const(0, n.dtype)]
        # Parts could stand for the whole; indices cannot.
        inner = () if isinstance(n, Read | Cast) else n.children()
        typed = [c for c in inner if hasattr(c, "dtype")]
        choices += [c if c.dtype == n.dtype else Cast(c, n.dtype) for c in typed]
        for new in choices:
            yield _replaced(body, k, new)


def _replaced(body: Any, k: int, new: Any) -> Any:
    count = iter(range(1 << 30))
    return _renewed(body, lambda n: new if next(count) == k else None)


def _renewed(e: Any, f: Callable[[Any], Any]) -> Any:
    """Replace nodes, outermost first: ``f`` gives the new one, or None to look inside."""
    if isinstance(e, Combiner):
        return e
    new = f(e)
    return new if new is not None else e.map_children(lambda c: _renewed(c, f))


def _arrays(case: Case) -> Iterator[Case]:
    ops = Dag.from_json(case.dag).ops
    for k, (i, a) in enumerate(zip(case.arg_ids, case.arrays, strict=True)):
        if not ops[read_arg_id(i)[0]].is_placeholder or not a.size or (a == a.flat[0]).all():
            continue
        for value in (0, 1):
            arrays = list(case.arrays)
            arrays[k] = np.full_like(a, value)
            try:
                loosened = _loosened(replace(case, arrays=arrays))
            except InternalError:  # an index of that value is outside of its tensor
                continue
            yield loosened


def _made(
    case: Case,
    dag: Dag,
    ops: list[OpNode],
    outputs: list[int],
    given: Mapping[int, Array] | None = None,
    loose: bool = False,
) -> Iterator[Case]:
    """The case of changed operations, if te accepts them; at most one.

    Operations that no output needs are dropped; ``given`` are arrays of those that became inputs,
    and ``loose`` says that the bounds on errors may no longer hold.
    """
    try:
        new, number = _rebuilt(Dag(tuple(ops), tuple(outputs)))
        trace = _renumbered(case.trace, number)
        arguments = list(_arguments(case, ops, new, number, given or {}))
    except (LoopwrightError, KeyError, SyntaxError):
        return
    smaller = replace(
        case,
        dag=new.to_json(),
        trace=trace,
        arg_ids=[i for i, _, _ in arguments],
        arrays=[array for _, array, _ in arguments],
        infos=[info for _, _, info in arguments],
    )
    try:
        smaller = _loosened(smaller) if loose else smaller
    except InternalError:  # it reads outside of a tensor now: it is no program
        return
    yield smaller


def _arguments(
    case: Case, ops: list[OpNode], new: Dag, number: Mapping[int, int], given: Mapping[int, Array]
) -> Iterator[tuple[ArgId, Array, Info]]:
    arrays = {read_arg_id(i): a for i, a in zip(case.arg_ids, case.arrays, strict=True)}
    infos = {read_arg_id(i): x for i, x in zip(case.arg_ids, case.infos, strict=True)}
    kept = [i for i in range(len(ops)) if i in number]
    results = [(i, k) for i in kept for k in range(new.ops[number[i]].num_outputs)]
    for i, k in results:
        op = new.ops[number[i]]
        info = infos.get((i, k), Info(True, 1.0, 1.0, 0.0))
        if ops[i].is_placeholder:
            source = given[i] if i in given else arrays[i, 0]
            part = source[tuple(slice(0, n) for n in op.shape) if not case.sizes else ()]
            yield arg_id(number[i], k), np.ascontiguousarray(part).reshape(part.shape), info
        elif (i, k) in arrays or (number[i] in new.outputs and k == 0):
            shape = op.static_shape if not case.sizes else arrays[i, k].shape
            yield arg_id(number[i], k), poison(shape, op.dtypes[k]), info


def _rebuilt(dag: Dag) -> tuple[Dag, dict[int, int]]:
    scope: dict[str, Any] = {}
    exec(compile(dag.as_python(), "<smaller>", "exec"), scope)
    new, index = Dag.from_ops([t.op for t in scope["outputs"]])
    new_ops = {i: scope[names[0]].op for i, names in enumerate(tensor_names(dag.ops))}
    return new, {i: index[op] for i, op in new_ops.items() if op in index}


def _renumbered(trace: list[list[Any]], number: Mapping[int, int]) -> list[list[Any]]:
    k = 0
    while k < len(trace):
        known = all(i in number for i in _stage_ids(Step.from_json(trace[k])))
        trace, k = (trace, k + 1) if known else (without(trace, k), k)
    out = []
    for step in map(Step.from_json, trace):
        new = {f.name: _mapped(getattr(step, f.name), number) for f in _stage_fields(step)}
        out.append(replace(step, **new).to_json())
    return out


def _stage_fields(step: Step) -> list[Any]:
    return [f for f in fields(step) if "StageId" in str(f.type)]


def _stage_ids(step: Step) -> list[int]:
    values = [getattr(step, f.name) for f in _stage_fields(step)]
    flat = [x for v in values for x in (v if isinstance(v, tuple) else (v,))]
    return [x for x in flat if isinstance(x, int)]


def _mapped(value: Any, number: Mapping[int, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_mapped(v, number) for v in value)
    return number[value] if isinstance(value, int) else value


def _values(case: Case, dag: Dag) -> Mapping[ArgId, Array]:
    inputs = {
        i: a
        for i, a in zip(case.arg_ids, case.arrays, strict=True)
        if dag.ops[read_arg_id(i)[0]].is_placeholder
    }
    return evaluate(dag.bind(case.sizes), inputs)


def _loosened(case: Case) -> Case:
    """Allow inexact results to be off by half a percent of the largest value."""
    dag = Dag.from_json(case.dag)
    values, infos = _values(case, dag), []
    for i, info in zip(case.arg_ids, case.infos, strict=True):
        want = values[arg_id(*read_arg_id(i))]
        if info.exact or not dtypes.is_float(want.dtype.name):
            infos.append(info)
            continue
        size = np.abs(np.nan_to_num(want.astype(np.float64), posinf=0, neginf=0)).max(initial=0)
        infos.append(info._replace(err=max(info.err, 1e-3 * float(size))))
    return replace(case, infos=infos)


def reproducer(case: Case, path: ExecutionPath, title: str) -> str:
    """A program that makes a case and follows an execution path with it, to fail as the case does,
    or because the path does not run; ``title`` is the first line of its docstring.
    """
    s = replay(Dag.from_json(case.dag), case.trace)
    wrapped = "\n".join(textwrap.wrap(title, 96)) or "A failure."
    head = wrapped.replace("\\", "/").replace('"""', "'''")
    lines = [
        f'"""{head}\n"""',
        *("", "import numpy as np", "from numpy import inf, nan", ""),
        "from fuzzing.differential import Case, Checker, ExecutionPath",
        "from fuzzing.random.expr import Info",
        "from loopwright import te",
        *("", s.dag.as_python().split("\n", 2)[2], "", s.as_python(), ""),
        *("s = te.create_schedule(outputs)", "schedule(s, *s.tensors)", ""),
        f"ids = {case.arg_ids!r}  # operation, or (operation, output)",
        *("arrays = [", *(f"    {_array(a)}," for a in case.arrays), "]"),
        *("infos = [", *(f"    {info!r}," for info in case.infos), "]"),
        "case = Case(s.dag.to_json(), s.trace_json(), ids, arrays, infos)",
        f"case.sizes, case.rtol = {case.sizes!r}, {case.rtol!r}",
        "checker = Checker()",
        f"checker.run(checker.prepare(case), {path!r})",
        "checker.close()",
        f"assert checker.runs.keys() <= {{{path.target or path.kind!r}}}, dict(checker.runs)",
    ]
    return "\n".join(lines) + "\n"


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
