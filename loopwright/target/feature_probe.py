"""Features of a CPU by LLVM's definition: asked by inlining, since LLVM has no list to ask.

LLVM inlines a function only where the caller's CPU has every feature of the callee. So a small
function for each feature is called from one of the CPU in question, and the inlined ones tell the
features, as the LLVM that makes the code knows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Features of x86 that change the code of loops; others need intrinsics that are never emitted.
NAMED_IN_RECORDS = re.compile(r"s?sse|avx|fma|f16c|bmi|lzcnt|popcnt|movbe|cmov|xop")
#: Features that LLVM uses in loops by itself as well. The string of the host, which stands in every
#: record, names them only where the machine lacks what CPUs of its name have.
UNNAMED = ("gfni", "tbm", "egpr", "ndd", "ccmp", "nf", "cf", "zu", "ppx", "push2pop2")


def changes_code(feature: str) -> bool:
    """Whether code for loops may use a feature of x86 CPUs."""
    return feature in UNNAMED or NAMED_IN_RECORDS.match(feature) is not None


def features_among(names: Iterable[str], cpu: str, features: str) -> frozenset[str]:
    """The features among some names that an x86 CPU has; LLVM must know the names and the CPU: one
    that it does not know ends the process. ``features`` are switched on and off beside it."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    asked = tuple(names)
    machine = llvm.Target.from_default_triple().create_target_machine(cpu="generic")
    module = llvm.parse_assembly(_text(asked, cpu, features))
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return frozenset(
        name
        for k, name in enumerate(asked)
        if " call " not in str(module.get_function(f"caller{k}"))
    )


def _text(names: tuple[str, ...], cpu: str, features: str) -> str:
    """A module with a callee for each feature, and callers of the CPU."""
    lines = [f'attributes #0 = {{ "target-cpu"="{cpu}" "target-features"="{features}" }}']
    for k, name in enumerate(names, 1):
        lines.append(
            f"define internal void @needs{k - 1}(ptr %p) #{k} {{\n"
            f" store volatile i32 {k}, ptr %p\n ret void\n}}\n"
            f"define void @caller{k - 1}(ptr %p) #0 {{\n"
            f" call void @needs{k - 1}(ptr %p)\n ret void\n}}\n"
            f'attributes #{k} = {{ "target-cpu"="generic" "target-features"="+{name}" }}'
        )
    return "\n".join(lines)
