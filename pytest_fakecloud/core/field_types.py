"""Types of fields: which values and conditions a test may give for a field, and how they compare.

A condition can be a function, a compiled pattern, an object that defines its own equality, or a
string with ``*`` for any characters (``\\*`` is a literal star).
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from math import isfinite
from numbers import Real
from typing import Any, AnyStr
from urllib.parse import urlsplit

from .errors import ContractError, brief, differences, same_json, shown, unknown_name
from .timers import instant_us, to_datetime


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
        inspect.iscoroutinefunction(candidate)
        or inspect.isgeneratorfunction(candidate)
        or inspect.isasyncgenfunction(candidate)
        for candidate in (function, called)
    )


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """Return the signature of a user's function, whose annotations may name types that only type
    checkers import. Raises the errors of ``inspect.signature()``.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def positional_parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Return the parameters that positional arguments can fill; none if they are not known."""
    try:
        parameters = signature_of(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        parameter
        for parameter in parameters
        if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
    ]


def discard_awaitable(result: object) -> bool:
    """Return whether a result must be awaited. Close a coroutine, to avoid a warning."""
    if inspect.iscoroutine(result):
        result.close()
    return inspect.isawaitable(result)


def is_pattern(value: object) -> bool:
    # Check by attribute instead of by class, so that patterns of the ``regex`` library work too.
    return not isinstance(value, type) and isinstance(getattr(value, "pattern", None), str | bytes)


def is_text_pattern(value: Any) -> bool:
    """Return whether a value is a compiled regular expression for strings."""
    return is_pattern(value) and isinstance(value.pattern, str)


_PLAIN = (str, bytes, bytearray, int, float, Mapping, list, tuple, set, frozenset, datetime)
"""Types whose values compare equal only to values of the same kind."""


def defines_equality(expected: object, samples: Iterable[object]) -> bool:
    """Return whether a value defines its own equality, as ``mock.ANY`` and dirty-equals do.

    The ``__eq__`` of a ``Path`` or a dataclass returns NotImplemented for samples of other types.
    Arrays do not count, because their ``==`` compares element by element.
    """
    if hasattr(type(expected), "__array__"):
        return False
    if isinstance(expected, _PLAIN) or type(expected).__eq__ in (object.__eq__, type.__eq__):
        return False
    # For a class use its metaclass's __eq__, as == does.
    equals = (
        partial(type(expected).__eq__, expected) if isinstance(expected, type) else expected.__eq__
    )
    for sample in samples:
        try:
            if equals(sample) is not NotImplemented:
                return True
        except Exception:  # an __eq__ that inspects its argument defines its own equality
            return True
    return False


def is_predicate(expected: object, samples: Iterable[object]) -> bool:
    """Return whether a value is a function to be called with the field's values."""
    return (
        callable(expected) and not is_pattern(expected) and not defines_equality(expected, samples)
    )


def pieces_of(text: str) -> tuple[str, ...]:
    """Return the literal pieces of a glob pattern, between its stars."""
    return tuple(piece.replace("\\*", "*") for piece in re.split(r"(?<!\\)\*", text))


@lru_cache(maxsize=256)
def glob_matcher(pattern: str) -> Callable[[str], bool]:
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
            index = text.find(piece, position, stop)
            if index < 0:
                return False
            position = index + len(piece)
        return True

    return match


class Absent:
    """The value of a field that an item does not have. Messages show ``why`` instead of a value."""

    def __init__(self, why: str = "absent") -> None:
        self.why = why

    def __repr__(self) -> str:
        return self.why


ABSENT: Any = Absent()
"""The value of a field that an item does not have."""
_MOST_DIFFERENCES = 3
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "RESP")
"""HTTP methods, and RESP for commands received over the Redis protocol."""


