"""Parsing of path segments, queries, JSON and credentials."""

from __future__ import annotations

import base64
import contextlib
from urllib.parse import quote, quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.http.messages import (
    basic_credentials,
    bearer_token,
    decode_segment,
    json_value,
    query_items,
    same,
)


@given(st.binary())
def test_a_segment_gives_back_any_bytes(data: bytes) -> None:
    assert decode_segment(quote_from_bytes(data, safe="")) == data.decode("utf-8", "replace")


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
    assert decode_segment("\xc3\xa9") == "é"  # raw bytes are Latin-1 text of the target


@pytest.mark.parametrize(
    ("raw", "items"),
    [
        ("", []), ("a=1&b=2", [("a", "1"), ("b", "2")]), ("a=1&a=2", [("a", "1"), ("a", "2")]),
        ("a&b=&=c", [("a", ""), ("b", ""), ("", "c")]), ("&&a=1&", [("a", "1")]),
        ("a=b=c", [("a", "b=c")]), ("a%3D=%26+x", [("a=", "& x")]),
        ("a=%C3%A9&b=\xc3\xa9", [("a", "é"), ("b", "é")]),
        ("a=%FF", [("a", "\N{REPLACEMENT CHARACTER}")]), ("a=%zz", [("a", "%zz")]),
    ],
)  # fmt: skip
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
    ("header", "token"),
    [
        (None, None), ("", None), ("Bearer abc", "abc"), ("bearer abc", "abc"),
        ("BEARER   abc ", "abc"), ("Bearer", None), ("Bearer ", None), ("Basic abc", None),
        ("Bearerabc", None), ("Bearer a b", "a b"),
    ],
)  # fmt: skip
def test_bearer_tokens(header: str | None, token: str | None) -> None:
    assert bearer_token(header) == token


@given(st.binary(max_size=20).filter(lambda user: b":" not in user), st.binary(max_size=20))
def test_basic_credentials_come_back(user: bytes, password: bytes) -> None:
    encoded = base64.b64encode(user + b":" + password).decode()
    assert basic_credentials(f"Basic {encoded}") == (user, password)
    assert basic_credentials(f"basic  {encoded} ") == (user, password)


@pytest.mark.parametrize(
    "header",
    [
        None, "", "Basic", "Basic !!!", "Basic YQ", "Basic YQ==", "Bearer YTpi", "Basic \xe9",
        "Basic YTpi YTpi",
    ],
)  # fmt: skip
def test_what_is_no_basic_credential(header: str | None) -> None:
    assert basic_credentials(header) is None


def test_comparing() -> None:
    assert same("secret", "secret")
    assert same(b"secret", "secret")
    assert not same("Secret", "secret")
    assert not same("", "secret")
    assert not same(None, "secret")
    assert same("é".encode(), "é")
    assert same("é".encode("latin-1"), "é")
    assert not same("☃".encode(), "x")
    assert not same("x", "☃")
    assert not same(b"\x03", "☃")
    assert same("☃", "☃")
    assert not same("\udcff", "x")
    assert not same("\ud800", "x")
