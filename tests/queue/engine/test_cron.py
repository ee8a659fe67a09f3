"""Test cron expressions: fields, names, time zones and daylight saving time."""

from __future__ import annotations

import re
import time
import zoneinfo
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from pytest_fakecloud.core.timers import to_datetime
from pytest_fakecloud.queue.engine.schedules import Cron
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.model import SECOND
from pytest_fakecloud.queue.wire.values import LATEST_US
from tests.harness import check_each
from tests.notations import rows

TABLES = Path(__file__).with_name("cron.txt")


def us(*when: int) -> int:
    return int(datetime(*when, tzinfo=UTC).timestamp()) * SECOND  # type: ignore[misc,arg-type]


def runs(text: str, start: int, count: int) -> list[str]:
    cron = Cron(text)
    times = []
    at: int | None = start
    while len(times) < count and at is not None:
        at = cron.next_us(at)
        if at is not None:
            times.append(to_datetime(at).strftime("%Y-%m-%d %H:%M"))
    return times


JANUARY = us(2026, 1, 1)


def test_next_runs() -> None:
    def check(text: str, expected: str) -> None:
        assert runs(text, JANUARY, 2) == expected.split(", ")

    check_each(check, rows(TABLES, "runs"))


def test_a_run_exactly_now_is_the_next_one_later() -> None:
    assert runs("0 0 1 1 *", JANUARY, 1) == ["2027-01-01 00:00"]
    assert runs("0 0 1 1 *", JANUARY - 1, 1) == ["2026-01-01 00:00"]


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone of a process is fixed here")
def test_the_zone_of_the_machine_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "CRON_TZ=America/New_York 30 1 * * *"
    expected = runs(text, us(2026, 10, 30, 12), 4)
    with monkeypatch.context() as changed:
        changed.setenv(
            "TZ", "<-04>4"
        )  # New York from before the change to daylight saving time, without an end
        time.tzset()
        times = runs(text, us(2026, 10, 30, 12), 4)
    time.tzset()
    assert times == expected


def test_a_time_that_the_clocks_skip_is_not_run() -> None:
    # In New York, clocks went from 02:00 to 03:00 on 8 March 2026.
    skipped = runs("CRON_TZ=America/New_York 30 2 * * *", us(2026, 3, 7), 3)
    assert skipped == ["2026-03-07 07:30", "2026-03-09 06:30", "2026-03-10 06:30"]
    every_hour = runs("CRON_TZ=America/New_York 0 * * * *", us(2026, 3, 8, 5, 30), 3)
    assert every_hour == ["2026-03-08 06:00", "2026-03-08 07:00", "2026-03-08 08:00"]


def test_a_time_that_the_clocks_repeat_is_run_twice() -> None:
    # In New York, clocks went from 02:00 back to 01:00 on 1 November 2026.
    for prefix in ("CRON_TZ", "TZ"):
        twice = runs(f"{prefix}=America/New_York 30 1 * * *", us(2026, 10, 31, 12), 3)
        assert twice == ["2026-11-01 05:30", "2026-11-01 06:30", "2026-11-02 06:30"]
    every_hour = runs("CRON_TZ=America/New_York 0 * * * *", us(2026, 11, 1, 4, 30), 3)
    assert every_hour == ["2026-11-01 05:00", "2026-11-01 06:00", "2026-11-01 07:00"]


CHANGES = [
    ("Europe/Berlin", (2026, 3, 28, 12)),
    ("Europe/Berlin", (2026, 10, 24, 12)),
    ("America/Havana", (2026, 3, 7, 12)),  # change at midnight
    ("America/Havana", (2026, 10, 31, 20)),
    ("Africa/Casablanca", (2026, 2, 14, 12)),
    ("Australia/Lord_Howe", (2026, 4, 4, 6)),  # change by half an hour
    ("Australia/Lord_Howe", (2026, 10, 3, 6)),
    ("Pacific/Apia", (2011, 12, 29, 12)),  # a whole day was skipped
    ("Asia/Kathmandu", (2026, 1, 1, 0)),
]


