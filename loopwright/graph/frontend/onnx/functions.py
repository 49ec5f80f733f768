"""Functions of a model: how many nodes their calls become, told before any is converted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from loopwright.errors import GraphError
from loopwright.graph.frontend.onnx import files

#: Nodes that all calls of functions become at most, each call a copy; and calls inside of one
#: another, each of which is a few frames of Python.
_MOST_NODES, _MOST_NESTED = 50_000, 64
#: Of a function: domain and name.
_Key = tuple[str, str]


def check_calls(model: Any) -> None:
    """Refuse a model whose functions call themselves, nest too deeply or become too many nodes:
    thirty functions, each of which calls the next twice, become 2**30."""
    bodies = {(files.domain(f.domain), f.name): list(_nodes(f.node)) for f in model.functions}
    calls = {key: _calls(nodes, bodies) for key, nodes in bodies.items()}
    main = _calls(_nodes(model.graph.node), bodies)
    sizes: dict[_Key, int] = {}
    depths: dict[_Key, int] = {}
    for key in _callees_first(main, calls):
        sizes[key] = len(bodies[key]) + sum(sizes[k] for k in calls[key])
        depths[key] = 1 + max((depths[k] for k in calls[key]), default=0)
        if depths[key] > _MOST_NESTED:
            raise GraphError(
                f"more than {_MOST_NESTED} calls of functions stand inside of one another, the "
                f"outermost of {key[1]!r}; inline them with onnx.inliner.inline_local_functions"
            )
    total = sum(sizes[k] for k in main)
    if total > _MOST_NODES:
        name = max(main, key=lambda k: sizes[k])[1]
        raise GraphError(
            f"the calls of functions, each of which is a copy, become {total} nodes, more than "
            f"{_MOST_NODES}; most are inside of {name!r}: let functions call each other less often"
        )


def _nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    """Nodes, and those of the graphs that are their attributes."""
    for node in nodes:
        yield node
        for a in node.attribute:
            for graph in (*([a.g] if a.HasField("g") else []), *a.graphs):
                yield from _nodes(graph.node)


def _calls(nodes: Iterable[Any], functions: Mapping[_Key, Any]) -> list[_Key]:
    """The functions that nodes call, once for each call."""
    keys = ((files.domain(node.domain), node.op_type) for node in nodes)
    return [key for key in keys if key in functions]


def _callees_first(main: Iterable[_Key], calls: Mapping[_Key, list[_Key]]) -> Iterable[_Key]:
    """The functions that a model needs."""
    needed: dict[_Key, list[_Key]] = {}
    waiting = list(main)
    while waiting:
        key = waiting.pop()
        if key not in needed:
            needed[key] = calls[key]
            waiting += calls[key]
    try:
        return list(TopologicalSorter(needed).static_order())
    except CycleError as exc:
        path = " > ".join(name for _, name in reversed(exc.args[1]))
        raise GraphError(f"the model has a function that calls itself: {path}") from None
