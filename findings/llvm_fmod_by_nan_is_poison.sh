#!/usr/bin/env bash
# LLVM 22.1.0 (llvmlite 0.50.0): fmod(double(x), NaN) of an integer x is optimised to poison, where libm gives NaN.
#
# A call of libm's fmod that is declared without effects, with a dividend that cannot be infinite (it was an integer) and a
# divisor that cannot be zero (it is NaN), becomes a remainder that "has no NaN", and is folded to `poison` from level 1 on:
# a kernel that stores it stores nothing at all, so that the output keeps what was in memory. Without the conversion from an
# integer the same call is folded to NaN, and at level 0 libm is called.
# Output seen: "level 0: 'ret double %r'", "level 1: 'ret double poison'", "of a constant: 'ret double 0x7FF8000000000000'".
# Source: the run itself; LLVM's language reference says when `nnan` makes poison.
# Exit status 1 when this is no longer so.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check llvmlite==0.50.0
"$folder/venv/bin/python" - <<'PROGRAM'
import sys

import llvmlite.binding as llvm

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
TEXT = """
declare double @fmod(double, double) #0
define double @f(i32 %x) {
  %d = DIVIDEND
  %r = call double @fmod(double %d, double 0x7FF8000000000000)
  ret double %r
}
attributes #0 = { nounwind willreturn memory(none) }
"""


def optimised(dividend, level):
    module = llvm.parse_assembly(TEXT.replace("DIVIDEND", dividend))
    machine = llvm.Target.from_default_triple().create_target_machine(opt=level)
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return next(line.strip() for line in str(module).splitlines() if "ret double" in line)


plain, folded = (optimised("sitofp i32 %x to double", level) for level in (0, 1))
constant = optimised("fadd double 7.0, 0.0", 1)
print(f"level 0: {plain!r}")
print(f"level 1: {folded!r}")
print(f"of a constant: {constant!r}")
as_seen = plain == "ret double %r" and folded == "ret double poison" and constant.endswith("0x7FF8000000000000")
sys.exit(0 if as_seen else 1)
PROGRAM
