"""The process's wall clock under process time: busy loops, and nested travels."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Literal

import pytest
import time_machine

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.process import process_time

NOON = "2026-01-01T12:00:00Z"


@pytest.mark.parametrize("mode", [True, "autojump"])
def test_a_loop_that_waits_for_a_time_that_stands_is_broken(
    mode: Literal[True, "autojump"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_time, "STANDING_SECONDS", 0.05)
    with Cloud(now=NOON, process_time=mode):
        end = time.time() + 60

        def wait() -> None:
            while time.time() < end:
                pass

        with pytest.raises(ContractError, match=r"test_wall.py:\d+ has read the time .* frozen"):
            wait()


def test_many_reads_of_a_time_that_stands_are_no_loop_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_time, "STANDING_SECONDS", 0.0)
    with Cloud(now=NOON, process_time=True) as cloud:
        # Alternating between two source lines, as working code does.
        for _ in range(100):
            time.time()
            datetime.now(UTC)
        # The same with moves of the clock in between.
        for _ in range(100):
            time.time()
            cloud.clock.advance(1)


def test_reads_of_two_threads_are_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_time, "STANDING_SECONDS", 0.0)

    def look() -> None:
        datetime.now(UTC)

    def wait(pool: ThreadPoolExecutor) -> None:
        for _ in range(process_time.POLLS):
            time.time()
            pool.submit(time.monotonic_ns).result()
            pool.submit(look).result()

    with (
        ThreadPoolExecutor(1) as pool,
        Cloud(now=NOON, process_time=True),
        pytest.raises(ContractError, match=r"test_wall\.py"),
    ):
        wait(pool)


def test_reads_by_the_standard_library_are_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    import logging

    monkeypatch.setattr(process_time, "STANDING_SECONDS", 0.0)

    def log() -> None:
        for _ in range(process_time.POLLS):
            logging.getLogger("quiet").makeRecord("n", 10, "f", 1, "m", (), None)

    with Cloud(now=NOON, process_time=True), pytest.raises(ContractError, match=r"test_wall\.py"):
        log()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="Windows has no zone of the process")
def test_the_zone_is_restored_after_a_copy_of_the_environment_was_assigned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    real = os.environ
    try:
        with Cloud(now=NOON, process_time=True):
            monkeypatch.setattr(os, "environ", real.copy())
        assert (real["TZ"], os.environ["TZ"], time.tzname[0]) == ("Asia/Tokyo", "Asia/Tokyo", "JST")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_travel_that_crosses_its_end_leaves_the_zone_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    travel = time_machine.travel(datetime(2030, 1, 1, tzinfo=UTC), tick=False)
    with Cloud(now=NOON, process_time=True):
        travel.start()
    assert time.time() == datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    travel.stop()
    assert os.environ["TZ"] == "Europe/Berlin"
    assert abs(time.time() - datetime(2030, 1, 1, tzinfo=UTC).timestamp()) > 60
