"""Compare values with the conditions that a test gives.

Assertions, ``where()``, fault matchers, listings, ``allow()`` and the control API share these
rules:

==========================  ======================================================================
given                       matches
==========================  ======================================================================
a value                     values equal to it by the given value's ``__eq__`` (``mock.ANY`` works)
a string with ``*``         strings with anything in place of the star; ``\\*`` is a literal star
a compiled pattern          strings in which ``search`` finds it
a function                  values for which it returns something true
==========================  ======================================================================

Bytes are compared with strings and string patterns as the UTF-8 text they contain.

A value that could never match raises a ``ContractError`` that lists what can be given: an assertion
that something did not happen would otherwise pass vacuously. This also applies to a string
that lacks the form of its field, such as a URL without a scheme, and to a function that raises or
whose result must be awaited or iterated. Decided here.
"""

from __future__ import annotations

import inspect
import json
import numbers
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from math import isfinite
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

from .errors import CannotTell, ContractError, only_begins
from .timeparse import instant_us, to_datetime
from .wording import brief, differences, never_awaited

V = TypeVar("V")
Asked: TypeAlias = V | re.Pattern[str] | Callable[[V], object] | None
"""The type of a condition on a field: a value, a pattern, a function, or None for any value."""


class Absent:
    """Stands in for the value of a field that an item does not have. ``why`` describes the field
    instead.
    """

    def __init__(self, why: str = "absent") -> None:
        self.why = why


ABSENT: Any = Absent()
"""The value of a field that an item does not have."""
_MOST_DIFFERENCES = 3
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "RESP")
"""HTTP methods, and RESP for commands received over the Redis protocol."""


# -- kinds of values -------------------------------------------------------------------------------


def _is_pattern(wanted: object) -> bool:
    # Check by attribute instead of by class, so that patterns of the ``regex`` library work too.
    return not isinstance(wanted, type) and isinstance(
        getattr(wanted, "pattern", None), str | bytes
    )


def _is_text_pattern(wanted: Any) -> bool:
    return _is_pattern(wanted) and isinstance(wanted.pattern, str)


_PLAIN = (str, bytes, bytearray, int, float, Mapping, list, tuple, set, frozenset, datetime)
"""Types whose values compare equal only to values of the same kind."""


def _compares(wanted: object, samples: Iterable[object]) -> bool:
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
        except (
            Exception
        ):  # an __eq__ that inspects its argument this closely defines its own equality
            return True
    return False


def _is_predicate(wanted: object, samples: Iterable[object]) -> bool:
    return callable(wanted) and not _is_pattern(wanted) and not _compares(wanted, samples)


class Sort:
    """A kind of field: checks the value that a test gives and compares the field's values with it.

    ``expected`` describes valid arguments in error messages. Subclasses accept and compare.
    """

    expected = "a value"
    samples: tuple[object, ...] = ("", 0, b"", True, None, [], {})
    """An example value of each type that the field can have."""

    def accepts(self, wanted: Any) -> bool:
        """Return whether a value of the field could equal the wanted value.

        Not called for patterns and functions.
        """
        return True

    def check(self, name: str, wanted: Any) -> None:
        """Raise ``ContractError`` for an argument that no value of the field could match."""
        if _is_predicate(wanted, self.samples):
            if only_begins(wanted):
                raise ContractError(
                    f"{name}={brief(wanted)} must be awaited or iterated, so it would match "
                    "everything: pass a plain function"
                )
        elif not (wanted is None or self.accepts(wanted) or _compares(wanted, self.samples)):
            raise ContractError(
                f"{name}={brief(wanted)} can never match: pass {self.expected}, or a function of it"
            )

    def searched(self, found: Any, pattern: Any) -> bool:
        """Return whether a compiled pattern is found in a value."""
        return isinstance(found, type(pattern.pattern)) and bool(pattern.search(found))

    def equals(self, found: Any, wanted: Any) -> bool:
        """Return whether a value of the field equals the wanted one."""
        if isinstance(wanted, str) and isinstance(found, str) and "*" in wanted:
            return found == wanted or fits(_glob(wanted), found)
        return bool(found == wanted)

    def equals_by_itself(self, found: Any, wanted: Any) -> bool:
        """Compare a value with a wanted value that ``accepts()`` rejects: None, or a comparer such
        as ``ANY``.
        """
        return bool(found == wanted)

    def check_whole(self, found: Any, wanted: Any) -> None:
        """Raise ``CannotTell`` for a value that may differ only because the journal has cut it."""

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        """Describe how a value differs from the expected one."""
        if isinstance(found, str) and isinstance(wanted, str) and "*" not in wanted:
            return next(differences(found, wanted, name))
        return f"{name} is {brief(found)}, not {brief(wanted)}"


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_STAR = re.compile(r"(?<!\\)\*")


