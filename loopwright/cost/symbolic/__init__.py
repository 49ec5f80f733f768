"""Schedules whose factors are knobs not yet chosen, evaluated for whole populations."""
