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
        self, name: str, wanted: Any, field_type: FieldType | None = None, several: bool = False
    ) -> None:
        self.name = name
        self.wanted = wanted
        self.type = ANYTHING if field_type is None else field_type
        self.is_predicate = is_predicate(wanted, self.type.samples)
        self.several = several or (self.type.compares_items and not self.is_predicate)
        self._is_pattern = is_pattern(wanted)
        self._parts: list[Question] | None = None
        """The questions for the items of a list that the test gave for a field with several values."""
        if several and isinstance(wanted, list | tuple):
            self._parts = [Question(name, one, field_type) for one in wanted]
        else:
            self.type.check(name, wanted)
        self._accepted = not self.is_predicate and self.type.accepts(wanted)

    def agrees(self, found: Any) -> bool:
        """Return whether a value matches; ``ABSENT`` never does. Raises ``ContractError`` if the
        test's function fails, and ``CannotTell`` if the journal has cut the value.
        """
        if isinstance(found, Absent):
            return False
        if self.several and isinstance(found, list | tuple | set | frozenset):
            if any(map(self.agrees_with_one, found)) or self.agrees_whole(found):
                return True
        elif self.agrees_with_one(found):
            return True
        self.type.check_not_cut(found, self.wanted)
        return False

    def refusal(self, found: Any) -> str:
        """Describe a value that does not match."""
        if isinstance(found, Absent):
            return f"{self.name} is {found.why}, not {brief(self.wanted)}"
        if self.is_predicate:
            return f"{self.name} is {brief(found)}, which does not satisfy {brief(self.wanted)}"
        if self._is_pattern:
            return f"{self.name} is {brief(found)}, in which {self.wanted.pattern!r} is not found"
        return self.type.differs(self.name, found, self.wanted)

    def agrees_whole(self, found: Any) -> bool:
        """Return whether a list of values matches as a whole, not because of one of its items."""
        wanted = self.wanted
        if self.is_predicate or self._is_pattern:
            return False
        if isinstance(wanted, list | tuple) and isinstance(found, list | tuple):
            if self._parts is None:
                return self._equals([*found], [*wanted])
            pairs = zip(self._parts, found, strict=False)
            return len(wanted) == len(found) and all(
                part.agrees_with_one(one) for part, one in pairs
            )
        return self._equals(found, wanted)

    def agrees_with_one(self, found: Any) -> bool:
        if self._parts is not None:
            return False  # the test gave a list, which can only match a list as a whole
        if self.is_predicate:
            return self._decides(found)
        if self._is_pattern:
            return self.type.matches_pattern(found, self.wanted)
        return self._equals(found, self.wanted)

    def _equals(self, found: Any, wanted: Any) -> bool:
        try:
            equals = self.type.equals if self._accepted else self.type.equals_unaccepted
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
        if has_not_run(answer):
            raise ContractError(
                f"what {self.name}={brief(self.wanted)} returns must be awaited or iterated: "
                "pass a plain function"
            )
        return holds

    def __str__(self) -> str:
        return f"{self.name}={brief(self.wanted)}"


class _Pairs(FieldType):
    """Pairs of a name and a string; names may repeat. Matches if every wanted pair is present."""

    samples: tuple[object, ...] = ({}, [])
    types = (Mapping,)
    expected = "a dict from names to strings, patterns or functions"
    normal: Callable[[str], str] = staticmethod(str)
    """Returns a name as it is compared with others."""

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
                        f"{name}[{key!r}]=None can never match: pass a string, a pattern or a function"
                    )
                TEXT.check(f"{name}[{key!r}]", value)

    def equals(self, found: Any, wanted: Any) -> bool:
        return not any(True for _ in self._missing(found, wanted))

    def equals_unaccepted(self, found: Any, wanted: Any) -> bool:
        return bool(found == wanted) or bool(dict(_pairs(found)) == wanted)

    def differs(self, name: str, found: Any, wanted: Any) -> str:
        if not isinstance(wanted, Mapping):
            return super().differs(name, found, wanted)
        return "; ".join(self._missing(found, wanted))

    def _missing(self, found: Any, wanted: Mapping[str, Any]) -> Iterator[str]:
        pairs = _pairs(found)
        for name, value in wanted.items():
            question = Question(f"header {name}", value, TEXT)
            wanted_name = self.normal(name)
            values = [one for key, one in pairs if self.normal(key) == wanted_name]
            if not values:
                names = ", ".join(sorted({key for key, _ in pairs})) or "none"
                yield f"header {name} is absent, not {brief(value)} (there are: {names})"
            elif not any(map(question.agrees, values)):
                yield question.refusal(values[0] if len(values) == 1 else values)


class _Headers(_Pairs):
    normal = staticmethod(str.lower)

    def check(self, name: str, wanted: Any) -> None:
        super().check(name, wanted)
        for key in wanted if isinstance(wanted, Mapping) else ():
            if not re.fullmatch(TOKEN, key):
                raise ContractError(
                    f"{name}: {brief(key)} cannot be the name of a header: pass one such as "
                    "'Content-Type', without a colon or spaces"
                )


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


HEADERS, PAIRS = _Headers(), _Pairs()


def _agree_together(matched: Iterable[tuple[Question, Field, Any]], item: Any) -> bool:
    """Return whether a single part of an item satisfies all questions about parts.

    ``matched`` are questions that the item satisfies, each with its field and the field's value. A
    question that a whole list of values satisfies is not about a part.
    """
    asked = [
        (question, field.parts)
        for question, field, value in matched
        if field.parts is not None and not question.agrees_whole(value)
    ]
    if len(asked) < 2:
        return True
    columns = [values for _, parts in asked if (values := parts(item)) is not None]
    if len(columns) < len(asked):
        return True
    questions = [question for question, _ in asked]
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
        self, given: Mapping[str, Any], fields: Mapping[str, Field], kind: str = "item"
    ) -> None:
        check_fields(given, fields, kind)
        for name, wanted in given.items():
            if wanted is None and not fields[name].optional:
                raise ContractError(
                    f"{name}=None can never match: leave out {name}= to match any value, or pass "
                    f"{fields[name].type.expected}"
                )
        self.given = given
        self.questions = sorted(
            (
                Question(name, wanted, fields[name].type, fields[name].several)
                for name, wanted in given.items()
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
                one, other = shown(value)[:80], shown(question.wanted)[:80]
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
            raise ContractError(unknown_name(f"field of {article} {kind}", name, sorted(known)))


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
    found: dict[str, Field] = {}
    for base in reversed(kind.__mro__):
        for name, value in vars(base).items():
            if not name.startswith("_") and isinstance(value, property):
                found[name] = _field_of(name, _hints(value.fget).get("return", Any))
        hints = _hints(base)
        for name in _annotated(base):
            annotation = hints.get(name, Any)
            if not name.startswith("_") and typing.get_origin(annotation) is not typing.ClassVar:
                found[name] = _field_of(name, annotation)
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("_"):
                found.setdefault(name, Field())
    return found


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
    field_type = _type_of(name, [one for one in options if one is not type(None)])
    return Field(field_type, optional=field_type is ANYTHING or type(None) in options)


def _type_of(name: str, options: list[Any]) -> FieldType:
    if options and all(typing.get_origin(one) is typing.Literal for one in options):
        words = [word for one in options for word in typing.get_args(one)]
        return OneOf(name, words) if all(isinstance(one, str) for one in words) else ANYTHING
    field_types = {OF_CLASS.get(one, ANYTHING) for one in options}
    return field_types.pop() if len(field_types) == 1 else ANYTHING
