"""Regular expressions in linear time, compared with ``re``.

`tests.kv.search.test_tantivy` compares the syntax that ``re`` does not have with Tantivy.
"""

from __future__ import annotations

import itertools
import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.budget import Budgeted, OverBudget
from pytest_fakecloud.kv.algorithms.linear_regex import LinearRegex, RegexError
from tests.harness import check_each

PATTERNS = [
    "", "a", "ab", "a|b", "a|", "(a|b)c", "(?:ab)+", "(?P<n>a)b", "a*", "a+", "a?", "a*?b", "a+?",
    "a{2}", "a{1,}", "a{0,2}b", "a{2,3}?", ".", ".*b", "[ab]", "[^ab]", "[a-c]+", "[-a]", "[a-]",
    "[]a]", r"\d", r"\D+", r"\w+", r"\W", r"\s", r"\S+", r"[\d-]", r"[\]]", r"\.", r"\n", r"\\",
    "^a", "a$", "^$", "^a*$", r"\bab\b", r"\Ba", "(a*)*", "(a|a)*b", "((a))", r"a\{", r"a\{x}",
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


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("(?i)AbC", "aBc"), ("(?i)[A-C]+", "abc"), ("(?i)CAFÉ", "café"), ("(?i)[r-t]k", "ſ\u212a")],
)
def test_case_can_be_ignored(pattern: str, text: str) -> None:
    assert LinearRegex(pattern).fullmatch(text)
    assert not LinearRegex(pattern.removeprefix("(?i)")).fullmatch(text)


RUST: list[tuple[str, list[str], list[str]]] = [
    ("(?i:a)b", ["Ab", "ab"], ["AB", "aB"]),
    ("(a(?i)b|c)d", ["aBd", "Cd"], ["aBD", "Ad"]),
    ("(?i)a(?-i)b", ["Ab"], ["AB"]),
    ("(?i)[^a]", ["b", "B"], ["a", "A"]),
    (r"(?i)\p{Lu}", ["a", "A"], ["1"]),
    ("(?s).", ["\n"], [""]),
    (".", ["é"], ["\n"]),
    ("(?R).", ["é"], ["\n", "\r"]),
    ("(?x)a b # c\n[a b]", ["aba"], ["ab "]),
    ("(?U)a+?", ["a", "aa"], [""]),
    ("(?P<n>a)(?<m>b)", ["ab"], ["a"]),
    ("a**", ["", "aa"], ["b"]),
    ("a{ 1 , 2 }", ["a", "aa"], ["aaa"]),
    ("a+{2}", ["aa", "aaa"], ["a"]),
    ("[[:alpha:]_]+", ["ab_"], ["é", "1"]),
    ("[[:^alpha:]]", ["é", "1"], ["a"]),
    ("[[:nope:]]", [":", "n"], ["a"]),
    ("[a[bc]]", ["a", "c"], ["d"]),
    ("[a-d&&[^b]&&b-z]", ["c", "d"], ["a", "b"]),
    ("[a-d--[bc]]", ["a", "d"], ["b"]),
    ("[a-c~~b-d]", ["a", "d"], ["b", "c"]),
    ("[]a-]", ["]", "a", "-"], ["b"]),
    (r"[\w--\d_]", ["é", "日"], ["1", "_"]),
    (r"\w", ["ß", "日", "_", "Ⓐ", "\u0301"], ["-", "²"]),
    (r"\s", ["\u3000"], ["\x1c"]),
    (r"\d", ["1", "٣"], ["²"]),
    (r"\pL\p{Nd}", ["a1", "日٣"], ["²a"]),
    (r"\p{Greek}\p{sc=Latin}", ["ωa"], ["aω"]),
    (r"\p{gc!=Letter}", ["1"], ["a"]),
    (r"\P{Uppercase_Letter}", ["a"], ["A"]),
    (r"\p{Lowercase}\p{White Space}\p{any}", ["a  "], ["A  "]),
    (r"\x61\u0062\U00000063\x{1F600}", ["abc😀"], ["ab"]),
    (r"\-\_\/\ \a", ["-_/ \a"], ["-"]),
    ("]}", ["]}"], ["]"]),
]
"""Patterns that ``re`` reads in another way, with strings that they match and do not match."""


def test_the_syntax_of_rust() -> None:
    check_each(reads_as_rust, RUST)


def reads_as_rust(pattern: str, matching: list[str], others: list[str]) -> None:
    regex = LinearRegex(pattern, tantivy=True)
    assert [text for text in matching + others if regex.fullmatch(text)] == matching


