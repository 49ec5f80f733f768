"""Tuning several tasks: who gets the next round, limits of all and of each, the table."""
