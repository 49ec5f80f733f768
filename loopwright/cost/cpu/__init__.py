"""Analytical model of CPUs: effects of a schedule on caches, registers and units."""
