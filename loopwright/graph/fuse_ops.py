"""FuseOps: calls of operators become calls of functions, each of which is one kernel.

The rules are Relay's, over the tree of post-dominators (Roesch et al., 2018): a call is fused with
the first call through which all that reads it goes, and with all calls on the way there. Anchors
(a product, a convolution or a reduction, one a function) take elementwise and broadcast calls after
them; these go into what is no more than injective, ends in a reduction or was fused with an anchor;
injective calls go into injective ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

from loopwright.graph.infer import infer_types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, OpRef, Type, Var
from loopwright.graph.ir.module import IRModule
from loopwright.graph.ir.visitor import Block, blocks, called, post_order, users
from loopwright.graph.passes import module_pass
from loopwright.graph.registry import Pattern, get_op

#: Calls that one function may have: code of more is compiled for long, and gains nothing.
_MOST = 64
_ANCHORS = (Pattern.OUT_ELEMENTWISE_FUSABLE, Pattern.REDUCTION)


@dataclass(eq=False)
class _Node:
    call: Call
    pattern: Pattern  # of its operator
    at: int  # index in its block
    users: list[_Node] = field(default_factory=list)  # calls that read it, in the same block
    escapes: bool = False  # something else reads it: the result, a tuple, another block
    next: _Node | None = None  # its immediate post-dominator; None where there is none
    #: the group that it belongs to, or that this one was merged into
    group: _Group = field(init=False)

    def __post_init__(self) -> None:
        self.group = _Group([self], self if self.pattern in _ANCHORS else None)


@dataclass(eq=False)
class _Group:
    """Calls that become one function; the others are computed for ``last``."""

    nodes: list[_Node]
    anchor: _Node | None

    @property
    def last(self) -> _Node:
        return max(self.nodes, key=lambda n: n.at)

    @property
    def pattern(self) -> Pattern:
        """The pattern of the anchor, else that of the least simple call."""
        return self.anchor.pattern if self.anchor else max(n.pattern for n in self.nodes)


@module_pass(opt_level=0)
def FuseOps(module: IRModule) -> IRModule:
    """Make functions of one kernel each."""
    types = infer_types(module)
    return IRModule({n: _fused(f, types) for n, f in module.functions.items()})


def _fused(f: Function, types: Mapping[Expr, Type]) -> Function:
    if f.primitive:
        return f
    groups = _groups(f)
    new: dict[Expr, Expr] = {}
    for e in post_order(f):
        if (group := groups.get(e)) is None:
            new[e] = e.with_children(tuple(new[c] for c in e.children))
        elif group.last.call is e:
            new[e] = _call_of(group, new, types)
        else:
            new[e] = e  # read inside the group alone
    function = new[f]
    assert isinstance(function, Function)
    return function


def _groups(f: Function) -> dict[Expr, _Group]:
    groups: dict[Expr, _Group] = {}
    for block in _all_blocks(blocks(f.body)):
        nodes = _linked(block)
        for phase in (_after_anchor, _into_what_follows, _along_injective):
            for node in nodes:
                phase(node)
        groups |= {node.call: node.group for node in nodes}
    return groups


def calls_beside(f: Function) -> dict[Expr, tuple[Call, ...]]:
    """For each call of an operator of a function, the calls of the same kernel."""
    return {
        call: tuple(n.call for n in sorted(group.nodes, key=lambda n: n.at))
        for call, group in _groups(f).items()
    }


def _all_blocks(top: Block) -> Iterator[Block]:
    """A block and those inside it, without those of functions that are one kernel already."""
    waiting = [top]
    while waiting:
        block = waiting.pop()
        yield block
        for e, inner in block.inner.items():
            if not (isinstance(e, Function) and e.primitive):
                waiting += inner


def _linked(block: Block) -> list[_Node]:
    """The calls of operators of a block, linked to their readers and post-dominators."""
    node_of: dict[Expr, _Node] = {}
    for e in block.nodes:
        if called(e) is not None and isinstance(e, Call):
            node_of[e] = _Node(e, get_op(called(e) or "").pattern, len(node_of))
    inner = {node.call for node in node_of.values()}
    inside = [e for one in _all_blocks(block) for e in one.nodes]
    for e, readers in users(inside).items():
        if e in node_of:
            node_of[e].users = [node_of[r] for r in dict.fromkeys(readers) if r in inner]
            node_of[e].escapes = any(r not in inner for r in readers) or e is block.result
    nodes = list(node_of.values())
    for node in reversed(nodes):  # what follows is linked before
        if node.users and not node.escapes:
            first: _Node | None = node.users[0]
            node.next = reduce(_first_common, node.users[1:], first)
    return nodes


def _first_common(a: _Node | None, b: _Node | None) -> _Node | None:
    """The first call that follows both, or is one of them; None where there is none."""
    while a is not b:
        if a is None or b is None:
            return None
        a, b = (a.next, b) if a.at < b.at else (a, b.next)
    return a


def _between(node: _Node, last: _Node) -> list[_Node]:
    """The calls on the paths from one to another that follows it, both excluded."""
    between: dict[_Node, None] = {}
    waiting = list(node.users)
    while waiting:
        n = waiting.pop()
        if n is not last and n not in between:
            between[n] = None
            waiting += n.users
    return list(between)


def _after_anchor(node: _Node) -> None:
    """Fuse elementwise and broadcast calls into an anchor before them."""
    if node.pattern in _ANCHORS and node.group.anchor is node:
        _extend(node, lambda pattern, _: pattern <= Pattern.BROADCAST)


def _into_what_follows(node: _Node) -> None:
    """Fuse elementwise and broadcast calls into injective, reducing or fused ones after them."""

    def fits(pattern: Pattern, is_last: bool) -> bool:
        return pattern <= Pattern.INJECTIVE or (is_last and pattern in _ANCHORS)

    last = node.next
    if node.group.pattern > Pattern.BROADCAST or last is None:
        return
    if last.pattern <= Pattern.INJECTIVE or last.pattern is Pattern.REDUCTION:
        _extend(node, fits, once=True)


def _along_injective(node: _Node) -> None:
    """Fuse injective calls into injective ones after them."""
    if node.group.pattern <= Pattern.INJECTIVE:
        _extend(node, lambda pattern, _: pattern <= Pattern.INJECTIVE, once=True)


def _extend(node: _Node, fits: Callable[[Pattern, bool], bool], once: bool = False) -> None:
    """Join a call with its successors, as far as the patterns of groups on the way fit."""
    last = node.group.last if not once else node
    while last.next is not None:
        groups = {n.group for n in (*_between(last, last.next), last.next)} - {node.group}
        goal = last.next.group
        if not all(fits(g.pattern, g is goal) for g in groups) or not _join(node.group, groups):
            return
        if once:
            return
        last = node.group.last


def _join(group: _Group, others: set[_Group]) -> bool:
    """Merge groups; False where the result is too large, or has two anchors or two results."""
    nodes = [n for g in (group, *others) for n in g.nodes]
    anchors = [g.anchor for g in (group, *others) if g.anchor is not None]
    inside, last = set(nodes), max(nodes, key=lambda n: n.at)
    # Others read only the last call: a function has one result.
    closed = all(not n.escapes and inside.issuperset(n.users) for n in nodes if n is not last)
    if len(nodes) > _MOST or len(anchors) > 1 or not closed:
        return False
    group.nodes, group.anchor = nodes, anchors[0] if anchors else None
    for n in nodes:
        n.group = group
    return True


def _call_of(group: _Group, new: Mapping[Expr, Expr], types: Mapping[Expr, Type]) -> Call:
    """A call of the function of a group; scalar constants are written into it."""
    params: dict[Expr, Var] = {}
    body: dict[Expr, Expr] = {}

    def operand(e: Expr) -> Expr:
        if e in body:
            return body[e]
        if isinstance(e, OpRef) or (isinstance(e, Constant) and not e.data.ndim):
            return e
        return params.setdefault(e, Var(f"p{len(params)}", types[e]))

    for node in sorted(group.nodes, key=lambda n: n.at):
        call = node.call
        body[call] = call.with_children(tuple(map(operand, call.children)))
    last = group.last.call
    attrs = {"primitive": True}
    function = Function(tuple(params.values()), body[last], types[last], attrs, span=last.span)
    return Call(function, tuple(new[e] for e in params), span=last.span)
