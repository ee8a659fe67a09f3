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
        inspect.iscoroutinefunction(each)
        or inspect.isgeneratorfunction(each)
        or inspect.isasyncgenfunction(each)
        for each in (function, called)
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

    def accepts(self, wanted: Any) -> bool:
        """Return whether a value could match the wanted one, which is not a function."""
        return isinstance(wanted, self.types)

    def check(self, name: str, wanted: Any) -> None:
        """Raise ``ContractError`` for an argument that no value of the field could match."""
        if is_predicate(wanted, self.samples):
            if is_lazy_function(wanted):
                raise ContractError(
                    f"{name}={brief(wanted)} must be awaited or iterated, so it would match "
                    "everything: pass a plain function"
                )
        elif not (wanted is None or self.accepts(wanted) or defines_equality(wanted, self.samples)):
            raise ContractError(
                f"{name}={brief(wanted)} can never match: pass {self.expected}, or a function"
            )

    def matches_pattern(self, found: Any, pattern: Any) -> bool:
        return isinstance(found, type(pattern.pattern)) and bool(pattern.search(found))

    def equals(self, found: Any, wanted: Any) -> bool:
        if isinstance(wanted, str) and isinstance(found, str) and "*" in wanted:
            return found == wanted or glob_matcher(wanted)(found)
        return bool(found == wanted)

    def equals_unaccepted(self, found: Any, wanted: Any) -> bool:
        """Compare a value with one that ``accepts()`` rejects: None, or a comparer such as ``ANY``."""
        return bool(found == wanted)

    def check_not_cut(self, found: Any, wanted: Any) -> None:
        """Raise ``CannotTell`` for a value that may differ only because the journal has cut it."""

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        """Describe how a value differs from the expected one."""
        if isinstance(found, str) and isinstance(wanted, str) and "*" not in wanted:
            return next(differences(found, wanted, name))
        return f"{name} is {brief(found)}, not {brief(wanted)}"


TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
"""The regular expression of a token of HTTP, such as the name of a header."""


class Text(FieldType):
    """A string, which a string with ``*`` or a pattern may also match."""

    expected = "a string (* matches anything), a pattern"
    identifies = True
    samples: tuple[object, ...] = ("",)

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, str) or is_text_pattern(wanted)


class OneOf(Text):
    """A string from a fixed list. ``what`` describes it in errors; ``fold`` ignores case."""

    identifies = False

    def __init__(self, what: str, words: Iterable[str], *, fold: bool = False) -> None:
        self.words = tuple(words)
        self.fold = fold
        self.what = what
        self.expected = f"one of {', '.join(self.words[:20])}"

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        matches = self.matches_pattern if is_pattern(wanted) else self.equals
        checked = isinstance(wanted, str) or is_pattern(wanted)
        if checked and not any(matches(one, wanted) for one in self.words):
            raise ContractError(unknown_name(self.what, wanted, self.words, name))

    def equals(self, found: Any, wanted: Any) -> bool:
        if self.fold and isinstance(found, str) and isinstance(wanted, str):
            return super().equals(found.lower(), wanted.lower())
        return super().equals(found, wanted)


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

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, str) and (why := self._why_impossible(wanted)) is not None:
            raise ContractError(
                f"{name}={brief(wanted)} can never match: {why}. "
                f"Pass {self.expected}, or a function"
            )

    def _why_impossible(self, wanted: str) -> str | None:
        pieces = pieces_of(wanted)
        first, whole = pieces[0], len(pieces) == 1
        start = first.lower() if self._fold else first
        if self.begins and not any(
            start.startswith(begin) or (not whole and begin.startswith(start))
            for begin in self.begins
        ):
            return f"{self.what} begins with {' or '.join(map(repr, self.begins))}"
        if self._never is not None:
            for piece in pieces:
                if found := re.search(self._never, piece):
                    return f"{self.what} does not contain {found[0]!r}"
        if whole and self._fits is not None and not self._fits(first):
            return f"it is not {self.what}"
        return None


class _Method(Text):
    """An HTTP method. Any token is accepted as a method, but known methods must be in upper case."""

    identifies = False

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, str) and not re.fullmatch(TOKEN, wanted):
            raise ContractError(
                f"{name}={brief(wanted)} is not an HTTP method: pass one such as 'POST', or a pattern"
            )
        if isinstance(wanted, str) and wanted not in _METHODS and wanted.upper() in _METHODS:
            raise ContractError(
                f"{name}={wanted!r} is not an HTTP method: methods have capital letters, "
                f"pass {wanted.upper()!r}"
            )


class _Either(FieldType):
    """A field that several services have, each with its own type of value."""

    def __init__(self, field_types: Iterable[FieldType]) -> None:
        self._types = tuple(field_types)
        self.expected = "; or ".join(dict.fromkeys(one.expected for one in self._types))
        self.samples = tuple(sample for one in self._types for sample in one.samples)
        self.identifies = any(one.identifies for one in self._types)

    def check(self, name: str, wanted: Any) -> None:
        errors = []
        for field_type in self._types:
            try:
                field_type.check(name, wanted)
                return
            except ContractError as error:
                errors.append(error)
        raise errors[0]

    def accepts(self, wanted: Any) -> bool:
        return any(field_type.accepts(wanted) for field_type in self._types)

    def matches_pattern(self, found: Any, pattern: Any) -> bool:
        return any(field_type.matches_pattern(found, pattern) for field_type in self._types)

    def equals(self, found: Any, wanted: Any) -> bool:
        return any(
            field_type.equals(found, wanted) if field_type.accepts(wanted) else found == wanted
            for field_type in self._types
        )


