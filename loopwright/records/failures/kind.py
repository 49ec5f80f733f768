"""The ways in which a trial can fail, by the names under which records keep them."""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    """Kinds of failures of a trial.

    A record holds the name as text; a newer version may know more.

    Example:
        >>> from loopwright.measure import ErrorKind
        >>> print(sorted(kind.value for kind in ErrorKind)[:3])
        ['BUILD_CRASH', 'BUILD_TIMEOUT', 'COMPILE']
    """

    #: The template or the schedule refused the configuration.
    INSTANTIATION = "INSTANTIATION"
    #: The compiler reported an error.
    COMPILE = "COMPILE"
    BUILD_TIMEOUT = "BUILD_TIMEOUT"
    #: The builder process died.
    BUILD_CRASH = "BUILD_CRASH"
    RUN_TIMEOUT = "RUN_TIMEOUT"
    #: The runner process died.
    RUN_CRASH = "RUN_CRASH"
    #: The builder or the kernel needs more memory than there is.
    MEMORY = "MEMORY"
    #: The kernel, or loading it, reported an error.
    RUN_ERROR = "RUN_ERROR"
    #: The outputs differ from the reference, or memory outside of the arguments was written.
    WRONG_ANSWER = "WRONG_ANSWER"


#: Failures of a kernel that had a time before: one in the playoff, or when it is measured again,
#: excludes it. Failures of a builder are no evidence against the kernel.
FAILED_AGAIN = frozenset(
    {
        ErrorKind.RUN_TIMEOUT,
        ErrorKind.RUN_CRASH,
        ErrorKind.MEMORY,
        ErrorKind.RUN_ERROR,
        ErrorKind.WRONG_ANSWER,
    }
)
