"""The values that match, for every kind of condition that a test can give."""

from __future__ import annotations

import asyncio
import functools
import math
import re
import sys
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Any, ClassVar, Literal, NamedTuple
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.errors import CannotTell, ContractError
from pytest_fakecloud.core.field_types import (
    ABSENT,
    ANYTHING,
    BYTES,
    DOCUMENT,
    FLAG,
    INSTANT,
    JSON,
    MAPPING,
    METHOD,
    NUMBER,
    TEXT,
    URL,
    FieldType,
    OneOf,
    WholeNumber,
    either,
)
from pytest_fakecloud.core.matching import (
    HEADERS,
    PAIRS,
    Field,
    Query,
    Question,
    check_fields,
    fields_of,
)
from tests.harness import check_each, error_of

AT = datetime(2026, 1, 1, tzinfo=UTC)
STATE = OneOf("state", ("ACTIVE", "DONE"))
WORD = OneOf("word", ("Set", "Get"), fold=True)


class Text(str):
    """A subclass of str, defined by the test."""


class State(StrEnum):
    ACTIVE = "ACTIVE"


class Meta(type):
    def __eq__(cls, other: object) -> bool:
        return isinstance(other, cls.kind)  # type: ignore[attr-defined]

    __hash__ = type.__hash__


class AnyText(metaclass=Meta):
    """A class that compares equal to strings without being instantiated, as in dirty-equals."""

    kind = str


class Series:
    """An array, whose == compares element by element."""

    __hash__ = None  # type: ignore[assignment]

    def __array__(self) -> object:
        raise NotImplementedError

    def __eq__(self, other: object) -> Any:
        return [True]


class Has:
    """Equal to any container that contains the item, like matchers of test libraries."""

    def __init__(self, item: object) -> None:
        self.item = item

    def __eq__(self, other: Any) -> bool:
        return self.item in other

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Plain:
    """An object that compares equal only to objects of its own type."""

    a: int = 1


@dataclass
class Above:
    """A predicate function with an ``__eq__`` that raises an exception for strings."""

    limit: int

    def __call__(self, value: int) -> bool:
        return value > self.limit


class Awaited:
    async def __call__(self, value: object) -> bool:
        return True


async def awaited(value: object) -> bool:
    return True


async def gone_through_later(value: object) -> Any:
    yield True


def gone_through(value: object) -> Iterator[bool]:
    yield True


