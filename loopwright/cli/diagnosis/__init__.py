"""Verbs that diagnose a machine or an error, and say how to mend it."""
