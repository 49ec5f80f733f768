"""Kernels that compute B = A + 1, or look as if they did: all of them run well when they are timed.

`kernels` has those that fail at once.
"""

from __future__ import annotations

import struct

from tests.unit.measure import kernels
from tests.unit.measure.kernels import N, text

_COUNTED = "@calls = internal global i32 0\n"
#: Seconds that the work of some kernels takes at least.
WORK_S = 1e-3
_WORK = "  %w0 = call i32 @usleep(i32 1000)"


def _unless(condition: str, *, code: int = 0, otherwise: str = "", work: str = "") -> str:
    """The right kernel after some statements, which define ``%skip``: then it ends at once."""
    return text(
        f"""{condition}
  br i1 %skip, label %instead, label %work
instead:
{otherwise}
  ret i32 {code}
work:
{work}""",
        origin="%work",
    )


_FIRST_OF_B = "  %b0 = load volatile float, ptr %b"
_FIRST_OF_A = "  %a0 = load volatile float, ptr %a"


def other_inputs(first: float) -> str:
    """Defines ``%skip``: the first input is not this one."""
    return f"{_FIRST_OF_A}\n  %skip = fcmp one float %a0, {kernel_float(first)}"


def kernel_float(x: float) -> str:
    """A float32 as LLVM writes it: the bits of the equal double."""
    return "0x" + struct.pack(">d", x).hex().upper()


READS_BEFORE = text(
    "  %before = getelementptr float, ptr %a, i64 -1\n  %x0 = load volatile float, ptr %before"
)
READS_BEHIND = text(
    f"  %behind = getelementptr float, ptr %a, i64 {N}\n  %x0 = load volatile float, ptr %behind"
)
WORKS_ONCE = _COUNTED + (
    _unless(
        "  %n = load i32, ptr @calls\n  %n1 = add i32 %n, 1\n  store i32 %n1, ptr @calls\n"
        "  %skip = icmp ne i32 %n, 0"
    )
)
EVERY_OTHER_CALL = _COUNTED + (
    _unless(
        "  %n = load i32, ptr @calls\n  %n1 = add i32 %n, 1\n  store i32 %n1, ptr @calls\n"
        "  %odd = and i32 %n, 1\n  %skip = icmp ne i32 %odd, 0"
    )
)
WORKS_ON_NAN = _unless(f"{_FIRST_OF_B}\n  %skip = fcmp ord float %b0, %b0")
#: Does all of its work unless the first element is what it should be.
PROBES = _unless(
    f"{_FIRST_OF_B}\n{_FIRST_OF_A}\n  %want = fadd float %a0, 1.0\n"
    "  %skip = fcmp oeq float %b0, %want",
    work=_WORK,
)
#: Looks at all elements first: right, but its time in a loop is that of looking.
PROBES_ALL = text(
    f"""  br label %look
look:
  %j = phi i64 [ 0, %start ], [ %j1, %same ]
  %aj = getelementptr float, ptr %a, i64 %j
  %bj = getelementptr float, ptr %b, i64 %j
  %xa = load volatile float, ptr %aj
  %xb = load volatile float, ptr %bj
  %want = fadd float %xa, 1.0
  %equal = fcmp oeq float %xb, %want
  br i1 %equal, label %same, label %work
same:
  %j1 = add i64 %j, 1
  %further = icmp slt i64 %j1, {N}
  br i1 %further, label %look, label %seen
seen:
  ret i32 0
work:
{_WORK}""",
    origin="%work",
)
ACCUMULATES = text().replace(
    "  store float %y, ptr %bi",
    "  %old = load float, ptr %bi\n  %fresh = fcmp uno float %old, %old\n"
    "  %from = select i1 %fresh, float 0.0, float %old\n  %sum = fadd float %from, %y\n"
    "  store float %sum, ptr %bi",
)
#: Wrong by less than what rounding may do to random data.
NEARLY = text(add=kernel_float(1 + 2**-19))
READS_WORKSPACE = text(
    "  %w = load volatile float, ptr %workspace\n  %zero = fcmp oeq float %w, 0.0\n"
    "  %add = select i1 %zero, float 1.0, float 2.0"
).replace("fadd float %x, 1.0", "fadd float %x, %add")
BEHIND_WORKSPACE = text(
    "  %behind = getelementptr i8, ptr %workspace, i64 256\n"
    "  %x0 = load volatile i8, ptr %behind\n  store volatile i8 %x0, ptr %behind"
)


def right_for(first: float) -> str:
    """Leaves its outputs alone where its first input is not this one."""
    return _unless(other_inputs(first))


def returns_7_for_others(first: float) -> str:
    return _unless(other_inputs(first), code=7)


def exits_for_others(first: float) -> str:
    return _unless(other_inputs(first), otherwise="  call void @exit(i32 3)")


def hangs_for_others(first: float) -> str:
    spin = "  br label %spin\nspin:\n  %s = call i32 @usleep(i32 1000)\n  br label %spin\nnever:"
    return _unless(other_inputs(first), otherwise=spin)


RIGHT = kernels.GOOD
