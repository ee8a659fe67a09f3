"""Compare values with the conditions that a test gives.

Assertions, ``where()``, fault matchers, listings, ``allow()`` and the control API use these rules:

==========================  ======================================================================
given                       matches
==========================  ======================================================================
a value                     values that its ``__eq__`` considers equal (``mock.ANY`` works); in JSON,
                            True and False differ from 1 and 0
a string with ``*``         strings with anything in place of the star; ``\\*`` is a literal star
a compiled pattern          strings in which ``search`` finds it
a function                  values for which it returns something true
==========================  ======================================================================

Bytes are compared with strings and string patterns as the UTF-8 text they contain.

A value that could never match raises a ``ContractError`` that lists what can be given: an assertion
that something did not happen would otherwise pass vacuously. This also applies to a string
that lacks the form of its field, such as a URL without a scheme, and to a function that raises or
whose result must be awaited or iterated. All of this was decided here.
"""

from __future__ import annotations

import difflib
import re
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from .errors import CannotTell, ContractError, brief, shown, unknown_name
from .field_types import (
    ABSENT,
    ANYTHING,
    OF_CLASS,
    TEXT,
    TOKEN,
    Absent,
    FieldType,
    OneOf,
    has_not_run,
    is_pattern,
    is_predicate,
)

V = TypeVar("V")
Condition: TypeAlias = "V | re.Pattern[str] | Callable[[V], object] | None"
"""The type of a condition on a field: a value, a pattern, a function, or None for any value."""


class Field(NamedTuple):
    """A field that tests can filter by.

    ``type`` compares its values. ``read`` takes an item and returns the value or ``ABSENT``;
    without ``read`` the field is the item's attribute, or its key if the item is a mapping. If a
    field has ``several`` values, any of them may match, and a function is called with each. If the
    type is ``ANYTHING``, any item of a list may match too, but a function is called with the whole
    list. A ``bare`` field is shown without its name. Unless it is ``optional``, None is rejected.

    ``parts`` takes an item and returns the field's values for each of the item's parts, such as the
    commands of a pipeline, or None if the item has only one part. Conditions on several fields with
    ``parts`` must hold for the same part.
    """

    type: FieldType = ANYTHING
    read: Callable[[Any], Any] | None = None
    several: bool = False
    bare: bool = False
    optional: bool = True
    parts: Callable[[Any], Sequence[Any] | None] | None = None


class Question:
    """A condition on one field. Raises ``ContractError`` for a value that nothing could match."""

    def __init__(
        self, name: str, expected: Any, field_type: FieldType | None = None, several: bool = False
    ) -> None:
        self.name = name
        self.expected = expected
        self.type = ANYTHING if field_type is None else field_type
        self.is_predicate = is_predicate(expected, self.type.samples)
        self.several = several or (self.type.compares_items and not self.is_predicate)
        self._is_pattern = is_pattern(expected)
        self._parts: list[Question] | None = None
        """The questions for the items of a list that the test gave for a field with several values."""
        if several and isinstance(expected, list | tuple):
            self._parts = [Question(name, item, field_type) for item in expected]
        else:
            self.type.check(name, expected)
        self._accepted = not self.is_predicate and self.type.accepts(expected)

    def agrees(self, actual: Any) -> bool:
        """Return whether a value matches; ``ABSENT`` never does. Raises ``ContractError`` if the
        test's function fails, and ``CannotTell`` if the journal has cut the value.
        """
        if isinstance(actual, Absent):
            return False
        if self.several and isinstance(actual, list | tuple | set | frozenset):
            if any(map(self.agrees_with_one, actual)) or self.agrees_whole(actual):
                return True
        elif self.agrees_with_one(actual):
            return True
        self.type.check_not_cut(actual, self.expected)
        return False

    def refusal(self, actual: Any) -> str:
        """Describe a value that does not match."""
        if isinstance(actual, Absent):
            return f"{self.name} is {actual.why}, not {brief(self.expected)}"
        if self.is_predicate:
            return f"{self.name} is {brief(actual)}, which does not satisfy {brief(self.expected)}"
        if self._is_pattern:
            return (
                f"{self.name} is {brief(actual)}, in which {self.expected.pattern!r} is not found"
            )
        return self.type.differs(self.name, actual, self.expected)

    def agrees_whole(self, actual: Any) -> bool:
        """Return whether a list of values matches as a whole, not because of one of its items."""
        expected = self.expected
        if self.is_predicate or self._is_pattern:
            return False
        if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
            if self._parts is None:
                return self._equals([*actual], [*expected])
            pairs = zip(self._parts, actual, strict=False)
            return len(expected) == len(actual) and all(
                part.agrees_with_one(item) for part, item in pairs
            )
        return self._equals(actual, expected)

    def agrees_with_one(self, actual: Any) -> bool:
        if self._parts is not None:
            return False  # the test gave a list, which can only match a list as a whole
        if self.is_predicate:
            return self._decides(actual)
        if self._is_pattern:
            return self.type.matches_pattern(actual, self.expected)
        return self._equals(actual, self.expected)

    def _equals(self, actual: Any, expected: Any) -> bool:
        try:
            equals = self.type.equals if self._accepted else self.type.equals_unaccepted
            return equals(actual, expected)
        except ContractError:
            raise
        except Exception as error:
            raise ContractError(
                f"{self.name}={brief(expected)} raised {brief(error)} when it was compared with "
                f"{brief(actual)}: pass a value whose == works with every value of the field"
            ) from error

    def _decides(self, actual: Any) -> bool:
        try:
            answer = self.expected(actual)
            holds = bool(answer)
        except CannotTell:
            raise
        except Exception as error:
            raise ContractError(
                f"{self.name}={brief(self.expected)} raised {brief(error)} for {brief(actual)}: "
                "pass a function that works for every value of the field"
            ) from error
        if has_not_run(answer):
            raise ContractError(
                f"what {self.name}={brief(self.expected)} returns must be awaited or iterated: "
                "pass a plain function"
            )
        return holds

    def __str__(self) -> str:
        return f"{self.name}={brief(self.expected)}"


