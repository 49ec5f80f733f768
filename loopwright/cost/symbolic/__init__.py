"""Schedules whose factors are unchosen knobs, evaluated for whole populations."""
