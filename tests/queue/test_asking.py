"""What may be asked of a value, and what agrees with it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from unittest.mock import ANY, Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.queue.asking import (
    agrees,
    agrees_as,
    check,
    header_differences,
)


@pytest.mark.parametrize(
    ("found", "wanted", "holds"),
    [
        ("https://app/a", "https://app/a", True),
        ("https://app/a", "https://app/*", True),
        ("https://app/a", "*", True),
        ("https://app/a", "*/b", False),
        ("aba", "ab*ba", False),
        ("a.b.c", "a*b*c", True),
        ("a.c", "a*b*c", False),
        ("https://app/a", re.compile("app"), True),
        ("https://app/a", re.compile("^app"), False),
        (None, re.compile("a"), False),
        (None, "*", False),
        ("a", lambda one: one == "a", True),
        ("a", ANY, True),
        ("a", Mock(return_value=True), True),
        ("a", Mock(return_value=False), False),
    ],
)
def test_text(found: Any, wanted: Any, holds: bool) -> None:
    assert agrees(found, wanted) is holds


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_a_star_is_any_text(pattern: str, found: str) -> None:
    expression = "".join(".*" if one == "*" else re.escape(one) for one in pattern)
    assert agrees(found, pattern) is bool(re.fullmatch(expression, found))


@pytest.mark.parametrize(
    ("found", "wanted", "holds"),
    [
        (b"\xc3\xa4", "ä", True),
        (b"a*", "a*", True),
        (b"ab", "a*", False),
        (b"ab", b"ab", True),
        (b"ab", bytearray(b"ab"), True),
        (b"ab", re.compile(b"b$"), True),
        (b"\xc3\xa4", re.compile("^ä$"), True),
        (b"\xff", re.compile("ä"), False),
        (b"ab", lambda one: len(one) == 2, True),
        (b"ab", ANY, True),
    ],
)
def test_bodies(found: bytes, wanted: Any, holds: bool) -> None:
    check("body", "bytes", wanted)
    assert agrees_as("bytes", found, wanted) is holds


def test_instants() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert agrees_as("instant", at, "2026-01-01T01:00:00+01:00")
    assert not agrees_as("instant", at, "2026-01-01T00:00:01Z")
    assert agrees_as("instant", at, lambda one: one.year == 2026)


async def awaited(value: object) -> bool:
    return False


@pytest.mark.parametrize(
    ("sort", "wanted", "text"),
    [
        ("text", b"a", "x=b'a': give a text, a pattern, None or a predicate"),
        ("text", re.compile(b"a"), "give a text, a pattern"),
        ("text", ["a"], "x=['a']: give a text"),
        ("text", awaited, "is to be awaited, so it would hold for everything"),
        ("number", "1", "x='1': give a whole number"),
        ("number", re.compile("1"), "give a whole number"),
        ("bytes", 5, "x=5: give bytes, a text or a predicate"),
        ("bytes", None, "x=None: give bytes"),
        ("json", {1, 2}, "x={1, 2}: give what JSON can hold"),
        ("json", {"a": [(1, 2)]}, "give what JSON can hold"),
        ("json", {1: 2}, "dict with text keys"),
        ("json", b"{}", "give what JSON can hold"),
        ("json", datetime(2026, 1, 1, tzinfo=UTC), "give what JSON can hold"),
        ("headers", [("a", "b")], "x=[('a', 'b')]: give a dict or a predicate"),
        ("headers", "a", "x='a': give a dict"),
        ("headers", {5: "a"}, "x name=5 is not text"),
        ("headers", {"A": 5}, "x['A']=5: give a text"),
        ("headers", {"A": None}, "x['A']=None: give a text, a pattern or a predicate"),
        ("headers", {"A": ["b"]}, "x['A']=['b']: give a text"),
    ],
)
def test_what_nothing_could_agree_with(sort: Any, wanted: Any, text: str) -> None:
    with pytest.raises(ContractError, match=re.escape(text)):
        check("x", sort, wanted)


@pytest.mark.parametrize(
    ("sort", "wanted"),
    [
        ("text", None),
        ("text", Mock()),
        ("json", None),
        ("json", {"a": [1, 2.5, True, None, ANY]}),
        ("json", re.compile("a")),
        ("headers", {"A": ANY, "b": re.compile("c"), "d": str.isdigit}),
        ("headers", ANY),
        ("dict", {}),
        ("flag", False),
    ],
)
def test_what_may_be_asked(sort: Any, wanted: Any) -> None:
    check("x", sort, wanted)


def test_of_several_values_of_a_header_any_may_agree() -> None:
    headers = [("X-A", "1"), ("x-a", "2"), ("X-B", "3")]
    assert list(header_differences(headers, {"X-a": "2", "x-b": "*"})) == []
    assert list(header_differences(headers, {"x-a": "3", "X-B": str.isalpha, "X-C": "1"})) == [
        "header x-a is ['1', '2'], not '3'",
        "header X-B is '3', which the predicate refuses",
        "header X-C is absent, not '1'",
    ]
