"""Whole models end to end: tuned and untuned, beside ONNX Runtime, PyTorch eager and compiled."""
