"""The data of each fake before and after each row, from replaying the journal on fresh engines."""

from .replay import states

__all__ = ["states"]
