"""Programs as files that stand alone: shared objects, static libraries, and those linked in."""
