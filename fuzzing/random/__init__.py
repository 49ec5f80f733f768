"""Random programs, schedules and kernels for property tests and the fuzz."""
