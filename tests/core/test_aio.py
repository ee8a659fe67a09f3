"""Awaitable twins in asyncio and trio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from pytest_fakecloud.core.aio import Twin, in_thread
from pytest_fakecloud.core.clock import Clock
from pytest_fakecloud.core.errors import ContractError
from pytest_fakecloud.core.timekeeper import Timekeeper

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
        seen.append((threading.current_thread(), clock.now_us() - start))
        return "awaited"

    start = clock.now_us()
    clock.call_at(start + 1_000_000, lambda at: "plain", async_callback=deliver, label="a")
    clock.call_at(start + 2_000_000, lambda at: "plain", label="b")

    async def main() -> Any:
        fired = await Clock(clock).aio.advance(1)
        fired += await Clock(clock).aio.advance_to_next()
        fired += await Clock(clock).aio.advance_to_next()
        fired += await Clock(clock).aio.run_due()
        fired += await Clock(clock).aio.move_to("2026-01-01T13:00:00Z")
        return fired

    fired = run(main)
    assert [(f.label, f.result) for f in fired] == [("a", "awaited"), ("b", "plain")]
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
def test_blocking_calls_run_in_a_thread(run: Run) -> None:
    class Thing:
        def block(self, number: int, *, plus: int = 0) -> tuple[int, bool]:
            """Blocks."""
            return number + plus, threading.current_thread() is threading.main_thread()

        def fail(self) -> None:
            raise KeyError

    twin = Twin(Thing(), ["block", "fail"])

    async def main() -> None:
        assert await twin.block(1, plus=2) == (3, False)
        assert await in_thread(len, "abc") == 3
        with pytest.raises(KeyError):
            await twin.fail()

    run(main)
    assert dir(twin) == ["block", "fail"]
    assert twin.block.__doc__ == "Blocks."
    with pytest.raises(AttributeError, match="Thing has no awaitable 'other'; it has: block, fail"):
        _ = twin.other


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
