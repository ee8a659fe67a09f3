"""Commands for scripts and function libraries."""

from . import functions, scripts

__all__ = ["functions", "scripts"]
