"""Layouts of convolutions and pools: calls in a layout, the places of a choice, and the solver."""