@lru_cache(maxsize=256)
def _glob(text: str) -> tuple[str, ...]:
    """Return the literal pieces of a glob pattern, between its stars."""
    return tuple(piece.replace("\\*", "*") for piece in _STAR.split(text))


def fits(pieces: tuple[str, ...], found: str) -> bool:
    """Return whether a string consists of these pieces in order, with anything between them."""
    # Search for the pieces one by one: a regular expression with several stars could take
    # exponential time.
    first, *middle = pieces
    if not middle:
        return found == first
    last = middle.pop()
    at, end = len(first), len(found) - len(last)
    if at > end or not (found.startswith(first) and found.endswith(last)):
        return False
    for piece in middle:
        place = found.find(piece, at, end)
        if place < 0:
            return False
        at = place + len(piece)
    return True


class _Text(Sort):
    expected = "a string (* matches anything), a pattern"
    samples: tuple[object, ...] = ("",)

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, str) or _is_text_pattern(wanted)


class _OneOf(Sort):
    """A string from a fixed list; ``fold`` ignores case."""

    samples: tuple[object, ...] = ("",)

    def __init__(self, what: str, words: Iterable[str], *, fold: bool = False) -> None:
        self.words = tuple(words)
        self.fold = fold
        self.what = what
        self.expected = f"one of {', '.join(self.words[:20])}"

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, str):
            known = any(self.equals(one, wanted) for one in self.words)
        elif _is_pattern(wanted):
            known = any(self.searched(one, wanted) for one in self.words)
        else:
            return
        if not known:
            near = nearest(wanted, self.words) if isinstance(wanted, str) else ""
            article = "an" if self.what[0] in "aeiou" else "a"
            raise ContractError(
                f"{name}={brief(wanted)} is not {article} {self.what}{near}; "
                f"there are: {', '.join(self.words[:40])}"
            )

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, str) or _is_text_pattern(wanted)

    def equals(self, found: Any, wanted: Any) -> bool:
        if self.fold and isinstance(found, str) and isinstance(wanted, str):
            return super().equals(found.lower(), wanted.lower())
        return super().equals(found, wanted)


