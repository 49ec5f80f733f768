"""Calls of compiled functions from Python, as quick as those of functions written in C."""
