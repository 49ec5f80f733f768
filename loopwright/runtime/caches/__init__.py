"""Caches: values in memory up to a limit of bytes, and compiled code on disk by content."""
