"""Verbs that take a model in place of a workload: an ONNX file, or one that ``build`` wrote."""
