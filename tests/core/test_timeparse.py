"""Parsing of durations and times."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import freezegun
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core import timers
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.timers import LAST_US, duration_us, give_way, instant_us, to_datetime
from tests.harness import check_each, error_of


def test_durations() -> None:
    def check(value: Any, microseconds: int) -> None:
        duration = duration_us(value)
        assert (duration, type(duration)) == (microseconds, int)

    check_each(
        check,
        [
            (timedelta(hours=24), 86_400_000_000), (timedelta(microseconds=1), 1), (0, 0),
            (90, 90_000_000), (0.5, 500_000), (1e-7, 0), ("24h", 86_400_000_000),
            ("1d2h", 93_600_000_000), ("1d 2h", 93_600_000_000), (" 1 d2 h ", 93_600_000_000),
            ("200ms", 200_000), ("1.5s", 1_500_000), ("2w", 1_209_600_000_000),
            ("1m30s", 90_000_000), ("7us", 7), ("0s", 0),
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    "value", ["36525d", timedelta(days=36_525), 36_525 * 86_400, 36_525 * 86_400.0]
)
def test_a_hundred_years_are_the_longest_duration(value: Any) -> None:
    assert duration_us(value) == 36_525 * 86_400_000_000


REFUSED: list[tuple[Callable[..., object], str, list[Any]]] = [
    (
        duration_us,
        "{!r} is not a duration: pass a timedelta, a number of seconds, or a string such as '24h', "
        "'1d2h' or '200ms'",
        ["", "24", "h", "1x", "1h2", "1 5s", "1. 5s", "5m s", "1 hour", None, True, [], b"1h",
         float("nan"), float("inf"), -float("inf"), "1e3s"],
    ),
    (
        duration_us,
        "a duration cannot be negative: {!r}",
        [-1, -1e308, -(10**400), -0.5, timedelta(seconds=-1), "-1h", "- 1d2h"],
    ),
    (
        duration_us,
        "a duration must not exceed 100 years: {!r}",
        [4e9, "60000d", timedelta(days=40_000), 10**400, 1e308, "9" * 400 + "d", "36525d1us",
         timedelta(days=36_525, microseconds=1), 36_525 * 86_400 + 1],
    ),
    (
        instant_us,
        "{!r} has no time zone: pass an aware datetime (tzinfo=UTC) or a string with an offset, "
        "such as '2026-01-01T00:00:00Z'",
        ["2026-01-01T00:00:00", datetime(2026, 1, 1), "2026-01-01"],
    ),
    (
        instant_us,
        "{!r} is outside the years 1 to 9999 in UTC",
        ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"],
    ),
    (
        instant_us,
        "{!r} is not a time: pass an aware datetime or an ISO string with an offset, such as "
        "'2026-01-01T00:00:00Z'",
        ["soon", "", 0, 1767225600, None, b"2026-01-01T00:00:00Z"],
    ),
]  # fmt: skip


def test_what_is_no_duration_time_or_number_of_seconds() -> None:
    def check(function: Callable[..., object], message: str, value: Any) -> None:
        assert error_of(function, value) == message.format(value)

    check_each(
        check, ((made, message, value) for made, message, values in REFUSED for value in values)
    )


def test_a_text_of_many_digits_takes_no_longer() -> None:
    """An implementation that restarts the search at each digit took minutes."""
    for text in ("9" * 200_000, "9." * 100_000, "1h" * 100_000 + "x", "1" + " " * 200_000):
        with pytest.raises(ContractError, match="duration"):
            duration_us(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:00.000001+00:00", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59Z", -1_000_000),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime.min.replace(tzinfo=UTC), -62_135_596_800_000_000),
        (datetime.max.replace(tzinfo=UTC), LAST_US),
    ],
)
def test_instants(value: Any, expected: int) -> None:
    assert instant_us(value) == expected


class Broken(tzinfo):
    def utcoffset(self, when: datetime | None) -> timedelta:
        raise KeyError("nowhere")

    def __repr__(self) -> str:
        return "Broken()"


def test_a_time_zone_that_cannot_say_its_offset_is_of_no_use() -> None:
    value = datetime(2026, 1, 1, tzinfo=Broken())
    assert error_of(instant_us, value) == f"the time zone of {value!r} is invalid: 'nowhere'"


@pytest.mark.parametrize(
    ("microseconds", "moment"),
    [
        (0, datetime(1970, 1, 1)), (-1, datetime(1969, 12, 31, 23, 59, 59, 999_999)),
        (LAST_US, datetime.max), (LAST_US + 1, datetime.max), (10**30, datetime.max),
        (-62_135_596_800_000_000, datetime.min), (-62_135_596_800_000_001, datetime.min),
        (-(10**30), datetime.min),
    ],
)  # fmt: skip
def test_the_nearest_datetime_of_an_instant(microseconds: int, moment: datetime) -> None:
    assert to_datetime(microseconds) == moment.replace(tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)))
def test_instants_come_back(moment: datetime) -> None:
    assert to_datetime(instant_us(moment)) == moment
    assert instant_us(moment.isoformat()) == instant_us(moment)


@given(st.integers(0, 10**15))
def test_durations_come_back(microseconds: int) -> None:
    assert duration_us(timedelta(microseconds=microseconds)) == microseconds
    assert duration_us(f"{microseconds}us") == microseconds


# -- real time -----------------------------------------------------------------------------------


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a clock of Linux")
def test_real_time_is_read_from_a_clock_that_no_tool_knows_of() -> None:
    read = timers._true_monotonic()
    coarse = 6  # CLOCK_MONOTONIC_COARSE
    before = time.clock_gettime(coarse)
    assert before <= read() <= time.clock_gettime(coarse)


@pytest.mark.parametrize("lacks", ["Linux", "its clocks", "the coarse one"])
def test_without_that_clock_real_time_is_the_plain_one_hidden_from_tools(
    lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(clock: int) -> float:
        raise OSError("no such clock")

    with monkeypatch.context() as patch:
        if lacks == "Linux":
            patch.setattr(sys, "platform", "darwin")
        elif lacks == "its clocks":
            patch.delattr(time, "clock_gettime", raising=False)
        else:
            patch.setattr(time, "clock_gettime", refuse, raising=False)
        read = timers._true_monotonic()
    before = time.monotonic()
    with freezegun.freeze_time("2000-01-01"):
        now = read()
    assert before <= now <= time.monotonic()


def test_who_gives_way_does_not_sleep() -> None:
    slept: list[float] = []
    give_way(sleep=slept.append)
    give_way(0.5, slept.append)
    assert slept == [0, 0.5]
