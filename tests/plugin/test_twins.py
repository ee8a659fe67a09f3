"""Every call that waits or delivers has an awaitable version of the same name and parameters."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from pytest_fakecloud import Cloud

DRIVING = {
    "advance", "move_to", "advance_to_next", "deliver_due", "run_until_idle",
    "every_failure", "explore", "replay",
}  # fmt: skip
"""Calls that deliver. Calls that wait have a parameter ``timeout`` or ``within``."""
NO_WAITS = {
    "publish", "schedule", "call", "asgi", "wsgi", "respond", "client", "eventually",
}  # fmt: skip


def waiting_calls(thing: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(type(thing), inspect.isfunction):
        if name.startswith("_") or name in NO_WAITS:
            continue
        if not method.__module__.startswith("pytest_fakecloud."):
            continue  # Skip methods inherited from pytest-httpserver, which belong to that package.
        parameters = inspect.signature(method).parameters
        if name in DRIVING or parameters.keys() & {"timeout", "within"}:
            yield name, method


def test_every_waiting_or_driving_call_has_a_twin() -> None:
    with Cloud(seed=1) as cloud:
        capture = cloud.callback_capture()
        things = [
            cloud, cloud.clock, cloud.kv_server(), cloud.vector_index(), cloud.broker(),
            cloud.queue(), capture,
        ]  # fmt: skip
        names = set()
        for thing in things:
            for name, _ in waiting_calls(thing):
                names.add(f"{type(thing).__name__}.{name}")
                twin = getattr(thing.aio, name, None)  # type: ignore[attr-defined]
                assert inspect.iscoroutinefunction(twin), f"{type(thing).__name__}.{name}"
        assert names >= {
            "Clock.advance", "Clock.move_to", "Clock.advance_to_next",
            "Broker.wait_for_record", "Queue.deliver_due", "Queue.run_until_idle",
            "CallbackCapture.wait_for_callback", "CallbackCapture.wait_for_failure",
            "Cloud.every_failure", "Cloud.explore", "Cloud.replay",
        }  # fmt: skip


def run_asyncio(main: Callable[[], Any]) -> None:
    asyncio.run(main())


@pytest.mark.parametrize("run", [run_asyncio, trio.run], ids=["asyncio", "trio"])
def test_the_twins_work_in_both_loops(run: Callable[..., Any]) -> None:
    async def main() -> None:
        with Cloud(seed=1, now="2026-01-01T00:00:00Z", delivery="driven") as cloud:
            queue, capture, broker = cloud.queue(), cloud.callback_capture(), cloud.broker()
            broker.create_topic("orders", partitions=1)
            queue.destinations.respond("https://app.test", 500, 200)
            hook = "https://app.test/hook"
            queue.publish(hook, callback=capture.callback_url, retries=3)
            assert [attempt.status for attempt in await queue.aio.deliver_due()][:1] == [500]
            await queue.aio.run_until_idle()
            assert (await capture.aio.wait_for_callback(status=200)).retried == 1
            assert (await capture.aio.wait_for_callback(timeout=5)).status == 500
            queue.destinations.respond("https://app.test/lost", 400)
            queue.publish(
                "https://app.test/lost", failure_callback=capture.failure_url, retries=0, delay=60
            )
            assert await queue.clock.aio.advance("1m")
            assert (await capture.aio.wait_for_failure(timeout=5)).is_final
            queue.publish(hook, delay="1h")
            assert await cloud.clock.aio.advance_to_next()
            await cloud.clock.aio.move_to("2026-06-01T00:00:00Z")
            assert cloud.clock.now().month == 6
            broker.produce("orders", "v")
            record = await broker.aio.wait_for_record("orders", lambda callback: True, timeout=5)
            assert record.value == "v"

    run(main)
