"""Failures of a kernel that are faults of the driver that compiles it.

PoCL 3.1 fails in three ways: an assertion of its compiler ends the process; its optimiser crashes,
without which the same kernel is right; and its compiler does not end.
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
    """Whether a process ended in an assertion of PoCL's compiler, `pocl::ParallelRegion::Verify`,
    which PoCL 3.1 raises for some barriers in loops beside conditions.
    """
    return "pocl::" in f"{error}" and "Assertion" in f"{error}"


def is_endless_compilation(error: Exception) -> bool:
    """Whether a kernel that the interpreter has run to its end did not end: in PoCL 3.1 each
    barrier in a condition doubles the work of `pocl::BarrierTailReplication`.
    """
    return isinstance(error, ProcessTimedOutError)


def is_of_the_optimiser(error: Exception, without: str) -> bool:
    """Whether a failure is a crash of the driver's optimiser, from the error ``without`` it, empty
    if none.

    A wrong answer with the optimiser alone may still be a mistake of the program, such as a race.
    """
    return isinstance(error, ProcessKilledError) and not without


def with_second_run(error: RunError | AssertionError, without: str) -> RunError | AssertionError:
    """The failure, whose first line also has the outcome without the optimiser."""
    first, newline, rest = f"{error}".partition("\n")
    said = f"{first} (without the driver's optimiser: {without or 'right'})"
    return type(error)(said + newline + rest)
