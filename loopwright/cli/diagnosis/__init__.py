"""Verbs that say what is wrong, and what to do about it."""