@pytest.mark.parametrize("fields", [
    "*/15 * * * *", "30 * * * *", "0 */2 * * *", "*/20 2 * * *", "*/10 1-3 * * *",
    "30 2 * * *", "0 2 * * *", "30 1 * * *", "0 0 * * *", "45 1,2,3 * * *", "5 1 * * 0",
])  # fmt: skip
@pytest.mark.parametrize(("zone", "start"), CHANGES)
def test_changes_of_clocks_against_a_walk_through_every_minute(
    zone: str, start: tuple[int, int, int, int], fields: str
) -> None:
    begin = datetime(*start, tzinfo=UTC)
    minutes = [begin + timedelta(minutes=count) for count in range(1, 2 * 1440)]
    walls = [(minute, minute.astimezone(ZoneInfo(zone))) for minute in minutes]
    plain = CronSim(fields, datetime(2000, 1, 1))
    expected = []
    for minute, wall in walls:
        if not (wall.minute in plain.minutes and wall.hour in plain.hours):
            continue
        if fields.endswith("0") and wall.isoweekday() != 7:
            continue
        expected.append(minute)
    cron = Cron(f"CRON_TZ={zone} {fields}")
    times, at = [], round(begin.timestamp()) * SECOND
    while (at := cron.next_us(at) or 0) and to_datetime(at) <= minutes[-1]:
        times.append(to_datetime(at))
    assert times == expected


def test_malformed_expressions() -> None:
    shortcuts = (
        "@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, @every <duration>"
    )

    def check(text: str, why: str) -> None:
        with pytest.raises(QueueError) as caught:
            Cron(text)
        start, _, reason = caught.value.message.partition(": ")
        assert (caught.value.status, start) == (400, f"invalid cron expression {text.strip()!r}")
        assert re.search(why.replace("KNOWN", shortcuts), reason)

    check_each(check, rows(TABLES, "invalid"))


def test_an_expression_that_never_fires() -> None:
    with pytest.raises(
        QueueError, match=r"^invalid cron expression '0 0 31 2 \*': Bad day-of-month"
    ):
        Cron("0 0 31 2 *")
    assert Cron("0 0 31 4,2 0").next_us(JANUARY) is not None


def test_a_zone_is_read_past_a_faked_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(Path(folder, "Asia/Tokyo").is_file() for folder in zoneinfo.TZPATH):
        pytest.skip("the zones of this machine are in a package")

    class Hidden(ZoneInfo):
        def __new__(cls, key: str) -> Hidden:
            raise zoneinfo.ZoneInfoNotFoundError(key)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", Hidden)
    monkeypatch.setattr(zoneinfo, "TZPATH", ("/nowhere", *zoneinfo.TZPATH))
    cron = Cron("TZ=Asia/Tokyo 0 9 * * *")
    assert cron.next_us(JANUARY) == us(2026, 1, 2)
    assert str(cron.zone) == "Asia/Tokyo"
    with pytest.raises(QueueError, match="unknown time zone 'Nowhere/City'"):
        Cron("TZ=Nowhere/City 0 9 * * *")


def test_every_so_often_counts_whole_seconds_up_to_the_end_of_time() -> None:
    assert Cron("@every 1m").next_us(JANUARY + 999_999) == JANUARY + 60 * SECOND
    assert Cron("@every 90.9s").next_us(JANUARY) == JANUARY + 90 * SECOND
    last = Cron("@every 1h")
    assert last.next_us(LATEST_US - 3600 * SECOND) == LATEST_US
    assert last.next_us(LATEST_US - 3599 * SECOND) is None
    assert isinstance(last.next_us(JANUARY), int)


def test_the_last_run_before_the_end_of_time() -> None:
    yearly = Cron("@yearly")
    assert yearly.next_us(us(9998, 6, 1)) == us(9999, 1, 1)
    assert yearly.next_us(us(9999, 1, 1)) is None
    # One zone is ahead of UTC, the other behind.
    for zone in ("Asia/Tokyo", "America/New_York"):
        last = Cron(f"TZ={zone} @yearly")
        assert last.next_us(us(9999, 6, 1)) is None


@given(st.text(alphabet="0123456789*/,-? ?@LWMONjan=CRON_TZ", max_size=25))
def test_any_text_is_a_schedule_or_a_400(text: str) -> None:
    try:
        cron = Cron(text)
    except QueueError as error:
        assert error.status == 400  # noqa: PT017
    else:
        at = cron.next_us(JANUARY)
        assert at is None or at > JANUARY
        assert at is None or at % (60 * SECOND) == 0
