"""Modules of other systems' names, from tables; the targets are imported on first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from loopwright.errors import no_such_name


class Table(NamedTuple):
    doc: str
    #: Names by the modules that have them: ``"Target"``; ``"create=create_task"`` where the name
    #: there is another one; ``"callback="`` for the module itself.
    names: Mapping[str, str]
    #: Names of the system that loopwright lacks, each with its replacement.
    instead: Mapping[str, str] = {}
    script: bool = False  # whether ``python -m`` of it runs `loopwright.compat.__main__`


class Facade(ModuleType):
    """A module whose names are looked up in a `Table`."""

    _targets: dict[str, tuple[str, str]]
    _instead: Mapping[str, str]

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or name not in self._targets:
            raise no_such_name(self.__name__, name, self._instead)
        module, attribute = self._targets[name]
        source = importlib.import_module(module)
        value = getattr(source, attribute) if attribute else source
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *self._targets})


def install(home: str, tables: Mapping[str, Table]) -> None:
    """Make the modules of a system; ``home`` is its file, whose table has the empty name."""
    for path, table in tables.items():
        name = f"{home}.{path}" if path else home
        module = sys.modules[name] if not path else ModuleType(name, table.doc)
        targets: dict[str, tuple[str, str]] = {}
        for source, names in table.names.items():
            for entry in names.split():
                alias, renamed, attribute = entry.partition("=")
                targets[alias] = (source, attribute if renamed else alias)
        inside = [p.rpartition(".")[2] for p in tables if p and p.rpartition(".")[0] == path]
        vars(module).update(
            _targets=targets, _instead=table.instead, __all__=sorted({*targets, *inside})
        )
        module.__class__ = Facade
        if not path:
            continue
        module.__spec__ = ModuleSpec(name, None, is_package=table.script)
        if table.script:
            folder = str(Path(__file__).parent)
            module.__spec__.submodule_search_locations = module.__path__ = [folder]
        sys.modules[name] = module
        parent, _, leaf = name.rpartition(".")
        setattr(sys.modules[parent], leaf, module)
