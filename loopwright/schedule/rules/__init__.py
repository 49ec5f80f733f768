"""The primitives by topic: the structural rules of each, and its effect on the state."""
