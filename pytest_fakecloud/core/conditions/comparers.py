"""Patterns, functions and objects that define their own equality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any


def is_pattern(wanted: object) -> bool:
    """Return whether a value is a compiled regular expression."""
    # Check by attribute instead of by class, so that patterns of the ``regex`` library work too.
    return not isinstance(wanted, type) and isinstance(
        getattr(wanted, "pattern", None), str | bytes
    )


def is_text_pattern(wanted: Any) -> bool:
    """Return whether a value is a compiled regular expression for strings."""
    return is_pattern(wanted) and isinstance(wanted.pattern, str)


_PLAIN = (str, bytes, bytearray, int, float, Mapping, list, tuple, set, frozenset, datetime)
"""Types whose values compare equal only to values of the same kind."""


def defines_equality(wanted: object, samples: Iterable[object]) -> bool:
    """Return whether a value defines its own equality, as ``mock.ANY`` and dirty-equals do.

    Its ``__eq__`` is called with a sample of each type that the field can have. A ``Path`` or a
    dataclass also has an ``__eq__``, but it returns NotImplemented for these samples. Arrays do not
    count, because their ``==`` compares element by element.
    """
    if hasattr(type(wanted), "__array__"):
        return False
    if isinstance(wanted, _PLAIN) or type(wanted).__eq__ in (object.__eq__, type.__eq__):
        return False
    # For a class use its metaclass's __eq__, as == does.
    equals = partial(type(wanted).__eq__, wanted) if isinstance(wanted, type) else wanted.__eq__
    for sample in samples:
        try:
            if equals(sample) is not NotImplemented:
                return True
        except Exception:  # an __eq__ that inspects its argument defines its own equality
            return True
    return False


def is_predicate(wanted: object, samples: Iterable[object]) -> bool:
    """Return whether a value is a function to be called with the field's values."""
    return callable(wanted) and not is_pattern(wanted) and not defines_equality(wanted, samples)