AGREE: list[tuple[FieldType, Any, Any]] = [
    (TEXT, "a", "a"),
    (TEXT, "a", Text("a")),
    (TEXT, Text("a"), "a"),
    (TEXT, "ACTIVE", State.ACTIVE),
    (TEXT, None, None),
    (NUMBER, 1, 1.0),
    (NUMBER, 200, HTTPStatus.OK),
    (NUMBER, 2, Decimal(2)),
    (WholeNumber(0), 7, 7),
    (WholeNumber(0, 3), 3, 3.0),
    (NUMBER, None, None),
    (FLAG, True, True),
    (BYTES, b"a", b"a"),
    (BYTES, b"a", bytearray(b"a")),
    (BYTES, "é".encode(), "é"),
    (BYTES, b"\xff", b"\xff"),
    (JSON, {"a": [1]}, {"a": (1,)}),
    (JSON, {"a": 1}, OrderedDict(a=1)),
    (JSON, None, None),
    (JSON, {"a": {"b": "x"}}, {"a": {"b": mock.ANY}}),
    (JSON, {"a": [1, "x"]}, {"a": [1, AnyText]}),
    (DOCUMENT, '{"a": 1}', {"a": 1}),
    (DOCUMENT, '{"a": 1}', '{"a": 1}'),
    (DOCUMENT, "null", None),
    (DOCUMENT, None, None),
    (DOCUMENT, "plain", AnyText),
    (DOCUMENT, '{"a": [1]}', Has("a")),
    (DOCUMENT, "[5]", Has(5)),
    (MAPPING, {"a": [1]}, {"a": (1,)}),
    (MAPPING, {"a": 1}, OrderedDict(a=1)),
    (HEADERS, [("X-A", "1"), ("X-B", "2")], {"x-a": "1"}),
    (HEADERS, [("X-A", "1"), ("x-a", "2")], {"X-A": "2"}),
    (HEADERS, [("X-A", "1")], OrderedDict({"x-a": "1"})),
    (HEADERS, {"X-A": ["1", "2"]}, {"x-a": "2"}),
    (HEADERS, [("X-A", "1")], {}),
    (HEADERS, [("X-A", "1")], {"x-a": mock.ANY}),
    (HEADERS, [("X-A", "1")], {"x-a": "*"}),
    (HEADERS, [("X-A", "12")], {"x-a": re.compile("2$")}),
    (HEADERS, [("X-A", "12")], {"x-a": str.isdigit}),
    (HEADERS, [("X-A", "1")], Has("X-A")),
    (PAIRS, [("a", "1")], {"a": "1"}),
    (INSTANT, AT, AT),
    (INSTANT, AT, "2026-01-01T00:00:00Z"),
    (INSTANT, AT, AT.astimezone(timezone(timedelta(hours=5)))),
    (INSTANT, None, None),
    (METHOD, "GET", "GET"),
    (METHOD, "get", re.compile("^g")),
    (METHOD, "PURGE", "PURGE"),
    (STATE, "DONE", "DONE"),
    (STATE, "DONE", "D*"),
    (STATE, "ACTIVE", State.ACTIVE),
    (STATE, "DONE", re.compile("^D")),
    (WORD, "Set", "SET"),
    (WORD, "Set", "s*"),
    (ANYTHING, (1, 2), [1, 2]),
    (ANYTHING, [1, 2], 2),
    (ANYTHING, ["a", "bc"], "b*"),
    (ANYTHING, ["a", "bc"], re.compile("c")),
    (ANYTHING, [1, 2], lambda value: len(value) == 2),
    (ANYTHING, {"a"}, {"a"}),
    (ANYTHING, Plain(1), Plain(1)),
    (ANYTHING, [[1, 2]], [[1, 2]]),
    (ANYTHING, [[1, 2], [3]], [1, 2]),
    *((field_type, "a", mock.ANY) for field_type in (TEXT, DOCUMENT, ANYTHING)),
    (NUMBER, 1, mock.ANY),
    (NUMBER, 0.1 + 0.2, pytest.approx(0.3)),
    (FLAG, False, mock.ANY),
    (BYTES, b"", mock.ANY),
    (JSON, {}, mock.ANY),
    (MAPPING, {}, mock.ANY),
    (HEADERS, [], mock.ANY),
    (PAIRS, [], mock.ANY),
    (INSTANT, AT, mock.ANY),
    (METHOD, "GET", mock.ANY),
    (STATE, "DONE", mock.ANY),
    (WORD, "Set", mock.ANY),
    (TEXT, "abc", Has("b")),
    (TEXT, "abc", AnyText),
    (TEXT, "", "*"),
    (TEXT, "a\nb", "a*b"),
    (TEXT, "abcabc", "a*c"),
    (TEXT, "abc", "*b*"),
    (TEXT, "aXbYc", "a*b*c"),
    (TEXT, "a*b", "a\\*b"),
    (TEXT, "a\\*b", "a\\*b"),
    (TEXT, "a*bc", "a\\*b*"),
    (TEXT, "a.b", "a.*"),
    (BYTES, "xéy".encode(), "*é*"),
    (BYTES, b"a\xffb", "a*b"),
    (TEXT, "abc", re.compile("b")),
    (BYTES, b"abc", re.compile(b"b")),
    (BYTES, "é".encode(), re.compile("é")),
    (JSON, "abc", re.compile("b")),
    (DOCUMENT, '{"a": 1}', re.compile('"a"')),
    (TEXT, "abc", str.isalpha),
    (NUMBER, 5, Above(4)),
    (NUMBER, 5, (4).__lt__),
    (NUMBER, 5, functools.partial(max, 0)),
    (NUMBER, 5, mock.Mock(return_value=True)),
    (NUMBER, 5, mock.MagicMock(return_value=True)),
    (FLAG, True, bool),
    (JSON, {"a": 1}, lambda value: value["a"] == 1),
]


def test_what_agrees() -> None:
    def check(field_type: FieldType, value: Any, wanted: Any) -> None:
        assert Question("x", wanted, field_type).agrees(value)

    check_each(check, AGREE)


