"""Packed functions: values that say their type, functions of them, and the registry by name."""
