"""Tuning several tasks: choice of the next, limits of all and of each, the table."""
