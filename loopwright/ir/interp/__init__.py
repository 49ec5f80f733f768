"""The interpreter, which defines what a program means."""