DIFFER: list[tuple[FieldType, Any, Any, str]] = [
    (TEXT, "a", "b", "x is 'a', not 'b'"),
    (TEXT, "ab", "b*", "x is 'ab', not 'b*'"),
    (TEXT, "ab", "*a", "x is 'ab', not '*a'"),
    (TEXT, "a", "a*a", "x is 'a', not 'a*a'"),
    (TEXT, "acb", "a*b*c", "x is 'acb', not 'a*b*c'"),
    (TEXT, "axb", "a\\*b", r"x is 'axb', not 'a\\*b'"),
    (TEXT, "axb", "a.b", "x is 'axb', not 'a.b'"),
    (TEXT, None, "a*", "x is None, not 'a*'"),
    (TEXT, "a", None, "x is 'a', not None"),
    (TEXT, None, re.compile("a"), "x is None, in which 'a' is not found"),
    (TEXT, "b", re.compile("a"), "x is 'b', in which 'a' is not found"),
    (TEXT, "b", Has("a"), "x is 'b', not <tests.core.test_matching.Has object"),
    (NUMBER, 1, 2, "x is 1, not 2"),
    (NUMBER, None, 2, "x is None, not 2"),
    (NUMBER, 1, Above(1), "x is 1, which does not satisfy Above(limit=1)"),
    (FLAG, True, False, "x is True, not False"),
    (BYTES, b"a", b"b", "x is b'a', not b'b'"),
    (BYTES, b"\xef\xbf\xbd", b"\xff", "x is b'\\xef\\xbf\\xbd', not b'\\xff'"),
    (BYTES, b"a", "b*", "x is b'a', not 'b*'"),
    (BYTES, b"a", re.compile("b"), "x is b'a', in which 'b' is not found"),
    (BYTES, b"a", re.compile(b"b"), "x is b'a', in which b'b' is not found"),
    (JSON, {"a": 1, "b": 2}, {"a": 2, "c": 3}, "x.a is 1, not 2; x.c is absent, not 3; x.b is 2"),
    (JSON, [1], {"a": 1}, "x is [1], not {'a': 1}"),
    (JSON, {"a": True}, {"a": 1}, "x.a is True, not 1"),
    (DOCUMENT, "[0]", [False], "x[0] is 0, not False"),
    (MAPPING, {"a": 1}, {"a": True}, "x.a is 1, not True"),
    (JSON, None, "a", "x is None, not 'a'"),
    (DOCUMENT, "nope", {"a": 1}, "x 'nope' is not JSON, expected {'a': 1}"),
    (DOCUMENT, '{"a": 1}', {"a": 2}, "x.a is 1, not 2"),
    (DOCUMENT, '{"a": 1}', "b", "x is '{\"a\": 1}', not 'b'"),
    (MAPPING, {"a": 1}, {"a": 2}, "x.a is 1, not 2"),
    (HEADERS, [("A", "1")], {"a": "2"}, "header a is '1', not '2'"),
    (HEADERS, [("A", "1"), ("a", "3")], {"a": "2"}, "header a is ['1', '3'], not '2'"),
    (HEADERS, [("A", "1"), ("B", "3")], {"c": "2"}, "c is absent, not '2' (there are: A, B)"),
    (HEADERS, [], {"c": "2"}, "header c is absent, not '2' (there are: none)"),
    (HEADERS, [("A", "1")], {"a": re.compile("2")}, "header a is '1', in which '2' is not found"),
    (HEADERS, [("A", "1")], {"a": str.isalpha}, "header a is '1', which does not satisfy isalpha"),
    (HEADERS, [("A", "1")], Has("B"), "x is [('A', '1')], not <"),
    (PAIRS, [("A", "1")], {"a": "1"}, "header a is absent, not '1' (there are: A)"),
    (INSTANT, AT, "2026-01-01T00:00:01Z", "not '2026-01-01T00:00:01Z'"),
    (METHOD, "GET", "POST", "x is 'GET', not 'POST'"),
    (STATE, "DONE", "ACTIVE", "x is 'DONE', not 'ACTIVE'"),
    (WORD, None, "set", "x is None, not 'set'"),
    (ANYTHING, [1, 2], 3, "x is [1, 2], not 3"),
    (ANYTHING, [1, 2], [1], "x is [1, 2], not [1]"),
    (ANYTHING, 5, re.compile("5"), "x is 5, in which '5' is not found"),
    (ANYTHING, ABSENT, mock.ANY, "x is absent, not <ANY>"),
    (ANYTHING, ABSENT, None, "x is absent, not None"),
]


