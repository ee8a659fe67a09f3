"""String commands: values as bytes and as numbers."""

from . import numbers, values

__all__ = ["numbers", "values"]
