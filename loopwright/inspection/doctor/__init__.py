"""Checks whether tuning works on this machine and how steady its times are, for ``loopwright
doctor``.

Each file has one theme: functions that read the system's files, or take their contents, and judge
them. `examine` calls them all.
"""

from loopwright.inspection.doctor.examination import Diagnosis, examine
from loopwright.inspection.doctor.finding import Finding, State, SystemFiles

__all__ = ["Diagnosis", "Finding", "State", "SystemFiles", "examine"]
