"""Random programs and schedules, and the comparison of every execution path with NumPy."""
