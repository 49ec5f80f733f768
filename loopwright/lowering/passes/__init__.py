"""The passes that run on a lowered function, one a file."""
