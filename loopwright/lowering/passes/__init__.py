"""The passes that run on a lowered function, each in a file of its own."""
