"""Compiled programs as bytes and a manifest, and the registry of their kinds."""