class _Pairs(FieldType):
    """Pairs of a name and a string; names may repeat. Matches if every wanted pair is present."""

    samples: tuple[object, ...] = ({}, [])
    types = (Mapping,)
    expected = "a dict from names to strings, patterns or functions"
    normal: Callable[[str], str] = staticmethod(str)
    """Returns a name as it is compared with others."""

    def check(self, name: str, expected: Any) -> None:
        super().check(name, expected)
        if isinstance(expected, Mapping):
            for key, value in expected.items():
                if not isinstance(key, str):
                    raise ContractError(
                        f"{name}: {key!r} is not the name of a header: pass a string"
                    )
                if value is None:
                    raise ContractError(
                        f"{name}[{key!r}]=None can never match: pass a string, a pattern or a function"
                    )
                TEXT.check(f"{name}[{key!r}]", value)

    def equals(self, actual: Any, expected: Any) -> bool:
        return not any(True for _ in self._missing(actual, expected))

    def equals_unaccepted(self, actual: Any, expected: Any) -> bool:
        return bool(actual == expected) or bool(dict(_pairs(actual)) == expected)

    def differs(self, name: str, actual: Any, expected: Any) -> str:
        if not isinstance(expected, Mapping):
            return super().differs(name, actual, expected)
        return "; ".join(self._missing(actual, expected))

    def _missing(self, actual: Any, expected: Mapping[str, Any]) -> Iterator[str]:
        pairs = _pairs(actual)
        for name, value in expected.items():
            question = Question(f"header {name}", value, TEXT)
            expected_name = self.normal(name)
            values = [
                value_of_key for key, value_of_key in pairs if self.normal(key) == expected_name
            ]
            if not values:
                names = ", ".join(sorted({key for key, _ in pairs})) or "none"
                yield f"header {name} is absent, not {brief(value)} (there are: {names})"
            elif not any(map(question.agrees, values)):
                yield question.refusal(values[0] if len(values) == 1 else values)


class _Headers(_Pairs):
    normal = staticmethod(str.lower)

    def check(self, name: str, expected: Any) -> None:
        super().check(name, expected)
        for key in expected if isinstance(expected, Mapping) else ():
            if not re.fullmatch(TOKEN, key):
                raise ContractError(
                    f"{name}: {brief(key)} cannot be the name of a header: pass one such as "
                    "'Content-Type', without a colon or spaces"
                )


def _pairs(pairs: Any) -> list[tuple[str, str]]:
    if hasattr(pairs, "getlist"):
        return [(key, value) for key in pairs for value in pairs.getlist(key)]
    if isinstance(pairs, Mapping):
        return [
            (key, item)
            for key, value in pairs.items()
            for item in (value if isinstance(value, list | tuple) else [value])
        ]
    return [(pair[0], pair[1]) for pair in pairs]


HEADERS, PAIRS = _Headers(), _Pairs()


def _agree_together(matched: Iterable[tuple[Question, Field, Any]], item: Any) -> bool:
    """Return whether a single part of an item satisfies all questions about parts.

    ``matched`` are questions that the item satisfies, each with its field and the field's value. A
    question that a whole list of values satisfies is not about a part.
    """
    about_parts = [
        (question, field.parts)
        for question, field, value in matched
        if field.parts is not None and not question.agrees_whole(value)
    ]
    if len(about_parts) < 2:
        return True
    columns = [values for _, parts in about_parts if (values := parts(item)) is not None]
    if len(columns) < len(about_parts):
        return True
    questions = [question for question, _ in about_parts]
    rows = zip(*columns, strict=True)
    return any(all(map(Question.agrees, questions, row)) for row in rows)


class Mismatch(NamedTuple):
    """A field of an item that does not match, and whether the field identifies the item."""

    identifies: bool
    text: str


