"""Faces of rooms: names that are imported at their first use."""

from __future__ import annotations

import ast
import pkgutil
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from loopwright.errors import no_such_name


def lazy_names(
    package: str, instead: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose block ``if TYPE_CHECKING:`` imports names.

    The block is the only list of them, for type checkers and here. ``instead`` has remedies for
    names that the package lacks.
    """

    def load(name: str) -> Any:
        module = _typing_imports(package).get(name)
        if module is None:
            raise no_such_name(package, name, instead or {})
        if module == package:
            return import_module(f"{package}.{name}")
        # Not kept in the package: where a test replaces a name, its module alone has it.
        return getattr(import_module(module), name)

    return load, lambda: sorted({*vars(sys.modules[package]), *_typing_imports(package)})


@cache
def _typing_imports(package: str) -> dict[str, str]:
    """Modules of the names that a package imports for type checkers."""
    try:
        source = pkgutil.get_data(package, "__init__.py")
    except OSError:
        source = None
    if source is None:
        raise ImportError(f"{package} reads its names in its __init__.py; install the sources, too")
    blocks = (
        node.body
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imports = (node for body in blocks for node in body if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}
