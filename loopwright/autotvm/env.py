"""``autotvm.env``: AutoTVM's global scope, which tells templates whether they are being tuned."""

from __future__ import annotations

import logging

from loopwright.errors import UsageError

__all__ = ["GLOBAL_SCOPE", "GlobalScope"]

_log = logging.getLogger("loopwright")


class GlobalScope:
    """AutoTVM's state of the whole process; `GLOBAL_SCOPE` is the only instance.

    Example:
        >>> from loopwright import autotvm
        >>> print(autotvm.GLOBAL_SCOPE.in_tuning, autotvm.GLOBAL_SCOPE.silent)
        False False
    """

    @property
    def in_tuning(self) -> bool:
        """False, in a tuning run too: the timed kernel is the one that is used later.

        AutoTVM's templates leave parts of a kernel out where it is True. Here the answer of such a
        kernel would differ from the right one, and its record could not be applied.
        """
        return False

    @in_tuning.setter
    def in_tuning(self, on: bool) -> None:
        if on:
            raise UsageError(
                "GLOBAL_SCOPE.in_tuning stays False: a kernel is timed as it is used later; leave "
                "the assignment out"
            )

    @property
    def silent(self) -> bool:
        """Whether warnings, such as those about default configurations, are left out."""
        return _log.level > logging.WARNING

    @silent.setter
    def silent(self, on: bool) -> None:
        _log.setLevel(logging.ERROR if on else logging.NOTSET)


#: AutoTVM's name: ``autotvm.GLOBAL_SCOPE.in_tuning``.
GLOBAL_SCOPE = GlobalScope()