class Query:
    """Several conditions on one item, all of which must hold.

    ``fields`` are the known fields by name, ``kind`` names an item in messages. Functions are
    called last, and only for items that match all other conditions.
    """

    def __init__(
        self, conditions: Mapping[str, Any], fields: Mapping[str, Field], kind: str = "item"
    ) -> None:
        check_fields(conditions, fields, kind)
        for name, expected in conditions.items():
            if expected is None and not fields[name].optional:
                raise ContractError(
                    f"{name}=None can never match: leave out {name}= to match any value, or pass "
                    f"{fields[name].type.expected}"
                )
        self.conditions = conditions
        self.questions = sorted(
            (
                Question(name, expected, fields[name].type, fields[name].several)
                for name, expected in conditions.items()
            ),
            key=lambda question: (question.is_predicate, not question.type.identifies),
        )
        self.fields = fields
        self.kind = kind

    def differences(self, item: Any) -> list[Mismatch]:
        """Return the item's differences, those of fields that identify it first. Raises ``CannotTell``
        if only cut fields could decide.
        """
        return [Mismatch(identifies, describe()) for identifies, describe in self._mismatches(item)]

    def __call__(self, item: Any) -> bool:
        """Return whether the item matches; raises the same errors as ``differences()``."""
        return next(self._mismatches(item), None) is None

    def _mismatches(self, item: Any) -> Iterator[tuple[bool, Callable[[], str]]]:
        """Yield for each difference of the item whether the field identifies it, and a function that
        returns the description.
        """
        matched: list[tuple[Question, Field, Any]] = []
        differs = False
        undecided: CannotTell | None = None
        for question in self.questions:
            if question.is_predicate and differs:
                break
            try:
                value = self._value(item, question.name)
                if question.agrees(value):
                    matched.append((question, self.fields[question.name], value))
                    continue
            except CannotTell as error:
                undecided = error
                continue
            differs = True
            yield question.type.identifies, partial(question.refusal, value)
        if undecided is not None and not differs:
            raise undecided
        if not differs and not _agree_together(matched, item):
            yield True, lambda: f"no single command matches {self}"

    def unlikeness(self, item: Any) -> float:
        """Return how different the item's values are from the wanted ones, from 0 to 1."""
        ratios = []
        for question in self.questions:
            try:
                value = self._value(item, question.name)
            except CannotTell:
                continue
            if not question.is_predicate and not isinstance(value, Absent):
                text, other = shown(value)[:80], shown(question.expected)[:80]
                ratios.append(difflib.SequenceMatcher(None, text, other, autojunk=False).ratio())
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
            (expected if isinstance(expected, str) else brief(expected))
            if self.fields[name].bare
            else f"{name}={brief(expected)}"
            for name, expected in self.conditions.items()
        )


def check_fields(names: Iterable[str], known_names: Collection[str], kind: str) -> None:
    """Raise ``ContractError`` for names that are not fields of this kind of item."""
    for name in names:
        if name not in known_names:
            article = "an" if kind[:1] in "aeiou" else "a"
            raise ContractError(
                unknown_name(f"field of {article} {kind}", name, sorted(known_names))
            )


# -- the fields of a class -------------------------------------------------------------------------


class ItemFields(Mapping[str, Field]):
    """The fields of the items of a class, with a narrower type for some of them. They are read from
    the annotations of the class on first use, because few runs filter items of every class.
    """

    def __init__(self, kind: type, /, **narrower: Field) -> None:
        self._kind = kind
        self._narrower = narrower

    @cached_property
    def _fields(self) -> Mapping[str, Field]:
        return {**fields_of(self._kind), **self._narrower}

    def __getitem__(self, name: str) -> Field:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


@lru_cache(maxsize=256)
def fields_of(kind: type) -> Mapping[str, Field]:
    """Return the public attributes and properties of a class as fields, with types by annotation. A
    field without an annotation, or with one for several types, accepts any value.
    """
    fields: dict[str, Field] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if not name.startswith("_") and isinstance(value, property):
                fields[name] = _field_of(name, _hints(value.fget).get("return", Any))
        hints = _hints(base)
        for name in _annotated(base):
            annotation = hints.get(name, Any)
            if not name.startswith("_") and typing.get_origin(annotation) is not typing.ClassVar:
                fields[name] = _field_of(name, annotation)
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("_"):
                fields.setdefault(name, Field())
    return fields


def _annotated(kind: type) -> Iterable[str]:
    """Return the names that a class annotates itself, even if it names types that are unknown here."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format, get_annotations

        return get_annotations(kind, format=Format.FORWARDREF)
    return tuple(vars(kind).get("__annotations__", ()))


def _hints(described: Any) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(described)
    except Exception:  # an annotation can name a class that is imported only for type checkers
        return {}


def _field_of(name: str, annotation: Any) -> Field:
    options = [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = list(typing.get_args(annotation))
    field_type = _type_of(name, [option for option in options if option is not type(None)])
    return Field(field_type, optional=field_type is ANYTHING or type(None) in options)


def _type_of(name: str, options: list[Any]) -> FieldType:
    if options and all(typing.get_origin(option) is typing.Literal for option in options):
        words = [word for option in options for word in typing.get_args(option)]
        return OneOf(name, words) if all(isinstance(word, str) for word in words) else ANYTHING
    field_types = {OF_CLASS.get(option, ANYTHING) for option in options}
    return field_types.pop() if len(field_types) == 1 else ANYTHING
