"""Test the wait before a retry: backoff, ``Retry-After`` and expressions."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.model import DAY, SECOND
from pytest_fakecloud.queue.wire.waits import (
    RetryDelay,
    asked_wait,
    backoff_us,
    go_duration_us,
    next_wait,
)
from tests.harness import check_each

NOW_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND


def test_the_default_ladder() -> None:
    waits = [backoff_us(retry) / SECOND for retry in range(1, 8)]
    assert waits == pytest.approx(
        [12.182, 148.413, 1808.042, 22026.466, 86400, 86400, 86400], abs=0.001
    )
    assert sum(waits[:5]) == pytest.approx(110_395.104, abs=0.001)


def test_the_ladder_never_overflows() -> None:
    assert backoff_us(10**6) == DAY


def test_waits_requested_by_a_destination() -> None:
    def check(value: str, seconds: float) -> None:
        for name in ("Retry-After", "x-ratelimit-reset", "X-RateLimit-Reset-Requests"):
            found = asked_wait([(name, value)], NOW_US)
            assert found is not None
            assert found[0] == seconds * SECOND
            assert found[1].lower() == f"{name}: {value.strip()}".lower()

    check_each(
        check,
        [
            ("120", 120),
            ("0", 0),
            ("-5", 0),
            (" 7 ", 7),
            ("Thu, 01 Jan 2026 00:01:30 GMT", 90),
            ("Thu, 01 Jan 2026 01:01:30 +0100", 90),
            ("Wed, 31 Dec 2025 00:00:00 GMT", 0),
            ("1h15m30.5s", 4530.5),
            ("250ms", 0.25),
            ("500us", 0.0005),
            ("1.5m", 90),
            ("-3s", 0),
            ("24h", 86_400),
            ("86400", 86_400),
        ],
    )


@pytest.mark.parametrize("value", [
    "86401", "25h", "Sat, 03 Jan 2026 00:00:01 GMT", str(NOW_US // SECOND), "soon", "", "1d", "9" * 30,
    "Thu, 99 Jan 2026 00:00:00 GMT", "9" * 400 + "h",
])  # fmt: skip
def test_ignored_wait_headers(value: str) -> None:
    assert asked_wait([("Retry-After", value)], NOW_US) is None
    wait, why = next_wait(None, 0, [("Retry-After", value)], NOW_US)
    assert wait == backoff_us(1)
    assert why == "backoff e^2.5"


def test_precedence_among_the_headers() -> None:
    headers = [
        ("X-RateLimit-Reset-Tokens", "4"),
        ("X-RateLimit-Reset-Requests", "3"),
        ("X-RateLimit-Reset", "2"),
        ("Retry-After", "1"),
    ]
    for expected in (1, 2, 3, 4):
        assert next_wait("9000", 0, headers, NOW_US)[0] == expected * SECOND
        headers.pop()
    assert next_wait("9000", 0, headers, NOW_US) == (9 * SECOND, "retry delay 9000")
    skipping = [("Retry-After", "99999"), ("X-RateLimit-Reset", "2")]
    assert next_wait(None, 0, skipping, NOW_US)[0] == 2 * SECOND


def test_expressions() -> None:
    def check(text: str, retried: int, milliseconds: float) -> None:
        assert RetryDelay(text).milliseconds(retried) == pytest.approx(milliseconds)

    check_each(
        check,
        [
            ("1000", 0, 1000),
            ("1000 * (1 + retried)", 2, 3000),
            ("pow(2, retried)", 5, 32),
            ("max(10, pow(2, retried))", 2, 10),
            ("min(5, 4, 3 + 0)", 0, 3),
            ("7 % 4", 0, 3),
            ("-3 + --5", 0, 2),
            ("2 - 3 - 4", 0, -5),
            ("2 * 3 + 4 * 5", 0, 26),
            ("100 / 8 / 2", 0, 6.25),
            ("sqrt(16) + abs(-2) + floor(1.7) + ceil(1.2)", 0, 9),
            ("round(2.5) + round(-2.5) + round(2.4)", 0, 2),
            ("exp(0)", 0, 1),
            (".5e1 + 5.", 0, 10),
            ("((((retried))))", 4, 4),
        ],
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1 / retried", "divides by zero"),
        ("1 % 0", "divides by zero"),
        ("exp(1000)", "overflows"),
        ("pow(10, 400)", "overflows"),
        ("1e308 * 10", "overflows"),
        ("sqrt(-1)", "has no value"),
        ("floor(1e308 * 10)", "overflows"),
        ("1e308*10 - 1e308*10", "overflows"),
    ],
)
def test_expressions_without_a_value(text: str, why: str) -> None:
    with pytest.raises(QueueError, match=why):
        RetryDelay(text).milliseconds(0)


def test_a_wait_is_held_between_zero_and_a_day() -> None:
    assert RetryDelay("0 - 5").wait_us(0) == 0
    assert RetryDelay("1e300").wait_us(0) == DAY
    assert RetryDelay("1.5").wait_us(0) == 1500


def test_the_longest_expression_can_be_worked_out() -> None:
    assert RetryDelay("1" + "+1" * 249).milliseconds(0) == 250
    assert RetryDelay("-" * 499 + "1").milliseconds(0) == -1


@given(st.text(alphabet="0123456789.eretid+-*/%()powsqmax, ", max_size=40), st.integers(0, 20))
def test_any_text_is_a_wait_or_a_400(text: str, retried: int) -> None:
    try:
        wait = RetryDelay(text).wait_us(retried)
    except QueueError as error:
        assert error.status == 400  # noqa: PT017
    else:
        assert 0 <= wait <= DAY


@given(st.text(max_size=30))
def test_any_header_value_is_a_wait_or_nothing(value: str) -> None:
    found = asked_wait([("Retry-After", value)], NOW_US)
    assert found is None or 0 <= found[0] <= DAY


def test_an_expression_without_a_value_leaves_the_backoff() -> None:
    # Expressions are validated for fewer retries than a workflow or a retried dead letter can
    # reach.
    assert next_wait("1000/(retried-5)", 4, [], NOW_US)[0] == 0
    assert next_wait("1000/(retried-5)", 5, [], NOW_US)[0] == backoff_us(6)


def test_an_expression_may_name_one_thing() -> None:
    assert RetryDelay("max(7000)").milliseconds(1) == RetryDelay("7000").milliseconds(1)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("Thu, 01 Jan 2026 00:00:30 GMT", 30),
        ("Thu, 01 Jan 2026 00:00:30", 30),  # a date without a zone is in UTC
        ("Wed, 31 Dec 2025 23:59:59 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 -2359", None),
        ("Thu, 99 Jan 2026 00:00:30 GMT", None),
        ("soon", None),
    ],
)
def test_dates_of_retry_after(value: str, seconds: int | None) -> None:
    found = asked_wait([("Retry-After", value)], NOW_US)
    told = f"Retry-After: {value}"
    assert found == (None if seconds is None else (seconds * SECOND, told))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it ends too early"),
        (" ", "it ends too early"),
        ("1)", "unexpected ')'"),
        ("pow", "expected '('"),
        ("min()", "unexpected ')'"),
        ("__import__('os')", "unexpected '__import__'"),
        ("1 ** 2", "unexpected '*'"),
        ("a.b", "unexpected 'a'"),
        ("1e", "unexpected 'e'"),
        ("\x00", "unexpected '\\x00'"),
        ("１", "unexpected '１'"),  # a full-width digit
        ("1" + "+1" * 250, "it is longer than 500 characters"),
        ("1 2", "unexpected '2'"),
        ("pow[1, 2)", "expected '('"),
        ("(1", "expected ')'"),
        ("(" * 50 + "1" + ")" * 50, "it is nested deeper than 50 levels"),
        ("1 +", "it ends too early"),
        (".", "unexpected '.'"),
        ("retries", "unexpected 'retries'"),
        ("X", "unexpected 'X'"),
        ("pow(1)", "pow takes 2 arguments, got 1"),
        ("sqrt(1, 2)", "sqrt takes 1 argument, got 2"),
    ],
)
def test_malformed_expressions(text: str, why: str) -> None:
    with pytest.raises(QueueError) as caught:
        RetryDelay(text)
    message = f"invalid retry delay expression {text!r}: {why}"
    assert (caught.value.status, caught.value.message) == (400, message)


def test_brackets_side_by_side_are_not_nested() -> None:
    assert RetryDelay("(" * 49 + "1" + ")" * 49).milliseconds(0) == 1
    assert RetryDelay("+".join(["(1)"] * 100)).milliseconds(0) == 100
    with pytest.raises(QueueError, match="nested deeper"):
        RetryDelay("(1)+(1)+" + "(" * 50 + "1" + ")" * 50)
    with pytest.raises(QueueError, match="nested deeper"):
        RetryDelay("(" * 30 + "(1)+" + "(" * 25 + "1" + ")" * 55)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("retried + retried", 6),
        ("retried - retried / 3", 2),
        ("retried * retried", 9),
        ("retried / retried", 1),
        ("7 % retried", 1),
        ("retried % 2", 1),
        ("-retried", -3),
        ("+retried", 3),
        ("-+-retried", 3),
        (".5 + .25", 0.75),
        (".5", 0.5),
    ],
)
def test_retried_stands_on_either_side(text: str, milliseconds: float) -> None:
    assert RetryDelay(text).milliseconds(3) == milliseconds


@pytest.mark.parametrize(
    ("retried", "why"),
    [
        (0, "backoff e^2.5"),
        (1, "backoff e^5"),
        (3, "backoff e^10"),
        (4, "backoff, at most one day"),
        (9, "backoff, at most one day"),
    ],
)
def test_why_a_backoff_is_that_long(retried: int, why: str) -> None:
    assert next_wait(None, retried, [], NOW_US) == (backoff_us(retried + 1), why)


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1h30m", 5_400 * SECOND),
        ("-1.5s", -1_500_000),
        ("+2ms", 2_000),
        ("1" * 98 + "s", 10**18),
        ("1" * 99 + "s", None),
        ("5", None),
    ],
)
def test_durations_as_the_go_language_writes_them(text: str, us: int | None) -> None:
    assert go_duration_us(text) == us


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of this process cannot be set")
def test_a_date_without_a_zone_is_utc_wherever_the_test_runs() -> None:
    before = os.environ.get("TZ")
    try:
        os.environ["TZ"] = "Asia/Tokyo"
        time.tzset()
        found = asked_wait([("Retry-After", "Thu, 01 Jan 2026 00:00:30")], NOW_US)
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()
    assert found is not None
    assert found[0] == 30 * SECOND
