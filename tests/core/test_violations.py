"""Strict-mode violations: how many are kept, and how much of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fakecloud.core.violations import (
    Allowances,
    Violation,
    Violations,
    shortened,
    with_allowance,
)


def raised() -> ValueError:
    """Return an error with a traceback, a cause and a context."""
    try:
        try:
            raise KeyError("cause")
        except KeyError as cause:
            raise ValueError("no") from cause
    except ValueError as error:
        return error


def test_a_violation_has_what_was_reported_of_it() -> None:
    violations = Violations()
    error = raised()
    reported = violations.report("bug", "it broke", exception=error, fake="kv_server")
    assert violations == [reported]
    assert reported == Violation(
        "bug",
        'it broke (if intended: fakecloud.allow("bug", fake="kv_server"))',
        {"fake": "kv_server"},
        error,
        "it broke",
    )
    assert violations.report("unmet", "never came").exception is None


def test_the_newest_violations_are_kept() -> None:
    violations = Violations()
    assert (violations.keep, violations.keep_exceptions) == (10_000, 100)
    violations.keep = 3
    for number in range(5):
        violations.report("bug", str(number))
        assert len(violations) == min(number + 1, 3)
    assert [violation.text[0] for violation in violations] == ["2", "3", "4"]


def test_only_the_first_exceptions_keep_what_was_under_way() -> None:
    violations = Violations()
    violations.keep_exceptions = 2
    violations.report("unrouted", "no exception")
    violations.report("unrouted", "no exception")
    errors = [raised() for _ in range(4)]
    for error in errors:
        violations.report("bug", "it broke", exception=error)
    assert [violation.exception for violation in violations] == [None, None, *errors]
    assert [error.__traceback__ is not None for error in errors] == [True, True, False, False]
    assert [error.__cause__ is not None for error in errors] == [True, True, False, False]
    assert [error.__context__ is not None for error in errors] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("", 0, ""), ("abc", 3, "abc"), ("abcd", 3, "abc… (4 characters)"),
        ("x" * 5000, 2, "xx… (5,000 characters)"),
    ],
)  # fmt: skip
def test_a_long_text_keeps_its_beginning_and_says_how_long_it_was(
    text: str, most: int, expected: str
) -> None:
    assert shortened(text, most) == expected


def test_of_a_text_two_thousand_characters_are_enough_and_of_a_violation_twenty_thousand() -> None:
    assert shortened("x" * 2_000) == "x" * 2_000
    assert shortened("x" * 2_001) == "x" * 2_000 + "… (2,001 characters)"
    violations = Violations()
    allow = ' (if intended: fakecloud.allow("bug"))'
    text = "x" * 20_000
    assert violations.report("bug", text).text == text + allow
    assert violations.report("bug", f"{text}x").text == f"{text}… (20,001 characters){allow}"


@pytest.mark.parametrize(
    ("kind", "facts", "code"),
    [
        ("unrouted", {"path": "/a", "method": "PUT", "fake": "q"}, 'path="/a"'),
        ("unrouted", {"path": "", "fake": "q"}, 'fake="q"'),
        ("unstubbed", {"url": "https://a.test", "message_id": "m"}, 'url="https://a.test"'),
        ("unmet", {"path": "/a", "fake": 'a"b'}, "fake='a\"b'"),
        ("bug", {"path": "/a\\b"}, "path='/a\\\\b'"),
        ("bug", {"path": "/\udc80", "fake": "q"}, 'fake="q"'),
        ("bug", {}, ""),
    ],
)
def test_the_call_that_allows_a_violation_is_code(
    kind: str, facts: dict[str, str], code: str
) -> None:
    called: list[tuple[Any, ...]] = []
    allow = f'fakecloud.allow("{kind}"{code and ", "}{code})'
    text = with_allowance("it failed\nhere", kind, facts)
    intended = f"(if intended: {allow})"
    # The lines below that about a bug are its traceback.
    is_bug = kind == "bug"
    assert text == (f"it failed {intended}\nhere" if is_bug else f"it failed\nhere {intended}")
    fake = SimpleNamespace(allow=lambda kind, **where: called.append((kind, where)))
    eval(allow, {"fakecloud": fake})
    allowances = Allowances()
    allowances.add(called[0][0], called[0][1])
    assert allowances.covers(kind, facts)
