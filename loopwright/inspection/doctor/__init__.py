"""Does tuning work on this machine, and how steady are its times? ``loopwright doctor`` asks it.

Each file holds what belongs to one theme: functions that read the system's files, or are given what
was read, and judge it. `examine` calls them all.
"""

from loopwright.inspection.doctor.examination import Diagnosis, examine
from loopwright.inspection.doctor.finding import Finding, State
from loopwright.inspection.doctor.system_files import SystemFiles

__all__ = ["Diagnosis", "Finding", "State", "SystemFiles", "examine"]
