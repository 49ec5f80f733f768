"""What a candidate costs, without running it: symbolic schedules, a model of CPUs, features."""
