"""Cost of a candidate without running it: symbolic schedules, models of devices, features."""
