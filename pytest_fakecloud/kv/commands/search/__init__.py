"""Search: indexes, their other names, and what is asked of them."""

from . import bindings

__all__ = ["bindings"]
