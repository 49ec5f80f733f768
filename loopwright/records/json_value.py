"""The name for values that come from, or go to, JSON."""

from __future__ import annotations

from typing import Any, TypeAlias

#: None, bool, int, float or str, a list or tuple of such, or a dictionary of them by name. mypy
#: cannot follow such a type through a program that looks into its values, so it is not spelled out.
Json: TypeAlias = Any
