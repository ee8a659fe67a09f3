"""String commands, which treat values as bytes or as numbers."""

from . import lcs, numbers, values

__all__ = ["lcs", "numbers", "values"]
