"""Test the wait before a retry: backoff, ``Retry-After`` and expressions."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

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
from tests.notations import rows

TABLES = Path(__file__).with_name("retry.txt")

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
    def check(value: str, seconds: str) -> None:
        for name in ("Retry-After", "x-ratelimit-reset", "X-RateLimit-Reset-Requests"):
            wait = asked_wait([(name, value)], NOW_US)
            assert wait is not None
            assert wait[0] == float(seconds) * SECOND
            assert wait[1].lower() == f"{name}: {value.strip()}".lower()

    check_each(check, rows(TABLES, "requested waits"))


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
    def check(text: str, milliseconds: str) -> None:
        expression, _, retried = text.rpartition(" | ")
        actual = RetryDelay(expression).milliseconds(int(retried))
        assert actual == pytest.approx(float(milliseconds))

    check_each(check, rows(TABLES, "expressions"))


@pytest.mark.parametrize(("text", "why"), rows(TABLES, "without a value"))
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
    wait = asked_wait([("Retry-After", value)], NOW_US)
    assert wait is None or 0 <= wait[0] <= DAY


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
    wait = asked_wait([("Retry-After", value)], NOW_US)
    reason = f"Retry-After: {value}"
    assert wait == (None if seconds is None else (seconds * SECOND, reason))


@pytest.mark.parametrize(("text", "why"), rows(TABLES, "malformed"))
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
        ("1.5h", 5_400_000_000),
        (".5s", 500_000),
        ("1ns", 1),
        ("1" * 98 + "s", int("1" * 98) * 1_000_000),
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
        wait = asked_wait([("Retry-After", "Thu, 01 Jan 2026 00:00:30")], NOW_US)
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()
    assert wait is not None
    assert wait[0] == 30 * SECOND
