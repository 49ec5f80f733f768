"""Verbs of `loopwright records` that read a log, and the output of their results."""
