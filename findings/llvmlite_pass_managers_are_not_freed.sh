#!/usr/bin/env bash
# llvmlite 0.50.0: closing a pass manager of the new kind frees nothing, and a module that was optimised leaves some 60 kB.
#
# `ModulePassManager` and `FunctionPassManager` inherit from `ObjectRef`, whose `_dispose` does nothing, before `NewPassManager`,
# whose `_dispose` calls LLVM: `close()`, and the end of the object, call the first. A process that compiles many modules grows,
# though every object in Python is gone. Called by its class, `NewPassManager._dispose(manager)` frees it.
# Output seen: "_dispose is that of ObjectRef", "grown by 57 kB a manager, 2 kB where NewPassManager._dispose is called".
# Source: llvmlite/binding/newpassmanagers.py of that version, and the run itself; resident memory is that of Linux.
# Exit status 1 when this is no longer so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check llvmlite==0.50.0
"$folder/venv/bin/python" - <<'PROGRAM'
import gc
import os
import sys

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import ModulePassManager, NewPassManager

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
TEXT = """
define double @f(double %x) {
  %y = fmul double %x, %x
  ret double %y
}
"""
MODULES = 400
machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
options = llvm.create_pipeline_tuning_options(speed_level=2)


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def optimise(dispose):
    module = llvm.parse_assembly(TEXT)
    builder = llvm.create_pass_builder(machine, options)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
    if dispose:
        NewPassManager._dispose(manager)
        manager.detach()
    manager.close()
    builder.close()
    module.close()


def growth(dispose):
    for _ in range(50):  # what is kept from the first modules on is not counted
        optimise(dispose)
    gc.collect()
    before = resident()
    for _ in range(MODULES):
        optimise(dispose)
    gc.collect()
    return (resident() - before) / MODULES / 1000


owner = next(c for c in ModulePassManager.__mro__ if "_dispose" in vars(c))
freed, closed = growth(True), growth(False)
print(f"_dispose is that of {owner.__name__}")
print(f"grown by {closed:.0f} kB a manager, {freed:.0f} kB where NewPassManager._dispose is called")
sys.exit(0 if owner.__name__ == "ObjectRef" and closed > 10 * max(freed, 1) else 1)
PROGRAM
