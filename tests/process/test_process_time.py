"""Process time that follows the fakes' clock: in the application, in deliveries, and restored."""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import freezegun
import httpx
import pytest
import time_machine

from pytest_fakecloud import Cloud, ContractError
from pytest_fakecloud.cloud.base import Transport, start_over
from pytest_fakecloud.core.clock import Mode, Timekeeper
from pytest_fakecloud.process import process_time
from pytest_fakecloud.process.process_time import ProcessTime
from pytest_fakecloud.process.sleepers import Sleeper, Sleepers, _move_clock_on_turn, _wait_for_turn

from ..harness import Run

NOON = "2026-01-01T12:00:00Z"


def test_time_and_datetime_follow_the_clock() -> None:
    real = time.time()
    with Cloud(seed=1, now=NOON, process_time=True) as cloud:
        assert cloud.clock.mode == "frozen"
        start = time.time()
        assert datetime.now(UTC) == cloud.clock.now() == datetime(2026, 1, 1, 12, tzinfo=UTC)
        cloud.clock.advance("36h")
        assert time.time() - start == 36 * 3600
        assert datetime.now(UTC) == datetime(2026, 1, 3, tzinfo=UTC)
        cloud.clock.move_to("2026-02-01T00:00:00Z")
        assert datetime.now(UTC).date().isoformat() == "2026-02-01"
    assert abs(time.time() - real) < 60


def test_a_delivery_sees_its_due_instant() -> None:
    with Cloud(seed=1, now=NOON, process_time=True, delivery="driven") as cloud:
        queue = cloud.queue()
        seen = []

        def application(request: object) -> int:
            seen.append(datetime.now(UTC).isoformat())
            return 500 if len(seen) < 3 else 200

        queue.destinations.call("https://app.test/hook", application)
        queue.publish(
            "https://app.test/hook", delay="1h", settings={"Upstash-Retry-Delay": "60000"}
        )
        queue.run_until_idle()
        assert seen == [
            "2026-01-01T13:00:00+00:00",
            "2026-01-01T13:01:00+00:00",
            "2026-01-01T13:02:00+00:00",
        ]


@pytest.mark.parametrize("transport", ["socket", "inprocess"])
def test_responses_show_the_time_of_the_process(transport: Transport) -> None:
    with (
        Cloud(seed=1, now=NOON, process_time=True, transport=transport) as cloud,
        httpx.Client() as client,
    ):
        kv = cloud.kv_server()

        def year() -> str:
            answer = client.post(kv.url, headers=kv.headers, json=["PING"])
            return answer.headers["Date"].split()[3]

        assert year() == "2026"
        with time_machine.travel("2030-05-05", tick=False):
            assert year() == "2030"
        with freezegun.freeze_time("2031-01-01"):
            assert year() == "2031"
        with Cloud(seed=2, now="2027-01-01T12:00:00Z", process_time=True):
            assert year() == "2027"
        assert year() == "2026"


@pytest.mark.parametrize("mode", ["frozen", "running"])
@pytest.mark.parametrize("transport", ["socket", "inprocess"])
def test_a_request_is_no_read_of_the_time(
    transport: Transport, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_time, "STANDING_SECONDS", 0.0)
    with (
        Cloud(seed=1, now=NOON, process_time=True),
        Cloud(seed=2, now=NOON, clock=mode, transport=transport) as cloud,
        httpx.Client() as client,
    ):
        kv = cloud.kv_server()
        for _ in range(3 * process_time.POLLS):
            client.post(kv.url, headers=kv.headers, json=["PING"])


def test_without_a_start_it_begins_now() -> None:
    real = time.time()
    with Cloud(process_time=True) as cloud:
        assert abs(time.time() - real) < 60
        stands = time.time()
        assert time.time() == stands
        cloud.clock.advance("1d")
        assert time.time() == pytest.approx(stands + 86400)


def test_as_a_marker(run: Run) -> None:
    run(
        """
        import time
        import pytest

        @pytest.mark.fakecloud(process_time=True, now="2026-01-01T00:00:00Z")
        def test_steered(fakecloud, kv_server):
            fakecloud.clock.advance("1d")
            assert time.gmtime()[:3] == (2026, 1, 2)

        def test_given_back(kv_server):
            assert time.monotonic() > 0
            now = time.time()
            time.sleep(0.001)
            assert time.time() > now
        """
    ).assert_outcomes(passed=2)


def test_in_session_scope_each_test_starts_where_the_first_did(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nfakecloud_scope = session")
    run(
        """
        import time
        import pytest

        @pytest.fixture(scope="session")
        def fakecloud_session_settings():
            return {"process_time": True}

        starts = []

        @pytest.mark.parametrize("turn", range(3))
        def test_it(fakecloud, kv_server, turn):
            starts.append(time.time())
            assert fakecloud.clock.mode == "frozen"
            assert set(starts) == {fakecloud.clock.now().timestamp()}
            fakecloud.clock.advance("1d")
        """
    ).assert_outcomes(passed=3)


def test_without_time_machine_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "time_machine", None)
    with pytest.raises(ContractError, match=r"pip install 'pytest-fakecloud\[time\]'"):
        Cloud(process_time=True)


