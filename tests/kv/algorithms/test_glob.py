"""Glob patterns."""

from __future__ import annotations

import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.algorithms.glob import matcher
from tests.harness import check_each


def test_patterns() -> None:
    def check(pattern: str, text: str, expected: bool) -> None:
        assert matcher(pattern.encode())(text.encode()) is expected

    check_each(
        check,
        [
            ("*", "", True), ("*", "anything", True), ("", "", True), ("", "x", False),
            ("h?llo", "hello", True), ("h?llo", "hllo", False), ("h*llo", "heeeello", True),
            ("h[ae]llo", "hallo", True), ("h[ae]llo", "hillo", False), ("h[^e]llo", "hallo", True),
            ("h[^e]llo", "hello", False), ("h[a-b]llo", "hbllo", True),
            ("h[b-a]llo", "hallo", True), (r"h\*llo", "h*llo", True), (r"h\*llo", "hello", False),
            (r"[\]]", "]", True), ("[a", "a", True), ("[]", "a", False), ("[^]x", "ax", True),
            ("[a-]", "-", False), ("a\\", "a\\", True), ("a*b*c", "aXbYc", True),
            ("a*b*c", "aXcYb", False), ("*a*", "bab", True), ("**a", "ba", True),
            ("a**", "a", True), ("*ab", "aab", True), ("a*a", "a", False), ("x.y", "xzy", False),
            ("line*end", "line\nmore\nend", True), ("?*bc*d", "abcd", True),
            ("?*bc*d", "acbd", False), ("*?a*?b*", "xxxab", False), ("*?a*?b*", "xxxaxb", True),
        ],
    )  # fmt: skip


def test_bytes_and_case() -> None:
    assert matcher(b"\xff?")(b"\xff\x00")
    assert matcher(b"AB*", nocase=True)(b"abc")
    assert not matcher(b"AB*")(b"abc")


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=12))
def test_agrees_with_the_standard_library(pattern: str, text: str) -> None:
    assert matcher(pattern.encode())(text.encode()) == fnmatch.fnmatchcase(text, pattern)


@pytest.mark.parametrize("piece", [b"*a", b"*?", b"*[a]", b"**a"])
@pytest.mark.parametrize(("tail", "stars"), [(b"", 0), (b"***", 0), (b"*a", 1)])
def test_more_than_a_thousand_stars_match_nothing(piece: bytes, tail: bytes, stars: int) -> None:
    text = b"a" * 2000
    assert matcher(b"a" + piece * (1000 - stars) + tail + b"*")(text)
    assert not matcher(b"a" + piece * (1001 - stars) + tail + b"*")(text)


def test_many_stars_take_no_longer_than_pattern_times_text() -> None:
    assert not matcher(b"a*" * 100 + b"b")(b"a" * 100_000)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (b"a" * 1_000_000, b"a" * 1_000_000, True), (b"a*" * 500_000 + b"b", b"a" * 600_000, False),
        (b"*" + b"a" * 400_000 + b"b*", b"a" * 1_000_000, False),
        (b"?" * 500_000, b"a" * 500_000, True), (b"[a-c]" * 50_000 + b"*", b"b" * 50_000, True),
        (b"*" + b"[^a]" * 50_000, b"a" * 50_000, False), (b"[a-c]" * 50_000, b"b", False),
        (b"?a*" * 25_000 + b"b", b"a" * 50_000, False),
    ],
    ids=range(8),
)  # fmt: skip
def test_patterns_as_long_as_a_request_are_quick(
    pattern: bytes, text: bytes, expected: bool
) -> None:
    assert matcher(pattern)(text) is expected


@given(
    st.lists(st.sampled_from(["a", "b", "*", "?", "[ab]", "[^a]", "\\*"]), max_size=8).map("".join),
    st.text("abAB*", max_size=10),
    st.booleans(),
)
def test_agrees_with_the_plain_definition(pattern: str, text: str, nocase: bool) -> None:
    source = pattern.replace("\\*", "\0").replace("*", ".*").replace("?", ".").replace("\0", "[*]")
    flags = re.DOTALL | (re.IGNORECASE if nocase else 0)
    expected = re.fullmatch(source, text, flags) is not None
    assert matcher(pattern.encode(), nocase)(text.encode()) is expected
