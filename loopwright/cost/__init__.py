"""What a candidate costs, without running it: symbolic schedules, models of devices, features."""
