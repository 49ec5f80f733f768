"""Verbs of `loopwright records` that read a log, and how they print what they find."""