def test_what_cannot_be_read() -> None:
    def check(pattern: str) -> None:
        with pytest.raises(RegexError):
            LinearRegex(pattern)

    check_each(check, zip(
        ["(", ")", "(a", "a)", "[", "[a", "*", "+a", "(?i)*", "|*", "\\", r"\1", r"\q", r"\é", r"\Z",
         "(?=a)", "(?<!a)", "(?>a)", "(?#a)", "(?P=n)", "[b-a]", "a{3,2}", "a{99999}", "a{", "a{2", "{",
         "a{x}", "a{,2}", "{2}", "(?P<n", "(?P<>a)", "(?P<n)a>", "(?<n>a)(?<n>b)", "(?<1>a)", r"[a-\d]",
         r"[\d-a]", "[a-\\", "[]", "[^]", "[[:alpha:]", r"[\b]", r"[\A]", "(?", "(?)", "(?-)", "(?ii)",
         "(?i-i)", "(?z)", r"\p", r"\p{L", r"\p{Nope}", r"\p{gc=Greek}", r"\x6", r"\x{}", r"\x{D800}",
         r"\x{110000}", r"\b{nope}", r"(?-u:\w)", "(?-u:.)", "(" * 60 + ")" * 60,
         "[" * 60 + "a" + "]" * 60, "a" + "*" * 200, "((a{100}){100}){100}"],
    ))  # fmt: skip


ONLY_IN_PARTS = [
    "^a",
    "a$",
    r"\Aa",
    r"a\z",
    r"\ba",
    r"\Ba",
    r"\<a",
    r"a\b{end}",
    "(?m)^a",
    "a|(b$)",
]
LAZY = ["a*?", "a+?", "a??", "a{2}?", "a{1,2}?", "(?U)a*", "(?U:a+)"]
EMPTY = ["[a&&b]", "[a--a]", r"[^\s\S]", r"\P{any}", "[&&a]"]


def test_what_only_tantivy_rejects() -> None:
    def check(pattern: str) -> None:
        LinearRegex(pattern)
        with pytest.raises(RegexError):
            LinearRegex(pattern, tantivy=True)
        # What is repeated zero times is not in the automaton.
        assert LinearRegex(f"(?:{pattern}){{0}}", tantivy=True).fullmatch("")

    check_each(check, zip([*ONLY_IN_PARTS, *LAZY, *EMPTY]))
    assert LinearRegex("a{1}?(?U:b+?)", tantivy=True).fullmatch("abb")


def test_boundaries_of_words_and_lines() -> None:
    def check(pattern: str, text: str, matches: bool) -> None:
        assert LinearRegex(pattern).search(text) is matches

    check_each(check, [
        (r"\<b", "a b", True), (r"\<b", "ab", False), (r"a\>", "a b", True), (r"a\>", "ab", False),
        (r"\b{start}b", "a b", True), (r"a\b{end}", "ab", False), (r" \b{start-half}", "a  b", True),
        (r"\b{end-half} b", "a b", True), (r"(?m)^b$", "a\nb\nc", True), ("^b$", "a\nb\nc", False),
        (r"\Ab", "a\nb", False), (r"(?m)b\z", "b\na", False), (r"\b{2}b", "a b", True),
    ])  # fmt: skip


@pytest.mark.parametrize("sign", ["*", "+", "?", "{1}"])
def test_nested_repetitions_do_not_multiply_states(sign: str) -> None:
    nested = LinearRegex("(" * 40 + "a" + f"){sign}" * 40)
    assert nested.fullmatch("a")
    assert not nested.fullmatch("b")


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|a)*b", "(a|aa)+b", "a*a*a*a*a*b"])
def test_quadratic_input_takes_linear_time(pattern: str) -> None:
    assert not LinearRegex(pattern).search("a" * 5000)


@pytest.mark.parametrize(
    "pattern",
    ["a{0}{9999}{9999}", r"[\w\W]" * 4000, "[" + r"\w&&" * 10_000 + "a]", "(?i)" + "[^b]" * 4000,
     "(?:" * 49 + "a{0}" + "){9}" * 49, r"\p{Greek}" * 4000],
    ids=range(6),
)  # fmt: skip
def test_large_expressions_are_read_within_a_budget(pattern: str) -> None:
    with Budgeted(), suppress(RegexError, OverBudget):
        LinearRegex(pattern)