def test_what_differs_says_how() -> None:
    def check(field_type: FieldType, value: Any, wanted: Any, text: str) -> None:
        question = Question("x", wanted, field_type)
        assert not question.agrees(value)
        assert text in question.refusal(value)

    check_each(check, DIFFER)


NEVER: list[tuple[FieldType, Any, str]] = [
    *((TEXT, wanted, "pass a string") for wanted in (5, b"a", True, ["a"], {}, 1.5)),
    *(
        (TEXT, wanted, "pass a string")
        for wanted in (PurePosixPath("/a"), uuid.UUID(int=1), Plain())
    ),
    (TEXT, re.compile(b"a"), "pass a string"),
    (HEADERS, {"X-Name:": "a"}, "'X-Name:' cannot be the name of a header"),
    *((NUMBER, wanted, "pass a number") for wanted in ("5", b"5", True, [5], re.compile("5"))),
    *((FLAG, wanted, "pass True, False") for wanted in (1, 0, "True", re.compile("T"))),
    *((BYTES, wanted, "pass bytes, a string") for wanted in (5, True, ["a"], Plain())),
    *((JSON, wanted, "pass a JSON value") for wanted in (b"a", {1: 2}, {"a": {1}}, Plain())),
    (JSON, {"a": [PurePosixPath("/a")]}, "pass a JSON value"),
    (JSON, {"a": math.inf}, "pass a JSON value"),
    (TEXT, Series(), "pass a string"),
    (JSON, re.compile(b"a"), "pass a JSON value"),
    (DOCUMENT, b"{}", "pass a JSON value"),
    *((MAPPING, wanted, "pass a dict") for wanted in ("a", [("a", 1)], 5, re.compile("a"))),
    *((HEADERS, wanted, "pass a dict") for wanted in ("a", [("a", "1")], 5, re.compile("a"))),
    (HEADERS, {1: "a"}, "x: 1 is not the name of a header"),
    (HEADERS, {"a": None}, r"x\['a'\]=None can never match: pass a string"),
    (HEADERS, {"a": 1}, r"x\['a'\]=1 can never match: pass a string"),
    (HEADERS, {"a": awaited}, r"x\['a'\]=awaited must be awaited"),
    *((INSTANT, wanted, "pass a time") for wanted in (5, True, b"a", re.compile("2026"))),
    (INSTANT, "soon", "'soon' is not"),
    (INSTANT, datetime(2026, 1, 1), "offset"),
    (METHOD, "get", "'get' is not an HTTP method: .* pass 'GET'"),
    (METHOD, 5, "pass a string"),
    (URL, 5, "pass an absolute URL"),
    *((WholeNumber(0, 3), wanted, "pass a whole number from 0 to 3") for wanted in (-1, 0.5, 4)),
    (WholeNumber(1), 0, "pass a whole number from 1 up"),
    (STATE, "DOEN", r"x='DOEN' is not a state; did you mean 'DONE'\? Known states: ACTIVE, DONE"),
    (STATE, "X*", r"x='X\*' is not a state. Known"),
    (STATE, re.compile("^E"), "is not a state. Known"),
    (STATE, 5, "pass one of ACTIVE, DONE"),
    (WORD, "pet", "x='pet' is not a word"),
    *(
        (field_type, function, "must be awaited or iterated")
        for field_type in (TEXT, NUMBER, JSON, HEADERS, INSTANT, ANYTHING)
        for function in (
            awaited, Awaited(), functools.partial(awaited), mock.AsyncMock(), gone_through,
            gone_through_later,
        )
    ),
]  # fmt: skip


def test_what_could_never_agree_is_refused_at_once() -> None:
    def check(field_type: FieldType, wanted: Any, text: str) -> None:
        with pytest.raises(ContractError, match=f"(?s){text}"):
            Question("x", wanted, field_type)
        with pytest.raises(ContractError, match=f"(?s){text}"):
            Query({"x": wanted}, {"x": Field(field_type)})

    check_each(check, NEVER)


def raises(error: BaseException) -> Callable[[object], bool]:
    def broken(value: object) -> bool:
        raise error

    return broken


