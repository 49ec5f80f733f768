"""Which failures of a kernel are those of the driver that compiles it, and not of ours.

PoCL 3.1 fails in three ways: an assertion of its compiler ends the process, and so does a crash of
its optimiser, without which the same kernel is right; and its compiler does not end.
"""

from __future__ import annotations

from loopwright.errors import RunError
from loopwright.testing.guarded import ProcessKilledError, ProcessTimedOutError

#: As they are counted.
COMPILER_FAILED = "PoCL's compiler failed"
COMPILER_DID_NOT_END = "the driver did not end"
OPTIMISER_CRASHED = "the driver's optimiser crashed, right without it"
#: The environment of a process that compiles without optimiser: pyopencl adds these options, and
#: no binary is taken that was compiled with other ones.
UNOPTIMISED = {"PYOPENCL_BUILD_OPTIONS": "-cl-opt-disable", "LOOPWRIGHT_CACHE": "0"}


def is_pocl_assertion(error: Exception) -> bool:
    """Whether a process ended in an assertion of PoCL's compiler.

    PoCL 3.1 forms regions between barriers, and gives up on some programs whose barriers stand
    in loops beside conditions: `pocl::ParallelRegion::Verify`, "Incoming edges to non-entry block".
    """
    return "pocl::" in f"{error}" and "Assertion" in f"{error}"


def is_endless_compilation(error: Exception) -> bool:
    """Whether a kernel, which the interpreter has run to its end before, did not end.

    PoCL 3.1 copies what stands behind a barrier for each way that leads to it, so that the work
    doubles with each of some barriers in conditions: `pocl::BarrierTailReplication`.
    """
    return isinstance(error, ProcessTimedOutError)


def is_of_the_optimiser(error: Exception, without: str) -> bool:
    """Whether a failure is a crash of the driver's optimiser.

    An answer that is wrong with the optimiser alone may still be a mistake of the program: of a
    race, say, which the optimiser only brings to light.

    Args:
        error: how the kernel failed.
        without: what is wrong where the optimiser is off; empty: nothing.
    """
    return isinstance(error, ProcessKilledError) and not without


def with_second_run(error: RunError | AssertionError, without: str) -> RunError | AssertionError:
    """The failure as it was, whose first line says also what there is without the optimiser."""
    first, newline, rest = f"{error}".partition("\n")
    said = f"{first} (without the driver's optimiser: {without or 'right'})"
    return type(error)(said + newline + rest)
