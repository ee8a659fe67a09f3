"""Test schedules: messages they create, overwriting, pausing, deduplication and groups."""

from __future__ import annotations

import re

import pytest

from pytest_fakecloud.queue.engine.schedules import MessageSchedule
from pytest_fakecloud.queue.errors import QueueError
from pytest_fakecloud.queue.model import SECOND, PublishSettings

from ..scene import DEST, NOW_MS, Scene, after
from .bench import URL, Bench

EVERY_MINUTE = {"Upstash-Cron": "* * * * *", "Upstash-Schedule-Id": "s"}


def create(scene: Scene, destination: str = DEST, **headers: str) -> None:
    sent = {**EVERY_MINUTE, **{f"Upstash-{n.replace('_', '-')}": v for n, v in headers.items()}}
    scene.ok("POST", f"/v2/schedules/{destination}", headers=sent, body=b"x")


def test_a_paused_one_leaves_the_clock_alone(scene: Scene) -> None:
    clock = scene.queue.clock
    create(scene, Cron="@every 7m")
    scene.ok("PATCH", "/v2/schedules/s/pause")
    assert clock.next_due() is None
    scene.queue.clock.advance("16m")
    assert scene.get("/v2/schedules/s")["nextScheduleTime"] == NOW_MS + 21 * 60_000
    assert clock.next_due() is None
    scene.ok("PATCH", "/v2/schedules/s/resume")
    assert clock.next_due() == after(21 * 60)
    scene.queue.clock.advance("14m")
    assert scene.times == [21 * 60, 28 * 60]


def test_a_paused_one_stays_off_the_clock_when_a_copy_is_restored(scene: Scene) -> None:
    create(scene)
    scene.ok("PATCH", "/v2/schedules/s/pause")
    saved = scene.queue.snapshot()
    scene.ok("PATCH", "/v2/schedules/s/resume")
    scene.queue.clock.advance("1m")
    scene.queue.restore(saved)
    assert scene.queue.clock.next_due() is None


def test_every_so_often_counts_from_the_creation(scene: Scene) -> None:
    scene.queue.clock.advance("10.5s")
    created = scene.queue.schedule(DEST, "@every 90m", id="often")
    shown = scene.get("/v2/schedules/often")
    assert shown["cron"] == "@every 90m"
    assert shown["nextScheduleTime"] == NOW_MS + 5_410_000
    expected = [after(5_410), after(10_810), after(16_210)]
    scene.queue.clock.advance("1h")
    assert created.next_runs(3) == expected
    scene.ok("PATCH", "/v2/schedules/often/pause")
    scene.queue.clock.advance("1h")
    scene.ok("PATCH", "/v2/schedules/often/resume")
    scene.queue.clock.advance("3h")
    assert scene.at(DEST) == [10_810, 16_210]
    saved = scene.queue.snapshot()
    scene.queue.clock.advance("2h")
    scene.queue.restore(saved)
    scene.queue.clock.advance("90m")
    assert len(scene.at(DEST)) == 4


def scheduled(
    bench: Bench, cron: str = "* * * * *", url: str = URL, **headers: str
) -> MessageSchedule:
    pairs = [("Upstash-Cron", cron)]
    pairs += [(f"Upstash-{name.replace('_', '-')}", value) for name, value in headers.items()]
    made = bench.engine.publisher.publish(url, pairs, b"x", caller_ip="192.0.2.7")
    return bench.engine.schedules.get(str(made.schedule_id))


def test_a_schedule_has_an_id_of_its_own_unless_it_is_given_one(bench: Bench) -> None:
    assert re.fullmatch("scd_[1-9A-HJ-NP-Za-km-z]{28}", scheduled(bench).id)
    assert scheduled(bench, Schedule_Id="mine").id == "mine"


def test_a_schedule_that_does_not_exist_cannot_run(bench: Bench) -> None:
    with pytest.raises(QueueError, match=r"^schedule x not found$"):
        bench.engine.schedules.run_now("x")


def test_its_messages_are_plain_ones_of_the_caller_that_made_it(bench: Bench) -> None:
    once = {"Deduplication_Id": "once", "Content_Based_Deduplication": "true"}
    schedule = scheduled(bench, Schedule_Id="mine", **once)
    ids = bench.engine.schedules.run_now(schedule.id)
    message = bench.engine.data.messages[ids[0]]
    assert (message.caller_ip, message.schedule_id) == ("192.0.2.7", schedule.id)
    assert message.settings == PublishSettings()


def test_a_run_after_a_copy_is_not_in_the_copy(bench: Bench) -> None:
    schedule = scheduled(bench)
    bench.engine.schedules.run_now(schedule.id)
    twin = schedule.copy()
    schedule.last_ids.append("later")
    assert len(twin.last_ids) == 1


@pytest.mark.parametrize("paused", [False, True])
def test_the_next_runs_are_told_whether_it_is_paused_or_not(bench: Bench, paused: bool) -> None:
    schedule = scheduled(bench)
    bench.engine.schedules.set_paused(schedule.id, paused)
    assert schedule.next_runs(2, bench.start_us) == [after(60), after(120)]
    assert schedule.next_runs(0, bench.start_us) == []
    # Runs are listed strictly after the given time.
    assert schedule.next_runs(1, bench.start_us + 60 * SECOND) == [after(120)]
    schedule.planned_us = None
    assert schedule.next_runs(1, bench.start_us) == [after(60)]


def test_a_schedule_after_its_last_run_has_no_next_run(bench: Bench) -> None:
    bench.clock.move_to("9999-06-01T00:00:00Z")
    schedule = scheduled(bench, "0 0 1 8 *")
    bench.clock.move_to("9999-09-01T00:00:00Z")
    assert len(bench.sent) == 1
    assert schedule.planned_us is None
    assert schedule.next_runs(3, bench.clock.now_us()) == []
    bench.engine.restore(bench.engine.snapshot())
    assert bench.clock.next_due_us() is None
