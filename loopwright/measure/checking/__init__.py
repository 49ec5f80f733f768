"""Checks of answers: references, tolerance, and when a candidate is checked."""
