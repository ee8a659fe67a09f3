"""What a test may ask of a value, and what agrees with it: one vocabulary for every "which?".

Assertions, ``where()``, fault matchers, listings, ``allow()`` and the control API all ask with it:

==========================  ======================================================================
given                       agrees with
==========================  ======================================================================
a value                     what equals it, by the value's own ``__eq__`` (``mock.ANY`` works)
text with ``*``             that text with anything in the star's place; ``\\*`` is a star itself
a compiled pattern          text in which ``search`` finds it
a function                  what it returns something true for
==========================  ======================================================================

What could never agree is a ``ContractError`` that says what can be asked: in an assertion that
something did not happen it would prove nothing. So is a function that raises or is to be awaited.
Decided here.
"""

from __future__ import annotations

import difflib
import inspect
import json
import numbers
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from math import isfinite
from typing import Any, TypeAlias, TypeVar

from .errors import CannotTell, ContractError
from .timeparse import instant_us, to_datetime
from .wording import brief, differences, never_awaited

__all__ = [
    "ABSENT",
    "ANYTHING",
    "BYTES",
    "DOCUMENT",
    "FLAG",
    "HEADERS",
    "INSTANT",
    "ITEM",
    "JSON",
    "MAPPING",
    "METHOD",
    "NUMBER",
    "PAIRS",
    "TEXT",
    "Absent",
    "Asked",
    "Field",
    "Query",
    "Question",
    "Sort",
    "check_fields",
    "fields_of",
    "nearest",
    "one_of",
    "whole_number",
]

V = TypeVar("V")
Asked: TypeAlias = V | re.Pattern[str] | Callable[[V], object] | None
"""What an assertion takes for a field of a type: a value, a pattern, a function, None for any."""


class Absent:
    """Stands for the value of a field that an item does not have; ``why`` says what it is instead."""

    def __init__(self, why: str = "absent") -> None:
        self.why = why


ABSENT: Any = Absent()
"""The value of a field that an item does not have."""
_MOST_DIFFERENCES = 3
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "RESP")
"""RESP stands where a command came over the database port of a key-value server."""


# -- what kinds of values there are ----------------------------------------------------------------


def _is_pattern(wanted: object) -> bool:
    # By what it can do, so that patterns of the ``regex`` library are patterns too.
    return not isinstance(wanted, type) and isinstance(
        getattr(wanted, "pattern", None), str | bytes
    )


def _is_text_pattern(wanted: Any) -> bool:
    return _is_pattern(wanted) and isinstance(wanted.pattern, str)


def _compares(wanted: object) -> bool:
    """Whether a value knows by itself what it equals, as ``mock.ANY`` and dirty-equals do.

    Arrays do not: their ``==`` compares number by number.
    """
    if _is_pattern(wanted) or isinstance(wanted, types.FunctionType | types.MethodType):
        return False
    if hasattr(type(wanted), "__array__"):
        return False
    kind = type(wanted)
    own = kind.__eq__ not in (object.__eq__, type.__eq__)
    return own and kind.__module__ not in ("builtins", "datetime", "functools")


def _is_predicate(wanted: object) -> bool:
    return callable(wanted) and not _is_pattern(wanted) and not _compares(wanted)


class Sort:
    """A kind of field: what can be asked of it, and what its values equal.

    ``expected`` says in words what can be given. Subclasses read and compare.
    """

    expected = "a value"

    def accepts(self, wanted: Any) -> bool:
        """Whether some value of the field could equal this one; patterns and functions apart."""
        return True

    def check(self, name: str, wanted: Any) -> None:
        """Raise ``ContractError`` for what no value of the field could agree with."""
        if _is_predicate(wanted):
            if inspect.iscoroutinefunction(wanted):
                raise ContractError(
                    f"{name}={brief(wanted)} is to be awaited, so it would hold for everything: "
                    "give a plain function"
                )
        elif not (wanted is None or _compares(wanted) or self.accepts(wanted)):
            raise ContractError(
                f"{name}={brief(wanted)} can never be: give {self.expected}, or a function of it"
            )

    def searched(self, found: Any, pattern: Any) -> bool:
        """Whether a compiled pattern finds itself in a value."""
        return isinstance(found, type(pattern.pattern)) and bool(pattern.search(found))

    def equals(self, found: Any, wanted: Any) -> bool:
        """Whether a value is the wanted one."""
        if isinstance(wanted, str) and isinstance(found, str) and "*" in wanted:
            return found == wanted or bool(_glob(wanted).fullmatch(found))
        return bool(found == wanted)

    def check_whole(self, found: Any, wanted: Any) -> None:
        """Raise ``CannotTell`` where a value does not agree because too little of it was kept."""

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        """The words for a value that is not the wanted one."""
        if isinstance(found, str) and isinstance(wanted, str) and "*" not in wanted:
            return next(differences(found, wanted, name))
        return f"{name} is {brief(found)}, not {brief(wanted)}"