STANDS = "both are frozen until the test moves them. Use advance"


def test_a_running_clock_and_process_time_contradict_each_other() -> None:
    before = time.time()
    with pytest.raises(ContractError, match=rf"clock='running' is not possible: .*{STANDS}"):
        Cloud(process_time=True, clock="running")
    with pytest.raises(ContractError, match=STANDS):
        Cloud(process_time=True, now=NOON, clock="running")
    assert abs(time.time() - before) < 60
    with Cloud(process_time=True, clock="frozen") as cloud:
        assert cloud.clock.mode == "frozen"


def test_a_clock_that_process_time_follows_does_not_run() -> None:
    with Cloud(seed=1, now=NOON, process_time=True) as cloud:
        for run in (
            cloud.clock.resume,
            lambda: start_over(cloud, clock="running"),
            lambda: start_over(cloud, now=NOON, clock="running"),
            lambda: cloud._timekeeper.rewind(mode="running"),
        ):
            with pytest.raises(ContractError, match=f"this clock cannot run: .*{STANDS}"):
                run()
            # Neither setting took effect.
            assert cloud.clock.mode == "frozen"
            assert datetime.now(UTC) == cloud.clock.now() == datetime(2026, 1, 1, 12, tzinfo=UTC)
        start_over(cloud, now="2026-05-05T00:00:00Z")
        assert datetime.now(UTC) == cloud.clock.now() == datetime(2026, 5, 5, tzinfo=UTC)
        cloud.clock.advance("1s")
        assert time.time() == cloud.clock.now().timestamp()
        start_over(cloud)
        assert datetime.now(UTC) == cloud.clock.now() == datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_the_marker_refuses_the_contradiction_too(run: Run, pytester: pytest.Pytester) -> None:
    source = """
        import pytest

        @pytest.mark.fakecloud(process_time=True, clock="running")
        def test_it(kv_server):
            pass

        @pytest.mark.fakecloud(process_time=True)
        def test_after(kv_server):
            assert kv_server.clock.mode == "frozen"
    """
    result = run(source)
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines(["*fakecloud: clock='running' is not possible: *"])
    # An explicit ini setting counts too, unless a closer setting overrides it.
    pytester.makeini("[pytest]\nfakecloud_clock = running")
    result = run(source)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*process_time is not possible with fakecloud_clock = running*"])
    run(source.replace("process_time=True)", "process_time=True, clock='frozen')")).assert_outcomes(
        errors=1, passed=1
    )


@pytest.mark.parametrize("now", ["9999-12-31T23:59:59.999999Z", "1970-01-01T00:00:00Z"])
def test_process_time_at_the_ends_of_time(now: str) -> None:
    with Cloud(now=now, process_time=True) as cloud:
        assert datetime.now(UTC) == cloud.clock.now()
        cloud.kv_server().client().set("k", "v", ex=60)


def test_the_clock_waits_for_a_thread_whose_sleep_has_ended() -> None:
    sleepers = Sleepers(Timekeeper(NOON))
    waking = Sleeper(sleepers.until_us(0) - 1, None)
    waking.thread = -1
    sleepers._sleeping[waking] = None
    with sleepers.asleep(sleepers.until_us(5)) as sleeper:
        assert not sleepers.is_turn(sleeper)
        waking.until_us = sleepers.until_us(9)
        assert sleepers.is_turn(sleeper)


def test_a_loop_does_not_move_the_clock_when_that_is_no_longer_wanted() -> None:
    clock = Timekeeper(NOON)
    sleepers, began = Sleepers(clock), clock.now_us()

    async def moves(seconds: float) -> None:
        clock.advance(1)  # another sleeper moves the clock

    loop: Any = SimpleNamespace(key="loop", sleep_really=moves, next_timeout=lambda: None)
    with sleepers.asleep(sleepers.until_us(60), loop.key) as sleeper:
        assert not asyncio.run(_wait_for_turn(loop, sleepers, sleeper, began))
        sleepers.settle(sleeper)
        asyncio.run(_move_clock_on_turn(loop, sleepers, sleeper, lambda: False))
        assert clock.now_us() == began + 1_000_000


def test_a_step_that_fails_at_the_end_keeps_no_other_from_ending() -> None:
    clock = Timekeeper()
    steering = ProcessTime(clock)
    end_travel = steering._end_travel

    def fails() -> None:
        end_travel()
        raise RuntimeError("no end")

    steering._end_travel = fails  # type: ignore[method-assign]
    steering.start()
    with pytest.raises(RuntimeError, match="no end"):
        steering.stop()
    assert (clock.mode, clock.anchored) == ("running", False)
