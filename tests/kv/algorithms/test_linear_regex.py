"""Regular expressions in linear time, compared with ``re``."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.kv.algorithms.linear_regex import LinearRegex, RegexError
from tests.harness import check_each

PATTERNS = [
    "", "a", "ab", "a|b", "a|", "(a|b)c", "(?:ab)+", "(?P<n>a)b", "a*", "a+", "a?", "a*?b", "a+?",
    "a{2}", "a{1,}", "a{0,2}b", "a{2,3}?", ".", ".*b", "[ab]", "[^ab]", "[a-c]+", "[-a]", "[a-]",
    "[]a]", r"\d", r"\D+", r"\w+", r"\W", r"\s", r"\S+", r"[\d-]", r"[\]]", r"\.", r"\n", r"\\",
    "^a", "a$", "^$", "^a*$", r"\bab\b", r"\Ba", "(a*)*", "(a|a)*b", "((a))", "a{", "a{x}", "{",
    "(^a|b$)", "()", "(|a)+b", "a{0}b", "(a{2}){1,}", "(ab?){2,3}", r"[+-\]]", r"[\!-~]", r"[\t-\r]",
    r"[\-a]", r"[a\-z]", "(?:(a+)?b)+",
]  # fmt: skip


TEXTS = ["", "a", "b", "ab", "ba", "aab", "abab", "a b", "1.", "\n", "-]", "\\", "a{", "{x}"]


def test_it_agrees_with_re() -> None:
    check_each(agrees_with_re, itertools.product(PATTERNS, TEXTS))


def agrees_with_re(pattern: str, text: str) -> None:
    mine = LinearRegex(pattern)
    assert mine.fullmatch(text) == bool(re.fullmatch(pattern.replace("$", r"\Z"), text))
    assert mine.search(text) == bool(re.search(pattern.replace("$", r"\Z"), text))


@given(st.sampled_from(PATTERNS), st.text(alphabet="ab1 .-{}\n", max_size=12))
def test_it_agrees_on_any_text(pattern: str, text: str) -> None:
    assert LinearRegex(pattern).search(text) == bool(re.search(pattern.replace("$", r"\Z"), text))


@pytest.mark.parametrize(("pattern", "text"), [("(?i)AbC", "aBc"), ("(?i)[A-C]+", "abc")])
def test_case_can_be_ignored(pattern: str, text: str) -> None:
    assert LinearRegex(pattern).fullmatch(text)
    assert not LinearRegex(pattern.removeprefix("(?i)")).fullmatch(text)


def test_what_cannot_be_read() -> None:
    def check(pattern: str) -> None:
        with pytest.raises(RegexError):
            LinearRegex(pattern)

    check_each(check, zip(
        ["(", ")", "(a", "a)", "[", "[a", "*", "+a", "a**", "\\", r"\1", r"\q", "(?=a)", "(?<!a)",
         "[b-a]", "a{3,2}", "a{99999}", "a{2}{3}", "a*{2}", "a{2}*", "a+??",
         "{2}", "(?P<n", "(?P<>a)", "(?P<n)a>", r"[a-\d]", r"[\d-a]", "[a-\\", "(?",
         "(" * 60 + ")" * 60, "((a{100}){100}){100}"],
    ))  # fmt: skip


@pytest.mark.parametrize("sign", ["*", "+", "?", "{1}"])
def test_nested_repetitions_do_not_multiply_states(sign: str) -> None:
    nested = LinearRegex("(" * 40 + "a" + f"){sign}" * 40)
    assert nested.fullmatch("a")
    assert not nested.fullmatch("b")


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "a*a*a*a*a*b"])
def test_quadratic_input_takes_linear_time(pattern: str) -> None:
    assert not LinearRegex(pattern).search("a" * 5000)