@cache
def _glob(text: str) -> re.Pattern[str]:
    pieces = re.split(r"(\\\*|\*)", text)
    meant = {"*": ".*", "\\*": re.escape("*")}
    return re.compile("".join(meant.get(piece, re.escape(piece)) for piece in pieces), re.DOTALL)


class _Text(Sort):
    expected = "a text (* stands for anything), a pattern"

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, str) or _is_text_pattern(wanted)


class _OneOf(Sort):
    """A text of a closed list; ``fold`` where the case of its letters does not matter."""

    def __init__(self, what: str, words: Iterable[str], *, fold: bool = False) -> None:
        self.words = tuple(words)
        self.fold = fold
        self.what = what
        self.expected = f"one of {', '.join(self.words[:20])}"

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if not isinstance(wanted, str) or _compares(wanted):
            return
        if not any(self.equals(word, wanted) for word in self.words):
            raise ContractError(
                f"{name}={wanted!r} is no {self.what}{nearest(wanted, self.words)}; "
                f"there are: {', '.join(self.words[:40])}"
            )

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, str) or _is_text_pattern(wanted)

    def equals(self, found: Any, wanted: Any) -> bool:
        if self.fold and isinstance(found, str) and isinstance(wanted, str):
            return super().equals(found.lower(), wanted.lower())
        return super().equals(found, wanted)


class _Method(_Text):
    """An HTTP method. Any token may be one, so only the case of the known ones is checked."""

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, str) and wanted not in _METHODS and wanted.upper() in _METHODS:
            raise ContractError(
                f"{name}={wanted!r} is no method: methods have capital letters, "
                f"give {wanted.upper()!r}"
            )


class _Number(Sort):
    expected = "a number"

    def accepts(self, wanted: Any) -> bool:
        # Numbers of other libraries are numbers too.
        return isinstance(wanted, numbers.Real) and not isinstance(wanted, bool)


class _Whole(_Number):
    """A whole number within bounds, both included."""

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

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, bool)


class _Bytes(Sort):
    """Bytes; text given means its UTF-8 bytes, and a text pattern searches the decoded text."""

    expected = "bytes, a text, a pattern"

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, bytes | bytearray | str) or _is_pattern(wanted)

    def searched(self, found: Any, pattern: Any) -> bool:
        if isinstance(found, bytes) and isinstance(pattern.pattern, str):
            found = found.decode("utf-8", "replace")
        return super().searched(found, pattern)

    def equals(self, found: Any, wanted: Any) -> bool:
        if isinstance(wanted, str):
            wanted = wanted.encode("utf-8", "surrogatepass")
        return bool(found == wanted)


class _Json(Sort):
    """A JSON value; tuples are compared as the lists they become on the wire."""

    expected = "what JSON can hold (dict with text keys, list, text, number, True, False, None)"

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
    """A text that may hold JSON: asked as text by text and patterns, as JSON by all else."""

    def equals(self, found: Any, wanted: Any) -> bool:
        if isinstance(wanted, str):
            return Sort.equals(self, found, wanted)
        parsed = _parsed(found)
        return parsed is not ABSENT and super().equals(parsed, wanted)

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        if isinstance(wanted, str):
            return Sort.differs(self, name, found, wanted)
        parsed = _parsed(found)
        if parsed is ABSENT:
            return f"{name} {brief(found)} is not JSON, expected {brief(wanted)}"
        return super().differs(name, parsed, wanted)


class _Mapping(Sort):
    expected = "a dict, with text keys, of what JSON can hold"

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, Mapping) and _is_json(wanted)

    def equals(self, found: Any, wanted: Any) -> bool:
        return bool(_as_json(found) == _as_json(wanted))

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        return JSON.differs(name, found, wanted)