class FieldType:
    """A type of field: checks the value that a test gives and compares the field's values with it.

    ``expected`` describes valid values in error messages. Most subclasses override only
    ``accepts()`` and ``equals()``; ``check()`` calls the first, ``Question`` all others.
    """

    expected = "a value"
    compares_items = False
    """Whether a value also matches if it is a list of which an item matches."""
    identifies = False
    """Whether its values say which thing is meant (URL, key, id), and not in which state it is."""
    samples: tuple[object, ...] = ("", 0, b"", True, None, [], {})
    """An example value of each type that the field can have."""
    types: tuple[type, ...] = (object,)
    """The types of the values that ``accepts()`` allows."""

    def accepts(self, expected: Any) -> bool:
        """Return whether a value could match the wanted one, which is not a function."""
        return isinstance(expected, self.types)

    def check(self, name: str, expected: Any) -> None:
        """Raise ``ContractError`` for an argument that no value of the field could match."""
        if is_predicate(expected, self.samples):
            if is_lazy_function(expected):
                raise ContractError(
                    f"{name}={brief(expected)} must be awaited or iterated, so it would match "
                    "everything: pass a plain function"
                )
        elif not (
            expected is None or self.accepts(expected) or defines_equality(expected, self.samples)
        ):
            raise ContractError(
                f"{name}={brief(expected)} can never match: pass {self.expected}, or a function"
            )

    def matches_pattern(self, actual: Any, pattern: Any) -> bool:
        return isinstance(actual, type(pattern.pattern)) and bool(pattern.search(actual))

    def equals(self, actual: Any, expected: Any) -> bool:
        if isinstance(expected, str) and isinstance(actual, str) and "*" in expected:
            return actual == expected or glob_matcher(expected)(actual)
        return bool(actual == expected)

    def equals_unaccepted(self, actual: Any, expected: Any) -> bool:
        """Compare a value with one that ``accepts()`` rejects: None, or a comparer such as ``ANY``."""
        return bool(actual == expected)

    def check_not_cut(self, actual: Any, expected: Any) -> None:
        """Raise ``CannotTell`` for a value that may differ only because the journal has cut it."""

    def differs(self, name: str, actual: Any, expected: Any) -> str:
        """Describe how a value differs from the expected one."""
        if isinstance(actual, str) and isinstance(expected, str) and "*" not in expected:
            return next(differences(actual, expected, name))
        return f"{name} is {brief(actual)}, not {brief(expected)}"


TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
"""The regular expression of a token of HTTP, such as the name of a header."""


class Text(FieldType):
    """A string, which a string with ``*`` or a pattern may also match."""

    expected = "a string (* matches anything), a pattern"
    identifies = True
    samples: tuple[object, ...] = ("",)

    def accepts(self, expected: Any) -> bool:
        return isinstance(expected, str) or is_text_pattern(expected)


class OneOf(Text):
    """A string from a fixed list. ``what`` describes it in errors; ``fold`` ignores case."""

    identifies = False

    def __init__(self, what: str, words: Iterable[str], *, fold: bool = False) -> None:
        self.words = tuple(words)
        self.fold = fold
        self.what = what
        self.expected = f"one of {', '.join(self.words[:20])}"

    def check(self, name: str, expected: Any) -> None:
        super().check(name, expected)
        matches = self.matches_pattern if is_pattern(expected) else self.equals
        checked = isinstance(expected, str) or is_pattern(expected)
        if checked and not any(matches(word, expected) for word in self.words):
            raise ContractError(unknown_name(self.what, expected, self.words, name))

    def equals(self, actual: Any, expected: Any) -> bool:
        if self.fold and isinstance(actual, str) and isinstance(expected, str):
            return super().equals(actual.lower(), expected.lower())
        return super().equals(actual, expected)


class Shaped(Text):
    """A string of a known form.

    ``what`` is its name with an article and ``example`` a valid string, both for error messages.
    ``begins`` are the allowed prefixes, whose case ``fold`` ignores, ``never`` is a regular
    expression that the string never contains, ``fits`` returns whether a whole string is valid. Of
    a string with ``*``, only the literal pieces are checked.
    """

    def __init__(
        self,
        what: str,
        example: str,
        *,
        begins: Iterable[str] = (),
        never: str | None = None,
        fits: Callable[[str], bool] | None = None,
        fold: bool = False,
    ) -> None:
        self.what = what
        self._fold = fold
        self.expected = f"{what} such as {example!r} (* matches anything), a pattern"
        self.begins = tuple(begins)
        self._never = never
        self._fits = fits

    def check(self, name: str, expected: Any) -> None:
        super().check(name, expected)
        if isinstance(expected, str) and (why := self._why_impossible(expected)) is not None:
            raise ContractError(
                f"{name}={brief(expected)} can never match: {why}. "
                f"Pass {self.expected}, or a function"
            )

    def _why_impossible(self, expected: str) -> str | None:
        pieces = pieces_of(expected)
        first, whole = pieces[0], len(pieces) == 1
        start = first.lower() if self._fold else first
        if self.begins and not any(
            start.startswith(begin) or (not whole and begin.startswith(start))
            for begin in self.begins
        ):
            return f"{self.what} begins with {' or '.join(map(repr, self.begins))}"
        if self._never is not None:
            for piece in pieces:
                if match := re.search(self._never, piece):
                    return f"{self.what} does not contain {match[0]!r}"
        if whole and self._fits is not None and not self._fits(first):
            return f"it is not {self.what}"
        return None


