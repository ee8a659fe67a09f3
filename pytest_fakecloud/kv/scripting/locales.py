"""The locale of the thread that runs Lua, whose functions follow the locale of C.

An application can set a locale with a decimal comma, in which Lua's `tostring(1.5)` is "1,5". A real
server reads and writes numbers in the locale "C", wherever it runs.
"""

from __future__ import annotations

import ctypes
import locale
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@cache
def _c_library() -> tuple[Any, Any]:
    """Return the C function ``uselocale`` and the locale "C"; on Windows, which has neither, None."""
    try:
        library = ctypes.CDLL(None)
        new_locale, use_locale = library.newlocale, library.uselocale
    except (AttributeError, OSError, TypeError):
        return None, None
    new_locale.restype = use_locale.restype = ctypes.c_void_p
    new_locale.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]
    use_locale.argtypes = [ctypes.c_void_p]
    # Without a base, all categories that the mask does not name are those of the locale "C", too.
    return use_locale, new_locale(1 << locale.LC_NUMERIC, b"C", None)


@contextmanager
def c_locale() -> Iterator[None]:
    """Context manager in which the C functions that this thread calls use the locale "C"."""
    use_locale, c = _c_library()
    if use_locale is None:
        yield
        return
    before = use_locale(c)
    try:
        yield
    finally:
        use_locale(before)
