"""Durations and instants as testers write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.timeparse import duration_us, instant_us, to_datetime


@pytest.mark.parametrize(
    ("value", "microseconds"),
    [
        (timedelta(hours=24), 86_400_000_000),
        (timedelta(microseconds=1), 1),
        (0, 0),
        (90, 90_000_000),
        (0.5, 500_000),
        (1e-7, 0),
        ("24h", 86_400_000_000),
        ("1d2h", 93_600_000_000),
        ("1d 2h", 93_600_000_000),
        ("200ms", 200_000),
        ("1.5s", 1_500_000),
        ("2w", 1_209_600_000_000),
        ("1m30s", 90_000_000),
        ("7us", 7),
        ("0s", 0),
    ],
)
def test_durations(value: Any, microseconds: int) -> None:
    assert duration_us(value) == microseconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "24",
        "h",
        "1x",
        "1h2",
        "1 hour",
        None,
        True,
        [],
        b"1h",
        float("nan"),
        float("inf"),
        "1e3s",
    ],
)
def test_what_is_no_duration(value: Any) -> None:
    with pytest.raises(ContractError, match="is not a duration"):
        duration_us(value)


@pytest.mark.parametrize(
    "value", [-1, -1e308, -(10**400), -0.5, timedelta(seconds=-1), "-1h", "- 1d2h"]
)
def test_negative_durations(value: Any) -> None:
    with pytest.raises(ContractError, match="cannot be negative"):
        duration_us(value)


@pytest.mark.parametrize(
    "value", [4e9, "60000d", timedelta(days=40_000), 10**400, 1e308, "9" * 400 + "d"]
)
def test_durations_beyond_a_hundred_years(value: Any) -> None:
    with pytest.raises(ContractError, match="surely a mistake"):
        duration_us(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001+00:00", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59Z", -1_000_000),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
    ],
)
def test_instants(value: Any, expected: int) -> None:
    assert instant_us(value) == expected


@pytest.mark.parametrize("value", ["2026-01-01T00:00:00", datetime(2026, 1, 1), "2026-01-01"])
def test_instants_without_a_zone(value: Any) -> None:
    with pytest.raises(ContractError, match="names no time zone"):
        instant_us(value)


@pytest.mark.parametrize("value", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_instants_that_utc_cannot_say(value: Any) -> None:
    with pytest.raises(ContractError, match="outside of the years 1 to 9999"):
        instant_us(value)


@pytest.mark.parametrize("value", ["soon", "", 0, 1767225600, None, b"2026-01-01T00:00:00Z"])
def test_what_is_no_instant(value: Any) -> None:
    with pytest.raises(ContractError, match="is not an instant"):
        instant_us(value)


@given(st.datetimes(timezones=st.just(UTC)))
def test_instants_come_back(moment: datetime) -> None:
    assert to_datetime(instant_us(moment)) == moment
    assert instant_us(moment.isoformat()) == instant_us(moment)


@given(st.integers(0, 10**15))
def test_durations_come_back(microseconds: int) -> None:
    assert duration_us(timedelta(microseconds=microseconds)) == microseconds
    assert duration_us(f"{microseconds}us") == microseconds
