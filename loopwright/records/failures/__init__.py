"""The ways in which a trial can fail: their names, causes, and what to do."""