class _Method(Text):
    """An HTTP method. Any token is accepted as a method, but known methods must be in upper case."""

    identifies = False

    def check(self, name: str, expected: Any) -> None:
        super().check(name, expected)
        if isinstance(expected, str) and not re.fullmatch(TOKEN, expected):
            raise ContractError(
                f"{name}={brief(expected)} is not an HTTP method: pass one such as 'POST', or a pattern"
            )
        if isinstance(expected, str) and expected not in _METHODS and expected.upper() in _METHODS:
            raise ContractError(
                f"{name}={expected!r} is not an HTTP method: methods have capital letters, "
                f"pass {expected.upper()!r}"
            )


class _Either(FieldType):
    """A field that several services have, each with its own type of value."""

    def __init__(self, field_types: Iterable[FieldType]) -> None:
        self._types = tuple(field_types)
        self.expected = "; or ".join(
            dict.fromkeys(field_type.expected for field_type in self._types)
        )
        self.samples = tuple(sample for field_type in self._types for sample in field_type.samples)
        self.identifies = any(field_type.identifies for field_type in self._types)

    def check(self, name: str, expected: Any) -> None:
        errors = []
        for field_type in self._types:
            try:
                field_type.check(name, expected)
                return
            except ContractError as error:
                errors.append(error)
        raise errors[0]

    def accepts(self, expected: Any) -> bool:
        return any(field_type.accepts(expected) for field_type in self._types)

    def matches_pattern(self, actual: Any, pattern: Any) -> bool:
        return any(field_type.matches_pattern(actual, pattern) for field_type in self._types)

    def equals(self, actual: Any, expected: Any) -> bool:
        return any(
            field_type.equals(actual, expected)
            if field_type.accepts(expected)
            else actual == expected
            for field_type in self._types
        )


class _Number(FieldType):
    expected = "a number"
    samples: tuple[object, ...] = (0, 0.0)

    def accepts(self, expected: Any) -> bool:
        # Also accept the number types of other libraries.
        return isinstance(expected, Real) and not isinstance(expected, bool)


class WholeNumber(_Number):
    """An integer within bounds, both included."""

    def __init__(self, minimum: int, maximum: int | None = None) -> None:
        self.minimum, self.maximum = minimum, maximum
        above = "" if maximum is None else f" to {maximum}"
        self.expected = f"a whole number from {minimum}{above or ' up'}"

    def accepts(self, expected: Any) -> bool:
        return (
            super().accepts(expected)
            and expected == expected // 1
            and self.minimum <= expected
            and (self.maximum is None or expected <= self.maximum)
        )


class _Flag(FieldType):
    expected = "True, False"
    samples = (True,)
    types = (bool,)


class _Bytes(FieldType):
    """Bytes. A string or string pattern is compared with the UTF-8 text they contain."""

    expected = "bytes, a string (* matches anything), a pattern"
    samples: tuple[object, ...] = (b"",)

    def accepts(self, expected: Any) -> bool:
        return isinstance(expected, bytes | bytearray | str) or is_pattern(expected)

    def matches_pattern(self, actual: Any, pattern: Any) -> bool:
        if isinstance(actual, bytes) and isinstance(pattern.pattern, str):
            actual = actual.decode("utf-8", "replace")
        return super().matches_pattern(actual, pattern)

    def equals(self, actual: Any, expected: Any) -> bool:
        if not isinstance(expected, str):
            return bool(actual == expected)
        if actual == expected.encode("utf-8", "surrogatepass"):
            return True
        return "*" in expected and super().equals(
            bytes(actual).decode("utf-8", "replace"), expected
        )