class _Pairs(Sort):
    """Names with texts, of which one name may have several: those asked for must be among them."""

    fold = False
    expected = "a dict of names to texts, patterns or functions"

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        if isinstance(wanted, Mapping):
            for key, value in wanted.items():
                if not isinstance(key, str):
                    raise ContractError(f"{name}: {key!r} is no name of a header: give a text")
                if value is None:
                    raise ContractError(
                        f"{name}[{key!r}]=None: give a text, a pattern or a function"
                    )
                TEXT.check(f"{name}[{key!r}]", value)

    def accepts(self, wanted: Any) -> bool:
        return isinstance(wanted, Mapping)

    def equals(self, found: Any, wanted: Any) -> bool:
        if not isinstance(wanted, Mapping):
            return bool(found == wanted)
        return not any(True for _ in self._missing(found, wanted))

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
            elif all(question.why_not(one) is not None for one in values):
                shown = values[0] if len(values) == 1 else values
                yield (
                    question.why_not(values[0])
                    if len(values) == 1
                    else TEXT.differs(f"header {name}", shown, value)
                )  # type: ignore[misc]

    def _same(self, one: str, other: str) -> bool:
        return one.lower() == other.lower() if self.fold else one == other


class _Headers(_Pairs):
    fold = True


class _Instant(Sort):
    expected = "an instant (a datetime, seconds since the epoch, ISO text)"

    def accepts(self, wanted: Any) -> bool:
        instant_us(wanted)
        return True

    def equals(self, found: Any, wanted: Any) -> bool:
        return bool(found == (wanted if _compares(wanted) else to_datetime(instant_us(wanted))))


ANYTHING = Sort()
ITEM = Sort()
"""Anything, asked as the one thing it is; of ``ANYTHING`` that is a list any part may agree."""
TEXT, NUMBER, FLAG, BYTES, JSON = _Text(), _Number(), _Flag(), _Bytes(), _Json()
DOCUMENT, MAPPING, HEADERS, PAIRS, INSTANT = (
    _Document(),
    _Mapping(),
    _Headers(),
    _Pairs(),
    _Instant(),
)
METHOD = _Method()


def one_of(what: str, words: Iterable[str], *, fold: bool = False) -> Sort:
    """The sort of a text that is always one of these words, each a ``what``."""
    return _OneOf(what, words, fold=fold)


def whole_number(minimum: int, maximum: int | None = None) -> Sort:
    """The sort of a whole number that is never below ``minimum`` nor above ``maximum``."""
    return _Whole(minimum, maximum)