class NoTruth:
    def __bool__(self) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (raises(KeyError("typo")), r"x=broken raised KeyError\('typo'\) for 'a': pass a function"),
        (lambda value: NoTruth(), "x=<lambda> raised ValueError"),
        (lambda: True, "x=<lambda> raised TypeError"),
        (lambda value: asyncio.sleep(0), "what x=<lambda> returns must be awaited"),
        (lambda value: (item for item in value), "what x=<lambda> returns must be .*iterated"),
    ],
)
def test_a_function_that_does_not_answer_is_the_tests_mistake(wanted: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        Question("x", wanted, TEXT).agrees("a")


def test_a_comparison_that_raises_is_the_tests_mistake() -> None:
    question = Question("x", Has("a"), ANYTHING)
    assert question.agrees("ab")
    with pytest.raises(ContractError, match=r"x=<.*Has object.* raised TypeError.* with 5: pass a"):
        question.agrees(5)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), pytest.fail.Exception("stop")])
def test_what_ends_the_test_goes_through(error: BaseException) -> None:
    with pytest.raises(type(error)):
        Question("x", raises(error)).agrees("a")


class TestSeveral:
    SORT = OneOf("command", ("SET", "GET"), fold=True)

    @pytest.mark.parametrize(
        ("wanted", "agrees"),
        [
            ("set", True), ("GET", True), (re.compile("^S"), True),
            (lambda word: word == "SET", True), (lambda word: word == "DEL", False),
            (["set", "get"], True), (("SET", "G*"), True), (["SET", mock.ANY], True),
            (["SET", re.compile("E")], True), (["SET", str.isupper], True), (["GET", "SET"], False),
            (["SET"], False), ([], False), (mock.ANY, True), (None, False),
        ],
    )  # fmt: skip
    def test_any_may_agree_or_all(self, wanted: Any, agrees: bool) -> None:
        assert Question("x", wanted, self.SORT, several=True).agrees(["SET", "GET"]) is agrees

    def test_one_value_is_compared_as_it_is(self) -> None:
        assert Question("x", "set", self.SORT, several=True).agrees("SET")
        assert not Question("x", ["set"], self.SORT, several=True).agrees("SET")

    @pytest.mark.parametrize("wanted", [["SET", "nope"], [5], "nope"])
    def test_each_that_is_asked_for_is_checked(self, wanted: Any) -> None:
        with pytest.raises(ContractError, match=r"is not a command|pass one of"):
            Question("x", wanted, self.SORT, several=True)


# -- properties ------------------------------------------------------------------------------------

NUMBERS = st.integers() | st.floats(allow_nan=False)
JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
VALUES = st.one_of(
    *(
        st.tuples(st.just(field_type), values)
        for field_type, values in (
            (TEXT, st.text()), (NUMBER, NUMBERS), (FLAG, st.booleans()), (BYTES, st.binary()),
            (JSON, JSONS), (DOCUMENT, st.text()),
            (MAPPING, st.dictionaries(st.text(), JSONS, max_size=3)),
            (INSTANT, st.datetimes(timezones=st.just(UTC))), (ANYTHING, JSONS),
        )
    )
)  # fmt: skip


@given(VALUES)
def test_a_value_agrees_with_itself(case: tuple[FieldType, Any]) -> None:
    field_type, value = case
    assert Question("x", value, field_type).agrees(value)


@pytest.mark.parametrize(
    ("field_type", "names"), [(PAIRS, st.text()), (HEADERS, st.text("aZ9-_.!"))]
)
def test_pairs_agree_with_themselves(field_type: FieldType, names: st.SearchStrategy[str]) -> None:
    @given(st.lists(st.tuples(names.filter(bool), st.text()), max_size=4))
    def check(pairs: list[tuple[str, str]]) -> None:
        assert Question("x", dict(pairs), field_type).agrees(pairs)

    check()


def fits(glob: str, text: str) -> bool:
    """Match a glob by its definition, character by character."""
    if glob.startswith("\\*"):
        return text[:1] == "*" and fits(glob[2:], text[1:])
    if glob.startswith("*"):
        return any(fits(glob[1:], text[at:]) for at in range(len(text) + 1))
    if not glob:
        return not text
    return text[:1] == glob[0] and fits(glob[1:], text[1:])