class _Json(FieldType):
    """A JSON value. Tuples compare equal to the lists that JSON makes of them."""

    expected = "a JSON value (dict with string keys, list, string, number, True, False, None)"
    samples: tuple[object, ...] = ({}, [], "", 0, True, None)

    def accepts(self, expected: Any) -> bool:
        return is_text_pattern(expected) or _is_json(expected)

    def equals(self, actual: Any, expected: Any) -> bool:
        if isinstance(expected, str):
            return super().equals(actual, expected)
        return same_json(actual, _as_json(expected))

    def differs(self, name: str, actual: Any, expected: Any) -> str:
        lines = list(differences(actual, _as_json(expected), name))
        more = len(lines) - _MOST_DIFFERENCES
        shown = "; ".join(lines[:_MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
        return shown or super().differs(name, actual, expected)


class _Document(_Json):
    """A string that may contain JSON.

    Strings and patterns are compared with the string, other values with the parsed JSON. A comparer
    such as ``ANY`` is compared with the string if it is not JSON.
    """

    def equals(self, actual: Any, expected: Any) -> bool:
        if isinstance(expected, str):
            return FieldType.equals(self, actual, expected)
        parsed = _parsed(actual)
        if parsed is ABSENT:
            return (expected is None or _is_comparer(expected)) and bool(actual == expected)
        return super().equals(parsed, expected)

    def differs(self, name: str, actual: Any, expected: Any) -> str:
        if isinstance(expected, str):
            return FieldType.differs(self, name, actual, expected)
        parsed = _parsed(actual)
        if parsed is ABSENT:
            return f"{name} {brief(actual)} is not JSON, expected {brief(expected)}"
        return super().differs(name, parsed, expected)


class _Mapping(_Json):
    expected = "a dict of JSON values with string keys"
    samples: tuple[object, ...] = ({},)

    def accepts(self, expected: Any) -> bool:
        return isinstance(expected, Mapping) and _is_json(expected)

    def equals(self, actual: Any, expected: Any) -> bool:
        return same_json(_as_json(actual), _as_json(expected))


class _Instant(FieldType):
    expected = "a time (an aware datetime, an ISO string with an offset)"
    samples: tuple[object, ...] = (datetime(2000, 1, 1, tzinfo=UTC),)

    def check(self, name: str, expected: Any) -> None:
        if isinstance(expected, str | datetime):
            instant_us(expected)  # raises the most helpful error for a string that cannot be parsed
        else:
            super().check(name, expected)

    def accepts(self, expected: Any) -> bool:
        if not isinstance(expected, str | datetime):
            return False
        try:
            instant_us(expected)
        except ContractError:
            return False
        return True

    def equals(self, actual: Any, expected: Any) -> bool:
        return bool(actual == to_datetime(instant_us(expected)))


class _Anything(FieldType):
    compares_items = True


ANYTHING = _Anything()
ITEM = FieldType()
"""Like ``ANYTHING``, but a list is only compared as a whole, not item by item."""
TEXT, NUMBER, FLAG, BYTES, JSON = Text(), _Number(), _Flag(), _Bytes(), _Json()
DOCUMENT, MAPPING, INSTANT = _Document(), _Mapping(), _Instant()
METHOD = _Method()
OF_CLASS: Mapping[type, FieldType] = {
    str: TEXT, int: NUMBER, float: NUMBER, bool: FLAG, bytes: BYTES, datetime: INSTANT,
}  # fmt: skip


def is_url(text: str) -> bool:
    """Return whether a string is an absolute URL with a host and, if any, a valid port."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises ValueError for an invalid port
    except ValueError:
        return False
    return bool(parts.hostname)


_WEB = ("http://", "https://")
URL = Shaped(
    "an absolute URL",
    "https://app.example.com/hook",
    begins=_WEB,
    never=r"[\x00-\x20\x7f]",
    fits=is_url,
    fold=True,
)
TARGET = Shaped(
    "a request target", "/v2/messages?cursor=1", begins=("/", *_WEB), never=r"[^\x21-\x7e]"
)
PATH = Shaped(
    "a path without a query", "/v2/messages", begins=("/", *_WEB), never=r"[^\x21-\x7e]|\?"
)
"""Paths as sent by the client: spaces and non-ASCII characters are percent-encoded."""
MESSAGE_ID = Shaped("the id of a message", "msg_5b5eb2f7", begins=("msg_",), never=r"[^0-9A-Za-z_]")
"""The ID of a queue's message. Strict-mode violations of every cloud contain it."""

TRACE_ID = Shaped("the id of a trace", "4bf92f3577b34da6a3ce929d0e0e4736", never=r"[^0-9a-f]")
"""The ID in a header ``traceparent``, in lower case (W3C Trace Context)."""


def either(field_types: Iterable[FieldType]) -> FieldType:
    """Return the type of a field that may be of any of these types."""
    distinct = tuple(dict.fromkeys(field_types))
    return distinct[0] if len(distinct) == 1 else _Either(distinct)


def _is_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(member) for key, member in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return isfinite(value)
    return value is None or isinstance(value, str | int) or _is_comparer(value)


def _is_comparer(value: object) -> bool:
    return defines_equality(value, _Json.samples)


def _as_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value


def _parsed(text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return ABSENT
