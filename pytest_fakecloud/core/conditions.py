"""Conditions that a test can give instead of a plain value, and checks of such arguments.

A condition can be a function, a compiled pattern, an object that defines its own equality, or a
string with ``*`` for any characters (``\\*`` is a literal star).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, AnyStr

from .errors import ContractError, shown
from .wording import brief


def checked_count(name: str, value: object, least: int = 0) -> int | None:
    """Return an integer given by the test, or None; raise ``ContractError`` if it is invalid."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ContractError(
            f"{name}={brief(value)} is not a count: pass an integer of at least {least}"
        )
    return value


def check_function(value: object, kind: str) -> None:
    """Raise ``ContractError`` unless the object is a function that runs when it is called. ``kind``
    completes the phrase "pass one …" in the error message.
    """
    if not callable(value):
        raise ContractError(f"{shown(value)} is not a function: pass one {kind}")
    if is_lazy_function(value):
        raise ContractError(
            f"{shown(value)} must be awaited or iterated, which is not supported here: "
            f"pass a function {kind}"
        )


def check_returned(value: object) -> None:
    """Raise ``ContractError`` unless a check of a promise returned None or True.

    A check asserts. Any other value may be meant as a verdict, or belongs to a generator or a
    coroutine whose code has not run.
    """
    if value is None or value is True:
        return
    if has_not_run(value):
        raise ContractError(
            f"check returned {brief(value)}, whose code has not run: pass a function that asserts "
            "the promise when it is called or awaited, without yield"
        )
    raise ContractError(
        f"check returned {brief(value)}, which is neither None nor True: let it assert the promise, "
        "such as 'assert total == 2', and return nothing"
    )


def has_not_run(result: object) -> bool:
    """Return whether a result is a generator or must be awaited; close a coroutine."""
    is_generator = inspect.isgenerator(result) or inspect.isasyncgen(result)
    return is_generator or discard_awaitable(result)


def is_lazy_function(function: object) -> bool:
    """Return whether a call only creates a coroutine or a generator, without running its code."""
    called = getattr(type(function), "__call__", None)  # noqa: B004
    return any(
        inspect.iscoroutinefunction(each)
        or inspect.isgeneratorfunction(each)
        or inspect.isasyncgenfunction(each)
        for each in (function, called)
    )


def positional_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the parameters that positional arguments can fill; none if they are not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each for each in parameters if each.kind not in (each.KEYWORD_ONLY, each.VAR_KEYWORD)]


def discard_awaitable(result: object) -> bool:
    """Return whether a result must be awaited. Close a coroutine, to avoid a warning."""
    if inspect.iscoroutine(result):
        result.close()
    return inspect.isawaitable(result)


def is_pattern(wanted: object) -> bool:
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

    The ``__eq__`` of a ``Path`` or a dataclass returns NotImplemented for samples of other types.
    Arrays do not count, because their ``==`` compares element by element.
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


def pieces_of(text: str) -> tuple[str, ...]:
    """Return the literal pieces of a glob pattern, between its stars."""
    return tuple(piece.replace("\\*", "*") for piece in re.split(r"(?<!\\)\*", text))


@lru_cache(maxsize=256)
def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tests whether a string matches a glob pattern."""
    return pieces_matcher(pieces_of(pattern))


def pieces_matcher(pieces: Sequence[AnyStr]) -> Callable[[AnyStr], bool]:
    """Return a function that tests whether a string consists of these pieces in order, with
    anything between them. A regular expression with several stars could take exponential time.
    """
    if len(pieces) == 1:
        return pieces[0].__eq__
    head, tail = pieces[0], pieces[-1]
    middle = [piece for piece in pieces[1:-1] if piece]
    least = sum(map(len, pieces))

    def match(text: AnyStr) -> bool:
        if len(text) < least or not (text.startswith(head) and text.endswith(tail)):
            return False
        position, stop = len(head), len(text) - len(tail)
        for piece in middle:
            found = text.find(piece, position, stop)
            if found < 0:
                return False
            position = found + len(piece)
        return True

    return match
