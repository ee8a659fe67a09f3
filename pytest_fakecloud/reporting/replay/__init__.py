"""The data of each fake before and after each row, from replaying the journal on fresh engines."""

from .replay import record_times, states

__all__ = ["record_times", "states"]
