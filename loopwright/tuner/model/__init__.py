"""Learned cost models: boosted trees, losses, transfer from other shapes, explanations."""
