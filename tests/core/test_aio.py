"""Awaitable versions of calls in asyncio and trio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import trio

from pytest_fakecloud import Cloud
from pytest_fakecloud.core.clock import Clock, Timekeeper, checkpoint, in_thread
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.timers import Fired

NOON = "2026-01-01T12:00:00Z"
Run = Callable[[Callable[[], Awaitable[Any]]], Any]


def run_asyncio(function: Callable[[], Any]) -> Any:
    return asyncio.run(function())


both = pytest.mark.parametrize("run", [run_asyncio, trio.run])


@both
def test_driving_awaits_in_the_running_loop(run: Run) -> None:
    clock = Timekeeper(NOON)
    seen: list[Any] = []

    async def deliver(at_us: int) -> str:
        assert at_us == clock.now_us()
        seen.append((threading.current_thread(), at_us - start))
        return "awaited"

    start = clock.now_us()
    clock.call_at(start + 1_000_000, lambda at: "plain", async_callback=deliver, label="a")
    clock.call_at(start + 2_000_000, lambda at: "plain", label="b")

    async def main() -> Any:
        fired = await Clock(clock).aio.advance(1)
        fired += await Clock(clock).aio.advance_to_next()
        assert clock.now_us() == start + 2_000_000
        fired += await Clock(clock).aio.advance_to_next()
        fired += clock.advance(0)
        fired += await Clock(clock).aio.move_to("2026-01-01T13:00:00Z")
        return fired

    fired = run(main)
    assert fired == [
        Fired(start + 1_000_000, "a", "awaited"),
        Fired(start + 2_000_000, "b", "plain"),
    ]
    assert seen == [(threading.current_thread(), 1_000_000)]
    assert clock.now().hour == 13


@both
def test_an_advance_inside_an_awaited_delivery_is_an_error_in_both(run: Run) -> None:
    clock = Timekeeper(NOON)

    async def deliver(at_us: int) -> None:
        with pytest.raises(ContractError):
            await Clock(clock).aio.advance(1)

    clock.call_at(clock.now_us() + 1, print, async_callback=deliver)

    async def main() -> None:
        with pytest.raises(ContractError):
            await Clock(clock).aio.advance(1)
        await Clock(clock).aio.advance(1)

    run(main)


@both
def test_a_move_ends_after_what_it_was_for(run: Run) -> None:
    clock = Timekeeper(NOON)
    start = clock.now_us()
    seen: list[int] = []
    for second in (1, 2, 3):
        clock.call_at(start + second, lambda at: seen.append(at - start))

    async def main() -> list[Fired]:
        return await clock.fire_async(lambda: start + 10, done=lambda: len(seen) == 2)

    assert [fired.at_us - start for fired in run(main)] == seen == [1, 2]
    assert clock.now_us() == start + 2
    # The clock can be advanced again.
    assert [fired.at_us - start for fired in clock.advance(1)] == [3]


def test_a_checkpoint_gives_way_and_does_not_wait() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        loop.call_soon(seen.append, "others")
        loop.call_later(0.5, seen.append, "half a second later")
        await checkpoint()
        return seen

    assert asyncio.run(main()) == ["others"]


@both
def test_blocking_calls_run_in_a_thread(run: Run) -> None:
    class Thing:
        def block(self, number: int, *, plus: int = 0) -> tuple[int, bool]:
            return number + plus, threading.current_thread() is threading.main_thread()

        def fail(self) -> None:
            raise KeyError

    thing = Thing()

    async def main() -> None:
        assert await in_thread(thing.block, 1, plus=2) == (3, False)
        assert await in_thread(len, "abc") == 3
        with pytest.raises(KeyError):
            await in_thread(thing.fail)

    run(main)


def test_a_loop_of_moves_lets_other_tasks_in() -> None:
    clock = Timekeeper("2026-01-01T00:00:00Z")

    async def in_asyncio() -> int:
        done = asyncio.create_task(asyncio.sleep(0))
        moves = 0
        while not done.done() and moves < 1000:
            moves += len([await Clock(clock).aio.advance("1s")])
        return moves

    async def in_trio() -> int:
        with trio.move_on_after(0) as scope:
            await Clock(clock).aio.advance("1s")
        return 0 if scope.cancelled_caught else 1000

    assert asyncio.run(in_asyncio()) < 10
    before = clock.now_us()
    assert trio.run(in_trio) == 0
    assert clock.now_us() == before


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with Cloud() as cloud:
        yield cloud


@both
def test_a_cancelled_wait_for_a_record_ends_with_its_thread(run: Run, cloud: Cloud) -> None:
    broker = cloud.broker()
    broker.create_topic("orders")

    async def in_asyncio() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(broker.aio.wait_for_record("orders", timeout=60), 0.05)

    async def in_trio() -> None:
        with trio.move_on_after(0.05) as scope:
            await broker.aio.wait_for_record("orders", timeout=60)
        assert scope.cancelled_caught

    began = time.monotonic()
    # asyncio.run() joins the threads of the loop.
    run(in_trio if run is trio.run else in_asyncio)
    assert time.monotonic() - began < 30


@both
def test_a_cancelled_wait_for_a_callback_ends_with_its_thread(run: Run, cloud: Cloud) -> None:
    cloud.queue()
    waits = cloud.callback_capture().aio

    async def main() -> None:
        wait = waits.wait_for_callback if run is trio.run else waits.wait_for_failure
        if run is trio.run:
            with trio.move_on_after(0.05):
                await wait(timeout=60)
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wait(timeout=60), 0.05)

    began = time.monotonic()
    run(main)
    assert time.monotonic() - began < 30
