"""What runs in processes of its own, perhaps by an interpreter that has no loopwright."""