def _is_json(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_json(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return isfinite(value)
    return value is None or isinstance(value, str | int) or _compares(value)


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
    if isinstance(found, Mapping):
        return [
            (key, one)
            for key, value in found.items()
            for one in (value if isinstance(value, list | tuple) else [value])
        ]
    return [(pair[0], pair[1]) for pair in found]


# -- asking ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """A field tests may ask about: its sort, how it is read, and whether it holds several values.

    ``read`` takes an item and returns the value, or ``ABSENT``; without it the field is the item's
    attribute, or its key where the item is a mapping. Of ``several`` values any may agree, as always
    where nothing is known of the field. A ``bare`` field is shown without its name. None may be asked
    for only where a value is ``optional``.
    """

    sort: Sort = field(default_factory=lambda: ANYTHING)
    read: Callable[[Any], Any] | None = None
    several: bool = False
    bare: bool = False
    optional: bool = True


class Question:
    """What is asked of one field. Raises ``ContractError`` for what nothing could agree with."""

    def __init__(
        self, name: str, wanted: Any, sort: Sort | None = None, several: bool = False
    ) -> None:
        self.name = name
        self.wanted = wanted
        self.sort = ANYTHING if sort is None else sort
        self.several = several or self.sort is ANYTHING
        self.is_predicate = _is_predicate(wanted)
        for one in wanted if several and isinstance(wanted, list | tuple) else [wanted]:
            self.sort.check(name, one)

    def why_not(self, found: Any) -> str | None:
        """None where the value agrees; else, in words, what it is.

        Raises ``ContractError`` where the test's function raises, or returns what is to be awaited.
        """
        if isinstance(found, Absent):
            return f"{self.name} is {found.why}, not {brief(self.wanted)}"
        if self.several and isinstance(found, list | tuple | set | frozenset):
            if any(self._agrees(one) for one in found) or self._agrees_whole(found):
                return None
        elif self._agrees(found):
            return None
        self.sort.check_whole(found, self.wanted)
        if self.is_predicate:
            return f"{self.name} is {brief(found)}, which does not satisfy {brief(self.wanted)}"
        if _is_pattern(self.wanted):
            return f"{self.name} is {brief(found)}, in which {self.wanted.pattern!r} is not found"
        return self.sort.differs(self.name, found, self.wanted)

    def _agrees_whole(self, found: Any) -> bool:
        wanted = self.wanted
        if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
            return [*found] == [*wanted]
        return not self.is_predicate and not _is_pattern(wanted) and bool(found == wanted)

    def _agrees(self, found: Any) -> bool:
        wanted = self.wanted
        if self.is_predicate:
            return self._decides(found)
        if _is_pattern(wanted):
            return self.sort.searched(found, wanted)
        if wanted is None or _compares(wanted):
            return bool(found == wanted)
        return self.sort.equals(found, wanted)

    def _decides(self, found: Any) -> bool:
        try:
            answer = self.wanted(found)
            holds = bool(answer)
        except CannotTell:
            raise
        except Exception as error:
            raise ContractError(
                f"{self.name}={brief(self.wanted)} raised {brief(error)} for {brief(found)}: "
                "give a function that answers for every value it may meet"
            ) from error
        if never_awaited(answer):
            raise ContractError(
                f"what {self.name}={brief(self.wanted)} returns is to be awaited: give a function "
                "that answers at once"
            )
        return holds

    def __str__(self) -> str:
        return f"{self.name}={brief(self.wanted)}"


class Query:
    """Several questions asked of one item: all must agree.

    ``fields`` are what may be asked about, by name; a name that is not among them is a
    ``ContractError`` that lists them and the nearest one. ``kind`` says what an item is, in words.
    Functions are asked last, and only about items that agree in all else.
    """

    def __init__(
        self, given: Mapping[str, Any], fields: Mapping[str, Field], kind: str = "item"
    ) -> None:
        check_fields(given, fields, kind)
        for name, wanted in given.items():
            if wanted is None and not fields[name].optional:
                raise ContractError(
                    f"{name}=None can never be: leave {name}= out to ask for any, or give "
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
        """In what the item is not the one asked for, in words; [] where it is.

        Raises ``CannotTell`` where too little of it was kept, and nothing else speaks against it.
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
        """Whether the item is the one asked for; raises as ``why_not`` does."""
        try:
            return all(
                question.why_not(self._value(item, question.name)) is None
                for question in self.questions
            )
        except CannotTell:
            return not self.why_not(item)

    def unlikeness(self, item: Any) -> float:
        """From 0 to 1, how unlike the item's texts and numbers are to those asked for."""
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
    """Raise ``ContractError`` for names that are no fields of this kind of item."""
    for name in given:
        if name not in known:
            article = "an" if kind[:1] in "aeiou" else "a"
            raise ContractError(
                f"{article} {kind} has no field {name!r}{nearest(name, known)}; "
                f"there are: {', '.join(sorted(known))}"
            )


def nearest(word: str, known: Iterable[str]) -> str:
    """``", did you mean …?"`` where one of the known words is near; else nothing."""
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


@cache
def fields_of(kind: type) -> Mapping[str, Field]:
    """The public attributes and properties of a class as fields, of the sorts they are annotated as.

    What an annotation does not tell, or tells of several types, may be asked with anything.
    """
    found: dict[str, Field] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if not name.startswith("_") and isinstance(value, property):
                found[name] = _field_of(_returned(value))
        for name, annotation in _annotations(base).items():
            if not name.startswith("_") and typing.get_origin(annotation) is not typing.ClassVar:
                found[name] = _field_of(annotation)
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("_"):
                found.setdefault(name, Field())
    return found


def _annotations(kind: type) -> Mapping[str, Any]:
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # a name that is imported for type checkers only
        hints = {}
    return {name: hints.get(name, Any) for name in vars(kind).get("__annotations__", {})}


def _returned(value: property) -> Any:
    try:
        return typing.get_type_hints(value.fget).get("return", Any)
    except Exception:  # a name that is imported for type checkers only
        return Any


def _field_of(annotation: Any) -> Field:
    options = [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = list(typing.get_args(annotation))
    sorts = {_SORTS_OF_TYPES.get(one, ANYTHING) for one in options if one is not type(None)}
    sort = sorts.pop() if len(sorts) == 1 else ANYTHING
    return Field(sort, optional=sort is ANYTHING or type(None) in options)