class _Number(FieldType):
    expected = "a number"
    samples: tuple[object, ...] = (0, 0.0)

    def accepts(self, wanted: Any) -> bool:
        # Also accept the number types of other libraries.
        return isinstance(wanted, Real) and not isinstance(wanted, bool)


class WholeNumber(_Number):
    """An integer within bounds, both included."""

    def __init__(self, minimum: int, maximum: int | None = None) -> None:
        self.minimum, self.maximum = minimum, maximum
        above = "" if maximum is None else f" to {maximum}"
        self.expected = f"a whole number from {minimum}{above or ' up'}"

    def accepts(self, wanted: Any) -> bool:
        return (
            super().accepts(wanted)
            and wanted == wanted // 1
            and self.minimum <= wanted
            and (self.maximum is None or wanted <= self.maximum)
        )


class _Flag(FieldType):
    expected = "True, False"
    samples = (True,)
    types = (bool,)


class _Bytes(FieldType):
    """Bytes. A string or string pattern is compared with the UTF-8 text they contain."""

    expected = "bytes, a string (* matches anything), a pattern"
    samples: tuple[object, ...] = (b"",)

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, bytes | bytearray | str) or is_pattern(wanted)

    def matches_pattern(self, found: Any, pattern: Any) -> bool:
        if isinstance(found, bytes) and isinstance(pattern.pattern, str):
            found = found.decode("utf-8", "replace")
        return super().matches_pattern(found, pattern)

    def equals(self, found: Any, wanted: Any) -> bool:
        if not isinstance(wanted, str):
            return bool(found == wanted)
        if found == wanted.encode("utf-8", "surrogatepass"):
            return True
        return "*" in wanted and super().equals(bytes(found).decode("utf-8", "replace"), wanted)


class _Json(FieldType):
    """A JSON value. Tuples compare equal to the lists that JSON makes of them."""

    expected = "a JSON value (dict with string keys, list, string, number, True, False, None)"
    samples: tuple[object, ...] = ({}, [], "", 0, True, None)

    def accepts(self, wanted: Any) -> bool:
        return is_text_pattern(wanted) or _is_json(wanted)

    def equals(self, found: Any, wanted: Any) -> bool:
        if isinstance(wanted, str):
            return super().equals(found, wanted)
        return same_json(found, _as_json(wanted))

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        lines = list(differences(found, _as_json(wanted), name))
        more = len(lines) - _MOST_DIFFERENCES
        shown = "; ".join(lines[:_MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
        return shown or super().differs(name, found, wanted)


class _Document(_Json):
    """A string that may contain JSON.

    Strings and patterns are compared with the string, other values with the parsed JSON. A comparer
    such as ``ANY`` is compared with the string if it is not JSON.
    """

    def equals(self, found: Any, wanted: Any) -> bool:
        if isinstance(wanted, str):
            return FieldType.equals(self, found, wanted)
        parsed = _parsed(found)
        if parsed is ABSENT:
            return (wanted is None or _is_comparer(wanted)) and bool(found == wanted)
        return super().equals(parsed, wanted)

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        if isinstance(wanted, str):
            return FieldType.differs(self, name, found, wanted)
        parsed = _parsed(found)
        if parsed is ABSENT:
            return f"{name} {brief(found)} is not JSON, expected {brief(wanted)}"
        return super().differs(name, parsed, wanted)


class _Mapping(_Json):
    expected = "a dict of JSON values with string keys"
    samples: tuple[object, ...] = ({},)

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, Mapping) and _is_json(wanted)

    def equals(self, found: Any, wanted: Any) -> bool:
        return same_json(_as_json(found), _as_json(wanted))


class _Instant(FieldType):
    expected = "a time (an aware datetime, an ISO string with an offset)"
    samples: tuple[object, ...] = (datetime(2000, 1, 1, tzinfo=UTC),)

    def check(self, name: str, wanted: Any) -> None:
        if isinstance(wanted, str | datetime):
            instant_us(wanted)  # raises the most helpful error for a string that cannot be parsed
        else:
            super().check(name, wanted)

    def accepts(self, wanted: Any) -> bool:
        if not isinstance(wanted, str | datetime):
            return False
        try:
            instant_us(wanted)
        except ContractError:
            return False
        return True

    def equals(self, found: Any, wanted: Any) -> bool:
        return bool(found == to_datetime(instant_us(wanted)))


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


def either(field_types: Iterable[FieldType]) -> FieldType:
    """Return the type of a field that may be of any of these types."""
    found = tuple(dict.fromkeys(field_types))
    return found[0] if len(found) == 1 else _Either(found)


def _is_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(one) for key, one in value.items())
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
