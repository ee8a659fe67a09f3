"""Parsing of path segments, queries, JSON, booleans and integers."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import quote, quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.http.readers import (
    decode_segment,
    flag,
    integer,
    json_value,
    query_items,
    segment_bytes,
)


@given(st.binary())
def test_a_segment_gives_back_any_bytes(data: bytes) -> None:
    assert segment_bytes(quote_from_bytes(data, safe="")) == data


@given(st.text())
def test_a_segment_gives_back_any_text(text: str) -> None:
    raw = quote(text, safe="", errors="surrogatepass")
    if text.isprintable():
        assert decode_segment(raw) == text


def test_segments_are_decoded_once_and_leniently() -> None:
    assert decode_segment("a%2520b") == "a%20b"
    assert decode_segment("a+b") == "a+b"
    assert decode_segment("%zz%4") == "%zz%4"
    assert decode_segment("%FF") == "\N{REPLACEMENT CHARACTER}"
    assert segment_bytes("\xe9") == b"\xe9"  # raw bytes are Latin-1 text of the target
    assert decode_segment("\xc3\xa9") == "é"


@pytest.mark.parametrize(
    ("raw", "items"),
    [
        ("", []),
        ("a=1&b=2", [("a", "1"), ("b", "2")]),
        ("a=1&a=2", [("a", "1"), ("a", "2")]),
        ("a&b=&=c", [("a", ""), ("b", ""), ("", "c")]),
        ("&&a=1&", [("a", "1")]),
        ("a=b=c", [("a", "b=c")]),
        ("a%3D=%26+x", [("a=", "& x")]),
        ("a=%C3%A9&b=\xc3\xa9", [("a", "é"), ("b", "é")]),
        ("a=%FF", [("a", "\N{REPLACEMENT CHARACTER}")]),
        ("a=%zz", [("a", "%zz")]),
    ],
)
def test_query_items(raw: str, items: list[tuple[str, str]]) -> None:
    assert query_items(raw) == items


def test_no_query_item_is_text_that_cannot_be_encoded() -> None:
    for name, value in query_items("\xff=\xfe&%ED%A0%80=1"):
        (name + value).encode()


def test_json_of_any_encoding_json_allows() -> None:
    assert json_value(b'{"a": [1, 2.5, null, "\xc3\xa9"]}') == {"a": [1, 2.5, None, "é"]}
    assert json_value('"é"'.encode("utf-16")) == "é"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "Expecting value at line 1 column 1"),
        (b'{"a": }', "Expecting value at line 1 column 7"),
        (b'{"a": 1}\n{', "Extra data at line 2 column 1"),
        (b'"\xff"', "not valid UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_bad_json_says_where(body: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        json_value(body)


@given(st.binary(max_size=60))
def test_no_body_breaks_the_json_reader(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        json_value(body)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        (" TRUE ", True),
        ("1", True),
        ("false", False),
        ("0", False),
        ("False", False),
    ],
)
def test_flags(text: str, value: bool) -> None:
    assert flag(text) is value


def test_absent_and_bad_flags() -> None:
    assert flag(None) is False
    assert flag(None, True) is True
    for text in ("", "yes", "2", "tru"):
        with pytest.raises(ValueError, match="expected true or false"):
            flag(text)


@given(st.integers(-(10**19), 10**19))
def test_integers(number: int) -> None:
    assert integer(str(number)) == number
    assert integer(f" {number} ") == number


@pytest.mark.parametrize(
    "text", ["", "-", "1.0", "1e3", "0x1", "1_0", "+1", "--1", "٣", "9" * 21, "a"]
)
def test_what_is_no_integer(text: str) -> None:
    with pytest.raises(ValueError, match="limit must be an integer, got"):
        integer(text, name="limit")


def test_bounds() -> None:
    limits: dict[str, Any] = {"minimum": 1, "maximum": 10, "name": "limit"}
    assert integer("1", **limits) == 1
    assert integer("10", **limits) == 10
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        integer("0", **limits)
    with pytest.raises(ValueError, match="limit must be at most 10, got 11"):
        integer("11", **limits)