class _Shaped(_Text):
    """A string of a known form: its allowed prefixes, a pattern it never contains, a test of the
    whole.

    If the test gives a string with ``*``, only its literal pieces are checked.
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
        self._never = None if never is None else re.compile(never)
        self._fits = fits

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, str) and (why := self._why_never(wanted)) is not None:
            raise ContractError(
                f"{name}={brief(wanted)} can never match: {why}. "
                f"Pass {self.expected}, or a function of it"
            )

    def _why_never(self, wanted: str) -> str | None:
        pieces = _glob(wanted)
        first, whole = pieces[0], len(pieces) == 1
        start = first.lower() if self._fold else first
        if self.begins and not any(
            start.startswith(begin) or (not whole and begin.startswith(start))
            for begin in self.begins
        ):
            return f"{self.what} begins with {' or '.join(map(repr, self.begins))}"
        if self._never is not None:
            for piece in pieces:
                if found := self._never.search(piece):
                    return f"{self.what} does not contain {found[0]!r}"
        if whole and self._fits is not None and not self._fits(first):
            return f"it is not {self.what}"
        return None


class _Method(_Text):
    """An HTTP method. Any token is accepted as a method, but known methods must be in upper case."""

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, str) and not _TOKEN.fullmatch(wanted):
            raise ContractError(
                f"{name}={brief(wanted)} is not an HTTP method: pass one such as 'POST', or a pattern"
            )
        if isinstance(wanted, str) and wanted not in _METHODS and wanted.upper() in _METHODS:
            raise ContractError(
                f"{name}={wanted!r} is not an HTTP method: methods have capital letters, "
                f"pass {wanted.upper()!r}"
            )


class _Either(Sort):
    """A field that several services have, each with its own sort of value."""

    def __init__(self, sorts: Iterable[Sort]) -> None:
        self._sorts = tuple(sorts)
        self.expected = "; or ".join(dict.fromkeys(sort.expected for sort in self._sorts))
        self.samples = tuple(sample for sort in self._sorts for sample in sort.samples)

    def check(self, name: str, wanted: Any) -> None:
        errors = [error for sort in self._sorts if (error := _refused(sort, name, wanted))]
        if len(errors) == len(self._sorts):
            raise errors[0]

    def accepts(self, wanted: Any) -> bool:
        return any(sort.accepts(wanted) for sort in self._sorts)

    def searched(self, found: Any, pattern: Any) -> bool:
        return any(sort.searched(found, pattern) for sort in self._sorts)

    def equals(self, found: Any, wanted: Any) -> bool:
        return any(
            sort.equals(found, wanted) if sort.accepts(wanted) else found == wanted
            for sort in self._sorts
        )


def _refused(sort: Sort, name: str, wanted: Any) -> ContractError | None:
    try:
        sort.check(name, wanted)
    except ContractError as error:
        return error
    return None


class _Number(Sort):
    expected = "a number"
    samples: tuple[object, ...] = (0, 0.0)

    def accepts(self, wanted: Any) -> bool:
        # Accept number types of other libraries too.
        return isinstance(wanted, numbers.Real) and not isinstance(wanted, bool)


class _Whole(_Number):
    """An integer within bounds, both included."""

    def __init__(self, minimum: int, maximum: int | None) -> None:
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


class _Flag(Sort):
    expected = "True, False"
    samples: tuple[object, ...] = (True,)

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, bool)


class _Bytes(Sort):
    """Bytes. A string or string pattern is compared with the UTF-8 text they contain."""

    expected = "bytes, a string (* matches anything), a pattern"
    samples: tuple[object, ...] = (b"",)

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, bytes | bytearray | str) or _is_pattern(wanted)

    def searched(self, found: Any, pattern: Any) -> bool:
        if isinstance(found, bytes) and isinstance(pattern.pattern, str):
            found = found.decode("utf-8", "replace")
        return super().searched(found, pattern)

    def equals(self, found: Any, wanted: Any) -> bool:
        if not isinstance(wanted, str):
            return bool(found == wanted)
        if found == wanted.encode("utf-8", "surrogatepass"):
            return True
        return "*" in wanted and super().equals(bytes(found).decode("utf-8", "replace"), wanted)


class _Json(Sort):
    """A JSON value. Tuples compare equal to the lists that JSON makes of them."""

    expected = "a JSON value (dict with string keys, list, string, number, True, False, None)"
    samples: tuple[object, ...] = ({}, [], "", 0, True, None)

    def accepts(self, wanted: Any) -> bool:
        return _is_text_pattern(wanted) or _is_json(wanted)

    def equals(self, found: Any, wanted: Any) -> bool:
        return super().equals(found, _as_json(wanted))

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        lines = list(differences(found, _as_json(wanted), name))
        more = len(lines) - _MOST_DIFFERENCES
        shown = "; ".join(lines[:_MOST_DIFFERENCES]) + (f" and {more} more" if more > 0 else "")
        return shown or super().differs(name, found, wanted)


class _Document(_Json):
    """A string that may contain JSON. Strings and patterns are compared with the string itself,
    other values with the parsed JSON.

    A comparer such as ``ANY`` is compared with the parsed JSON, or with the string if it is not
    JSON.
    """

    def equals(self, found: Any, wanted: Any) -> bool:
        if isinstance(wanted, str):
            return Sort.equals(self, found, wanted)
        parsed = _parsed(found)
        if parsed is ABSENT:
            return (wanted is None or _is_comparer(wanted)) and bool(found == wanted)
        return super().equals(parsed, wanted)

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        if isinstance(wanted, str):
            return Sort.differs(self, name, found, wanted)
        parsed = _parsed(found)
        if parsed is ABSENT:
            return f"{name} {brief(found)} is not JSON, expected {brief(wanted)}"
        return super().differs(name, parsed, wanted)


class _Mapping(Sort):
    expected = "a dict of JSON values with string keys"
    samples: tuple[object, ...] = ({},)

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, Mapping) and _is_json(wanted)

    def equals(self, found: Any, wanted: Any) -> bool:
        return bool(_as_json(found) == _as_json(wanted))

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        return JSON.differs(name, found, wanted)


class _Pairs(Sort):
    """Pairs of a name and a string; names may repeat. Matches if every wanted pair is present."""

    fold = False
    samples: tuple[object, ...] = ({}, [])
    expected = "a dict from names to strings, patterns or functions"

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, Mapping):
            for key, value in wanted.items():
                if not isinstance(key, str):
                    raise ContractError(
                        f"{name}: {key!r} is not the name of a header: pass a string"
                    )
                if value is None:
                    raise ContractError(
                        f"{name}[{key!r}]=None: pass a string, a pattern or a function"
                    )
                TEXT.check(f"{name}[{key!r}]", value)

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, Mapping)

    def equals(self, found: Any, wanted: Any) -> bool:
        return not any(True for _ in self._missing(found, wanted))

    def equals_by_itself(self, found: Any, wanted: Any) -> bool:
        return bool(found == wanted) or bool(dict(_pairs(found)) == wanted)

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        if not isinstance(wanted, Mapping):
            return super().differs(name, found, wanted)
        return "; ".join(self._missing(found, wanted))

    def _missing(self, found: Any, wanted: Mapping[str, Any]) -> Iterator[str]:
        pairs = _pairs(found)
        for name, value in wanted.items():
            question = Question(f"header {name}", value, TEXT)
            values = [one for key, one in pairs if self._same(key, name)]
            if not values:
                names = ", ".join(sorted({key for key, _ in pairs})) or "none"
                yield f"header {name} is absent, not {brief(value)} (there are: {names})"
            elif not any(map(question.agrees, values)):
                yield question.refusal(values[0] if len(values) == 1 else values)

    def _same(self, one: str, other: str) -> bool:
        return one.lower() == other.lower() if self.fold else one == other


class _Headers(_Pairs):
    fold = True

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        for key in wanted if isinstance(wanted, Mapping) else ():
            if not _TOKEN.fullmatch(key):
                raise ContractError(
                    f"{name}: {brief(key)} cannot be the name of a header: pass one such as "
                    "'Content-Type', without a colon or spaces"
                )


class _Instant(Sort):
    expected = "a time (an aware datetime, an ISO string with an offset)"

    samples: tuple[object, ...] = (datetime(2000, 1, 1, tzinfo=UTC),)

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if self.accepts(wanted):
            instant_us(wanted)  # raises the most helpful error for a string that cannot be parsed

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, str | datetime)

    def equals(self, found: Any, wanted: Any) -> bool:
        return bool(found == to_datetime(instant_us(wanted)))


ANYTHING = Sort()
ITEM = Sort()
"""Like ``ANYTHING``, but a list is only compared as a whole, not item by item."""
TEXT, NUMBER, FLAG, BYTES, JSON = _Text(), _Number(), _Flag(), _Bytes(), _Json()
DOCUMENT, MAPPING, HEADERS, PAIRS, INSTANT = (
    _Document(),
    _Mapping(),
    _Headers(),
    _Pairs(),
    _Instant(),
)
METHOD = _Method()


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.hostname)


_WEB = ("http://", "https://")
URL = _Shaped(
    "an absolute URL",
    "https://app.example.com/hook",
    begins=_WEB,
    never=r"[\x00-\x20\x7f]",
    fits=_is_url,
    fold=True,
)
TARGET = _Shaped(
    "a request target", "/v2/messages?cursor=1", begins=("/", *_WEB), never=r"[^\x21-\x7e]"
)
PATH = _Shaped(
    "a path without a query", "/v2/messages", begins=("/", *_WEB), never=r"[^\x21-\x7e]|\?"
)
"""Paths as sent by the client: spaces and non-ASCII characters are percent-encoded."""
MESSAGE_ID = _Shaped(
    "the id of a message", "msg_5b5eb2f7", begins=("msg_",), never=r"[^0-9A-Za-z_]"
)
"""The ID of a queue's message. Defined here because strict-mode violations of every cloud contain
it.
"""


def one_of(what: str, words: Iterable[str], *, fold: bool = False) -> Sort:
    """Return the sort of a string that is always one of these words. ``what`` describes such a word
    in errors.
    """
    return _OneOf(what, words, fold=fold)


def shaped(
    what: str,
    example: str,
    *,
    begins: Iterable[str] = (),
    never: str | None = None,
    fits: Callable[[str], bool] | None = None,
) -> Sort:
    """Return the sort of a string of a known form.

    ``what`` is its name with an article and ``example`` a valid string, both for error messages.
    ``begins`` are the allowed prefixes, ``never`` is a regular expression that the string never
    contains, ``fits`` returns whether a whole string, without ``*``, is valid.
    """
    return _Shaped(what, example, begins=begins, never=never, fits=fits)


def either(sorts: Iterable[Sort]) -> Sort:
    """Return the sort of a field that may be of any of these sorts."""
    found = tuple(dict.fromkeys(sorts))
    return found[0] if len(found) == 1 else _Either(found)


def whole_number(minimum: int, maximum: int | None = None) -> Sort:
    """Return the sort of an integer between ``minimum`` and ``maximum``, both included."""
    return _Whole(minimum, maximum)


def _is_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return isfinite(value)
    return value is None or isinstance(value, str | int) or _is_comparer(value)


def _is_comparer(value: object) -> bool:
    return _compares(value, _Json.samples)


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


def _pairs(found: Any) -> list[tuple[str, str]]:
    if hasattr(found, "getlist"):
        return [(key, one) for key in found for one in found.getlist(key)]
    if isinstance(found, Mapping):
        return [
            (key, one)
            for key, value in found.items()
            for one in (value if isinstance(value, list | tuple) else [value])
        ]
    return [(pair[0], pair[1]) for pair in found]


# -- fields and conditions -------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """A field that tests can filter by.

    ``sort`` compares its values. ``read`` takes an item and returns the value or ``ABSENT``;
    without ``read`` the field is the item's attribute, or its key if the item is a mapping. If a
    field has ``several`` values, any of them may match, and a function is called with each. If the
    sort is ``ANYTHING``, any item of a list may match too, but a function is called with the whole
    list. A ``bare`` field is shown without its name. None is rejected unless the field is
    ``optional``.
    """

    sort: Sort = field(default_factory=lambda: ANYTHING)
    read: Callable[[Any], Any] | None = None
    several: bool = False
    bare: bool = False
    optional: bool = True


class Question:
    """A condition on one field.

    Creating one raises ``ContractError`` for a value that nothing could match.
    """

    def __init__(
        self, name: str, wanted: Any, sort: Sort | None = None, several: bool = False
    ) -> None:
        self.name = name
        self.wanted = wanted
        self.sort = ANYTHING if sort is None else sort
        self.is_predicate = _is_predicate(wanted, self.sort.samples)
        self.several = several or (self.sort is ANYTHING and not self.is_predicate)
        self._is_pattern = _is_pattern(wanted)
        self._parts: list[Question] | None = None
        if several and isinstance(wanted, list | tuple):
            self._parts = [Question(name, one, sort) for one in wanted]
        else:
            self.sort.check(name, wanted)
        self._accepted = not self.is_predicate and self.sort.accepts(wanted)

    def agrees(self, found: Any) -> bool:
        """Return whether a value matches; ``ABSENT`` never does.

        Raises ``ContractError`` if the test's function raises or returns an awaitable, and
        ``CannotTell`` if the journal has cut the value.
        """
        if isinstance(found, Absent):
            return False
        if self.several and isinstance(found, list | tuple | set | frozenset):
            if any(map(self._agrees, found)) or self._agrees_whole(found):
                return True
        elif self._agrees(found):
            return True
        self.sort.check_whole(found, self.wanted)
        return False

    def why_not(self, found: Any) -> str | None:
        """Return None for a match, otherwise a description of the difference.

        Raises the same errors as ``agrees()``.
        """
        return None if self.agrees(found) else self.refusal(found)

    def refusal(self, found: Any) -> str:
        """Describe a value that does not match."""
        if isinstance(found, Absent):
            return f"{self.name} is {found.why}, not {brief(self.wanted)}"
        if self.is_predicate:
            return f"{self.name} is {brief(found)}, which does not satisfy {brief(self.wanted)}"
        if self._is_pattern:
            return f"{self.name} is {brief(found)}, in which {self.wanted.pattern!r} is not found"
        return self.sort.differs(self.name, found, self.wanted)

    def _agrees_whole(self, found: Any) -> bool:
        wanted = self.wanted
        if self.is_predicate or self._is_pattern:
            return False
        if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
            if self._parts is None:
                return self._equals([*found], [*wanted])
            pairs = zip(self._parts, found, strict=False)
            return len(wanted) == len(found) and all(part._agrees(one) for part, one in pairs)
        return self._equals(found, wanted)

    def _agrees(self, found: Any) -> bool:
        if self._parts is not None:
            return False  # the test gave a list, which can only match a list as a whole
        if self.is_predicate:
            return self._decides(found)
        if self._is_pattern:
            return self.sort.searched(found, self.wanted)
        return self._equals(found, self.wanted)

    def _equals(self, found: Any, wanted: Any) -> bool:
        try:
            equals = self.sort.equals if self._accepted else self.sort.equals_by_itself
            return equals(found, wanted)
        except ContractError:
            raise
        except Exception as error:
            raise ContractError(
                f"{self.name}={brief(wanted)} raised {brief(error)} when it was compared with "
                f"{brief(found)}: pass a value whose == works with every value of the field"
            ) from error

    def _decides(self, found: Any) -> bool:
        try:
            answer = self.wanted(found)
            holds = bool(answer)
        except CannotTell:
            raise
        except Exception as error:
            raise ContractError(
                f"{self.name}={brief(self.wanted)} raised {brief(error)} for {brief(found)}: "
                "pass a function that works for every value of the field"
            ) from error
        if never_awaited(answer) or inspect.isgenerator(answer):
            raise ContractError(
                f"what {self.name}={brief(self.wanted)} returns must be awaited or iterated: "
                "pass a plain function"
            )
        return holds

    def __str__(self) -> str:
        return f"{self.name}={brief(self.wanted)}"


class Query:
    """Several conditions on one item, all of which must hold.

    ``fields`` are the known fields by name; an unknown name raises a ``ContractError`` that lists
    them and suggests the nearest. ``kind`` names an item in messages. Functions are called last,
    and only for items that match all other conditions.
    """

    def __init__(
        self, given: Mapping[str, Any], fields: Mapping[str, Field], kind: str = "item"
    ) -> None:
        check_fields(given, fields, kind)
        for name, wanted in given.items():
            if wanted is None and not fields[name].optional:
                raise ContractError(
                    f"{name}=None can never match: leave {name}= out to match any, or pass "
                    f"{fields[name].sort.expected}"
                )
        self.given = given
        self.questions = sorted(
            (
                Question(name, wanted, fields[name].sort, fields[name].several)
                for name, wanted in given.items()
            ),
            key=lambda question: question.is_predicate,
        )
        self.fields = fields
        self.kind = kind

    def why_not(self, item: Any) -> list[str]:
        """Return descriptions of the item's differences; an empty list for a match.

        Raises ``CannotTell`` if the result depends only on fields that the journal has cut.
        """
        reasons: list[str] = []
        undecided: CannotTell | None = None
        for question in self.questions:
            if question.is_predicate and reasons:
                break
            try:
                why = question.why_not(self._value(item, question.name))
            except CannotTell as error:
                undecided = error
                continue
            if why is not None:
                reasons.append(why)
        if undecided is not None and not reasons:
            raise undecided
        return reasons

    def __call__(self, item: Any) -> bool:
        """Return whether the item matches; raises the same errors as ``why_not()``."""
        try:
            return all(
                question.agrees(self._value(item, question.name)) for question in self.questions
            )
        except CannotTell:
            return not self.why_not(item)

    def unlikeness(self, item: Any) -> float:
        """Return how different the item's values are from the wanted ones, from 0 to 1."""
        import difflib

        ratios = []
        for question in self.questions:
            value = self._value(item, question.name)
            if not question.is_predicate and not isinstance(value, Absent):
                one, other = f"{value!r:.80}", f"{question.wanted!r:.80}"
                ratios.append(difflib.SequenceMatcher(None, one, other, autojunk=False).ratio())
        return 1 - sum(ratios) / len(ratios) if ratios else 1.0

    def _value(self, item: Any, name: str) -> Any:
        read = self.fields[name].read
        if read is not None:
            return read(item)
        if isinstance(item, Mapping):
            return item.get(name, ABSENT)
        return getattr(item, name, ABSENT)

    def __str__(self) -> str:
        return " ".join(
            (wanted if isinstance(wanted, str) else brief(wanted))
            if self.fields[name].bare
            else f"{name}={brief(wanted)}"
            for name, wanted in self.given.items()
        )


