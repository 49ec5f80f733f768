"""The `node` decorator: immutable tree nodes with a stored hash and cheap rewriting."""

# A node class lists its fields as annotations. It gets slots, an ``__init__`` in field order and
# `map_children`. `same` compares nodes by structure, and a `StructuralKey` finds them by it in
# dictionaries; the hash of a structure is computed once. Assignment after construction is refused
# under ``__debug__`` only, so that ``python -O`` pays nothing.

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

_C = TypeVar("_C", bound=type)
_N = TypeVar("_N", bound="Node | tuple[Any, ...]")
#: Annotations of fields that hold no node; passes need not look into them.
_PLAIN = ("str", "int", "bool", "float", "LoopKind", "Scope")


class Node:
    __slots__ = ("_hash",)
    _hash: int
    _fields: ClassVar[tuple[str, ...]] = ()
    #: Whether two nodes of the class are the same only when they are one object.
    _unique: ClassVar[bool] = False

    #: Function of `repr`. `loopwright.ir.printer` knows every class of nodes and puts its function
    #: here; this file knows none of them.
    _text: ClassVar[Callable[[Any], str]]

    def __repr__(self) -> str:
        return self._text()

    def __eq__(self, other: object) -> Any:
        return same(self, other)

    def __hash__(self) -> int:
        return _structural_hash(self)

    def map_children(self, f: Callable[[Node], Node]) -> Self:
        """Return a node whose child nodes are ``f(child)``; ``self`` when no child changed."""
        raise NotImplementedError  # `node` writes it for each class

    def children(self) -> list[Node]:
        """Child nodes in field order, those inside tuples included."""
        raise NotImplementedError  # `node` writes it for each class


def _map_tuple(values: tuple[object, ...], f: Callable[[Node], Node]) -> tuple[object, ...]:
    mapped = [f(v) if isinstance(v, Node) else v for v in values]
    for new, old in zip(mapped, values, strict=True):
        if new is not old:
            return tuple(mapped)
    return values


def _refuse(self: object, name: str, _value: object) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be assigned: nodes are immutable")


def same(a: Any, b: Any) -> bool:
    """Whether two nodes, or tuples of them, have the same structure. Constants of different dtypes
    differ, as do 0.0 and -0.0; NaN is the same as NaN."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):  # the numbers of a sampled tile are ints of a class of their own
        return isinstance(a, int) and isinstance(b, int) and a == b
    if kind is tuple:
        return len(a) == len(b) and all(map(same, a, b))
    if issubclass(kind, Node):
        if kind._unique or _structural_hash(a) != _structural_hash(b):
            return False
        return all(same(getattr(a, n), getattr(b, n)) for n in kind._fields)
    if kind is float:
        equal = a == b and math.copysign(1.0, a) == math.copysign(1.0, b)
        return equal or (math.isnan(a) and math.isnan(b))
    return isinstance(a, _COMPARED) and bool(a == b)


#: Classes of plain values in fields; other values, such as buffers and axes, are only themselves.
_COMPARED = (str, int, frozenset)


def _structural_hash(x: Any) -> int:
    if not isinstance(x, Node):
        if type(x) is tuple:
            return hash(tuple(map(_structural_hash, x)))
        return hash("nan" if isinstance(x, float) and math.isnan(x) else x)
    if x._unique:
        return object.__hash__(x)
    try:
        return x._hash
    except AttributeError:
        values = [getattr(x, n) for n in x._fields]
        parts = [v if type(v) is str else _structural_hash(v) for v in values]
        h = hash((type(x).__name__, *parts))
        object.__setattr__(x, "_hash", h)
        return h


class StructuralKey:
    """Dictionary key of a node, or a tuple of nodes, that compares by structure."""

    __slots__ = ("_hash", "node")

    def __init__(self, node: Any) -> None:
        self.node, self._hash = node, _structural_hash(node)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StructuralKey) and same(self.node, other.node)


def distinct(nodes: Iterable[_N]) -> list[_N]:
    """The first of the nodes, or tuples of them, of each structure, in order."""
    return [key.node for key in dict.fromkeys(map(StructuralKey, nodes))]


@dataclass_transform(frozen_default=True)
def node(cls: _C) -> _C:
    """Turn an annotated class into an immutable node class (see the module's docstring)."""
    fields = tuple(n for n in inspect.get_annotations(cls) if not n.startswith("_"))
    defaults = {n: cls.__dict__[n] for n in fields if n in cls.__dict__}
    body = {k: v for k, v in cls.__dict__.items() if k not in defaults}
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    body["__slots__"] = fields
    body["_fields"] = fields
    built = type(cls)(cls.__name__, cls.__bases__, body)
    built.__init__ = _make_init(built, fields, defaults)  # type: ignore[misc]
    built.map_children, built.children = _make_walks(built, fields)  # type: ignore[attr-defined]
    if __debug__:
        built.__setattr__ = _refuse  # type: ignore[method-assign, assignment]
    return built


def _make_init(cls: type, fields: tuple[str, ...], defaults: dict[str, Any]) -> Any:
    """Write ``__init__`` out as source: slot setters are bound by name, which halves its cost."""
    params = ", ".join(f"{n}=_d_{n}" if n in defaults else n for n in fields)
    lines = [f"  _s_{n}(self, {n})" for n in fields] or ["  pass"]
    scope: dict[str, Any] = {f"_s_{n}": getattr(cls, n).__set__ for n in fields}
    scope |= {f"_d_{n}": v for n, v in defaults.items()}
    exec(f"def __init__(self, {params}):\n" + "\n".join(lines), scope)
    return scope["__init__"]


def _make_walks(cls: type, fields: tuple[str, ...]) -> tuple[Any, Any]:
    """Write ``map_children`` and ``children`` out as source, since passes spend their time in them;
    fields of plain values are left out."""
    annotations = inspect.get_annotations(cls)
    inner = [n for n in fields if annotations.get(n) not in _PLAIN]
    mapped, collected = [], []
    for n in inner:
        mapped += [
            f"  {n} = self.{n}",
            f"  new_{n} = f({n}) if isinstance({n}, Node) else "
            f"_map_tuple({n}, f) if type({n}) is tuple else {n}",
        ]
        collected += [
            f"  {n} = self.{n}",
            f"  if isinstance({n}, Node): out.append({n})",
            f"  elif type({n}) is tuple: out.extend([v for v in {n} if isinstance(v, Node)])",
        ]
    same = " and ".join(f"new_{n} is {n}" for n in inner) or "True"
    values = ", ".join(f"new_{n}" if n in inner else f"self.{n}" for n in fields)
    lines = ["def map_children(self, f):", *mapped, f"  if {same}: return self"]
    lines += [
        f"  return cls({values})",
        "def children(self):",
        "  out = []",
        *collected,
        "  return out",
    ]
    scope: dict[str, Any] = {"Node": Node, "_map_tuple": _map_tuple, "cls": cls}
    exec("\n".join(lines), scope)
    return scope["map_children"], scope["children"]
