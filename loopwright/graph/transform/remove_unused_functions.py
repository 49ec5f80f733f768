"""RemoveUnusedFunctions: removes functions that ``main`` does not call, directly or indirectly."""

from __future__ import annotations

from loopwright.graph.ir.module import MAIN, IRModule
from loopwright.graph.ir.visitor import globals_of
from loopwright.graph.transform.module_pass import module_pass


@module_pass(opt_level=1, name="RemoveUnusedFunctions")
def remove_unused_functions(module: IRModule) -> IRModule:
    """Keep ``main`` and what it needs; a module without ``main`` keeps all."""
    if MAIN not in module.functions:
        return module
    needed, waiting = {MAIN}, [MAIN]
    while waiting:
        called = set(globals_of(module[waiting.pop()])) - needed
        needed |= called
        waiting += sorted(called)
    kept = {n: f for n, f in module.functions.items() if n in needed}
    return module if len(kept) == len(module.functions) else IRModule(kept)