@given(st.text("ab*\\", max_size=7), st.text("ab*\\", max_size=7))
def test_globs_are_what_they_are_defined_as(glob: str, text: str) -> None:
    expected = glob == text or fits(glob, text)
    assert Question("x", glob, TEXT).agrees(text) is expected
    assert Question("x", glob, BYTES).agrees(text.encode()) is expected


def test_no_glob_takes_long() -> None:
    # An implementation that backtracks would not finish.
    assert not Question("x", "*a" * 40 + "*b", TEXT).agrees("a" * 20_000)


# -- fields and queries ----------------------------------------------------------------------------


class Item(NamedTuple):
    state: str = "DONE"
    count: int = 2


def why_not(query: Query, item: Any) -> list[str]:
    return [difference.text for difference in query.differences(item)]


FIELDS = {"state": Field(STATE), "count": Field(NUMBER), "size": Field(NUMBER, lambda item: 7)}


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        ({}, []),
        ({"state": "DONE", "count": 2, "size": 7}, []),
        ({"state": "ACTIVE"}, ["state is 'DONE', not 'ACTIVE'"]),
        ({"state": "ACTIVE", "count": 3}, ["state is 'DONE', not 'ACTIVE'", "count is 2, not 3"]),
        ({"count": raises(ValueError()), "state": "ACTIVE"}, ["state is 'DONE', not 'ACTIVE'"]),
        ({"count": Above(5)}, ["count is 2, which does not satisfy Above(limit=5)"]),
    ],
)
@pytest.mark.parametrize("item", [Item(), {"state": "DONE", "count": 2}])
def test_all_questions_must_agree(fields: dict[str, Any], reasons: list[str], item: Any) -> None:
    query = Query(fields, FIELDS, "entry")
    assert why_not(query, item) == reasons
    assert query(item) is (not reasons)


def test_a_field_nobody_has_is_named_with_the_nearest() -> None:
    assert error_of(Query, {"stat": 1}, FIELDS, "entry") == (
        "'stat' is not a field of an entry; did you mean 'state'? Known fields: count, size, state"
    )
    with pytest.raises(ContractError, match=r"^'zzz' is not a field of a call. Known fields: a$"):
        check_fields(["zzz"], ["a"], "call")


def test_a_query_in_words() -> None:
    fields = {**FIELDS, "what": Field(bare=True)}
    query = Query({"what": "SET", "count": Above(1), "state": "DONE"}, fields)
    assert str(query) == "SET count=Above(limit=1) state='DONE'"
    assert str(query.questions[0]) == "what='SET'"
    assert str(Query({}, fields)) == ""


class Cut(FieldType):
    def check_not_cut(self, value: Any, wanted: Any) -> None:
        if value == "cut":
            raise CannotTell("too little is left")


def test_what_is_cut_decides_nothing_unless_something_else_does() -> None:
    query = Query({"text": "a", "number": 1}, {"text": Field(Cut()), "number": Field(NUMBER)})
    assert query({"text": "a", "number": 1})
    assert not query({"text": "cut", "number": 2})
    assert why_not(query, {"text": "cut", "number": 2}) == ["number is 2, not 1"]
    for ask in (query, query.differences):
        with pytest.raises(CannotTell):
            ask({"text": "cut", "number": 1})


def test_conditions_on_parts_hold_for_the_same_part() -> None:
    def of_parts(name: str) -> Field:
        return Field(
            TEXT,
            lambda item: [part[name] for part in item],
            several=True,
            parts=lambda item: [part[name] for part in item] if len(item) > 1 else None,
        )

    fields = {"name": of_parts("name"), "key": of_parts("key"), "size": Field(NUMBER, len)}
    first, second = {"name": "SET", "key": "a"}, {"name": "GET", "key": "b"}
    query = Query({"name": "SET", "key": "b"}, fields)
    assert not query([first, second])
    assert why_not(query, [first, second]) == ["no single command matches name='SET' key='b'"]
    assert why_not(query, [first]) == ["key is ['a'], not 'b'"]
    assert query([first, {"name": "SET", "key": "b"}])
    assert Query({"name": "GET", "key": lambda key: key == "b", "size": 2}, fields)([first, second])
    assert Query({"name": ["SET", "GET"], "key": "b"}, fields)([first, second])
    assert Query({"name": mock.ANY, "key": "b"}, fields)([first, second])


