"""Packed functions: values that carry their type, functions of them, and the registry by name."""
