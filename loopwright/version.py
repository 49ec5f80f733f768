"""The version of the package, named nowhere else."""

__version__ = "0.1.0"