def test_a_field_that_was_cut_has_no_likeness() -> None:
    def read(item: object) -> Any:
        raise CannotTell("too little is left")

    query = Query({"text": "a", "number": 1}, {"text": Field(read=read), "number": Field(NUMBER)})
    assert query.unlikeness({"number": 1}) == 0


def test_a_string_that_is_no_time_can_still_be_a_text() -> None:
    question = Question("x", "abc", either([TEXT, INSTANT]))
    assert question.agrees("abc")
    assert not question.agrees("abd")


def test_the_nearest_has_the_smallest_unlikeness() -> None:
    query = Query({"state": "DONE", "count": 2}, FIELDS)
    assert query.unlikeness(Item()) == 0
    assert 0 < query.unlikeness(Item(count=3)) < query.unlikeness(Item("ACTIVE", 57)) <= 1
    assert query.unlikeness({}) == 1
    assert Query({"count": bool}, FIELDS).unlikeness(Item()) == 1


class Base:
    inherited: str


@dataclass
class Record(Base):
    name: str
    size: int | None
    ratio: float
    ready: bool
    raw: bytes
    at: datetime
    state: Literal["NEW", "OLD"]
    either: Literal["a"] | None
    mixed: Literal["a", 1]
    odd: str | int
    words: list[str] = field(default_factory=list)
    _hidden: int = 0
    shared: ClassVar[int] = 1

    @property
    def twice(self) -> int:
        return 2

    @property
    def unknown(self):  # type: ignore[no-untyped-def]
        return None

    def method(self) -> None: ...


class Slotted:
    __slots__ = ("_private", "one")


class OneSlot:
    __slots__ = "only"


def test_the_fields_of_a_class() -> None:
    fields_of.cache_clear()
    fields = fields_of(Record)
    assert fields_of(Record) is fields
    assert {name for name, known_field in fields.items() if not known_field.optional} == {
        "inherited", "name", "ratio", "ready", "raw", "at", "state", "twice",
    }  # fmt: skip
    field_types = {name: known_field.type for name, known_field in fields.items()}
    state, either = field_types.pop("state"), field_types.pop("either")
    assert field_types == {
        "inherited": TEXT, "name": TEXT, "size": NUMBER, "ratio": NUMBER, "ready": FLAG,
        "raw": BYTES, "at": INSTANT, "mixed": ANYTHING, "odd": ANYTHING, "words": ANYTHING,
        "twice": NUMBER, "unknown": ANYTHING,
    }  # fmt: skip
    with pytest.raises(ContractError, match="state='NWE' is not a state; did you mean 'NEW'"):
        state.check("state", "NWE")
    with pytest.raises(ContractError, match=r"either='b' is not an either. Known eithers: a"):
        either.check("either", "b")
    either.check("either", None)
    assert {*fields_of(Slotted)} == {"one"}
    assert {*fields_of(OneSlot)} == {"only"}
    assert {*fields_of(Item)} == {"state", "count"}


def test_the_fields_of_a_class_whose_module_does_not_postpone_annotations() -> None:
    source = "class Plain:\n    name: str\n    size: int\n"
    if sys.version_info >= (3, 14):  # where no annotation is evaluated before it is read
        source += "\nclass Partly:\n    name: str\n    size: OnlyForTypeCheckers\n"
    names: dict[str, Any] = {}
    exec(compile(source, "plain", "exec", dont_inherit=True), names)
    assert {name: known_field.type for name, known_field in fields_of(names["Plain"]).items()} == {
        "name": TEXT, "size": NUMBER,
    }  # fmt: skip
    assert {*fields_of(names.get("Partly", names["Plain"]))} == {"name", "size"}


@pytest.mark.parametrize(
    ("count", "more"), [(1, ""), (3, ""), (4, " and 1 more"), (9, " and 6 more")]
)
def test_of_many_differences_the_first_are_told(count: int, more: str) -> None:
    actual, wanted = {f"k{n}": 0 for n in range(count)}, {f"k{n}": 1 for n in range(count)}
    difference = JSON.differs("json", actual, wanted)
    assert difference.count("; ") == min(count, 3) - 1
    assert difference.endswith(more)
    assert ("more" in difference) is bool(more)
