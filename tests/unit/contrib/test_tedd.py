"""Pictures of schedules: which stage reads which, where it is computed, what its loops came of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loopwright import te
from loopwright.contrib import tedd
from loopwright.errors import UsageError
from loopwright.schedule import Schedule


def scheduled() -> Schedule:
    A = te.placeholder((8, 16), name='A "quoted"')
    B = te.compute((8, 16), lambda i, j: A[i, j] + 1, name="B")
    P, Q = te.compute((8, 16), lambda i, j: (B[i, j] * 2, B[i, j] * 3), name="P")
    C = te.compute((8, 16), lambda i, j: P[i, j] + Q[i, j], name="C")
    s = te.create_schedule(C.op)
    s[B].compute_inline()
    outer, inner = s[C].split(C.op.axis[0], factor=4)
    s[C].parallel(outer)
    s[C].fuse(inner, C.op.axis[1])
    s[P].compute_at(s[C], outer)
    return s


def parts(text: str) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Labels of nodes, and edges between labels."""
    labels = dict(re.findall(r'^ *(\w+) \[shape=\w+, label="((?:[^"\\]|\\.)*)"\]$', text, re.M))
    edges = re.findall(r"^ *(\w+) -> (\w+)", text, re.M)
    return labels, {(labels[a], labels[b]) for a, b in edges}


def test_readers_stand_behind_what_they_read() -> None:
    labels, edges = parts(tedd.viz_dataflow_graph(scheduled(), output_dot_string=True))
    a, b, p, c = labels.values()
    assert a == r"A \"quoted\"\nfloat32[8, 16]\nglobal"
    assert p.count("float32[8, 16]") == 2
    assert edges == {(a, b), (b, p), (p, c)}


def test_stages_stand_where_they_are_computed() -> None:
    text = tedd.viz_schedule_tree(scheduled(), output_dot_string=True)
    labels, edges = parts(text)
    root, a, b, p, c = labels.values()
    assert c == r"C\ni.0 in 2 Parallelized\ni.1.j in 64"
    assert edges == {(root, a), (root, b), (root, c), (c, p)}
    assert text.count("inline") == 1
    assert '[label="i.0"]' in text


def test_loops_come_of_axes() -> None:
    _, edges = parts(tedd.viz_itervar_relationship_graph(scheduled(), output_dot_string=True))
    assert edges == {
        ("i: 8 spatial", "Split"),
        ("Split", "i.0: 2 spatial"),
        ("Split", "i.1: 4 spatial"),
        ("i.1: 4 spatial", "Fuse"),
        ("j: 16 spatial", "Fuse"),
        ("Fuse", "i.1.j: 64 spatial"),
    }


def test_files_of_others_stay(tmp_path: Path) -> None:
    s = scheduled()
    path = tmp_path / "s.dot"
    for draw in (tedd.viz_dataflow_graph, tedd.viz_schedule_tree):
        assert draw(s, dot_file_path=str(path)) is None
        assert path.read_text() == draw(s.normalize(), output_dot_string=True)
    path.write_text("mine")
    with pytest.raises(UsageError):
        tedd.viz_schedule_tree(s, dot_file_path=str(path))
    assert path.read_text() == "mine"
    with pytest.raises(UsageError, match="dot -Tsvg"):
        tedd.viz_schedule_tree(s, show_svg=True)
