"""Patterns from another process match like those of ``re``, in linear time."""

from __future__ import annotations

import itertools
import re

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.standalone.api import ControlApp
from pytest_fakecloud.standalone.patterns import MOST_STEPS, LinearPattern
from tests.harness import check_each

from .test_codec import ask

PATTERNS = [
    "", "a", "a|b", "ab|a|", "(a|b)c", "(?:ab)+", "(?P<n>a)b", "a*", "a+?b", "a{2}", "a{,2}b", "a{1,}",
    "a{0,2}b", "a{", "a{x}", ".", ".*b", "[ab]", "[^ab]", "[^\n]", "[a-c]+", "[]a]", "[-a]", r"[\d-]",
    r"[\W\d]", r"\d", r"\D+", r"\w+", r"\W", r"\s", r"\S+", r"\.", r"\x61", r"\u0061", r"\N{DIGIT ONE}",
    "^a", "a$", "^$", "^a*$", "a$\n", r"\Aab", r"b\Z", r"\bab\b", r"\Ba", "(a*)*", "(a|a)*b", "(^a|b$)",
    "(?i)AB", "(?i:A)b", "(?s).b", "(?-i:a)B", "(?x) a # c\n b", "(?m)^b$", "[^A]", "é", "(?i)É", "ſ|K",
    "(|a)+b",
]  # fmt: skip
PIECES = [each for each in PATTERNS if not re.match(r"\(\?([imsx]+\)|P)", each)]
"""Elements of a pattern, which can be repeated."""
FLAGS = [
    0, re.IGNORECASE, re.MULTILINE, re.DOTALL, re.ASCII, re.VERBOSE,
    re.IGNORECASE | re.MULTILINE | re.DOTALL | re.ASCII,
]  # fmt: skip
TEXTS = [
    "a", "b", "ab", "AB", "a b", "a\n", "a\nb", "b\na\nb\n", "1.", "aab", "a{", "é", "É", "k", "s",
]  # fmt: skip


def agrees_with_re(pattern: str, flags: int, texts: list[str]) -> None:
    theirs, mine = re.compile(pattern, flags), LinearPattern(pattern, flags)
    assert mine == theirs
    assert repr(mine) == repr(theirs)
    for text in texts:
        assert mine.search(text) == bool(theirs.search(text)), text


def test_it_agrees_with_re() -> None:
    check_each(agrees_with_re, itertools.product(PATTERNS, FLAGS, [TEXTS]))


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4),
    st.sampled_from(["", "|", "{0,2}"]),
    st.sampled_from(FLAGS),
    st.text(alphabet="abAB1 .-{}\né", max_size=12),
)
def test_it_agrees_on_any_text(pieces: list[str], between: str, flags: int, text: str) -> None:
    agrees_with_re(between.join(f"(?:{piece})" for piece in pieces), flags, [text])


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?=a)b", "has a look-around assertion"),
        ("(?<!a)b", "has a look-around assertion"),
        (r"(a)\1", "has a back reference"),
        ("(?>a)", "ATOMIC_GROUP"),
        ("a++", "POSSESSIVE_REPEAT"),
        ("((a{100}){100}){100}", "is too large"),
        ("(?:){4000000}", "is too large"),
    ],
)
def test_what_is_not_linear_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(ContractError, match=f"{words}.*linear time"):
        LinearPattern(pattern, 0)


def test_a_text_that_would_cost_too_much_is_refused() -> None:
    pattern = LinearPattern("(.*){9}x", 0)
    assert not pattern.search("a" * 100)
    with pytest.raises(ContractError, match=r"too costly for a string of \d+ characters"):
        pattern.search("a" * MOST_STEPS)


def test_it_equals_the_same_pattern() -> None:
    pattern = LinearPattern("a", re.IGNORECASE)
    assert pattern == LinearPattern("a", re.IGNORECASE)
    assert pattern not in (LinearPattern("a", 0), LinearPattern("b", re.IGNORECASE), "a")


def test_a_hostile_pattern_stops_no_server() -> None:
    """``re`` would take years to match the path of this call."""
    with Cloud(seed=1, now="2026-01-01T00:00:00Z") as cloud:
        kv = cloud.kv_server()
        httpx.get(f"{kv.url}/get/{'a' * 60}!", headers=kv.headers)
        app = ControlApp(cloud, "token")
        for pattern, found in (("(a+)+!$", True), ("(a+)+$", False)):
            asked = {"path": {"$": "pattern", "v": [pattern, 0]}}
            call = {"object": "kv_server", "name": "assert_called", "args": [], "kwargs": asked}
            status, answer = ask(app, "POST", "/call", call)
            assert status == 200
            assert ("is not found" in str(answer.get("raise"))) is not found, answer
