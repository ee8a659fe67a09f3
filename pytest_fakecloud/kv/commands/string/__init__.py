"""String commands, which treat values as bytes or as numbers."""

from . import numbers, values

__all__ = ["numbers", "values"]
