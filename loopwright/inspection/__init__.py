"""What a night of tuning tells: the work behind a time, and kernels made from records again.

Statistics that need the log alone are in `loopwright.records.reports`. Here stands what also needs
the tensor expression that the log holds, the compiler, or a measurement.
"""

from loopwright.inspection.work import Work, work_of, works_of

__all__ = ["Work", "work_of", "works_of"]
