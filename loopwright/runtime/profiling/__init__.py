"""Profiling: reports of functions and kernels, and a monitor of the whole process.

`profile` runs a function and returns a `Report`; `profile_function` does so at each call.
`PerformanceMonitor` watches all calls. A device with kernels of its own reports each launch
through `recorded`; a `MetricCollector` adds further counts.
"""

from loopwright.runtime.devices.interface import CopiedBytes, counted_copies
from loopwright.runtime.devices.launches import recorded
from loopwright.runtime.profiling.calls import MetricCollector, ResourceCollector, observe_calls_of
from loopwright.runtime.profiling.monitor import Metrics, PerformanceMonitor
from loopwright.runtime.profiling.profile import profile, profile_function
from loopwright.runtime.profiling.report import DeviceTotal, ProfiledCall, Report

__all__ = [
    "CopiedBytes", "DeviceTotal", "MetricCollector", "Metrics", "PerformanceMonitor",
    "ProfiledCall", "Report", "ResourceCollector", "counted_copies", "observe_calls_of", "profile",
    "profile_function", "recorded",
]  # fmt: skip
