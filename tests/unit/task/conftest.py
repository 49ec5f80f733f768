from __future__ import annotations

from tests.unit.task.fakes import default_target, fakes, registry, state, tile

__all__ = ["default_target", "fakes", "registry", "state", "tile"]
