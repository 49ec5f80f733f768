"""Pictures of schedules as text for Graphviz, under the names of TVM's ``contrib.tedd``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from loopwright.errors import UsageError
from loopwright.files import FileKind, Output, write
from loopwright.ir.expr import IterVar
from loopwright.schedule import Schedule, SplitRel, Stage

_BEGIN = "digraph loopwright {\n"
_DOT = FileKind("a graph of loopwright", lambda data: data.startswith(_BEGIN.encode()))


def viz_dataflow_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> str | None:
    """The stages of a schedule, with the shape and the scope of each, and which reads which.

    Args:
        show_svg: refused by a UsageError: ``dot -Tsvg`` draws the text.
        dot_file_path: a file for the text; empty: none. UsageError where another's file is there.
        output_dot_string: return the text.

    Example:
        >>> A = te.placeholder((4,), name="A")
        >>> B = te.compute((4,), lambda i: A[i] + 1, name="B")
        >>> s = te.create_schedule(B.op)
        >>> print(lw.contrib.tedd.viz_dataflow_graph(s, output_dot_string=True))
        digraph loopwright {
          n0 [shape=box, label="A\\nfloat32[4]\\nglobal"]
          n1 [shape=box, label="B\\nfloat32[4]\\nglobal"]
          n0 -> n1
        }
        <BLANKLINE>
    """
    return _drawn(_dataflow(sch), show_svg, dot_file_path, output_dot_string)


def viz_schedule_tree(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> str | None:
    """The place of each stage's computation, its loops and their marks, outermost first; arguments
    as of `viz_dataflow_graph`."""
    return _drawn(_tree(sch), show_svg, dot_file_path, output_dot_string)


def viz_itervar_relationship_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str = "", output_dot_string: bool = False
) -> str | None:
    """The splits and fusions by which the loops of each stage came of its axes; arguments as of
    `viz_dataflow_graph`."""
    return _drawn(_loops(sch), show_svg, dot_file_path, output_dot_string)


def _drawn(lines: Iterable[str], show_svg: bool, path: str, as_text: bool) -> str | None:
    if show_svg:
        raise UsageError(
            "tedd: pictures are drawn by Graphviz; write dot_file_path, and run dot -Tsvg on it"
        )
    text = "".join((_BEGIN, *(f"  {line}\n" for line in lines), "}\n"))
    if path:
        write(Output(Path(path), text.encode(), _DOT), force=None, error=UsageError)
    return text if as_text else None


def _node(name: str, shape: str, *lines: str) -> str:
    return f"{name} [shape={shape}, label={json.dumps(chr(10).join(lines), ensure_ascii=False)}]"


def _dataflow(sch: Schedule) -> Iterator[str]:
    numbers = {stage.id: n for n, stage in enumerate(sch.stages)}
    for stage in sch.stages:
        tensors = (stage.op.output(k) for k in range(stage.op.num_outputs))
        kinds = [f"{t.dtype}[{', '.join(map(str, t.shape))}]" for t in tensors]
        yield _node(f"n{numbers[stage.id]}", "box", stage.op.name, *kinds, stage.scope)
    for stage in sch.stages:
        for source in dict.fromkeys(sch[t].id for t in stage.op.input_tensors):
            yield f"n{numbers[source]} -> n{numbers[stage.id]}"


def _tree(sch: Schedule) -> Iterator[str]:
    numbers = {stage.id: n for n, stage in enumerate(sch.stages)}
    yield _node("root", "ellipse", "root")
    for stage in sch.stages:
        loops = stage.leaf_iter_vars if stage.op.input_tensors else []
        yield _node(f"n{numbers[stage.id]}", "box", stage.op.name, *_marked(stage, loops))
        host, at = stage.attach_stage, stage.attach_ivar
        if host is not None and at is not None:
            yield f"n{numbers[host.id]} -> n{numbers[stage.id]} [label={json.dumps(at.name)}]"
        else:
            style = " [style=dashed, label=inline]" if stage.attach_type == "inline" else ""
            yield f"root -> n{numbers[stage.id]}{style}"


def _marked(stage: Stage, loops: Iterable[IterVar]) -> Iterator[str]:
    for axis in loops:
        attrs = stage.iter_var_attrs.get(axis)
        words = "" if attrs is None else f" {attrs.bind_thread or attrs.iter_type}"
        yield f"{axis.name} in {axis.extent}{words}"


def _loops(sch: Schedule) -> Iterator[str]:
    for number, stage in enumerate(sch.stages):
        names = {x: f"n{number}_{k}" for k, x in enumerate(sch.state.stages[stage.id].loops)}
        yield f"subgraph cluster_{number} {{ label={json.dumps(stage.op.name)}"
        for loop in sch.state.stages[stage.id].loops.values():
            yield _node(names[loop.id], "box", f"{loop.name}: {loop.nominal} {loop.kind}")
        yield "}"
        for k, relation in enumerate(stage.relations):
            middle, pair = f"r{number}_{k}", [relation.outer, relation.inner]
            if isinstance(relation, SplitRel):
                kind, before, after = "Split", [relation.parent], pair
            else:
                kind, before, after = "Fuse", pair, [relation.fused]
            yield _node(middle, "ellipse", kind)
            yield from (f"{names[x]} -> {middle}" for x in before)
            yield from (f"{middle} -> {names[x]}" for x in after)
