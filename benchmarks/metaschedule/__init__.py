"""Automatic spaces beside MetaSchedule: ``python -m benchmarks.metaschedule --tvm PYTHON``."""
