"""Glob patterns."""

from __future__ import annotations

import fnmatch
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.glob import has_wildcard, matches


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "", True),
        ("*", "anything", True),
        ("", "", True),
        ("", "x", False),
        ("h?llo", "hello", True),
        ("h?llo", "hllo", False),
        ("h*llo", "heeeello", True),
        ("h[ae]llo", "hallo", True),
        ("h[ae]llo", "hillo", False),
        ("h[^e]llo", "hallo", True),
        ("h[^e]llo", "hello", False),
        ("h[a-b]llo", "hbllo", True),
        ("h[b-a]llo", "hallo", True),
        (r"h\*llo", "h*llo", True),
        (r"h\*llo", "hello", False),
        (r"[\]]", "]", True),
        ("[a", "a", True),
        ("[]", "a", False),
        ("[^]x", "ax", True),
        ("[a-]", "-", False),
        ("a\\", "a\\", True),
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "aXcYb", False),
        ("*a*", "bab", True),
        ("**a", "ba", True),
        ("a**", "a", True),
        ("*ab", "aab", True),
        ("a*a", "a", False),
        ("x.y", "xzy", False),
        ("line*end", "line\nmore\nend", True),
    ],
)
def test_patterns(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern.encode(), text.encode()) is expected


def test_bytes_and_case() -> None:
    assert matches(b"\xff?", b"\xff\x00")
    assert matches(b"AB*", b"abc", nocase=True)
    assert not matches(b"AB*", b"abc")


def test_wildcards_are_noticed() -> None:
    assert has_wildcard(b"a*")
    assert has_wildcard(rb"a\b")
    assert not has_wildcard(b"a.b")


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=12))
def test_agrees_with_the_standard_library(pattern: str, text: str) -> None:
    assert matches(pattern.encode(), text.encode()) == fnmatch.fnmatchcase(text, pattern)


def test_many_stars_take_no_longer_than_pattern_times_text() -> None:
    started = time.perf_counter()
    assert not matches(b"a*" * 100 + b"b", b"a" * 100_000)
    assert time.perf_counter() - started < 5
