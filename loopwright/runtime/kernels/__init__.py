"""Calls of compiled functions from Python, as fast as those of functions written in C."""
