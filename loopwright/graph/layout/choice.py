"""The places of a module where a layout is chosen, and the layouts that were chosen for them.

A convolution or a pool is a place, and so is an elementwise call or a concatenation that reads
several of them; a call that reads one place alone belongs to it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loopwright.errors import GraphError, UsageError
from loopwright.files import FileKind, Output, marked, write
from loopwright.graph.infer import Types
from loopwright.graph.ir.expr import Call, Constant, Expr, Function, TensorType
from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.structural import structural_hash
from loopwright.graph.ir.visitor import called, post_order, users
from loopwright.graph.layout.layouts import FIRST, LAST, Layout
from loopwright.graph.layout.rewriting import (
    Rewriting,
    convolves,
    has_few,
    leaves_freely,
    takes_over,
)
from loopwright.graph.registry import get_op
from loopwright.records import Json

_POOLS = ("nn.max_pool", "nn.avg_pool")


@dataclass
class Places:
    types: Types
    anchors: list[Call] = field(default_factory=list)  # the call that makes each place
    of_call: dict[Expr, int] = field(default_factory=dict)  # the place of each call that has one
    #: two places, and the type of the value that the second reads from the first; None is outside
    #: of all places, where values have the original layout
    edges: list[tuple[int | None, int | None, TensorType]] = field(default_factory=list)

    @staticmethod
    def of(f: Function, types: Types) -> Places:
        places = Places(types)
        order = post_order(f.body)
        for e in order:
            if isinstance(e, Call) and called(e) is not None:
                places._enter(e)
        readers = users(order)
        r = Rewriting(types, lambda _: None)
        for e, place in places.of_call.items():
            # Calls with a place read some operands in that place's layout.
            outside = [
                u
                for u in readers.get(e, ())
                if not (isinstance(u, Call) and u in places.of_call and e in places._images(u))
            ]
            free = all(isinstance(u, Call) and leaves_freely(r, u) for u in outside)
            if e is f.body or not free:
                places.edges.append((place, None, types.tensor(e)))
        places.edges.sort(key=lambda edge: (edge[1] is None, edge[0] is None))
        return places

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(called(a) or "" for a in self.anchors)

    def is_kernel(self, place: int) -> bool:
        """Whether a place has a kernel of its own: a convolution, or a pool."""
        return called(self.anchors[place]) in ("nn.conv", *_POOLS)

    def candidates(self, place: int, layouts: Sequence[Layout]) -> list[Layout]:
        """The layouts that a place can have; the original one always is among them."""
        return [one for one in layouts if one == FIRST or self._can(self.anchors[place], one)]

    def converted(self) -> list[Layout]:
        layouts: list[Layout] = []
        for n, anchor in enumerate(self.anchors):
            if called(anchor) == "nn.conv":
                layouts.append(LAST if self._can(anchor, LAST) else FIRST)
                continue
            read = [layouts[a] for a, b, _ in self.edges if b == n and a is not None and a < n]
            layouts.append(LAST if LAST in read else FIRST)
        return layouts

    def _can(self, call: Call, layout: Layout) -> bool:
        data = self.types.tensor(call.args[0]).shape
        if called(call) == "nn.conv":
            groups = get_op("nn.conv").complete(call.attrs)["groups"]
            return convolves(data, self.types.tensor(call.args[1]).shape, groups, layout)
        if called(call) in _POOLS:
            return layout.fits(data)
        return all(layout.fits(self.types.tensor(a).shape) for a in (call, *self._images(call)))

    def _enter(self, call: Call) -> None:
        t = self.types[call]
        if not isinstance(t, TensorType) or len(t.shape) < 3:
            return
        name = called(call) or ""
        if name in ("nn.conv", *_POOLS):
            self._add(call)
        elif takes_over(name):
            near = {self.of_call[a] for a in self._images(call) if a in self.of_call}
            outside = (a for a in self._images(call) if a not in self.of_call)
            if len(near) == 1 and all(isinstance(a, Constant) for a in outside):
                (self.of_call[call],) = near
            elif near:
                self._add(call)

    def _add(self, call: Call) -> None:
        place = len(self.anchors)
        self.anchors.append(call)
        self.of_call[call] = place
        for a in self._images(call):
            if a in self.of_call or not isinstance(a, Constant):
                self.edges.append((self.of_call.get(a), place, self.types.tensor(a)))

    def _images(self, call: Call) -> tuple[Expr, ...]:
        """The operands of a call that have the layout of its place."""
        if called(call) == "nn.conv":
            data, weight = call.args
            few = (
                has_few(self.types.tensor(data).shape) and len(self.types.tensor(weight).shape) > 2
            )
            return () if few else (data,)
        if called(call) == "nn.bias_add":
            return call.args[:1]
        rank = len(self.types.tensor(call).shape)
        return tuple(a for a in dict.fromkeys(call.args) if len(self.types.tensor(a).shape) == rank)


_FORMAT, _VERSION = "loopwright.layouts", 1
LAYOUTS = FileKind("a file of layouts", marked(f'"format": "{_FORMAT}"'.encode()))
#: Argument in place of a file: layouts are chosen anew.
MEASURED = "measured"


@dataclass(frozen=True)
class LayoutChoice:
    """A layout for each convolution and pool of a module, and for calls that join several of them.

    Example:
        >>> x = lw.graph.var("x", (1, 8, 6, 6))
        >>> module = lw.graph.IRModule.from_expr(lw.graph.op.nn.max_pool(x, pool_size=2))
        >>> choice = lw.graph.LayoutChoice.of(module, ["NCHW8c"])
        >>> print(choice)
        1 NCHW8c
        >>> path = choice.save("pool.layouts.json")
        >>> print(lw.graph.LayoutChoice.load(path) == choice)
        True
    """

    layouts: tuple[Layout, ...]  #: of the places of the module, in the order of its calls
    operators: tuple[str, ...]  #: of the places, such as ``nn.conv``
    module: str  #: its hash without weights: a network trained anew keeps its layouts
    cost: float | None = None  #: expected of a run, in ``unit``; None where nothing was priced
    converted: float | None = None  #: the same for the layouts that `ConvertLayout` gives
    unit: str = "seconds"  #: of a measured cost; ``"cycles"`` by the analytical model
    exact: bool = False  #: whether certainly no other layouts cost less by the same prices
    target: str = ""  #: of the priced kernels; empty where nothing was priced
    source: str = field(default="", compare=False)  #: the file it was read from; empty for none

    @staticmethod
    def of(module: IRModule, names: Sequence[str]) -> LayoutChoice:
        """Layouts given by name, for a module as `AlterOpLayout` gets it.

        Raises:
            GraphError: there are more or fewer than places, or a name is no layout.
        """
        places = Places.of(module[MAIN], Types(module))
        if len(names) != len(places.anchors):
            raise GraphError(f"{len(names)} layouts for {len(places.anchors)} places of the module")
        return LayoutChoice(tuple(Layout(n) for n in names), places.operators, identity(module))

    def fits(self, module: IRModule) -> bool:
        return identity(module) == self.module

    def to_json(self) -> dict[str, Json]:
        """The choice as JSON data, which `from_json` reads."""
        pairs = zip(self.operators, self.layouts, strict=True)
        places = [{"operator": operator, "layout": layout.name} for operator, layout in pairs]
        own = ("module", "target", "unit", "cost", "converted", "exact")
        data = {name: getattr(self, name) for name in own}
        return {"format": _FORMAT, "version": _VERSION, **data, "places": places}

    @staticmethod
    def from_json(data: object, source: str = "") -> LayoutChoice:
        """The choice that `to_json` wrote; GraphError, with its ``source``, for all else."""
        at = f"{source}: " if source else ""
        if not isinstance(data, Mapping) or data.get("format") != _FORMAT:
            raise GraphError(
                f"{at}these are no layouts of a model; `loopwright tune model.onnx --layouts FILE` "
                "writes them, and LayoutChoice.save"
            )
        if data.get("version") != _VERSION:
            raise GraphError(
                f"{at}these layouts have version {data.get('version')!r:.40}, and {_VERSION} is "
                "known; choose them again with this version of loopwright"
            )
        try:
            places = [(str(p["operator"]), Layout(p["layout"])) for p in data["places"]]
            cost, converted = (
                None if data[name] is None else float(data[name]) for name in ("cost", "converted")
            )
            return LayoutChoice(
                tuple(layout for _, layout in places),
                tuple(operator for operator, _ in places),
                str(data["module"]),
                cost,
                converted,
                str(data["unit"]),
                bool(data["exact"]),
                str(data["target"]),
                source,
            )
        except (KeyError, TypeError, ValueError, GraphError) as error:
            raise GraphError(
                f"{at}these layouts were changed: {type(error).__name__}: {error!s:.200}; choose "
                "them again"
            ) from error

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write it to a JSON file, which `load`, and ``layouts=`` of `compile`, read.

        An existing file of layouts is replaced in one step, with ``force`` any file. GraphError
        where that fails, UsageError where another file is there.
        """
        text = json.dumps(self.to_json(), indent=1)
        write(Output(Path(path), f"{text}\n".encode(), LAYOUTS), force=force, error=GraphError)
        return Path(path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> LayoutChoice:
        """The choice that `save` wrote; GraphError where the file cannot be read, or has none."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
        except ValueError:  # no JSON, or no text; `from_json` says what is expected
            data = None
        return LayoutChoice.from_json(data, os.fspath(path))

    def check(self, module: IRModule) -> None:
        """Refuse another module than its own (GraphError)."""
        self._require(self.fits(module))

    def check_places(self, operators: Sequence[str]) -> None:
        """Refuse other places (GraphError): a file that was changed may claim to be of a module."""
        self._require(self.operators == tuple(operators))

    def _require(self, fits: bool) -> None:
        if not fits:
            at = f"{self.source}: " if self.source else ""
            raise GraphError(
                f"{at}the layouts were chosen for another module, or under other passes; call "
                "tune_layouts for this one"
            )

    def __str__(self) -> str:
        counted = Counter(layout.name for layout in self.layouts)
        counts = ", ".join(f"{n} {name}" for name, n in sorted(counted.items())) or "no layouts"
        if self.cost is None or self.converted is None:
            return counts
        if self.unit == "cycles":
            return f"{counts}: {self.cost:.3g} cycles, {self.converted:.3g} by ConvertLayout"
        ours, theirs = self.cost * 1e3, self.converted * 1e3
        return f"{counts}: {ours:.3f} ms expected, {theirs:.3f} ms by ConvertLayout"


def identity(module: IRModule) -> str:
    """The identity of a module for choices: its hash without the values of its weights."""
    return structural_hash(module, values=False)


def chosen_layouts(layouts: LayoutChoice | str | os.PathLike[str] | None) -> LayoutChoice | None:
    if layouts is None or isinstance(layouts, LayoutChoice):
        return layouts
    if isinstance(layouts, (str, os.PathLike)) and Path(layouts).exists():
        return LayoutChoice.load(layouts)
    raise UsageError(
        f'layouts is {layouts!r:.80}; give "{MEASURED}", what tune_layouts returns, or a file that '
        "it was saved to"
    )