def check_fields(given: Iterable[str], known: Collection[str], kind: str) -> None:
    """Raise ``ContractError`` for names that are not fields of this kind of item."""
    for name in given:
        if name not in known:
            article = "an" if kind[:1] in "aeiou" else "a"
            raise ContractError(
                f"{article} {kind} has no field {name!r}{nearest(name, known)}; "
                f"there are: {', '.join(sorted(known))}"
            )


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``", did you mean …?"`` if one of the known words is similar, else an empty string."""
    import difflib

    folded = {one.lower(): one for one in known}
    found = difflib.get_close_matches(word.lower(), folded, 1, 0.6)
    return f", did you mean {folded[found[0]]!r}?" if found else ""


# -- the fields of a class -------------------------------------------------------------------------

_SORTS_OF_TYPES: Mapping[type, Sort] = {
    str: TEXT,
    int: NUMBER,
    float: NUMBER,
    bool: FLAG,
    bytes: BYTES,
    datetime: INSTANT,
}


@lru_cache(maxsize=256)
def fields_of(kind: type) -> Mapping[str, Field]:
    """Return the public attributes and properties of a class as fields, with sorts by annotation.

    A field without an annotation, or with one for several types, accepts any value.
    """
    found: dict[str, Field] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if not name.startswith("_") and isinstance(value, property):
                found[name] = _field_of(name, _returned(value))
        for name, annotation in _annotations(base).items():
            if not name.startswith("_") and typing.get_origin(annotation) is not typing.ClassVar:
                found[name] = _field_of(name, annotation)
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("_"):
                found.setdefault(name, Field())
    return found


def _annotations(kind: type) -> Mapping[str, Any]:
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # an annotation can name a class that is imported only for type checkers
        hints = {}
    return {name: hints.get(name, Any) for name in vars(kind).get("__annotations__", {})}


def _returned(value: property) -> Any:
    try:
        return typing.get_type_hints(value.fget).get("return", Any)
    except Exception:  # an annotation can name a class that is imported only for type checkers
        return Any


def _field_of(name: str, annotation: Any) -> Field:
    options = [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = list(typing.get_args(annotation))
    sort = _sort_of(name, [one for one in options if one is not type(None)])
    return Field(sort, optional=sort is ANYTHING or type(None) in options)


def _sort_of(name: str, options: list[Any]) -> Sort:
    words = [word for one in options for word in _literals(one)]
    if words and all(typing.get_origin(one) is typing.Literal for one in options):
        return one_of(name, words) if all(isinstance(one, str) for one in words) else ANYTHING
    sorts = {_SORTS_OF_TYPES.get(one, ANYTHING) for one in options}
    return sorts.pop() if len(sorts) == 1 else ANYTHING


def _literals(annotation: Any) -> tuple[Any, ...]:
    return typing.get_args(annotation) if typing.get_origin(annotation) is typing.Literal else ()
